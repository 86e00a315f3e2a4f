"""The command ingot against a running daemon: run, ps, models, stats, doctor."""
import csv
import io
import json
import os
import pathlib
import re
import signal
import subprocess

import pytest

from daemon import BUILD, DEADLINE_S, REPORT, clean_env, until
from test_ledger import rows, until_rows
from tiny_model import SCRIPT

INGOT = str(BUILD / "cli" / "ingot")
CATALOG = str(pathlib.Path(__file__).resolve().parents[2] / "etc" / "models.yaml")
KNOWN = re.findall(r"^  - name: (\S+)$", pathlib.Path(CATALOG).read_text(), re.MULTILINE)


def start_ingot(d, *args, url=True, **options):
    options.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.Popen([INGOT, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            cwd=d.folder, text=True, env=clean_env(d.folder, {
                                "INGOT_URL": "http://%s:%d" % (d.host, d.port) if url else "",
                                "INGOT_MODELS": CATALOG, "LC_ALL": "C.UTF-8"}), **options)


def ingot(d, *args, text=None, **options):
    """Run to the end; (exit code, standard output, standard error)."""
    if text is not None:
        options["stdin"] = subprocess.PIPE
    p = start_ingot(d, *args, **options)
    try:
        out, err = p.communicate(text, timeout=DEADLINE_S)
    except subprocess.TimeoutExpired:
        p.kill()
        p.wait()
        raise
    assert not REPORT.search(err), err
    return p.returncode, out, err


def test_run(scripted):
    code, out, err = ingot(scripted, "run", "hello", "-t", "0")
    assert (code, out) == (0, SCRIPT + "\n"), err
    assert "18 tokens" in err or "19 tokens" in err


def test_run_says_the_speed(scripted):
    code, out, err = ingot(scripted, "run", "hello", "-m", "slow", "-n", "90", "-t", "0")
    assert (code, out) == (0, SCRIPT * 5 + "\n"), err
    assert re.search(r"\d+(\.\d+)? (tok/s|tokens/s|tokens per second)", err), err


def test_run_quietly(scripted):
    assert ingot(scripted, "run", "-q", "-t", "0", "hello") == (0, SCRIPT + "\n", "")


def test_run_reads_standard_input(scripted):
    for args in (["-"], []):
        code, out, err = ingot(scripted, "run", "-q", "-t", "0", *args, text="hello\n")
        assert (code, out) == (0, SCRIPT + "\n"), err


def test_run_with_options(scripted):
    def say(*args):
        code, out, err = ingot(scripted, "run", "-q", "-m", "random", "-n", "20", *args, "hello")
        assert code == 0, err
        return out
    assert say("-t", "1", "--seed", "5") == say("-t", "1", "--seed", "5")
    assert say("-t", "1", "--seed", "5") != say("-t", "1", "--seed", "6")
    assert say("-t", "0") == say("-t", "1", "--top-k", "1")
    assert say("-t", "0") != say("-t", "0", "-s", "Another system message.")


def test_run_as_json(scripted):
    code, out, err = ingot(scripted, "run", "--json", "-t", "0", "hello")
    answer = json.loads(out)
    assert code == 0 and err == "" and out.count("\n") == 1
    assert (answer["model"], answer["text"], answer["finish_reason"]) == ("tiny", SCRIPT, "stop")
    assert answer["usage"]["output_tokens"] in (18, 19) and answer["usage"]["input_tokens"] > 0
    assert 0 < answer["timings"]["first_token_ms"] <= answer["timings"]["total_ms"]
    code, out, err = ingot(scripted, "run", "--json", "-t", "0", "-n", "3", "hello")
    assert json.loads(out)["finish_reason"] == "length"
    code, out, err = ingot(scripted, "run", "--json", "-m", "zeppelin", "hello")
    answer = json.loads(out)
    assert code == 1 and answer["finish_reason"] == "error" and "zeppelin" in err
    assert answer["error"]["code"] == "model_not_found" and "zeppelin" in answer["error"]["message"]


def test_run_shows_the_events(scripted):
    code, out, err = ingot(scripted, "run", "--events", "-t", "0", "hello")
    events = [json.loads(line) for line in out.strip().split("\n")]
    assert code == 0 and events[0]["type"] == "response.created"
    assert events[-1]["type"] == "response.completed"
    assert "".join(e["delta"] for e in events if e["type"].endswith("text.delta")) == SCRIPT


def test_run_with_prompt_and_input(scripted, tmp_path):
    """`git diff | ingot run MODEL "write a message"`: the input stands below the prompt."""
    def say(*args, text=None, **options):
        code, out, err = ingot(scripted, "run", "-q", "-t", "0", "-n", "12", *args, text=text,
                               **options)
        assert code == 0, err
        return out
    whole = say("-m", "random", "What is this?\n\nline one\nline two")
    assert whole != say("-m", "random", "What is this?")
    assert say("random", "What is this?", text="line one\nline two\n") == whole
    assert say("-m", "random", "What is this?", text="line one\nline two\n") == whole
    # nothing in the pipe, and no pipe
    assert say("random", "What is this?", text="") == say("-m", "random", "What is this?")
    # a lone argument is the model where the prompt comes from a file, unless none is named so
    path = tmp_path / "prompt"
    path.write_text("What is this?\n\nline one\nline two\n")
    with open(path) as f:
        assert say("random", stdin=f) == whole
    assert say("hello", text="x") == say("hello\n\nx")
    # the place of a prompt may be said
    assert say("random", "-", text="What is this?\n\nline one\nline two") == whole


def test_run_of_a_model_twice(scripted):
    code, out, err = ingot(scripted, "run", "-m", "tiny", "random", "hello")
    assert code == 2 and "two models are named" in err and out == ""


def test_run_of_too_much(scripted, tmp_path):
    path = tmp_path / "big"
    with open(path, "wb") as f:
        f.truncate((16 << 20) + 1)
    with open(path) as f:
        code, out, err = ingot(scripted, "run", "tiny", "what?", stdin=f)
    assert code == 1 and out == "" and "larger than 16 MiB" in err


def test_run_says_that_it_waits(scripted):
    """A pipe that somebody left open is no reason to hang without a word."""
    p = start_ingot(scripted, "run", "-q", "-t", "0", "tiny", "hello", stdin=subprocess.PIPE)
    assert "waiting for standard input" in p.stderr.readline()
    out, _ = p.communicate("", timeout=DEADLINE_S)
    assert (p.returncode, out) == (0, SCRIPT + "\n")


def test_run_with_a_key_that_cannot_be(scripted, tmp_path):
    code, out, err = ingot(scripted, "run", "--api-key", "two words", "hello")
    assert code == 1 and "API key" in err and "two" not in err
    code, out, err = ingot(scripted, "run", "--api-key-file", str(tmp_path / "none"), "hello")
    assert code == 1 and "No such file" in err


def test_run_by_configuration(scripted, tmp_path):
    """Where the daemon is can be read from its configuration."""
    path = tmp_path / "ingot.yaml"
    path.write_text("server:\n  port: %d\n" % scripted.port)
    code, out, err = ingot(scripted, "run", "-q", "-t", "0", "-c", str(path), "hello", url=False)
    assert (code, out) == (0, SCRIPT + "\n"), err


def test_run_unknown_model(scripted):
    code, out, err = ingot(scripted, "run", "-m", "zeppelin", "hello")
    assert code == 1 and out.strip() == ""
    assert "zeppelin" in err and "tiny" in err


def test_run_without_a_daemon(scripted):
    code, out, err = ingot(scripted, "run", "--url", "http://127.0.0.1:9", "hello")
    assert code == 1 and out == "" and "127.0.0.1:9" in err


@pytest.mark.parametrize("args", [
    ["run"], ["run", ""], ["run", "a", "b", "c"], ["run", "--json", "--events", "a"],
    ["run", "--zeppelin", "a"], ["run", "-t", "hot", "a"],
    ["run", "-t", "9", "a"], ["run", "-n", "0", "a"], ["zeppelin"], ["stats", "--since", "soon"],
    ["run", "\udcff"], ["models", "reload", "tiny"], ["models", "load"], ["models", "unload"],
    ["models", "load", "tiny", "slow"], ["models", "load", "no name"], ["models", "--no-wait"],
    ["models", "load", "tiny", "--names", "served"], ["models", "unload", "tiny", "--no-wait"],
])
def test_wrong_usage(scripted, args):
    code, out, err = ingot(scripted, *args)
    assert code == 2 and out == "" and err.strip(), (code, out, err)


def test_help_and_version(scripted):
    code, out, _ = ingot(scripted, "--help")
    assert code == 0
    for command in ("run", "chat", "pull", "ps", "models", "stats", "doctor"):
        assert re.search(r"^\s*%s\b" % command, out, re.M), out
        code, text, _ = ingot(scripted, command, "--help")
        assert code == 0 and command in text
    code, out, _ = ingot(scripted, "--version")
    assert code == 0 and re.match(r"ingot \d+\.\d+\.\d+", out)


def test_interrupt_cancels_the_request(scripted):
    """Ctrl-C ends the request in the daemon, not just the view of it."""
    p = start_ingot(scripted, "run", "-m", "slow", "hello")
    assert p.stdout.read(5) == SCRIPT[:5]
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=DEADLINE_S)
    assert p.returncode == 130, err
    assert not REPORT.search(err), err
    scripted.until_idle()
    row = until(lambda: [r for r in rows(scripted) if r["finish"] == "cancelled"], "its row")[-1]
    assert (row["cancel_reason"], row["model"]) == ("client_cancel", "slow"), err


