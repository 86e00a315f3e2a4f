"""Ollama's API with its own client, the ollama package, as it is; and what programs send that have
its port built in."""
import http.server
import json
import socket
import threading
import urllib.error
import urllib.request

import ollama
import pydantic
import pytest

from access import add_key, bearer
from conftest import Starter, configuration
from daemon import DEADLINE_S, in_pieces, until
from test_pull import CONTENT, Handler, cut_after, sha256, url_of, whole
import tiny_model
from tiny_model import SCRIPT

COLD = {"temperature": 0}
SAID = {"city": "Paris\u00e9", "days": 3}  # what `tools` calls get_weather with


def get_weather(city: str, days: int) -> str:
    """The weather of a city.

    Args:
      city: its name
      days: how many
    """
    return "sun"


def client(d, **options):
    return ollama.Client(host="http://%s:%d" % (d.host, d.port), timeout=DEADLINE_S, **options)


def chat(d, content="hi", model="tiny", **options):
    options.setdefault("options", COLD)
    return client(d).chat(model, [{"role": "user", "content": content}], **options)


def lines(r):
    """The objects of a stream, which must be one in each line."""
    assert r.status == 200 and r.headers["content-type"] == "application/x-ndjson", r
    assert r.body.endswith(b"\n")
    return [json.loads(line) for line in r.body.decode().splitlines()]


def post(d, path, body, **options):
    return d.http("POST", "/api/" + path, body, **options)


# ---- chat --------------------------------------------------------------------------------

def check_end(r, reason="stop"):
    assert r.done and r.done_reason == reason
    assert r.eval_count > 0 and r.prompt_eval_count > 0
    assert 0 < r.eval_duration <= r.total_duration and 0 < r.prompt_eval_duration
    assert r.load_duration >= 0 and r.total_duration < DEADLINE_S * 1e9


def test_chat(family):
    r = chat(family)
    assert r.message.role == "assistant" and r.message.content == SCRIPT
    assert r.model == "tiny" and not r.message.tool_calls and r.message.thinking is None
    check_end(r)
    r = chat(family, options=COLD | {"num_predict": 3})
    assert r.message.content == "Alpha bravo charlie"
    check_end(r, "length")
    assert chat(family, options=COLD | {"stop": [" delta"]}).message.content == "Alpha bravo charlie"
    assert chat(family, options=COLD | {"num_predict": -1}).message.content == SCRIPT


def test_chat_streamed(family):
    def ask():
        got = list(chat(family, stream=True))
        return [r.message.content for r in got[:-1]], got
    texts, got = in_pieces(ask)
    assert "".join(texts) == SCRIPT and got[-1].message.content == ""
    assert not any(r.done for r in got[:-1])
    check_end(got[-1])
    # without a word about it, it streams
    last = lines(post(family, "chat", {"model": "tiny", "options": COLD,
                                       "messages": [{"role": "user", "content": "hi"}]}))
    assert len(last) > 1 and last[-1]["done"] and not last[0]["done"]
    assert all(x["created_at"].endswith("Z") and x["model"] == "tiny" for x in last)


def test_latest_is_the_name(family):
    assert chat(family, model="tiny:latest").message.content == SCRIPT
    with pytest.raises(ollama.ResponseError) as e:
        chat(family, model="tiny:7b")
    assert e.value.status_code == 404 and "tiny:7b" in e.value.error
    # in every protocol
    assert family.chat_text(model="tiny:latest") == SCRIPT
    assert client(family).show("tiny:latest").details.format == "gguf"


