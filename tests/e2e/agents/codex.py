"""Runs the real Codex, a binary from PyPI, headless against a daemon."""
import json
import os
import pathlib
import subprocess
import sys

AGENTS = pathlib.Path(os.environ.get("INGOT_AGENTS", ""))  # a virtual environment


def program():
    found = list(AGENTS.glob("lib/python3*/site-packages/codex_cli_bin/bin/codex"))
    return found[0] if found else None


# A server of the Model Context Protocol with one tool.
CALCULATOR = r'''
import json, sys
TOOL = {"name": "multiply", "description": "Multiplies.", "inputSchema": {"type": "object", "properties": {
    "a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]}}
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m:
        continue
    p = m.get("params") or {}
    if m["method"] == "initialize":
        r = {"protocolVersion": p["protocolVersion"], "capabilities": {"tools": {}},
             "serverInfo": {"name": "calc", "version": "1"}}
    elif m["method"] == "tools/list":
        r = {"tools": [TOOL]}
    elif m["method"] == "tools/call":
        a = p["arguments"]
        r = {"content": [{"type": "text", "text": "the product is %g" % (a["a"] * a["b"])}]}
    else:
        r = {}
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": r}), flush=True)
'''


def call(name, /, **arguments):
    """How the models of these tests write a call."""
    return "<tool_call>\n%s\n</tool_call>" % json.dumps({"name": name, "arguments": arguments})


class Codex:
    """Codex with a home and a project of its own, whose provider is the daemon."""

    def __init__(self, folder, d, model="book", websockets=True, catalog=True, config="", provider=""):
        url = "http://127.0.0.1:%d" % d.port
        self.home, self.project = folder / "home", folder / "project"
        self.home.mkdir(parents=True)
        self.project.mkdir()
        (folder / "calc.py").write_text(CALCULATOR)
        (self.home / "config.toml").write_text('''
model = "%s"
model_provider = "ingot"
%s
[model_providers.ingot]
name = "ingot"
base_url = "%s/v1"
wire_api = "responses"
supports_websockets = %s
%s
%s
[mcp_servers.calc]
command = "%s"
args = ["%s"]
''' % (model, config, url, json.dumps(websockets),
       # a catalog is asked for only with a credential
       'experimental_bearer_token = "unused"\nmodel_catalog_url = "%s/v1/models"' % url if catalog else "", provider, sys.executable, folder / "calc.py"))

    def start(self, *words, **variables):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("CODEX_", "OPENAI_"))}
        env.update(CODEX_HOME=str(self.home), HOME=str(self.home), PYENV_ROOT=str(self.home), **variables)
        return subprocess.Popen([program(), "exec", *words], cwd=self.project, env=env, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, *words, timeout=120, **variables):
        """What a run says, as events; it ends with 0."""
        p = self.start("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--json", *words,
                       **variables)
        out, err = p.communicate(timeout=timeout)
        events = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        assert p.returncode == 0, (out, err)
        return Said(events)


class Said:
    def __init__(self, events):
        self.events = events
        self.items = [e["item"] for e in events if e["type"] == "item.completed"]
        self.thread = [e["thread_id"] for e in events if e["type"] == "thread.started"][0]
        self.usage = [e["usage"] for e in events if e["type"] == "turn.completed"][-1]

    def of(self, kind):
        return [i for i in self.items if i["type"] == kind]

    @property
    def text(self):
        return self.of("agent_message")[-1]["text"]

    @property
    def errors(self):
        return [i["message"] for i in self.of("error")]
