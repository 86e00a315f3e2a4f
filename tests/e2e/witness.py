"""A client that streams on while others misbehave, in a process of its own so that what the
attackers cost is not mistaken for what the daemon does.

It asks for the same answer again and again over one WebSocket and compares each with what
it got when all was quiet.  A line on standard input is answered by one on standard output:
what it saw since the last.  `Witness` is the tests' end of that.
"""
import json
import os
import pathlib
import select
import subprocess
import sys
import time

# Between two answers, and five times as long as the last one took: it is to be a client among others, not a
# load.  Whoever asks for a report gets one with a whole answer all the same.
PAUSE_S, REST = 0.01, 5


def stream(host, port, model, n_tokens):
    """Runs until standard input ends."""
    import websockets.sync.client
    url = "ws://%s:%s/v1/responses" % ("[%s]" % host if ":" in host else host, port)
    quiet = None
    seen = {"answers": 0, "deltas": 0, "gap_s": 0.0, "wait_s": 0.0, "wrong": []}
    with websockets.sync.client.connect(url, compression=None, max_size=None) as c:
        while True:
            c.send(json.dumps({"type": "response.create", "model": model, "input": "go on",
                               "max_output_tokens": n_tokens, "temperature": 0}))
            text, n, last = "", 0, time.monotonic()
            began = last
            while True:
                e = json.loads(c.recv(timeout=600))
                now = time.monotonic()
                if e["type"] != "response.in_progress":  # a keep-alive is no progress
                    # Until a request is read and begun it may stand behind others' requests.
                    what = "gap_s" if text else "wait_s"
                    seen[what] = max(seen[what], now - last)
                    last = now
                if e.get("sequence_number") != n:
                    seen["wrong"].append("event %d came as %r" % (n, e.get("sequence_number")))
                n += 1
                if e["type"] == "response.output_text.delta":
                    text += e["delta"]
                    seen["deltas"] += 1
                elif e["type"] in ("response.completed", "response.incomplete",
                                   "response.failed", "error"):
                    break
            got = (text, e["type"], (e.get("response") or {}).get("usage", {}).get("output_tokens"))
            if quiet is None:
                if got[1:] != ("response.incomplete", n_tokens):
                    seen["wrong"].append("the quiet answer: %r" % (got,))
                quiet = got
                print("quiet", flush=True)
            elif got != quiet:
                seen["wrong"].append("%r is not %r" % (got, quiet))
            seen["answers"] += 1
            if select.select([0], [], [], max(PAUSE_S, REST * (last - began)))[0]:
                if not os.read(0, 1):
                    return
                print(json.dumps(seen), flush=True)
                seen = {"answers": 0, "deltas": 0, "gap_s": 0.0, "wait_s": 0.0, "wrong": []}


class Witness:
    def __init__(self, d, model="random", n_tokens=48):
        self.process = subprocess.Popen(
            [sys.executable, str(pathlib.Path(__file__)), d.host, str(d.port), model,
             str(n_tokens)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "quiet\n", "the witness got no answer"

    def report(self):
        """What it saw since the last report, up to and with the answer under way now."""
        self.process.stdin.write(".")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the witness lost its connection"
        return json.loads(line)

    def stop(self):
        self.process.stdin.close()
        self.process.wait(600)
        self.process.stdout.close()


if __name__ == "__main__":
    stream(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
