"""ingot bench against a daemon: what it counts is what the ledger has, and each option does something."""
import json
import signal
import threading
import http.server
import xml.etree.ElementTree

import pytest

from access import add_key
from daemon import DEADLINE_S, until
from test_cli import ingot, start_ingot
from test_ledger import rows

pytestmark = pytest.mark.home("release")


def served(d, model):
    """Requests of a model that the daemon has answered."""
    return sum(v for name, labels, v in d.metrics().samples
               if name == "ingot_request_success_total" and labels["model_name"] == model)


def bench(d, *args, code=0):
    """The report of a bench whose requests are few and short; what it says it sent, the daemon has answered."""
    given = ["bench", "--json", *args]
    for name, value in (("--model", "random"), ("--warmup", "0"), *([] if "--trace" in args else [("--rate", "500")])):
        if name not in args:
            given += [name, value]
    if not {"--requests", "--duration", "--trace"} & set(args):
        given += ["--requests", "6"]
    option = lambda name: given[given.index(name) + 1]
    before = served(d, option("--model"))
    got, out, err = ingot(d, *given)
    assert got == code, err
    report = json.loads(out)
    if code == 0:
        n = sum(r["ok"] for r in report["runs"]) + len(report["runs"]) * int(option("--warmup"))
        # two more say how many tokens a word has
        until(lambda: served(d, option("--model")) == before + n + 2, "%d requests were served" % n)
    return report


@pytest.mark.parametrize("over, endpoint", [("http", "POST /v1/chat/completions"), ("websocket", "ws /v1/responses")])
def test_a_run(scripted, over, endpoint):
    report = bench(scripted, "--over", over, "--input-tokens", "200", "--output-tokens", "12", "--seed", "7")
    # the two that measure words have one token each
    mine = until(lambda: (lambda got: got if len(got) >= 6 else None)(
        [r for r in rows(scripted) if (r["endpoint"], r["output_tokens"]) == (endpoint, 12)]), "rows of six requests")
    run, = report["runs"]
    assert (report["over"], report["model"], report["seed"], report["arrivals"]) == (over, "random", 7, "poisson")
    assert (run["ok"], run["good"], run["requests"]) == (6, 6, 6)
    assert (run["refused"], run["failed"], run["timed_out"], run["cancelled"]) == (0, 0, 0, 0)
    assert len(mine) == 6 and {r["model"] for r in mine} == {"random"} and run["output_tokens"] == 12
    # a word more or less, and vocabularies in which words differ
    assert all(150 < r["prompt_tokens"] < 250 for r in mine)
    assert run["input_tokens"] == pytest.approx(sum(r["prompt_tokens"] for r in mine) / 6, abs=0.01)
    assert run["cached_tokens"] == pytest.approx(sum(r["cached_tokens"] for r in mine) / 6, abs=0.01)
    assert 0 < run["ttft_ms"]["p50"] <= run["ttft_ms"]["p95"] <= run["ttft_ms"]["p99"] <= run["total_ms"]["p99"]
    # its clock starts before the daemon's
    assert run["total_ms"]["mean"] >= sum(r["total_ms"] for r in mine) / 6
    assert run["offered_per_s"] > 0 < run["ok_per_s"]
    assert run["output_tokens_per_s"] == pytest.approx(12 * run["ok_per_s"], rel=1e-3)


def test_options_of_the_load(scripted):
    report = bench(scripted, "--rate", "200,400", "--requests", "3")
    assert [(r["rate"], r["ok"]) for r in report["runs"]] == [(200, 3), (400, 3)]
    assert bench(scripted, "--rate", "5", "--duration", "1s")["runs"][0]["ok"] == 5
    assert bench(scripted, "--arrivals", "even")["runs"][0]["offered_per_s"] == pytest.approx(500)
    # all at once: 6 in bursts of 6 have no gaps, of 3 one
    together, = bench(scripted, "--arrivals", "bursts", "--burst", "6", "--rate", "3")["runs"]
    apart, = bench(scripted, "--arrivals", "bursts", "--burst", "3", "--rate", "3", "--seed", "1")["runs"]
    assert together["offered_per_s"] == 3 and together["late_p99_ms"] < 2000
    assert apart["offered_per_s"] != 3 and apart["ok"] == 6
    assert bench(scripted, "--output-tokens", "3")["runs"][0]["output_tokens"] == 3
    few, many = (bench(scripted, "--input-tokens", n)["runs"][0]["input_tokens"] for n in ("150", "400"))
    assert 100 < few < 200 < 300 < many < 500
    assert bench(scripted, "--model", "slow", "--output-tokens", "2")["model"] == "slow"
    bench(scripted, "--warmup", "4")  # counts them


