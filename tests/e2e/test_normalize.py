"""kvcache.normalize: what changes with every request at the start of a prompt does not spoil the cache of
what follows; what a user wrote is never changed."""
import signal

import anthropic
import openai
import pytest

from conftest import Starter, configuration
from daemon import merged, until, yaml_text
from test_claude_code import NAMES, system, tool
from test_cli import ingot
from test_ledger import rows
from test_start import check_config

pytestmark = pytest.mark.home("release")

RULES = "You are a careful assistant. " * 12
ONCE = {"prompt_cache_normalize": False}
MODELS = {"coder": {"kind": "tools", "n_context": 32768},
          "strict": {"kind": "script", "template": "strict", "n_context": 4096},
          "hoists": {"kind": "script", "template": "hoists", "n_context": 4096}}
HASH = "x-anthropic-billing-header: cc_version=2.1.%d; cc_entrypoint=cli; cch=%05x;"


@pytest.fixture(scope="module")
def agent(shared_folder, models):
    s = Starter(shared_folder)
    d = s(config=configuration(shared_folder, extra={
        "models": [{"name": n, "path": models(**o)} for n, o in MODELS.items()] +
                  [{"name": "sees", "path": models(kind="script")}],
        "kvcache": {"normalize": [
            {"name": "dates", "except_models": ["se*"]},
            {"name": "tickets", "pattern": r"ticket ([A-Z]+)-\d+(x)?", "replacement": "$$1: $1$2",
             "models": ["strict", "s*s"]},
            {"name": "elsewhere", "pattern": "careful", "clients": ["192.0.2.*"]},
            {"name": "here", "pattern": "^Run .*$", "replacement": "Run.", "clients": ["127.0.0.*"]},
            {"name": "off", "pattern": "assistant", "enabled": False},
        ]}}))
    yield d
    d.until_idle()
    s.finish()


def ask(d, model="coder", **options):
    """Claude Code's way, by Anthropic's package as it is: tokens of the prompt, those of the cache."""
    client = anthropic.Anthropic(base_url="http://%s:%d" % (d.host, d.port), api_key="none", max_retries=0)
    options.setdefault("messages", [{"role": "user", "content": "What is the weather?"}])
    used = client.messages.create(model=model, max_tokens=4, **options).usage
    return used.input_tokens + used.cache_read_input_tokens, used.cache_read_input_tokens


def prompt(d, messages, model="sees", **options):
    """What the model sees."""
    r = d.http("POST", "/v1/tokenize", {"model": model, "messages": messages, "return_token_strs": True, **options})
    assert r.status == 200, r
    return "".join(r.json["token_strs"]), r.headers["x-ingot-normalized"]


def says(text, role="system"):
    return [{"role": role, "content": text}, {"role": "user", "content": "hi"}]


def test_hash(agent):
    tools = [tool(name) for name in NAMES]
    n, _ = ask(agent, system=system(1), tools=tools)
    for number in (2, 77777):
        assert ask(agent, system=system(number), tools=tools)[1] >= n - 1 > 2000
    # the hash is part of the prompt of a request that opts out
    first, cached = ask(agent, system=system(3), extra_body=ONCE)
    assert first > ask(agent, system=system(4))[0] + 20
    again, cached = ask(agent, system=system(5), extra_body=ONCE)
    assert again == first and cached < 60 < again / 2