def test_output_that_is_closed(scripted):
    """`ingot run … | head -c 5` ends, and the request with it."""
    p = start_ingot(scripted, "run", "-m", "slow", "hello")
    assert p.stdout.read(5) == SCRIPT[:5]
    p.stdout.close()
    code = p.wait(DEADLINE_S)
    assert code in (0, 1, -signal.SIGPIPE, 141)
    assert not REPORT.search(p.stderr.read())
    p.stderr.close()
    scripted.until_idle()


def test_ps(scripted):
    code, out, err = ingot(scripted, "ps")
    assert code == 0, err
    c = scripted.ws()
    c.create("hi", model="slow")
    rid = c.until_type("response.output_text.delta")[0]["response"]["id"]
    code, out, err = ingot(scripted, "ps")
    assert code == 0 and rid in out and "slow" in out and "decode" in out, (out, err)
    code, out, err = ingot(scripted, "ps", "--json")
    answer = json.loads(out)
    assert code == 0 and rid in [r["id"] for r in answer["data"]]
    slow, = [m for m in answer["models"] if m["id"] == "slow"]
    assert (slow["state"], slow["active_requests"]) == ("ready", 1)
    c.close()
    scripted.until_idle()
    assert rid not in ingot(scripted, "ps")[1]


def test_ps_health(start, models, tmp_path):
    """Without the key that all else needs; a daemon that stops is not well, nor is one that is not there."""
    keys = tmp_path / "keys"
    d = start(models.slow(), {"server": {"drain_timeout": "5m"}, "ledger": {"enabled": False}, "responses": {"persist": False}})
    assert ingot(d, "ps", "--health") == (0, "ok\n", "") and ingot(d, "keys", "add", "x", "--file", str(keys))[0] == 0
    other = start(extra={"server": {"keys_file": str(keys)}})
    assert ingot(other, "ps")[0] == 1 and ingot(other, "ps", "--health", "--json")[:2] == (0, '{"status":"ok"}\n')
    ws = d.ws()
    ws.create("hi")
    ws.until_type("response.output_text.delta")
    d.process.send_signal(signal.SIGTERM)
    until(lambda: ingot(d, "ps", "--health")[0] == 1, "it is not well while it drains")
    ws.close()
    assert d.wait_exit() == 0
    code, out, err = ingot(d, "ps", "--health")
    assert code == 1 and out == "" and str(d.port) in err