def test_the_seed_and_the_cache(scripted):
    """The same seed asks the same: its prompts are in the cache. Runs do not find each other's."""
    options = "--input-tokens", "500", "--model", "random", "--requests", "2"
    own, again = (bench(scripted, "--seed", "31", *options)["runs"][0]["cached_tokens"] for _ in range(2))
    assert own < 250 < again
    report = bench(scripted, "--seed", "41", "--rate", "300,300", *options)
    assert all(r["cached_tokens"] < 250 for r in report["runs"])
    one, other = (bench(scripted, *options) for _ in range(2))
    assert one["seed"] != other["seed"] and other["runs"][0]["cached_tokens"] < 250
    # what all prompts have in common is computed once
    shared, = bench(scripted, "--shared-tokens", "400", "--rate", "2", "--arrivals", "even", *options)["runs"]
    assert shared["cached_tokens"] > 150 + own / 2


def test_a_trace(scripted, tmp_path):
    trace = tmp_path / "t.jsonl"
    trace.write_text("".join(json.dumps(line) + "\n" for line in [
        {"timestamp": 1000, "input_length": 150, "output_length": 4, "hash_ids": [1]},
        {"timestamp": 1100, "input_length": 300, "output_length": 5, "session": "a"},
        {"timestamp": 1300, "input_length": 350, "output_length": 6, "session": "a"}]))
    report = bench(scripted, "--trace", str(trace))
    recorded, = report["runs"]
    assert report["arrivals"] == "recorded" and recorded["output_tokens"] == 5 and recorded["rate"] is None
    assert recorded["offered_per_s"] == pytest.approx(2 / 0.3) and recorded["seconds"] > 0.3
    assert 200 < recorded["input_tokens"] < 350
    assert bench(scripted, "--trace", str(trace), "--rate", "20")["runs"][0]["offered_per_s"] == pytest.approx(20)
    assert bench(scripted, "--trace", str(trace), "--requests", "2")["runs"][0]["output_tokens"] == 4.5
    one, again = (bench(scripted, "--trace", str(trace), "--seed", "77")["runs"][0]["cached_tokens"] for _ in range(2))
    assert one < 220 < again  # of 266 on average
    trace.write_text('{"timestamp": 0, "input_length": 5}\n')
    code, out, err = ingot(scripted, "bench", "--trace", str(trace), "--model", "tiny")
    assert code == 1 and "line 1: output_length is missing" in err


def test_what_is_good(scripted):
    good = lambda *args: bench(scripted, *args)["runs"][0]["good"]
    assert (good("--slo-ttft", "60000"), good("--slo-ttft", "0.001")) == (6, 0)
    assert good("--slo-itl", "60000") == 6
    # so many that even a client that waits for a processor does not read all tokens of a reply at once
    slow = "--model", "slow", "--output-tokens", "100"
    assert good("--slo-itl", "0.001", *slow) == 0


def test_the_picture_and_the_table(scripted, tmp_path):
    svg = tmp_path / "a.svg"
    code, out, err = ingot(scripted, "bench", "-m", "random", "-r", "200,400", "-n", "3", "--svg", str(svg), "--seed", "3",
                           "--output-tokens", "30")
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0].split()[:4] == ["OFFERED/S", "OK", "REFUSED", "ERRORS"]
    assert [line.split()[1:4] for line in lines[1:3]] == [["3", "0", "0"]] * 2
    assert "random over http, poisson arrivals, seed 3" in out and "outputs of 30.0" in out
    root = xml.etree.ElementTree.parse(svg).getroot()
    points = root.findall("{http://www.w3.org/2000/svg}circle")
    assert len(points) == 2 * 9
    code, out, err = ingot(scripted, "bench", "--svg", str(tmp_path / "no" / "a.svg"))
    assert code == 1 and "--svg" in err