def test_tools(family):
    r = chat(family, model="tools", tools=[get_weather])
    [call] = r.message.tool_calls
    assert call.function.name == "get_weather" and call.function.arguments == SAID
    assert r.message.content == "I'll look." and r.message.thinking == "Hm."
    assert r.done_reason == "stop"
    got = list(chat(family, model="tools", tools=[get_weather], stream=True))
    calls = [c for x in got for c in x.message.tool_calls or []]
    assert calls == [call]  # whole, in one line
    assert "".join(x.message.content for x in got) == "I'll look."
    assert "".join(x.message.thinking or "" for x in got) == "Hm."
    raw = lines(post(family, "chat", {"model": "tools", "options": COLD, "messages": [
        {"role": "user", "content": "hi"}], "tools": [{"type": "function", "function": {
            "name": "get_weather", "parameters": {"type": "object"}}}]}))
    [one] = [x["message"]["tool_calls"][0] for x in raw if "tool_calls" in x["message"]]
    assert one["id"].startswith("call_") and one["function"]["index"] == 0


def prompt_of(d, messages, **options):
    """How many tokens the prompt has, which tells two prompts apart."""
    r = client(d).chat("noise", messages, options={"num_predict": 1}, **options)
    return r.prompt_eval_count


def test_results_find_their_calls(family):
    """By id, by name, by order: in each case the prompt that chat completions make of it."""
    a, b = ({"function": {"name": name, "arguments": {"x": 1}}} for name in ("f", "other_name"))
    ask = {"role": "user", "content": "hi"}
    both = {"role": "assistant", "content": "", "tool_calls": [a, b]}
    with_ids = {"role": "assistant", "content": "", "tool_calls": [dict(a, id="1"), dict(b, id="2")]}
    ways = [
        [both, {"role": "tool", "content": "A"}, {"role": "tool", "content": "BB"}],
        [both, {"role": "tool", "content": "BB", "tool_name": "other_name"},
         {"role": "tool", "content": "A", "tool_name": "f"}],
        [with_ids, {"role": "tool", "content": "BB", "tool_call_id": "2"},
         {"role": "tool", "content": "A", "tool_call_id": "1"}],
    ]
    sizes = []
    for way in ways:
        r = post(family, "chat", {"model": "noise", "messages": [ask, *way], "stream": False,
                                  "options": {"num_predict": 1}})
        assert r.status == 200, r
        sizes.append(r.json["prompt_eval_count"])
    assert len(set(sizes)) == 1, sizes
    r = post(family, "chat", {"model": "noise", "messages": [
        ask, with_ids, {"role": "tool", "content": "A", "tool_call_id": "3"}]})
    assert r.status == 400 and "messages[2].tool_call_id" in r.json["error"]


def test_think(family):
    """Whether a model thinks is up to its template; one that can't refuses to be told to."""
    for think in (True, False, "low", "high"):
        assert chat(family, model="tools", think=think, tools=[get_weather]).message.thinking == "Hm."
    assert chat(family, think=False).message.content == SCRIPT
    for think in (True, "medium"):
        with pytest.raises(ollama.ResponseError) as e:
            chat(family, think=think)
        assert e.value.status_code == 400 and "does not support thinking" in e.value.error
    with pytest.raises(ollama.ResponseError) as e:
        chat(family, model="tools", think="sideways")
    assert e.value.status_code == 400 and "'think'" in e.value.error


@pytest.fixture(scope="module")
def thinker(tmp_path_factory, models):
    """A model whose template shows which variables it got."""
    template = ("{% for m in messages %}{{ m.content }}{% endfor %}<think></think>"
                "{% if enable_thinking is defined %}{{ 'on ' * 8 if enable_thinking else 'off' }}"
                "{% endif %}{{ reasoning_effort }}")
    tiny_model.TEMPLATES["asked"] = template
    s = Starter(tmp_path_factory.mktemp("thinker"))
    yield s(models(kind="random", template="asked"))
    s.finish()


def test_think_reaches_the_template(thinker):
    def size(**options):
        return chat(thinker, options={"num_predict": 1}, **options).prompt_eval_count
    on, off = size(think=True), size(think=False)
    assert size() == on != off and size(think="low") > on and size(think="medium") > size(think="low")


class City(pydantic.BaseModel, extra="forbid"):
    name: str = pydantic.Field(max_length=8)
    big: bool