def test_models(scripted):
    code, out, err = ingot(scripted, "models")
    assert code == 0, err
    for name in ("tiny", "random", "slow", "smollm2-135m"):
        assert name in out
    assert ingot(scripted, "models", "--names", "served") == (0, "tiny\nrandom\nslow\n", "")
    assert ingot(scripted, "models", "--names", "known")[1].split() == KNOWN
    assert ingot(scripted, "models", "--names", "others")[0] == 2
    code, out, err = ingot(scripted, "models", "--names", "served", "--url", "http://127.0.0.1:9")
    assert code == 1 and out == "" and err
    code, out, _ = ingot(scripted, "models", "--json")
    known = {k["name"]: k for k in json.loads(out)["known"]}
    assert code == 0 and list(known) == KNOWN and len(KNOWN) > 20
    assert known["smollm2-135m"]["hub"] is None and known["smollm2-135m"]["license"] == "Apache-2.0"
    assert known["qwen3-4b"]["hub"] == "unsloth/Qwen3-4B-Instruct-2507-GGUF"
    assert known["qwen3-4b"]["memory_gb"] == 8 and known["qwen3-4b"]["license"] is None


def test_stats(start, models):
    d = start(models.script())
    code, out, err = ingot(d, "stats", "-c", str(d.config_path))
    assert code == 0, err
    tokens = sum(d.chat().json["usage"]["completion_tokens"] for _ in range(4))
    until_rows(d, 4)
    code, out, err = ingot(d, "stats", "--json", "-c", str(d.config_path))
    assert code == 0, err
    model, = json.loads(out)["models"]
    assert (model["model"], model["requests"], model["errors"]) == ("tiny", 4, 0)
    assert model["output_tokens"] == tokens
    assert 0 < model["ttft_ms"]["p50"] <= model["ttft_ms"]["p95"] <= model["ttft_ms"]["p99"]
    assert 0 <= model["inter_token_ms"]["p50"] <= model["inter_token_ms"]["p99"]
    code, out, err = ingot(d, "stats", "-c", str(d.config_path))
    assert code == 0 and "tiny" in out and "p95" in out
    assert json.loads(ingot(d, "stats", "--json", "--since", "1h", "-c", str(d.config_path))[1])[
        "models"][0]["requests"] == 4