def test_nothing_is_silent(start, models):
    """Refusals, errors, what takes too long and Ctrl-C are counted, and the reason is said."""
    d = start(extra={"models": [{"name": "slow", "path": models.slow()}],
                     "scheduler": {"max_queue": 2, "max_seqs": 1}})
    options = "--model", "slow", "--arrivals", "bursts", "--burst", "8", "--requests", "8", "--output-tokens", "20"
    for over in ("http", "websocket"):
        report = bench(d, "--over", over, *options)
        run, = report["runs"]
        assert run["refused"] > 0 < run["ok"] and run["ok"] + run["refused"] == 8, run
        assert run["first_error"]
    report = bench(d, "--model", "slow", "--requests", "1", "--timeout", "1s", "--output-tokens", "15000", code=1)
    assert (report["runs"][0]["timed_out"], report["runs"][0]["ok_per_s"]) == (1, 0)
    d.until_idle()  # what was cancelled is not computed further
    report = bench(d, "--model", "slow", "--requests", "2", "--input-tokens", "20000", code=1)
    assert report["runs"][0]["failed"] == 2 and "HTTP 400" in report["runs"][0]["first_error"]
    p = start_ingot(d, "bench", "--json", "--model", "slow", "--requests", "3", "--rate", "0.01", "--warmup", "0",
                    "--output-tokens", "15000")
    # those that measure words have ended before
    until(lambda: any(r.get("output_tokens", 0) > 3 for r in d.http("GET", "/v1/ingot/requests").json["data"]),
          "its request runs")
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=DEADLINE_S)
    assert p.returncode == 130, err
    assert json.loads(out)["runs"][0]["cancelled"] == 3


def test_keys_and_refused_options(start, models, tmp_path):
    key = add_key(tmp_path / "keys")
    d = start(models.random(), {"server": {"keys_file": str(tmp_path / "keys")}})
    code, out, err = ingot(d, "bench", "-n", "2", "-r", "100", "-m", "tiny")
    assert code == 1 and "401" in err or "key" in err
    path = d.folder / "key"
    path.write_text(key + "\n")
    for over in ("http", "websocket"):
        code, out, err = ingot(d, "bench", "-n", "2", "-r", "100", "--api-key-file", str(path), "--over", over)
        assert code == 0 and "tiny over " + over in out, err
    for args, said in ((["--rate", "0"], "--rate"), (["--rate", "1,x"], "--rate"), (["--over", "smtp"], "websocket"),
                       (["--arrivals", "never"], "poisson"), (["--burst", "3"], "--arrivals bursts"),
                       (["--trace", "x", "--input-tokens", "3"], "trace"),
                       (["--requests", "3", "--duration", "3s"], "exclude")):
        code, out, err = ingot(d, "bench", *args)
        assert code == 2 and said in err, err


class Stalling(http.server.BaseHTTPRequestHandler):
    """A server whose answers take 0.4 s each, one at a time."""
    protocol_version = "HTTP/1.1"
    gate = threading.Lock()

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        n = body["max_tokens"]
        with self.gate:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            if n > 1:
                threading.Event().wait(0.4)
            words = len(body["messages"][0]["content"].split())
            for event in [{"choices": [{"delta": {"content": "x"}}]}] * n + [
                    {"choices": [], "usage": {"prompt_tokens": words, "completion_tokens": n}}]:
                self.wfile.write(b"data: %s\r\n\r\n" % json.dumps(event).encode())
            self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def log_message(self, *args):
        pass


def test_arrivals_do_not_wait(scripted):
    """Open loop: behind a server that answers one request at a time the others' latencies grow, by what they wait."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stalling)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        code, out, err = ingot(scripted, "bench", "--json", "--url", "http://127.0.0.1:%d" % server.server_port, "-m", "x",
                               "-r", "50", "-n", "5", "--warmup", "0", "--output-tokens", "2", "--arrivals", "even",
                               "--input-tokens", "30")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert code == 0, err
    run, = json.loads(out)["runs"]
    assert run["input_tokens"] == 30 and run["cached_tokens"] is None
    assert run["ttft_ms"]["p50"] >= 3 * 400 - 2 * 20 - 1  # the third of five
    assert run["ttft_ms"]["p99"] > 4 * 400 and run["seconds"] >= 5 * 0.4