def test_format(family):
    r = chat(family, model="noise", format=City.model_json_schema())
    City.model_validate_json(r.message.content)
    text = chat(family, model="noise", format="json", options=COLD | {"num_predict": 60}).message.content
    assert text.startswith("{")
    assert chat(family, format="").message.content == SCRIPT
    got = list(client(family).generate("noise", "hi", format=City.model_json_schema(), stream=True))
    City.model_validate_json("".join(x.response for x in got))


def test_logprobs(family):
    r = chat(family, logprobs=True, top_logprobs=2)
    assert "".join(x.token for x in r.logprobs)[:5] == "Alpha" and len(r.logprobs[0].top_logprobs) == 2
    got = list(chat(family, logprobs=True, stream=True))
    assert [x.token for g in got for x in g.logprobs or []] == [x.token for x in r.logprobs]


def test_images_are_left_out(family):
    r = post(family, "chat", {"model": "tiny", "stream": False, "options": COLD, "messages": [
        {"role": "user", "content": "hi", "images": ["aGk="]}]})
    assert r.json["message"]["content"] == SCRIPT
    assert r.headers["x-ingot-ignored"] == "messages[0].images"


# ---- generate ------------------------------------------------------------------------------

def test_generate(family):
    c = client(family)
    r = c.generate("tiny", "hi", options=COLD)
    assert r.response == SCRIPT and r.context is None
    check_end(r)
    assert "".join(x.response for x in c.generate("tiny", "hi", options=COLD, stream=True)) == SCRIPT
    plain = r.prompt_eval_count
    assert c.generate("tiny", "hi", system="Be brief, please.", options=COLD).prompt_eval_count != plain
    raw = c.generate("tiny", "hi<|im_end|>", raw=True, options={"num_predict": 1})
    assert raw.prompt_eval_count < plain
    for name, value in (("suffix", "x"), ("template", "{{ .Prompt }}"), ("context", [1, 2])):
        with pytest.raises(ollama.ResponseError) as e:
            c.generate("tiny", "hi", **{name: value})
        assert e.value.status_code == 400 and "'%s'" % name in e.value.error
    with pytest.raises(ollama.ResponseError, match="system"):
        c.generate("tiny", "hi", raw=True, system="x")


def test_generate_without_a_template(start, models):
    d = start(models(kind="script", damage="no-template"))
    r = client(d).generate("tiny", "hi", options={"num_predict": 2})
    assert r.prompt_eval_count == client(d).generate("tiny", "hi", raw=True,
                                                     options={"num_predict": 1}).prompt_eval_count
    assert client(d).generate("tiny", "hi", system="x", options={
        "num_predict": 1}).prompt_eval_count > r.prompt_eval_count


# ---- options ----------------------------------------------------------------------------------

def loads(d):
    return {m["id"]: m["loads"] for m in d.http("GET", "/v1/models").json["data"]}


def test_options_do_not_reload(family):
    """The context, threads and devices are the daemon's; the reply says that they were left out."""
    before = loads(family)
    r = post(family, "chat", {"model": "tiny", "stream": False, "messages": [
        {"role": "user", "content": "hi"}], "options": COLD | {"num_ctx": 99, "num_gpu": 3,
                                                               "use_mmap": False, "zeppelin": 1}})
    assert r.json["message"]["content"] == SCRIPT
    assert r.headers["x-ingot-ignored"] == ("options.num_ctx, options.num_gpu, options.use_mmap, "
                                            "options.zeppelin")
    # as Goose does, in OpenAI's protocol
    r = family.chat(options={"num_ctx": 4096})
    assert r.json["choices"][0]["message"]["content"] == SCRIPT
    assert r.headers["x-ingot-ignored"] == "options"
    assert loads(family) == before


