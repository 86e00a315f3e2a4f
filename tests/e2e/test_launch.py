"""`ingot launch`: agents get the settings for the daemon, for one run.  The agents are programs made
here that print what they were given; what they find there is then tried on the daemon."""
import http.server
import json
import os
import pathlib
import signal
import subprocess
import threading
import urllib.request

import pytest

from access import add_key
from daemon import BUILD, DEADLINE_S, REPORT, clean_env, until
from test_models import ARENA, Stream, big, budget_for, lazy, model, sizes, states  # noqa: F401
from tiny_model import SCRIPT

pytestmark = pytest.mark.home("release")

INGOT = str(BUILD / "cli" / "ingot")
AGENTS = ["codex", "claude", "opencode", "aider", "gptme", "goose", "llm"]
FAKE = """#!/usr/bin/env python3
import json, os, sys
json.dump([[os.path.basename(sys.argv[0]), *sys.argv[1:]], dict(os.environ)], open(os.environ["SEEN"], "w"))
print("output of the agent")
sys.exit(7)
"""
KEYS = ("ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "INGOT_API_KEY")


@pytest.fixture
def agents(tmp_path):
    """A folder with all agents, which is the first of PATH; python and the tools of a shell are in
    the others."""
    folder = tmp_path / "agents"
    folder.mkdir()
    for name in AGENTS:
        (folder / name).write_text(FAKE)
        (folder / name).chmod(0o755)
    return folder


class Launched:
    def __init__(self, d, agents, *args, url=None, shell=None, **env):
        self.seen = agents / "seen.json"
        self.seen.unlink(missing_ok=True)
        e = clean_env(agents, {"INGOT_URL": url or "http://%s:%d" % (d.host, d.port), "SEEN": str(self.seen),
                               "LC_ALL": "C.UTF-8", **env})
        e["PATH"] = "%s:%s" % (agents, e["PATH"])
        p = subprocess.run(["sh", "-c", shell] if shell else [INGOT, "launch", *args], env=e, cwd=agents,
                           stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE_S)
        self.code, self.out, self.err = p.returncode, p.stdout, p.stderr
        assert not REPORT.search(self.err), self.err
        if self.seen.exists():
            self.args, self.env = json.loads(self.seen.read_text())
            self.new = {k: v for k, v in self.env.items() if e.get(k) != v and k not in ("_", "PWD", "SHLVL")}
            self.gone = [k for k in e if k not in self.env]

    def refused(self, *words):
        assert self.code == 1 and self.out == "" and not self.seen.exists(), (self.code, self.out, self.err)
        for word in words:
            assert word in self.err, (word, self.err)

    def started(self):
        assert (self.code, self.out) == (7, "output of the agent\n"), self.err
        return self


def url_of(d):
    return "http://%s:%d" % (d.host, d.port)


def window(d, name):
    return d.http("GET", "/v1/models/" + name).json["max_input_tokens"]


# ---- what each is told ---------------------------------------------------------------------


def codex_settings(args):
    """The --config options as Codex reads them: dotted names, values in TOML."""
    tomllib = pytest.importorskip("tomllib")
    found = {}
    for arg in args:
        assert arg.startswith("--config="), arg
        name, _, value = arg.removeprefix("--config=").partition("=")
        found[name] = tomllib.loads("x = " + value)["x"]
    return found


def test_codex(scripted, agents):
    got = Launched(scripted, agents, "codex", "--model", "random", "--", "exec", "--json", "-", "a b").started()
    assert got.args[0] == "codex" and got.args[-4:] == ["exec", "--json", "-", "a b"]
    assert codex_settings(got.args[1:-4]) == {
        "model_provider": "ingot", "model": "random", "model_context_window": window(scripted, "random"),
        "model_providers.ingot.name": "Ingot",
        "model_providers.ingot.base_url": url_of(scripted) + "/v1",
        "model_providers.ingot.wire_api": "responses",
        "model_providers.ingot.supports_websockets": True,
        "model_providers.ingot.env_key": "INGOT_API_KEY",
        "model_providers.ingot.model_catalog_url": url_of(scripted) + "/v1/models"}
    assert got.new == {"INGOT_API_KEY": "none"} and got.gone == []


def test_claude(scripted, agents):
    got = Launched(scripted, agents, "claude", ANTHROPIC_API_KEY="sk-ant-real",
                   CLAUDE_CODE_USE_BEDROCK="1").started()
    assert got.args == ["claude"]
    assert got.new == {
        "ANTHROPIC_BASE_URL": url_of(scripted), "ANTHROPIC_AUTH_TOKEN": "none",
        **{name: "tiny" for name in ("ANTHROPIC_MODEL", "ANTHROPIC_DEFAULT_OPUS_MODEL",
                                     "ANTHROPIC_DEFAULT_SONNET_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL",
                                     "CLAUDE_CODE_SUBAGENT_MODEL")},
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0", "CLAUDE_CODE_TOTAL_TOKENS_REMINDER": "off",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    assert sorted(got.gone) == ["ANTHROPIC_API_KEY", "CLAUDE_CODE_USE_BEDROCK"]


def test_opencode(scripted, agents):
    got = Launched(scripted, agents, "opencode", "-m", "random", "--", "run", "hi").started()
    assert got.args == ["opencode", "run", "hi"] and list(got.new) == ["OPENCODE_CONFIG_CONTENT"]
    config = json.loads(got.new["OPENCODE_CONFIG_CONTENT"])
    n = window(scripted, "random")
    assert config == {
        "model": "ingot/random", "small_model": "ingot/random",
        "provider": {"ingot": {
            "npm": "@ai-sdk/openai-compatible", "name": "Ingot",
            "options": {"baseURL": url_of(scripted) + "/v1", "apiKey": "none"},
            "models": {"random": {"name": "random", "limit": {"context": n, "output": n // 4}}}}}}


@pytest.mark.parametrize("name, args, env", [
    ("aider", ["--model", "openai/tiny"], {"OPENAI_API_BASE": "/v1", "OPENAI_API_KEY": None}),
    ("gptme", ["--model", "local/tiny"], {"OPENAI_BASE_URL": "/v1", "OPENAI_API_KEY": None,
                                       "GPTME_CONTEXT_BUDGET": "room"}),
    ("goose", ["session"], {"OPENAI_HOST": "", "OPENAI_API_KEY": None, "GOOSE_PROVIDER": "openai",
                            "GOOSE_MODEL": "tiny", "GOOSE_CONTEXT_LIMIT": "window"}),
    ("llm", ["openai", "endpoint", "/v1", "--model", "tiny", "--chat"], {}),
])
def test_others(scripted, agents, name, args, env):
    """A variable that would have one of them ask another server, or show that server's key to this
    one, does not reach it."""
    others = {"OPENAI_API_KEY": "sk-real", "OPENAI_BASE_URL": "https://elsewhere/v1",
              "OPENAI_API_BASE": "https://elsewhere/v1"}
    got = Launched(scripted, agents, name, **others).started()
    url = url_of(scripted)
    assert got.args == [name] + [url + "/v1" if a == "/v1" else a for a in args]
    n = window(scripted, "tiny")
    facts = {None: "none", "window": str(n), "room": str(n - n // 4)}
    assert got.new == {k: facts[v] if v in facts else url + v if k.startswith("OPENAI") else v for k, v in env.items()}
    if name != "llm":  # which reads none of them
        assert not [v for v in got.env.values() if "elsewhere" in v or v == "sk-real"]
    # what is given replaces what it is started with otherwise
    got = Launched(scripted, agents, name, "--", "--help").started()
    assert got.args[-1] == "--help" and "session" not in got.args and "--chat" not in got.args


def test_settings_reach_the_model(scripted, agents):
    """What they were told is true: the address with the path that they add to it, and the name."""
    for name, path, address in (("aider", "/chat/completions", "OPENAI_API_BASE"),
                                ("gptme", "/chat/completions", "OPENAI_BASE_URL"),
                                ("goose", "/v1/chat/completions", "OPENAI_HOST"),
                                ("claude", "/v1/messages", "ANTHROPIC_BASE_URL")):
        got = Launched(scripted, agents, name).started()
        body = {"model": "tiny", "max_tokens": 100, "temperature": 0,
                "messages": [{"role": "user", "content": "hi"}]}
        r = urllib.request.Request(got.env[address] + path, json.dumps(body).encode(),
                                   {"Content-Type": "application/json"})
        with urllib.request.urlopen(r, timeout=DEADLINE_S) as f:
            assert SCRIPT in json.dumps(json.load(f), ensure_ascii=False), name


# ---- --print, and the list -------------------------------------------------------------------


def test_print(scripted, agents):
    """The command for a shell does the same; nothing is started."""
    for name in AGENTS:
        real = Launched(scripted, agents, name, "-m", "random", "--", "it's", "$HOME", "").started()
        printed = Launched(scripted, agents, name, "-m", "random", "--print", "--", "it's", "$HOME", "")
        assert printed.code == 0 and not printed.seen.exists(), printed.err
        # it is what was printed on standard error when it was started
        assert real.err.endswith(printed.out), (real.err, printed.out)
        again = Launched(scripted, agents, shell=printed.out)
        assert again.code == 7, again.err
        assert again.args == real.args, name
        assert {**again.new, "_": ""} == {**real.new, "_": ""}, name


def test_print_needs_no_agent_and_loads_nothing(start, models, agents):
    d = start(extra={"models": [lazy("tiny", models.script())]})
    (agents / "codex").unlink()
    got = Launched(d, agents, "codex", "--print")
    assert got.code == 0 and "--config=model_context_window=%d " % window(d, "tiny") in got.out
    assert """'--config=model="tiny"'""" in got.out
    assert states(d) == {"tiny": "unloaded"}


@pytest.fixture
def stub():
    """Something that lists the models it is told."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = json.dumps({"data": self.server.models}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass
    s = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    s.host, s.port = s.server_address
    t = threading.Thread(target=s.serve_forever)
    t.start()
    yield s
    s.shutdown()
    t.join()
    s.server_close()


def test_window_is_unknown(stub, agents):
    """Settings with it are left out."""
    stub.models = [{"id": "m", "state": "unloaded", "default": True, "max_input_tokens": None}]
    got = Launched(stub, agents, "codex", "--print")
    assert got.code == 0 and "model_context_window" not in got.out and "is not known before" in got.err
    got = Launched(stub, agents, "opencode", "--print")
    assert got.code == 0 and "limit" not in got.out and "baseURL" in got.out
    got = Launched(stub, agents, "goose", "--print")
    assert got.code == 0 and "GOOSE_CONTEXT_LIMIT" not in got.out and "GOOSE_MODEL=m" in got.out


def test_no_default_model(stub, agents):
    stub.models = [{"id": "a", "default": False}, {"id": "b", "default": False}]
    Launched(stub, agents, "aider").refused("no default model", "a, b")
    stub.models = []
    Launched(stub, agents, "aider").refused("it serves none")
    Launched(stub, agents, "aider", "-m", "b").refused("serves no model b")


def test_a_name_that_could_be_more_than_a_name(stub, agents):
    """It would become a part of the agent's configuration."""
    stub.models = [{"id": 'm","x":"', "default": True, "max_input_tokens": 9}]
    Launched(stub, agents, "opencode", "--print").refused("no default model")


def test_list(scripted, agents):
    (agents / "goose").unlink()
    got = Launched(scripted, agents)
    lines = [line.split(None, 1) for line in got.out.strip().split("\n")]
    assert got.code == 0 and [name for name, _ in lines] == ["AGENT"] + AGENTS
    assert dict(lines)["codex"] == str(agents / "codex") and dict(lines)["goose"].startswith("no: http")


# ---- what is checked -------------------------------------------------------------------------


def test_agent_is_missing(scripted, agents):
    (agents / "codex").chmod(0o644)  # no program
    Launched(scripted, agents, "codex").refused("codex is not in PATH", "npm install -g @openai/codex")
    (agents / "codex").unlink()
    (agents / "codex").mkdir()
    Launched(scripted, agents, "codex").refused("codex is not in PATH")


def test_model_is_unknown(scripted, agents):
    Launched(scripted, agents, "aider", "-m", "zeppelin").refused("zeppelin", "tiny, random, slow")


def test_no_daemon(scripted, agents):
    Launched(scripted, agents, "aider", url="http://127.0.0.1:9").refused("nothing answers", "127.0.0.1:9")
    Launched(scripted, agents, "aider", url="unix:/tmp/no").refused("unix socket", "server.host")


@pytest.mark.parametrize("args", [
    ["zeppelin"], ["codx"], ["codex", "exec"], ["--", "codex"], ["codex", "--zeppelin"],
    ["codex", "-m", "no name"], ["codex", "--model"]])
def test_wrong_usage(scripted, agents, args):
    got = Launched(scripted, agents, *args)
    assert got.code == 2 and got.out == "" and got.err and not got.seen.exists()
    if args == ["codx"]:
        assert "did you mean codex?" in got.err


def test_model_is_loaded(start, models, agents):
    d = start(extra={"models": [model("tiny", models.script()), lazy("other", models.random())],
                     "default_model": "tiny"})
    got = Launched(d, agents, "codex", "-m", "other").started()
    assert "loading other" in got.err and states(d)["other"] == "ready"
    assert "--config=model_context_window=2048" in got.args
    assert "loading" not in Launched(d, agents, "codex", "-m", "other").started().err


def test_model_does_not_fit(start, models, agents, sizes):
    """memory.budget has space for one of two, and that is in use."""
    d = start(extra={"memory": {"budget": budget_for(sizes, 1)}, "kvcache": {"arena": ARENA},
                     "models": [lazy(name, big(models)) for name in "ab"]})
    s = Stream(d, "a", n=100000)
    Launched(d, agents, "aider", "-m", "b").refused("b cannot be used", "memory.budget")
    s.stop()
    d.until_idle()
    Launched(d, agents, "aider", "-m", "b").started()


def test_window_is_small(scripted, agents):
    """2,048 tokens are fewer than Codex takes for itself; 16,384 are enough for it, are not for
    Claude Code, and leave little for gptme."""
    assert window(scripted, "random") == 2048 and window(scripted, "slow") == 16384
    for name, model, words in (("codex", "random", ["2048", "5200", "refused"]), ("codex", "slow", []),
                               ("gptme", "slow", ["16384", "9700", "of them"]),
                               ("claude", "slow", ["16384", "19000", "refused"]), ("aider", "random", [])):
        err = Launched(scripted, agents, name, "-m", model).started().err
        assert ("the window of" in err) == bool(words), err
        for word in words:
            assert word in err, err


# ---- keys ------------------------------------------------------------------------------------


def test_key(start, models, agents, tmp_path):
    """It is in the environment, and nowhere else."""
    path = tmp_path / "keys"
    key = add_key(path)
    d = start(models.script(), {"server": {"keys_file": str(path)}})
    file = tmp_path / "key"
    file.write_text(key + "\n")
    Launched(d, agents, "codex").refused("401")
    for name in AGENTS:
        if name == "llm":
            Launched(d, agents, name, INGOT_API_KEY=key).refused("only as an argument")
            continue
        for how in ({"INGOT_API_KEY": key}, {}):
            args = [] if how else ["--api-key-file", str(file)]
            got = Launched(d, agents, name, *args, **how).started()
            assert [v for k, v in got.env.items() if key in v and k in (*KEYS, "OPENCODE_CONFIG_CONTENT")], name
            assert key not in " ".join(got.args) and key not in got.err
        printed = Launched(d, agents, name, "--print", INGOT_API_KEY=key)
        assert key not in printed.out + printed.err and "$INGOT_API_KEY" in printed.out
        # a shell that has the key does the same with it
        again = Launched(d, agents, shell=printed.out, INGOT_API_KEY=key)
        assert {k: v for k, v in again.env.items() if key in v} == {k: v for k, v in got.env.items() if key in v} \
            | {"INGOT_API_KEY": key}


def test_certificates(scripted, agents, tmp_path):
    """Which are trusted is told by the variable that the agent reads."""
    pem = pathlib.Path(__file__).parent / "tls"
    file = tmp_path / "ca.pem"
    file.write_text("")
    assert pem.exists()
    for name, variable in (("codex", "CODEX_CA_CERTIFICATE"), ("claude", "NODE_EXTRA_CA_CERTS"),
                           ("aider", "SSL_CERT_FILE")):
        got = Launched(scripted, agents, name, "--cacert", str(file)).started()
        assert got.new[variable] == str(file)
        assert variable not in Launched(scripted, agents, name).started().new
    Launched(scripted, agents, "goose", "--cacert", str(file)).refused("certificates")


# ---- the process -----------------------------------------------------------------------------


def test_the_agent_is_the_process(scripted, agents):
    """Signals reach it, and its end is the command's."""
    (agents / "aider").write_text("#!/bin/sh\necho $$\nexec sleep 600\n")
    e = clean_env(agents, {"INGOT_URL": url_of(scripted)})
    e["PATH"] = "%s:%s" % (agents, e["PATH"])
    p = subprocess.Popen([INGOT, "launch", "aider"], env=e, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                         stdin=subprocess.DEVNULL, text=True)
    assert int(p.stdout.readline()) == p.pid
    p.send_signal(signal.SIGTERM)
    assert p.wait(DEADLINE_S) == -signal.SIGTERM
    p.stdout.close()
    until(lambda: not scripted.running(), "nothing runs")