@pytest.mark.parametrize("date", ["Current time: 2026-11-23 17:%02d", "Today is Monday, November 23, 2026 at 5:%02d PM UTC."])
def test_dates(agent, date):
    """By the minute, through the package openai, in both of its protocols."""
    client = openai.OpenAI(base_url="http://%s:%d/v1" % (agent.host, agent.port), api_key="none", max_retries=0)

    def chat(minute, **options):
        u = client.chat.completions.create(
            model="coder", max_tokens=2, messages=says("By chat.\n" + date % minute + "\n" + RULES), **options).usage
        return u.prompt_tokens, u.prompt_tokens_details.cached_tokens

    def responses(minute, **options):
        u = client.responses.create(model="coder", max_output_tokens=2, instructions=date % minute + "\nBy responses.\n" + RULES,
                                    input="hi", store=False, **options).usage
        return u.input_tokens, u.input_tokens_details.cached_tokens
    for create in (chat, responses):
        n, _ = create(10)
        same, cached = create(11)
        assert same == n and n - 16 <= cached < n
        m, _ = create(12, extra_body=ONCE)
        assert m > n and create(13, extra_body=ONCE)[1] < 60 < n


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("budget", ["Token usage: %d/200000; the rest is left.", "You have %d tokens left."])
def test_tokens_left(agent, model, budget):
    """Turns of the system that count down stay in their place, also where the template takes a system
    message at the start only, or moves it there."""
    messages, head = [], [{"type": "text", "text": RULES + budget % 0}]
    for i in range(6):
        messages += [{"role": "user", "content": "Step %d of the work: look at file %d. " % (i, i)},
                     {"role": "system", "content": budget % (190000 - 1234 * i)}]
        n, cached = ask(agent, model, system=head, messages=messages)
        if i:
            # the prompt before is a prefix of this one, but for what begins the answer
            assert cached >= 0.95 * before
        before = n
        messages.append({"role": "assistant", "content": "I have looked at file %d." % i})


def test_what_the_model_sees(agent):
    for text, seen, rules in [
            (HASH % (1, 2) + "\nYou are.", "You are.", "claude-code-header"),
            # parts that a client has joined without a newline
            ("a\n" + HASH % (1, 2) + "You are.", "a\nYou are.", "claude-code-header"),
            ("See x-anthropic-billing-header: cch=12345; here", None, None),
            ("x-anthropic-billing-header: is a header", None, None),
            ("ticket AB-17, ticket C-5x", "$1: AB, $1: Cx", "tickets"),
            ("Run 17\nx", "Run.\nx", "here"),
            (HASH % (1, 2) + "\nRun 5", "Run.", "claude-code-header, here"),
            ("a careful assistant", None, None),
            ("Current time: 2026-11-23 17:11", None, None)]:  # dates: not for this model
        whole, told = prompt(agent, says(text))
        assert (whole, told) == (prompt(agent, says(text if seen is None else seen), **ONCE)[0], rules), text
        assert prompt(agent, says(text, "developer")) == (whole, told)
        assert text in prompt(agent, says(text), **ONCE)[0] and prompt(agent, says(text), **ONCE)[1] is None
        for role in ("user", "assistant"):
            assert prompt(agent, says(text, role)) == prompt(agent, says(text, role), **ONCE)
            assert text in prompt(agent, says(text, role))[0]
    # a message of which nothing is left is none; a prompt of which nothing is left is an error
    assert prompt(agent, says(HASH % (1, 1)))[0] == prompt(agent, says("")[1:])[0]
    r = agent.http("POST", "/v1/tokenize", {"model": "sees", "messages": says(HASH % (1, 1))[:1]})
    assert r.status == 400 and "nothing" in r.error["message"]
    r = agent.http("POST", "/v1/chat/completions", {"model": "coder", "messages": says("x"),
                                                    "prompt_cache_normalize": "no"})
    assert r.status == 400 and "'prompt_cache_normalize'" in r.error["message"]