def test_sampling_options(family):
    def text(**options):
        r = chat(family, model="noise", options={"num_predict": 12, **options})
        return r.message.content
    assert text(temperature=0) == text(temperature=0) == text(top_k=1) == text(top_p=1e-6)
    assert text(seed=1) == text(seed=1) != text(seed=2)
    assert text(seed=-1) != text(seed=-1)
    # the defaults are Ollama's
    assert text(seed=3) == text(seed=3, temperature=0.8, top_k=40, top_p=0.9, min_p=0)
    assert text(seed=3) != text(seed=3, top_k=0, top_p=1, temperature=2)
    assert text(temperature=0) != text(temperature=0, repeat_penalty=1.9)
    assert text(temperature=0) != text(temperature=0, presence_penalty=2, frequency_penalty=2)
    assert text(seed=3, min_p=1) == text(temperature=0)


# ---- models -------------------------------------------------------------------------------------

def test_list_show_ps_version(family):
    c = client(family)
    assert [m.model for m in c.list().models] == ["tiny", "tools", "noise"]
    m = c.list().models[0]
    assert m.size > 0 and len(m.digest) == 64 and m.modified_at.year > 2000
    assert (m.details.format, m.details.family, m.details.families) == ("gguf", "llama", ["llama"])
    assert m.details.parameter_size.endswith(("K", "M")) and m.details.quantization_level
    assert len({m.digest for m in c.list().models}) == 3
    show = c.show("tools")
    assert show.modelinfo["general.architecture"] == "llama"
    assert show.modelinfo["llama.context_length"] == 2048
    assert show.capabilities == ["completion", "tools", "thinking"]
    assert c.show("tiny").capabilities == ["completion"]
    assert "im_start" in show.template
    running = {m.model: m for m in c.ps().models}
    assert set(running) == {"tiny", "tools", "noise"} and running["tools"].context_length == 2048
    assert running["tiny"].size > 0 and running["tiny"].size_vram == 0
    assert running["tiny"].expires_at.year > 2200  # never
    with pytest.raises(ollama.ResponseError) as e:
        c.show("zeppelin")
    assert e.value.status_code == 404 and "zeppelin" in e.value.error
    version = family.http("GET", "/api/version").json
    assert tuple(int(n) for n in version["version"].split(".")) >= (0, 13, 4) and version["ingot"]


def test_root(family):
    for path in ("/", "/api/version", "/api/tags"):
        r = family.http("HEAD", path)
        assert r.status == 200 and r.body == b""
    r = family.http("GET", "/")
    assert r.body == b"Ollama is running" and r.headers["content-type"].startswith("text/plain")


def test_what_is_not_there(family):
    for method, path in (("POST", "/api/create"), ("DELETE", "/api/delete"), ("GET", "/api/zeppelin"),
                         ("GET", "/api/chat"), ("POST", "/api/tags")):
        r = family.http(method, path, {} if method == "POST" else None)
        assert r.status in (404, 405) and isinstance(r.json["error"], str), r


def test_keep_alive(start, models):
    d = start(config=configuration(start.folder, extra={"models": [
        {"name": "a", "path": models.script()},
        {"name": "b", "path": models.random(), "load": "first_use"}]}))
    c = client(d)

    def running():
        return {m.model: m.expires_at for m in c.ps().models}
    assert set(running()) == {"a"} and running()["a"].year > 2200
    assert c.generate("b").done_reason == "load"  # no prompt
    assert set(running()) == {"a", "b"}
    # asked for with a request, until another asks for something else
    assert chat(d, model="a", keep_alive="1h30m").message.content == SCRIPT
    first = running()["a"]
    assert 2000 < first.year < 2100
    chat(d, model="a")
    assert first < running()["a"] < first.replace(year=first.year + 1)
    chat(d, model="a", keep_alive=-1)
    assert running()["a"].year > 2200
    # at once, when its request has ended
    assert chat(d, model="a", keep_alive=0).message.content == SCRIPT
    until(lambda: set(running()) == {"b"}, "a is unloaded")
    assert chat(d, model="a").message.content == SCRIPT and running()["a"].year > 2200
    # no messages: only that
    assert c.chat("a", [], keep_alive=0).done_reason == "unload"
    until(lambda: set(running()) == {"b"}, "a is unloaded")
    chat(d, model="a", keep_alive="50ms")
    until(lambda: set(running()) == {"b"}, "a is unloaded")
    for bad in ("5 minutes", "m", "", "1h-3m", "--1", "1..5s"):
        with pytest.raises(ollama.ResponseError, match="keep_alive") as e:
            chat(d, model="a", keep_alive=bad)
        assert e.value.status_code == 400
    with pytest.raises(ollama.ResponseError) as e:
        c.generate("zeppelin", keep_alive=0)
    assert e.value.status_code == 404