def test_stats_by(start, models, tmp_path):
    """A row for each key, client or model: as a table, JSON and CSV."""
    d = start(models.script(), {"server": {"allow_anonymous": True, "keys_file": str(tmp_path / "keys")}})
    keys = {i: ingot(d, "keys", "add", i, "--file", str(tmp_path / "keys"))[1].strip() for i in "ab"}
    d.process.send_signal(signal.SIGHUP)
    headers = {i: {"Authorization": "Bearer " + k} for i, k in keys.items()}
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}
    until(lambda: d.http("POST", "/v1/chat/completions", dict(body, model="=x"),
                         {"Authorization": "Bearer no"}).status == 401, "the keys are read")
    for who in "aab":
        assert d.http("POST", "/v1/chat/completions", body, headers[who]).status == 200
    assert d.http("POST", "/v1/chat/completions", dict(body, model="=x")).status == 404
    until(lambda: sum(r["status"] in (200, 404) for r in rows(d)) >= 4, "their rows")

    def stats(*args):
        code, out, err = ingot(d, "stats", "-c", str(d.config_path), *args)
        assert code == 0, err
        return out

    by_key = {k["key"]: k["requests"] for k in json.loads(stats("--by", "key", "--json"))["keys"]}
    assert (by_key["a"], by_key["b"]) == (2, 1)
    client, = json.loads(stats("--by", "client", "--json"))["clients"]
    assert client["client"] == "127.0.0.1" and client["requests"] == len(rows(d))
    table = list(csv.DictReader(io.StringIO(stats("--by", "model", "--csv"))))
    assert [r["requests"] for r in table if r["model"] == "tiny"] == ["3"]
    assert "'=x" in [r["model"] for r in table]
    assert float(table[-1]["ttft_p50_ms"]) > 0
    assert stats("--csv") == stats("--by", "model", "--csv")
    assert re.match(r"KEY +REQUESTS ", stats("--by", "key"))
    for wrong in (["--by", "hour"], ["--json", "--csv"]):
        code, out, err = ingot(d, "stats", "-c", str(d.config_path), *wrong)
        assert (code, out) == (2, "") and "stats: " in err