def test_told(agent):
    """In the reply's header, in an event of the WebSocket, in the metrics."""
    text = HASH % (1, 1) + "\nNow it is 23 November 2026, 17:11.\n" + RULES
    assert prompt(agent, says(text), "coder")[1] == "claude-code-header, dates"

    def counts():
        metrics = agent.metrics()
        return [metrics.sum("ingot_prompts_normalized_total", rule=rule) for rule in ("claude-code-header", "dates")]
    before = counts()
    body = {"model": "coder", "max_tokens": 1, "system": text, "messages": says("")[1:]}
    for path, more in (("/v1/messages", {}), ("/v1/messages", {"stream": True}), ("/v1/messages/count_tokens", {})):
        r = agent.http("POST", path, {**body, **more})
        assert (r.status, r.headers["x-ingot-normalized"]) == (200, "claude-code-header, dates")
    r = agent.http("POST", "/v1/messages", body)
    plain = agent.http("POST", "/v1/messages", {**body, **ONCE})
    assert plain.headers["x-ingot-normalized"] is None
    told = until(lambda: {x["id"]: x["normalized"] for x in rows(agent) if x["id"] == plain.json["id"]}, "its row")
    told.update((x["id"], x["normalized"]) for x in rows(agent))
    assert (told[r.json["id"]], told[plain.json["id"]]) == ("claude-code-header, dates", "")
    r = agent.http("POST", "/api/chat", {"model": "coder", "stream": False, "messages": says(text),
                                         "options": {"num_predict": 1}})
    assert r.headers["x-ingot-normalized"] == "claude-code-header, dates"
    assert agent.http("POST", "/api/chat", {"model": "coder", "stream": False, "messages": says(text),
                                            "options": {"num_predict": 1}, **ONCE}).headers["x-ingot-normalized"] is None
    c = agent.ws()
    c.create("hi", model="coder", instructions=text, max_output_tokens=1)
    created = c.until_type("response.created")[-1]
    assert created["headers"]["x-ingot-normalized"] == "claude-code-header, dates"
    c.until_type("response.completed", "response.incomplete")
    # a warm-up of nothing is fine
    c.create([], model="hoists", instructions=HASH % (1, 1), generate=False)
    assert c.until_type("response.completed", "response.failed", "error")[-1]["type"] == "response.completed"
    c.close()
    after = counts()
    assert (after[0] - before[0], after[1] - before[1]) == (7, 6)


WRONG = [
    ({"name": "mine", "pattern": "a(b"}, "rule \"mine\": the pattern does not compile: missing closing parenthesis"),
    ({"name": "mine", "pattern": "a*"}, "rule \"mine\": the pattern matches the empty text"),
    ({"name": "mine", "pattern": "a", "replacement": "$1"}, "rule \"mine\": the replacement has $1"),
    ({"name": "mine"}, "rule \"mine\": pattern is missing"),
    ({"name": "dates", "pattern": "a"}, "rule \"dates\": this rule is built in"),
]


@pytest.mark.parametrize("rule,why", WRONG, ids=[w for _, w in WRONG])
def test_refused(start, models, rule, why, tmp_path):
    config = configuration(tmp_path, models.script(), {"kvcache": {"normalize": [{"name": "fine", "pattern": "x"}, rule]}})
    said = start.refused(config=config)
    checked, path = check_config(tmp_path, yaml_text(config) + "\n")
    assert checked.returncode and path in checked.stderr and "kvcache.normalize[1], " + why in checked.stderr
    assert "kvcache.normalize[1], " + why in said, said
    assert any(line.split(":")[1].isdigit() and line.split(":")[2].isdigit()
               for line in said.split("ingot.yaml")[1:]), said


def test_keys(start, models, tmp_path):
    """A client is its key."""
    path = str(tmp_path / "keys")
    d = start(models.script(), {"server": {"keys_file": path}, "kvcache": {"normalize": [
        {"name": "mine", "pattern": "id [0-9]+", "replacement": "id", "clients": ["c*"]}]}})
    keys = {i: ingot(d, "keys", "add", i, *more, "--file", path)[1].strip()
            for i, more in (("ci", ["--admin"]), ("me", []))}
    d.process.send_signal(signal.SIGHUP)
    until(lambda: d.http("GET", "/v1/models").status == 401, "the keys are read")
    for who, told in (("ci", "mine"), ("me", None)):
        r = d.http("POST", "/v1/tokenize", {"model": "tiny", "messages": says("id 17")},
                   {"authorization": "Bearer " + keys[who]})
        assert (r.status, r.headers["x-ingot-normalized"]) == (200, told)


def test_reload(start, models):
    d = start(models.script())
    text = "Current time: 2026-11-23 17:11"
    assert text not in prompt(d, says(text), "tiny")[0]
    rules = [{"name": "dates", "enabled": False}]
    d.write_config(merged(d.config, {"kvcache": {"normalize": rules}}))
    d.process.send_signal(signal.SIGHUP)
    until(lambda: text in prompt(d, says(text), "tiny")[0], "the rule is off")
    d.write_config(merged(d.config, {"kvcache": {"normalize": [{"name": "mine", "pattern": "["}]}}))
    d.process.send_signal(signal.SIGHUP)
    until(lambda: 'rule "mine": the pattern does not compile' in d.log, "the reload is refused")
    assert text in prompt(d, says(text), "tiny")[0]