def test_reload_ends_a_requests_keep_alive(start, models):
    d = start(models.script())
    chat(d, keep_alive="1h")
    assert client(d).ps().models[0].expires_at.year < 2100
    config = dict(d.config, models=[dict(d.config["models"][0], keep_alive="0")])
    config["models"][0]["keep_alive"] = "7d"
    before = client(d).ps().models[0].expires_at
    d.write_config(config)
    until(lambda: client(d).ps().models[0].expires_at.timestamp() > before.timestamp() + 86400,
          "the configuration's keep_alive counts")


def test_embed(family):
    for ask in (lambda c, m: c.embed(m, "hi"), lambda c, m: c.embed(m, ["a", "b"]),
                lambda c, m: c.embeddings(m, "hi")):
        with pytest.raises(ollama.ResponseError) as e:
            ask(client(family), "tiny")
        assert e.value.status_code == 400 and "embed" in e.value.error
        with pytest.raises(ollama.ResponseError) as e:
            ask(client(family), "zeppelin")
        assert e.value.status_code == 404


# ---- keys ------------------------------------------------------------------------------------------

def test_roles(start, models, tmp_path):
    keys = tmp_path / "keys"
    user, boss = add_key(keys, "user"), add_key(keys, "boss", "--admin")
    d = start(models.script(), {"server": {"keys_file": str(keys)}})
    c = client(d, headers=bearer(user))
    with pytest.raises(ollama.ResponseError) as e:
        client(d).list()
    assert e.value.status_code == 401 and "API key" in e.value.error
    assert [m.model for m in c.list().models] == ["tiny"]
    assert c.generate("tiny", "hi", options=COLD).response == SCRIPT
    # how long a model stays is the administrator's
    r = post(d, "generate", {"model": "tiny", "prompt": "hi", "keep_alive": 0}, headers=bearer(user))
    assert r.status == 200 and r.headers["x-ingot-ignored"] == "keep_alive"
    for ask in (lambda: c.generate("tiny", keep_alive=0), lambda: c.pull("smollm2-135m")):
        with pytest.raises(ollama.ResponseError) as e:
            ask()
        assert e.value.status_code == 403 and "administrator" in e.value.error
    assert [m.model for m in c.ps().models] == ["tiny"]
    assert c.pull("tiny").status == "success"  # there is nothing to do
    assert client(d, headers=bearer(boss)).generate("tiny", keep_alive=0).done_reason == "unload"
    until(lambda: not c.ps().models, "it is unloaded")


# ---- pull ------------------------------------------------------------------------------------------

