"""Start, stop, reload; and what the daemon says when it cannot come up."""
import os
import pathlib
import re
import signal
import socket
import subprocess

import pytest

import tiny_model
from daemon import BUILD, DEADLINE_S, Metrics, clean_env, merged, until, yaml_text
from tiny_model import SCRIPT


def run(folder, *args):
    return subprocess.run([str(BUILD / "daemon" / "ingotd"), *args], env=clean_env(folder),
                          cwd=folder, stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=DEADLINE_S, text=True)


def one_line(log):
    """Of what was said, the lines of an error; a refusal is short."""
    lines = [l for l in log.strip().split("\n") if l]
    assert lines, "it ended without a word"
    return lines[-1]


# ---- options ----------------------------------------------------------------

def test_version(tmp_path):
    r = run(tmp_path, "--version")
    assert r.returncode == 0 and re.match(r"ingotd \d+\.\d+\.\d+\S*\n", r.stdout), r


def test_help_and_unknown_options(tmp_path):
    r = run(tmp_path, "--help")
    assert r.returncode == 0
    for name in ("--config", "--check-config", "--version"):
        assert name in r.stdout
    r = run(tmp_path, "--zeppelin")
    assert r.returncode != 0 and "zeppelin" in r.stderr
    r = run(tmp_path, "--config")
    assert r.returncode != 0 and r.stderr


def test_missing_config(tmp_path):
    path = str(tmp_path / "nowhere.yaml")
    r = run(tmp_path, "--config", path)
    assert r.returncode != 0 and path in r.stderr
    assert r.returncode in (1, 2) or r.returncode == 78


def test_ready_line_and_port_0(start, models):
    d = start(models.script())
    assert d.host == "127.0.0.1" and 1024 <= d.port <= 65535
    assert d.chat_text() == SCRIPT


# ---- configuration ------------------------------------------------------------

GOOD = "server:\n  port: 0\n"


def check_config(tmp_path, text):
    path = tmp_path / "c.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    r = run(tmp_path, "--check-config", "--config", str(path))
    assert not re.search("Sanitizer|runtime error:", r.stderr), r.stderr
    return r, str(path)


def test_check_config_accepts(start, models, tmp_path):
    r, _ = check_config(tmp_path, yaml_text(start.config(models.script())) + "\n")
    assert r.returncode == 0, r.stderr


@pytest.mark.parametrize("text, line, column, words", [
    ("server:\n  prt: 1\n", 2, 3, ["prt", "port"]),
    ("serverr:\n  port: 1\n", 1, 1, ["serverr", "server"]),
    ("server:\n  port: 1\n  port: 2\n", 3, 3, ["port"]),
    ("server:\n  port: 1\nserver:\n  port: 2\n", 3, 1, ["server"]),
    ("server:\n  port: many\n", 2, 9, ["port", "many"]),
    ("server:\n  port: 65536\n", 2, 9, ["port", "65536"]),
    ("server:\n  port: -1\n", 2, 9, ["port"]),
    ("server:\n  port: 1.5\n", 2, 9, ["port"]),
    ("server:\n  port: [1]\n", 2, 9, ["port"]),
    ("server: 5\n", 1, 9, ["server"]),
    ("server:\n  port: 99999999999999999999999\n", 2, 9, ["port"]),
    ("a: &x 1\nb: *x\n", 1, None, []),
    ("server: !!map\n  port: 1\n", 1, None, []),
    ("server:\n\tport: 1\n", 2, None, []),
    ("server: {port: 1\n", None, None, []),
    ("- a\n- b\n", 1, 1, []),
    (GOOD + "---\n" + GOOD, 3, None, []),
    ("runtime:\n  strict: perhaps\n", 2, 11, ["strict"]),
    ("runtime:\n  activations: f12\n", 2, 16, ["f12"]),
    ("kvcache:\n  dtype: int3\n", 2, 10, ["int3"]),
    ("kvcache:\n  slab: 3MiB\n", 2, 9, ["slab"]),
    ("log:\n  level: loud\n", 2, 10, ["loud"]),
    ("models:\n  - name: a b\n    path: x\n", 2, 11, ["name"]),
    ("models:\n  - name: a\n", 2, None, ["path"]),
    ("models:\n  - name: a\n    path: x\n  - name: a\n    path: y\n", 4, None, ["a"]),
    ("models:\n  - name: a\n    path: x\n    paht: y\n", 4, 5, ["paht", "path"]),
    ("[" * 200 + "]" * 200, 1, None, []),
    (b"server:\n  host: \xff\xfe\n", None, None, []),
])
def test_bad_config(tmp_path, text, line, column, words):
    r, path = check_config(tmp_path, text)
    assert r.returncode != 0
    where = path + ":" + (str(line) if line else r"\d+") + ":" + (str(column) if column else r"\d+")
    assert re.search(where + r"\b", r.stderr), "no %s in %r" % (where, r.stderr)
    for w in words:
        assert w in r.stderr.replace(path, ""), r.stderr


