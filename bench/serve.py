"""Shared by the benches that ask a daemon: one of a build with one model, and requests of random words."""
import argparse
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

from measure import Quiet, alternate

WORDS = ("time year people way day man thing woman life child world school state family student group "
         "country problem hand part place case week company system program question work number night "
         "point home water room mother area money story fact month lot right study book eye job word").split()
TOKEN = re.compile(rb'"content":"[^"]')  # in an event of a stream


def words(rng, n):
    return " ".join(rng.choice(WORDS) for _ in range(n))


class Daemon:
    def __init__(self, build, model, threads, folder, scheduler, more=None, of_model=None, driver="auto"):
        config = pathlib.Path(folder) / ("%s.yaml" % build.strip("/").replace("/", "-"))
        config.write_text(json.dumps({
            "server": {"port": 0}, "runtime": {"threads": threads, "driver": driver}, "ledger": {"path": str(config) + ".db"},
            "scheduler": scheduler,
            "modules": {"path": ["%s/modules/%s" % (build, name) for name in ("attention", "moe", "kvcache", "recurrent")]},
            "models": [{"name": "m", "path": str(pathlib.Path(model).resolve()), **(of_model or {})}], **(more or {})}))
        self.process = subprocess.Popen([build + "/daemon/ingotd", "--config", config], stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)
        line = self.process.stdout.readline()
        if not (m := re.search(r":(\d+)\b", line)):
            sys.exit("%s does not start: %s" % (build, line.strip()))
        self.address = "127.0.0.1", int(m[1])

    def clock(self, cpu=False):
        """Milliseconds; cpu: those of the thread that has computed most."""
        if not cpu:
            return time.monotonic() * 1e3
        tasks = pathlib.Path("/proc/%d/task" % self.process.pid).glob("*/schedstat")
        return max(int(t.read_text().split()[0]) for t in tasks) / 1e6

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def request(prompt, n_tokens):
    """A streamed chat of so many tokens, as bytes."""
    body = json.dumps({"messages": [{"role": "user", "content": prompt}], "stream": True, "temperature": 0,
                       "max_tokens": n_tokens, "ignore_eos": True}).encode()
    return (b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body)) + body


def parser(doc, **numbers):
    """The options of a bench: the builds, the model, and numbers by name with their defaults."""
    p = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", required=True)
    p.add_argument("--build", default="build")
    for name, default in dict(numbers, threads=2, foreign=6, patience=600).items():
        p.add_argument("--" + name, type=int, default=default)
    p.add_argument("--driver", default="auto", help="as runtime.driver in ingot.yaml")
    p.add_argument("--json")
    return p


def rounds(args, title, scheduler, a_round):
    """A daemon of each build, and by build what alternating rounds a_round(args, address, seed) give."""
    n, quiet = {}, Quiet(args.foreign, args.patience)
    with tempfile.TemporaryDirectory() as folder:
        daemons = {b: Daemon(os.path.abspath(b), args.model, args.threads, folder, scheduler, driver=args.driver)
                   for b in args.build.split(",")}

        def one(build):
            def run():
                n[build] = n.get(build, 0) + 1
                return a_round(args, daemons[build].address, "%d" % n[build])
            return run
        try:
            return alternate(quiet, args.rounds, title, [(b, one(b)) for b in daemons])
        finally:
            for d in daemons.values():
                d.stop()