def test_stats_of_a_fleet(start, models, tmp_path):
    """Several daemons' ledgers as one; nothing if one of them does not answer."""
    keys = tmp_path / "keys"
    key = ingot(start(models.script()), "keys", "add", "--admin", "--file", str(keys))[1].strip()
    fleet = [start(models.random(), {"server": {"keys_file": str(keys)}, "ledger": {"path": str(tmp_path / name)}})
             for name in ("a.db", "b.db")]
    headers = {"Authorization": "Bearer " + key}
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 9, "ignore_eos": True}
    for d, n in zip(fleet, (3, 1)):
        for _ in range(n):
            assert d.http("POST", "/v1/chat/completions", body, headers).status == 200
    until(lambda: sum(len(rows(d)) for d in fleet) == 4, "their rows")
    urls = ",".join("http://%s:%d" % (d.host, d.port) for d in fleet)
    (tmp_path / "key").write_text(key)

    def joined(*args):
        code, out, err = ingot(fleet[0], "stats", "--json", "--api-key-file", str(tmp_path / "key"), "--url", *args)
        return code, json.loads(out) if code == 0 else err

    code, report = joined(urls)
    model, = report["models"]
    assert (model["model"], model["requests"], model["output_tokens"], model["errors"]) == ("tiny", 4, 36, 0)
    exact = sorted(r["ttft_ms"] for d in fleet for r in rows(d))
    assert model["ttft_ms"]["p50"] == pytest.approx(exact[1], rel=0.011)
    assert model["ttft_ms"]["p99"] == pytest.approx(exact[3], rel=0.011)
    assert joined(urls.split(",")[1])[1]["models"][0]["requests"] == 1
    assert joined(urls, "--by", "client")[1]["clients"][0]["client"] == "127.0.0.1"
    assert joined(urls, "--since", "1h")[1]["models"][0]["requests"] == 4
    code, err = joined(urls + ",http://127.0.0.1:9")
    assert code == 1 and "127.0.0.1:9" in err
    code, out, err = ingot(fleet[0], "stats", "--url", urls)
    assert code == 1 and out == "" and "401" in err
    for args in (["--url", urls, "--ledger", "x"], ["--api-key-file", "x"]):
        assert ingot(fleet[0], "stats", *args)[0] == 2
    r = fleet[0].http("GET", "/v1/ingot/stats?by=colour", headers=headers)
    assert r.status == 400 and r.error["param"] == "by"
    assert fleet[0].http("GET", "/v1/ingot/stats?by=model&step=5", headers=headers).status == 400


def test_stats_without_a_ledger(scripted, tmp_path):
    path = tmp_path / "nowhere.db"
    code, _, err = ingot(scripted, "stats", "--ledger", str(path))
    assert code == 1 and str(path) in err
    assert not path.exists()


def test_doctor(scripted):
    code, out, err = ingot(scripted, "doctor", "-c", str(scripted.config_path),
                           "--url", "http://127.0.0.1:%d" % scripted.port)
    assert code == 0, out + err
    for word in ("cpu", "attention", "kvcache", "tiny", "slow"):
        assert word in out
    code, out, _ = ingot(scripted, "doctor", "--json", "-c", str(scripted.config_path))
    assert json.loads(out)


def test_doctor_of_a_file(scripted, models, tmp_path):
    """Any file, whether or not a configuration names it."""
    archs = pathlib.Path(__file__).parent.parent / "golden" / "arch"
    path = models()
    code, out, err = ingot(scripted, "doctor", str(path), "-c", str(scripted.config_path))
    assert code == 0, out + err
    assert "architecture llama" in out and "of cache for one sequence" in out and "fits" in out
    assert "ledger" not in out and "slow" not in out
    code, out, _ = ingot(scripted, "doctor", str(archs / "glm4moe"), "-c", str(scripted.config_path))
    assert code == 1 and "tokenizer" in out and "the prediction of further tokens" in out
    code, out, _ = ingot(scripted, "doctor", str(tmp_path / "none.gguf"))
    assert code == 1 and "none.gguf" in out and "download the file again" in out


def test_doctor_says_what_is_wrong(start, models, scripted, tmp_path):
    broken = start.config(models(damage="arch"))
    from daemon import yaml_text
    path = tmp_path / "broken.yaml"
    path.write_text(yaml_text(broken) + "\n")
    code, out, _ = ingot(scripted, "doctor", "-c", str(path))
    assert code == 1 and "zeppelin" in out
    path.write_text("server:\n  prt: 1\n")
    code, out, _ = ingot(scripted, "doctor", "-c", str(path))
    assert code == 1 and "prt" in out and ":2:3" in out
    assert os.path.exists(path)
