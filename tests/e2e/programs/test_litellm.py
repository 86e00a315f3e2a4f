"""LiteLLM's proxy, unmodified, in front of the daemon, asked through the openai package; it speaks to the daemon as to
a server of OpenAI, of Ollama and of Anthropic."""
import json
import secrets
import signal
import socket
import subprocess
import urllib.error
import urllib.request

import openai
import pytest

from agents.codex import call
from conftest import Starter
from daemon import until
from programs.venvs import environment, needs, program, url
from test_ledger import until_rows

pytestmark = needs("litellm")

STORY = "Once upon a time: %s, and so on." % ", ".join("%d foxes" % n for n in range(150))
BOOK = [
    ("last.role == 'tool' and 'sunny in Paris' in last.content", "It is sunny in Paris."),
    ("last.role == 'tool'", "The tool said something else."),
    ("'weather' in ask", call("weather", city="Paris")),
    # to Anthropic's servers the proxy sends a schema as a tool that must be called
    ("'person' in ask and tools", call("json_tool_call", name="Eve", age=41)),
    ("'person' in ask", '{"name": "Eve", "age": 41}'),
    ("true", STORY),
]
WEATHER = {"type": "function", "function": {
    "name": "weather", "description": "The weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
PERSON = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": {
    "type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"], "additionalProperties": False}}}
# How the proxy is told to reach the daemon, and the endpoint that it then asks.
WAYS = {"openai": ("openai/book", "/v1", "POST /v1/chat/completions"),
        "ollama": ("ollama_chat/book", "", "POST /api/chat"),
        "anthropic": ("anthropic/book", "", "POST /v1/messages")}


class Proxy:
    def __init__(self, d, folder):
        self.n_asked = 0
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        (folder / "config.yaml").write_text(json.dumps({"model_list": [
            {"model_name": name, "litellm_params": {"model": model, "api_base": url(d) + path, "api_key": "unused"}}
            for name, (model, path, _) in WAYS.items()]}))
        self.key = "sk-" + secrets.token_hex(32)  # without one it does not start
        env = environment(folder, LITELLM_MASTER_KEY=self.key)
        self.log = open(folder / "proxy.txt", "w+b")
        self.process = subprocess.Popen(
            [program("litellm", "litellm"), "--config", "config.yaml", "--host", "127.0.0.1", "--port", str(self.port)],
            cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT)

    def ready(self):
        assert self.process.poll() is None, self.said()
        try:
            with urllib.request.urlopen("http://127.0.0.1:%d/health/readiness" % self.port, timeout=5) as r:
                return r.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def said(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")[-5000:]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        finally:
            self.process.kill()
            self.log.close()


@pytest.fixture(scope="module")
def d(shared_folder, models):
    s = Starter(shared_folder)
    yield s(extra={"models": [{"name": "book", "path": models.book(BOOK)}]})
    s.finish()


@pytest.fixture(scope="module")
def proxy(d, tmp_path_factory):
    p = Proxy(d, tmp_path_factory.mktemp("proxy"))
    try:
        until(p.ready, "the proxy", 120)
        yield p
    finally:
        p.stop()


class Ask:
    """Asks through the proxy; rows are those of the daemon's ledger."""

    def __init__(self, d, proxy, way):
        self.d, self.proxy, self.way, self.n_before = d, proxy, way, proxy.n_asked
        self.status = 200
        self.client = openai.OpenAI(base_url="http://127.0.0.1:%d/v1" % proxy.port, api_key=proxy.key, max_retries=0)

    def __call__(self, messages, **more):
        self.proxy.n_asked += 1
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        return self.client.chat.completions.create(model=self.way, messages=messages, **more)

    def rows(self):
        return until_rows(self.d, self.proxy.n_asked)[self.n_before:]


@pytest.fixture(params=list(WAYS))
def ask(request, d, proxy):
    a = Ask(d, proxy, request.param)
    yield a
    assert {(r["endpoint"], r["status"]) for r in a.rows()} == {(WAYS[request.param][2], a.status)}
    # the proxy's own field, which it sends back to servers of OpenAI's protocol
    assert {r["ignored"] for r in a.rows()} <= {"", "messages[1].provider_specific_fields"}


def test_a_stream(ask):
    chunks = list(ask("Tell a story.", stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == STORY
    assert sum(bool(c.choices and c.choices[0].delta.content) for c in chunks) > 1
    usage, row = [c.usage for c in chunks if c.usage][-1], ask.rows()[-1]
    assert (usage.prompt_tokens, usage.completion_tokens) == (row["prompt_tokens"], row["output_tokens"])


def test_a_tool(ask):
    messages = [{"role": "user", "content": "What is the weather?"}]
    m = ask(messages, tools=[WEATHER]).choices[0].message
    c, = m.tool_calls
    assert (c.function.name, json.loads(c.function.arguments)) == ("weather", {"city": "Paris"})
    messages += [m.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": c.id, "content": "sunny in Paris"}]
    assert ask(messages, tools=[WEATHER]).choices[0].message.content == "It is sunny in Paris."


def test_a_structured_result(ask):
    r = ask("Name a person.", response_format=PERSON)
    assert json.loads(r.choices[0].message.content) == {"name": "Eve", "age": 41}


def test_a_prompt_that_is_too_long(ask):
    """The proxy knows it as such, and could ask a model with a longer context; but of no server of Ollama."""
    ask.status = 400
    words = "maximum context length is 8192" if ask.way == "ollama" else "ContextWindowExceededError"
    with pytest.raises(openai.BadRequestError, match=words):
        ask([{"role": role, "content": "word " * 60} for role in ("user", "assistant") * 20 + ("user",)])