def test_config_that_is_huge(tmp_path):
    r, path = check_config(tmp_path, "# " + "x" * (40 << 20) + "\n")
    assert r.returncode != 0 and path in r.stderr


def test_environment_overrides(start, models):
    d = start(models.script(), {"server": {"port": 1}}, env={"INGOT_SERVER_PORT": "0"})
    assert d.port != 1
    log = start.refused(models.script(), env={"INGOT_SERVER_PORT": "many"})
    assert "INGOT_SERVER_PORT" in log


def test_reference_config_is_accepted(tmp_path):
    """etc/ingot.yaml as it is."""
    path = pathlib.Path(__file__).resolve().parents[2] / "etc" / "ingot.yaml"
    r = run(tmp_path, "--check-config", "--config", str(path))
    assert r.returncode == 0, r.stderr


def test_config_that_the_world_can_write_still_works(start, models):
    """Only code is refused for its permissions."""
    d = start(models.script())
    os.chmod(d.config_path, 0o666)
    assert d.chat_text() == SCRIPT


# ---- things that are taken, missing or broken -------------------------------------

def test_port_in_use(start, models):
    d = start(models.script())
    log = start.refused(models.script(), {"server": {"port": d.port},
                                          "ledger": {"enabled": False}, "responses": {"persist": False}})
    assert str(d.port) in one_line(log) and re.search("in use", log), log
    assert d.chat_text() == SCRIPT


def test_port_in_use_by_another_program(start, models):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        port = s.getsockname()[1]
        log = start.refused(models.script(), {"server": {"port": port}})
    assert str(port) in one_line(log)


def test_host_that_is_not_ours(start, models):
    log = start.refused(models.script(), {"server": {"host": "192.0.2.1"}})
    assert "192.0.2.1" in log


def test_no_model_file(start, tmp_path):
    path = str(tmp_path / "nowhere.gguf")
    assert path in start.refused(path)


def test_model_is_a_folder(start, tmp_path):
    assert str(tmp_path) in start.refused(str(tmp_path))


def test_model_is_empty(start, tmp_path):
    path = tmp_path / "empty.gguf"
    path.write_bytes(b"")
    assert str(path) in start.refused(str(path))


WORDS = {
    "truncated": ["blk|output|tensor|data"], "truncated-header": [], "magic": ["GGUF|magic"],
    "version": ["99"], "beyond": ["blk.1.ffn_down.weight"],
    "offset-overflow": ["blk.1.ffn_down.weight"], "huge-tensor": ["blk.1.ffn_down.weight"],
    "arch": ["zeppelin", "llama"], "no-arch": ["general.architecture"],
    "type": ["blk.1.ffn_up.weight", "99"], "missing": ["blk.1.ffn_up.weight"],
    "shape": ["blk.1.attn_k.weight"], "huge-counts": ["tensor"], "huge-keys": ["key|metadata"],
    "huge-string": [], "huge-array": [], "no-heads": ["head"],
    "tokenizer": ["zeppelin"], "pre": ["zeppelin"], "merge": ["nosuch"],
}