@pytest.fixture
def mirror(tmp_path):
    """A server of one model that `ingot pull` knows, and the environment in which it does."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.lock, server.requests, server.script = threading.Lock(), [], [whole]
    server.released = threading.Event()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    known = tmp_path / "known.yaml"
    known.write_text(json.dumps({"models": [{
        "name": "m", "description": "for tests", "license": "none", "file": "m.gguf",
        "bytes": len(CONTENT), "sha256": sha256(CONTENT), "sources": [url_of(server)]}]}))
    server.to = tmp_path / "pulled"
    server.env = {"INGOT_MODELS": str(known), "INGOT_MODELS_DIR": str(server.to)}
    yield server
    server.released.set()
    server.shutdown()
    thread.join()
    server.server_close()


def test_pull_what_is_there(family):
    said = list(client(family).pull("tiny:latest", stream=True))
    assert [p.status for p in said] == ["pulling manifest", "success"]
    assert client(family).pull("tiny").status == "success"


def test_pull_what_nobody_knows(start, models, mirror):
    d = start(models.script(), env=mirror.env)
    got = lines(post(d, "pull", {"model": "zeppelin"}))
    assert got[0] == {"status": "pulling manifest"}
    assert set(got[-1]) == {"error"} and "zeppelin" in got[-1]["error"] and "m" in got[-1]["error"]
    with pytest.raises(ollama.ResponseError) as e:
        client(d).pull("zeppelin")
    assert e.value.status_code == 404
    for bad in ("", "a b", "../x y", "x" * 300, "\u00e9"):
        r = post(d, "pull", {"model": bad})
        assert r.status == 400 and "model" in r.json["error"]
    # a name is no option of a command
    assert "known" in lines(post(d, "pull", {"model": "--help"}))[-1]["error"]


def test_pull(start, models, mirror):
    d = start(models.script(), env=mirror.env)
    got = lines(post(d, "pull", {"model": "m", "stream": True}))
    parts = [x for x in got if "digest" in x]
    assert parts[0]["digest"] == "sha256:" + sha256(CONTENT) and parts[0]["total"] == len(CONTENT)
    assert parts[-1]["completed"] == len(CONTENT)
    assert parts[0]["status"] == "pulling " + sha256(CONTENT)[:12]
    assert [x["status"] for x in got if "status" in x and "digest" not in x] == [
        "pulling manifest", "verifying sha256 digest", "writing manifest"]
    # it is here, but nothing serves it, and the daemon says what to do
    assert (mirror.to / "m.gguf").read_bytes() == CONTENT
    assert str(mirror.to / "m.gguf") in got[-1]["error"] and "ingot.yaml" in got[-1]["error"]
    r = post(d, "pull", {"model": "m:latest", "stream": False})  # nothing to download any more
    assert r.status == 409 and "ingot.yaml" in r.json["error"] and len(mirror.requests) == 1
    assert chat(d).message.content == SCRIPT


def test_pull_of_a_configured_model_whose_file_is_missing(start, models, mirror):
    d = start(config=configuration(start.folder, extra={"models": [
        {"name": "tiny", "path": models.script()},
        {"name": "m", "path": str(mirror.to / "m.gguf"), "load": "first_use"}]}), env=mirror.env)
    said = [p.status for p in client(d).pull("m", stream=True)]
    assert said[-1] == "success" and (mirror.to / "m.gguf").exists()


def test_pull_ends_with_its_client(start, models, mirror):
    """The rest is kept, and the next pull resumes it."""
    reached = threading.Event()

    def stall(h, seen):
        h.head(200, len(CONTENT), ETag='"v1"')
        h.wfile.write(CONTENT[:100000])
        h.wfile.flush()
        reached.set()
        h.server.released.wait(DEADLINE_S)
    mirror.script = [stall, whole]
    d = start(models.script(), env=mirror.env)
    body = json.dumps({"model": "m"}).encode()
    s = d.connect()
    s.sendall(b"POST /api/pull HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s"
              % (len(body), body))
    assert reached.wait(DEADLINE_S)
    part = mirror.to / "m.gguf.part"
    until(lambda: part.exists() and part.stat().st_size == 100000, "the first bytes are there")
    assert chat(d).message.content == SCRIPT  # the daemon does not wait for it
    s.close()
    mirror.released.set()
    until(lambda: "interrupted" in d.log, "the download ends")
    got = lines(post(d, "pull", {"model": "m"}))
    assert "ingot.yaml" in got[-1]["error"] and (mirror.to / "m.gguf").read_bytes() == CONTENT
    assert "range" in mirror.requests[-1][1]


def test_pull_that_fails(start, models, mirror):
    mirror.script = [cut_after(1000, data=CONTENT[::-1])]
    d = start(models.script(), env=dict(mirror.env, INGOT_MODELS_DIR="/dev/null/x"))
    got = lines(post(d, "pull", {"model": "m"}))
    assert "/dev/null" in got[-1]["error"]
    r = post(d, "pull", {"model": "m", "stream": False})
    assert r.status == 500 and "/dev/null" in r.json["error"]


# ---- the second port -----------------------------------------------------------------------------------

def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def test_also_listen(start, models):
    port = free_port()
    d = start(models.script(), {"server": {"also_listen": port}})
    for p in (d.port, port):
        with urllib.request.urlopen("http://127.0.0.1:%d/" % p, timeout=DEADLINE_S) as r:
            assert r.read() == b"Ollama is running"
        c = ollama.Client(host="http://127.0.0.1:%d" % p, timeout=DEADLINE_S)
        assert c.generate("tiny", "hi", options=COLD).response == SCRIPT
    assert "also listening on 127.0.0.1:%d" % port in d.log
    # another may not have it, and says which option is wrong
    # a page of the second port is the daemon's own, too, by any of its names
    def asked_by(page):
        url = "http://127.0.0.1:%d/api/tags" % port
        asked = urllib.request.Request(url, headers={"Origin": "http://" + page})
        try:
            with urllib.request.urlopen(asked, timeout=DEADLINE_S) as r:
                return r.status
        except urllib.error.HTTPError as e:
            return e.code
    assert asked_by("localhost:%d" % port) == 200
    assert asked_by("localhost:%d" % (port + 1)) == asked_by("localhost:%d" % d.port) == 403
    log = start.refused(models.script(), {"server": {"also_listen": port}})
    assert "127.0.0.1:%d: Address already in use (server.also_listen)" % port in log
    log = start.refused(models.script(), {"server": {"port": 7, "also_listen": 7}})
    assert "server.also_listen" in log or "127.0.0.1:7" in log
    # it needs a restart
    d.write_config(dict(d.config, server=dict(d.config["server"], also_listen=0)))
    until(lambda: "server.also_listen: %d -> 0 needs a restart" % port in d.log, "the log says so")
    assert ollama.Client(host="http://127.0.0.1:%d" % port).list().models[0].model == "tiny"


# ---- Codex's local providers ------------------------------------------------------------------------------

def test_codex_oss_probes(family):
    """What `codex --oss` asks before its first turn."""
    assert "tiny" in [m["id"] for m in family.http("GET", "/v1/models").json["data"]]
    assert "tiny" in [m["name"] for m in family.http("GET", "/api/tags").json["models"]]
    assert lines(post(family, "pull", {"model": "tiny", "stream": True}))[-1] == {"status": "success"}


# ---- wrong values ------------------------------------------------------------------------------------------

WRONG = {"text": [1, True, [], {}], "integer": ["1", 1.5, True, [], {}, 2**40], "number": ["1", True, []],
         "boolean": [1, "true", []], "list": [1, "x", {}, True], "object": [1, "x", [], True]}
OPTIONS = {"integer": ["num_predict", "top_k"],
           "number": ["temperature", "top_p", "min_p", "repeat_penalty", "presence_penalty",
                      "frequency_penalty", "num_ctx", "num_gpu", "repeat_last_n", "typical_p"],
           "boolean": ["use_mmap", "numa"]}
FIELDS = {
    "chat": ({"model": "tiny", "messages": [{"role": "user", "content": "hi"}]},
             {"text": ["model"], "list": ["messages", "tools"], "object": ["options"],
              "boolean": ["stream", "logprobs", "truncate", "shift"], "integer": ["top_logprobs"]}),
    "generate": ({"model": "tiny", "prompt": "hi"},
                 {"text": ["model", "prompt", "system"], "list": ["images"], "object": ["options"],
                  "boolean": ["stream", "raw", "logprobs"], "integer": ["top_logprobs"]}),
    "show": ({"model": "tiny"}, {"text": ["model", "name"], "boolean": ["verbose"]}),
    "pull": ({"model": "tiny"}, {"text": ["model", "name"], "boolean": ["stream", "insecure"]}),
    "embed": ({"model": "tiny", "input": "x"},
              {"text": ["model"], "object": ["options"], "integer": ["dimensions"],
               "boolean": ["truncate"]}),
    "embeddings": ({"model": "tiny", "prompt": "x"},
                   {"text": ["model", "prompt"], "object": ["options"]}),
}


def wrong(d, path, body, name):
    r = post(d, path, body)
    assert r.status == 400 and set(r.json) == {"error"} and name in r.json["error"], (path, body, r)


@pytest.mark.parametrize("path", FIELDS)
def test_wrong_types(family, path):
    good, fields = FIELDS[path]
    for kind, names in fields.items():
        for name in names:
            for value in WRONG[kind]:
                wrong(family, path, dict(good, **{name: value}), name)
    for name in [n for n in good if n not in ("messages", "prompt")] + (["prompt"] if path == "embeddings" else []):
        wrong(family, path, {k: v for k, v in good.items() if k != name}, name)
    if path not in ("chat", "generate"):
        return
    for kind, names in OPTIONS.items():
        for name in names:
            for value in WRONG[kind]:
                wrong(family, path, dict(good, options={name: value}), "options." + name)
    for name, values in {"format": [1, True, [], "xml"], "think": [1, [], {}, "much"],
                         "keep_alive": [True, [], {}, "soon"]}.items():
        for value in values:
            wrong(family, path, dict(good, **{name: value}), name)
    wrong(family, path, dict(good, options={"stop": [1]}), "options.stop[0]")
    wrong(family, path, dict(good, options={"seed": 1.5}), "options.seed")
    wrong(family, path, dict(good, top_logprobs=2), "top_logprobs")


def test_wrong_messages(family):
    call = {"function": {"name": "f", "arguments": {}}}
    for message, name in [
            (1, "messages[0]"), ({}, "messages[0].role"), ({"role": 1}, "messages[0].role"),
            ({"role": "wizard"}, "messages[0].role"),
            ({"role": "user", "content": [1]}, "messages[0].content"),
            ({"role": "user", "thinking": 1}, "messages[0].thinking"),
            ({"role": "user", "images": "x"}, "messages[0].images"),
            ({"role": "user", "images": [1]}, "messages[0].images[0]"),
            ({"role": "assistant", "tool_calls": {}}, "messages[0].tool_calls"),
            ({"role": "assistant", "tool_calls": [1]}, "messages[0].tool_calls[0]"),
            ({"role": "assistant", "tool_calls": [{}]}, "messages[0].tool_calls[0].function"),
            ({"role": "assistant", "tool_calls": [{"function": {"arguments": {}}}]},
             "messages[0].tool_calls[0].function.name"),
            ({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]},
             "messages[0].tool_calls[0].function.arguments"),
            ({"role": "assistant", "tool_calls": [dict(call, id=1)]}, "messages[0].tool_calls[0].id"),
            ({"role": "tool", "tool_name": 1}, "messages[0].tool_name"),
            ({"role": "tool", "tool_call_id": "x"}, "messages[0].tool_call_id"),
    ]:
        wrong(family, "chat", {"model": "noise", "messages": [message]}, name)
    wrong(family, "chat", {"model": "tools", "messages": [{"role": "user", "content": "x"}],
                           "tools": [{"type": "function"}]}, "tools[0].function")
    wrong(family, "embed", {"model": "tiny", "input": ["a", 1]}, "input[1]")


def test_an_error_in_a_stream_is_its_last_line(start, models):
    d = start(models.slow(), {"server": {"drain_timeout": "0s"}})
    c = client(d)
    stream = c.chat("tiny", [{"role": "user", "content": "hi"}], stream=True)
    assert next(stream).message.content
    d.process.terminate()
    with pytest.raises(ollama.ResponseError, match="shutting down"):
        for _ in stream:
            pass


def test_refuse_unknown(start, models):
    d = start(models.script(), {"server": {"unknown_parameters": "refuse"}})
    wrong(d, "chat", {"model": "tiny", "messages": [], "zeppelin": 1}, "zeppelin")
    wrong(d, "generate", {"model": "tiny", "prompt": "hi", "options": {"num_ctx": 5}}, "options.num_ctx")