@pytest.mark.parametrize("damage", sorted(WORDS))
def test_damaged_model(start, models, damage):
    path = models(damage=damage)
    log = start.refused(path)
    assert path in log or "model tiny" in log, log
    for w in WORDS[damage]:
        assert re.search(w, log.replace(path, "")), "no %s in %s" % (w, log)


@pytest.mark.parametrize("damage", ["no-template", "template"])
def test_model_without_a_good_template_has_no_chat(start, models, damage):
    """It is loaded, with a warning; what it cannot do is refused."""
    d = start(models(damage=damage))
    assert "template" in d.log
    r = d.chat()
    assert r.status == 400 and "template" in r.error["message"]
    c = d.ws()
    c.create("hi")
    e = c.error()
    assert e["status"] == 400 and "template" in e["error"]["message"]


def test_model_cut_at_every_length(start, models, tmp_path):
    """Some cuts over the whole file; all are refused, none is a crash."""
    data = pathlib.Path(models.script()).read_bytes()
    for i in range(12):
        path = tmp_path / ("cut%d.gguf" % i)
        path.write_bytes(data[:len(data) * i // 12])
        assert str(path) in start.refused(str(path))


def test_budget_that_is_too_small(start, models):
    log = start.refused(models.script(), {"memory": {"budget": 32 << 20}, "kvcache": {"arena": 64 << 20}})
    line = one_line(log)
    assert re.search("budget", line) and len(re.findall(r"\d+", line)) >= 3, line


def test_budget_that_is_just_enough_for_less(start, models):
    """The weights count too: with the arena alone at the budget there is nothing left."""
    log = start.refused(models.script(), {"memory": {"budget": 64 << 20}, "kvcache": {"arena": 64 << 20}})
    assert "budget" in one_line(log)


def test_devices_that_are_not_here(start, models):
    """Who names devices gets them or the reason, never another driver."""
    log = start.refused(models.script(), {"runtime": {"driver": "cpu", "devices": [0]}})
    assert "the driver cpu has no devices with numbers" in one_line(log)
    log = start.refused(models.script(), {"runtime": {"driver": "auto", "devices": [200, 201]}})
    assert re.search("no NVIDIA (driver|GPU)|no GPU 200|has no devices with numbers", one_line(log)), log


def test_unknown_kvcache_service(start, models):
    log = start.refused(models.script(), {"kvcache": {"service": "zeppelin"}})
    assert "zeppelin" in log


def test_no_modules(start, models, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    log = start.refused(models.script(), {"modules": {"path": [str(empty)]}})
    assert one_line(log)
    log = start.refused(models.script(), {"modules": {"path": [str(tmp_path / "nowhere")]}})
    assert "nowhere" in log


# ---- signals -----------------------------------------------------------------------

@pytest.mark.home("release", "asan", "tsan")
@pytest.mark.tsan
def test_sigterm_drains(start, models):
    """A request under way is finished, a new one refused, then exit code 0.  However slow the machine is: it has all the
    time that the test has."""
    d = start(extra={"models": [{"name": "slow", "path": models.slow()}], "server": {"drain_timeout": "%ds" % DEADLINE_S}})
    c = d.ws()
    c.create("hi", model="slow", max_output_tokens=300)
    c.until_type("response.output_text.delta")
    other = d.ws()
    d.process.send_signal(signal.SIGTERM)

    def draining():
        other.create("hi", model="slow", max_output_tokens=1)
        events = other.until_type("response.incomplete", "error")
        return events[-1] if events[-1]["type"] == "error" else None
    try:
        refused = until(draining, "new requests are refused")
        assert refused["status"] == 503
    except Exception as e:  # the socket may also be closed, saying that the server goes
        if type(e).__module__.split(".")[0] != "websockets":
            raise
        assert e.rcvd and e.rcvd.code in (1001, 1012, 1013)
    events = c.until_type("response.incomplete")
    assert events[-1]["response"]["status"] == "incomplete"
    assert events[-1]["response"]["usage"]["output_tokens"] == 300
    assert d.wait_exit() == 0
    d.check_reports()


@pytest.mark.tsan
def test_sigterm_does_not_wait_for_ever(start, models):
    d = start(extra={"models": [{"name": "slow", "path": models.slow()}],
                     "server": {"drain_timeout": "300ms"}})
    c = d.ws()
    c.create("hi", model="slow")
    c.until_type("response.output_text.delta")
    d.process.send_signal(signal.SIGTERM)
    assert d.wait_exit() == 0


def test_sigint_is_as_sigterm(start, models):
    d = start(models.script())
    d.process.send_signal(signal.SIGINT)
    assert d.wait_exit() == 0


def test_sigterm_while_starting(start, models, tmp_path):
    """At whatever moment it comes, the end is clean."""
    for i in range(6):
        d = start(models.slow()) if i == 0 else None
        if d:
            first = d.ready_s
            d.stop()
            continue
        from daemon import Daemon
        d = Daemon(tmp_path / ("s%d" % i), start.config(models.slow()), wait=False)
        start.running.append(d)
        try:
            d.process.wait(first * i / 6)
        except subprocess.TimeoutExpired:
            pass
        d.process.send_signal(signal.SIGTERM)
        assert d.wait_exit() in (0, -signal.SIGTERM)
        d.check_reports()


def test_sigpipe_and_closed_output(start, models):
    """Nobody reads its standard output: that is no reason to end."""
    d = start(models.script())
    d.process.stdout.close()
    assert d.chat_text() == SCRIPT
    d.process.stdout = open(os.devnull, "rb")


@pytest.mark.tsan
def test_reload(start, models):
    d = start(models.script())
    before = d.port
    d.write_config(merged(d.config, {"log": {"level": "debug"},
                                     "scheduler": {"retry_after": "9s"}}))
    d.process.send_signal(signal.SIGHUP)
    until(lambda: "log.level" in d.log and "scheduler.retry_after" in d.log,
          "what changed is in the log")
    assert re.search(r"log\.level.*info.*debug", d.log)
    assert re.search(r"scheduler\.retry_after.*2.*9", d.log)
    assert d.chat_text() == SCRIPT and d.port == before


def test_reload_of_what_needs_a_restart(start, models):
    d = start(models.script())
    d.write_config(merged(d.config, {"runtime": {"threads": 1}}))
    d.process.send_signal(signal.SIGHUP)
    until(lambda: re.search(r"runtime\.threads.*restart", d.log), "it says that a restart is needed")
    assert d.chat_text() == SCRIPT


def test_reload_of_a_broken_file_keeps_the_old_one(start, models):
    d = start(models.script())
    good = d.config
    d.write_config("server:\n  prt: 1\n")
    d.process.send_signal(signal.SIGHUP)
    until(lambda: "%s:2:3" % d.config_path in d.log, "the error is in the log")
    assert d.chat_text() == SCRIPT
    d.write_config(merged(good, {"log": {"level": "debug"}}))
    d.process.send_signal(signal.SIGHUP)
    until(lambda: "log.level" in d.log, "it took the good one")
    assert d.chat_text() == SCRIPT


def test_log_file_is_reopened(start, models, tmp_path):
    path = tmp_path / "ingotd.log"
    d = start(models.script(), {"log": {"file": str(path)}})
    until(lambda: path.exists() and path.stat().st_size, "the log is there")
    old = tmp_path / "old.log"
    path.rename(old)
    d.process.send_signal(signal.SIGHUP)
    until(lambda: path.exists() and "reload: " in path.read_text(), "a new log is there")
    end = old.stat().st_size
    assert d.chat(zeppelin=1).status == 200  # a line of the log
    until(lambda: "zeppelin" in path.read_text(), "it is written to")
    assert old.stat().st_size == end


def test_long_lived_options_are_in_the_metrics(start, models):
    d = start(models.script())
    m = d.metrics()
    assert isinstance(m, Metrics)
    assert m.sum("ingot_kv_cache_arena_bytes") == 64 << 20
    assert m.sum("ingot_weight_bytes") > 100000


def test_every_damage_is_tested():
    assert set(WORDS) | {"no-template", "template"} == set(tiny_model.DAMAGES)
