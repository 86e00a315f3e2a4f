"""On the CPU, and on the double of Apple's API over the software device: vectors and scores of texts: /v1/embeddings with the openai package and /api/embed with the ollama
package, as they are, /v1/rerank; against sentence-transformers' results for the same tiny models
(tests/golden/embed).  And what does not fit a model is refused."""
import base64
import json
import math
import pathlib
import struct

import ollama
import openai
import pytest

from conftest import Starter, configuration
from daemon import BUILD, DEADLINE_S, SANITIZER, until

METAL = BUILD / "tests" / "metal" / "ingotd-metal"
GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden" / "embed"


def read_golden(name):
    """[(text, ids, result)]"""
    data, out, at = (GOLDEN / (name + ".golden")).read_bytes(), [], 12
    _, n_columns, n_texts = struct.unpack_from("<4sII", data)
    for _ in range(n_texts):
        n_bytes, n_ids = struct.unpack_from("<II", data, at)
        ids = list(struct.unpack_from("<%di" % n_ids, data, at + 8))
        at += 8 + 8 * n_ids
        result = list(struct.unpack_from("<%dd" % n_columns, data, at))
        at += 8 * n_columns
        out.append((data[at:at + n_bytes].decode(), ids, result))
        at += n_bytes
    return out


ROWS = read_golden("bert")
TEXTS = [r[0] for r in ROWS]


def near(a, b):
    return len(a) == len(b) and max(abs(x - y) for x, y in zip(a, b)) <= 1e-5


@pytest.fixture(scope="module", params=["cpu", pytest.param("metal", marks=[pytest.mark.home("release"), pytest.mark.skipif(
    bool(SANITIZER) or not METAL.exists(), reason="this build has no double of Metal")])])
def d(request, tmp_path_factory, models):
    """On a GPU with activations in float32, as a CPU has them."""
    folder = tmp_path_factory.mktemp("embeddings")
    s = Starter(folder)
    on_metal = {"program": METAL} if request.param == "metal" else {}
    d = s(**on_metal, config=configuration(folder, extra={"runtime": {"driver": request.param, "activations": "f32"}, "models": [
        {"name": "tiny", "path": models.script()},
        {"name": "bert", "path": str(GOLDEN / "bert.gguf")},
        {"name": "folder", "path": str(GOLDEN / "bert")},
        {"name": "rank", "path": str(GOLDEN / "bertrank.gguf")},
        {"name": "xlmr", "path": str(GOLDEN / "xlmr.gguf")},
        {"name": "xlmrfolder", "path": str(GOLDEN / "xlmr")},
        {"name": "xlmrrank", "path": str(GOLDEN / "xlmrrank.gguf")},
        {"name": "xlmrrankfolder", "path": str(GOLDEN / "xlmrrank")},
        {"name": "qwen3rank", "path": str(GOLDEN / "qwen3rank.gguf")},
        {"name": "qwen3rankfolder", "path": str(GOLDEN / "qwen3rank")},
        {"name": "qwen3rankcls", "path": str(GOLDEN / "qwen3rankcls")},
    ]}))
    yield d
    d.until_idle()
    s.finish()


def client(d, strict=False):
    """Strict, it does not take its own base64."""
    return openai.OpenAI(base_url="http://%s:%d/v1" % (d.host, d.port), api_key="none", max_retries=0,
                         _strict_response_validation=strict)


def ledger(d):
    """The newest first."""
    return d.http("GET", "/v1/ingot/ledger").json["data"]


def post(d, path, body):
    return d.http("POST", path, body)


# ---- OpenAI's ----------------------------------------------------------------------------

@pytest.mark.parametrize("model", ["bert", "folder"])
def test_openai(d, model):
    # the package asks for base64 by itself
    r = client(d).embeddings.create(model=model, input=TEXTS)
    assert r.object == "list" and r.model == model
    assert [x.index for x in r.data] == list(range(len(TEXTS)))
    for x, row in zip(r.data, ROWS):
        assert x.object == "embedding" and near(x.embedding, row[2])
    n = sum(len(row[1]) for row in ROWS)
    assert (r.usage.prompt_tokens, r.usage.total_tokens) == (n, n)
    # numbers are the same, whatever else is asked for beside
    f = client(d, strict=True).embeddings.create(model=model, input=TEXTS[0], encoding_format="float")
    assert max(abs(x - y) for x, y in zip(f.data[0].embedding, r.data[0].embedding)) <= 1e-9
    # ids, alone and in a list
    for value in (ROWS[3][1], [ROWS[3][1]]):
        i = client(d).embeddings.create(model=model, input=value)
        assert i.data[0].embedding == r.data[3].embedding
    few = client(d).embeddings.create(model=model, input=[TEXTS[3]], dimensions=16).data[0].embedding
    length = math.sqrt(sum(x * x for x in ROWS[3][2][:16]))
    assert near(few, [x / length for x in ROWS[3][2][:16]])


@pytest.mark.parametrize("model", ["xlmr", "xlmrfolder"])
def test_xlm_roberta(d, model):
    rows = read_golden("xlmr")
    r = client(d).embeddings.create(model=model, input=[row[0] for row in rows])
    assert all(near(x.embedding, row[2]) for x, row in zip(r.data, rows, strict=True))
    assert r.usage.prompt_tokens == sum(len(row[1]) for row in rows)


def test_base64(d):
    r = post(d, "/v1/embeddings", {"model": "bert", "input": TEXTS[0], "encoding_format": "base64"})
    raw = base64.b64decode(r.json["data"][0]["embedding"], validate=True)
    assert near(struct.unpack("<64f", raw), ROWS[0][2])


def test_many(d):
    """As many as there may be; one row in the ledger, which names the model and counts the tokens."""
    r = client(d).embeddings.create(model="bert", input=["a cat %d" % i for i in range(2048)])
    assert len(r.data) == 2048 and r.data[7].embedding != r.data[8].embedding
    one = client(d).embeddings.create(model="bert", input="a cat 2047")
    assert one.data[0].embedding == r.data[2047].embedding
    # rows are written after the reply, by another thread
    def rows():
        return [x for x in ledger(d) if x["endpoint"] == "POST /v1/embeddings" and x["prompt_tokens"] == r.usage.prompt_tokens]
    until(rows, "its row")
    assert len(rows()) == 1 and rows()[0]["model"] == "bert" and rows()[0]["status"] == 200
    assert rows()[0]["output_tokens"] == 0


def test_refused(d):
    for body, param, text in [
        ({"input": "x", "dimensions": 65}, "dimensions", "have 64"),
        ({"input": []}, "input", "1 to 2048"),
        ({"input": ["a"] * 2049}, "input", "1 to 2048"),
        ({"input": [1.5]}, "input[0]", "a string"),
        ({"input": [[]]}, "input[0]", "at least one"),
        ({"input": [100000]}, "input", "Token 0"),
        ({"input": "a " * 400}, "input", "at most 320"),
        ({"input": "x", "encoding_format": "int8"}, "encoding_format", "base64"),
        ({}, "input", "required"),
    ]:
        r = post(d, "/v1/embeddings", {"model": "bert", **body})
        e = r.json["error"]
        assert r.status == 400 and e["param"] == param and text in e["message"].replace("missing", "required"), (body, e)


def test_wrong_kind(d):
    """Each with a 400 that says what the model does."""
    for path, body, text in [
        ("/v1/embeddings", {"model": "tiny", "input": "x"}, "generates text and can't make embeddings"),
        ("/v1/embeddings", {"model": "rank", "input": "x"}, "is a reranker"),
        ("/v1/rerank", {"model": "bert", "query": "x", "documents": ["y"]}, "makes embeddings and can't rank"),
        ("/v1/rerank", {"model": "tiny", "query": "x", "documents": ["y"]}, "generates text"),
        ("/v1/chat/completions", {"model": "bert", "messages": [{"role": "user", "content": "x"}]}, "can't generate"),
        ("/v1/completions", {"model": "rank", "prompt": "x"}, "is a reranker and can't generate text"),
        ("/v1/responses", {"model": "bert", "input": "x"}, "can't generate"),
        ("/v1/messages", {"model": "bert", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]}, "can't generate"),
    ]:
        r = post(d, path, body)
        assert r.status == 400 and text in r.json["error"]["message"], (path, r.json)
    for path, body in [("chat", {"messages": [{"role": "user", "content": "x"}]}), ("generate", {"prompt": "x"})]:
        r = post(d, "/api/" + path, {"model": "bert", **body})
        assert r.status == 400 and "can't generate" in r.json["error"], r.json


def test_lists(d):
    kinds = {m["id"]: (m["task"], m.get("dimensions")) for m in d.http("GET", "/v1/models").json["data"]}
    assert kinds == {"tiny": ("generate", None), "bert": ("embedding", 64), "folder": ("embedding", 64),
                     "rank": ("rerank", None), "xlmr": ("embedding", 64), "xlmrfolder": ("embedding", 64),
                     "xlmrrank": ("rerank", None), "xlmrrankfolder": ("rerank", None),
                     "qwen3rank": ("rerank", None), "qwen3rankfolder": ("rerank", None),
                     "qwen3rankcls": ("rerank", None)}
    # Codex's catalog has only what can chat
    assert [m["slug"] for m in d.http("GET", "/v1/models").json["models"]] == ["tiny"]


# ---- Ollama's ------------------------------------------------------------------------------

def test_ollama(d):
    c = ollama.Client(host="http://%s:%d" % (d.host, d.port), timeout=DEADLINE_S)
    r = c.embed("bert", TEXTS)
    assert r.model == "bert" and r.total_duration > 0 and r.prompt_eval_count == sum(len(row[1]) for row in ROWS)
    for v, row in zip(r.embeddings, ROWS):
        assert near(v, row[2])
    assert near(c.embed("bert:latest", TEXTS[0]).embeddings[0], ROWS[0][2])
    assert len(c.embed("bert", "x", dimensions=8).embeddings[0]) == 8
    # the older endpoint does not scale; a text that is too long is cut, unless the client minds
    old = c.embeddings("bert", TEXTS[0]).embedding
    length = math.sqrt(sum(x * x for x in old))
    assert abs(length - 1) > 0.1 and near([x / length for x in old], ROWS[0][2])
    assert len(c.embed("bert", "a " * 5000).embeddings[0]) == 64
    with pytest.raises(ollama.ResponseError) as e:
        c.embed("bert", "a " * 5000, truncate=False)
    assert e.value.status_code == 400 and "at most 320" in e.value.error
    assert c.show("bert").capabilities == ["embedding"]


# ---- rerank ---------------------------------------------------------------------------------

def ranking(name):
    """The golden's first query, its documents, and the results that are expected: [(score, index)], the best first."""
    pairs = [(r[0].split("\0"), r[2][0] - (r[2][1] if len(r[2]) > 1 else 0)) for r in read_golden(name)]
    query = pairs[0][0][0]
    logits = [(p[0][1], p[1]) for p in pairs if p[0][0] == query]
    return query, [t for t, _ in logits], sorted(((1 / (1 + math.exp(-x)), i) for i, (_, x) in enumerate(logits)), reverse=True)


@pytest.mark.parametrize("model", ["xlmrrank", "xlmrrankfolder", "qwen3rank", "qwen3rankfolder", "qwen3rankcls"])
def test_rerank_others(d, model):
    query, documents, want = ranking(model.removesuffix("folder"))
    r = post(d, "/v1/rerank", {"model": model, "query": query, "documents": documents}).json
    assert [x["index"] for x in r["results"]] == [i for _, i in want]
    assert all(abs(x["relevance_score"] - score) <= 1e-5 for x, (score, _) in zip(r["results"], want))


def test_rerank_prompt(d):
    """In the model's own prompt a document is cut, and nothing but the template's text is a control token."""
    def ask(query, document, **more):
        return post(d, "/v1/rerank", {"model": "qwen3rank", "query": query, "documents": [document], **more}).json

    whole = ask("who", "a cat")
    assert ask("who", "a cat", max_tokens_per_doc=500)["results"] == whole["results"]
    assert ask("who", "a cat", max_tokens_per_doc=1)["usage"]["total_tokens"] < whole["usage"]["total_tokens"]
    assert ask("who", "a " * 5000)["usage"]["total_tokens"] == 1024
    assert ask("a " * 5000, "x")["error"]["code"] == "context_length_exceeded"
    # one token for a byte, of which a name of a control token has ten
    more = ask("who", "<|im_end|>")["usage"]["total_tokens"] - ask("who", "x")["usage"]["total_tokens"]
    assert more == len("<|im_end|>") - 1


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank", "/rerank"])
def test_rerank(d, path):
    query, documents, want = ranking("bertrank")
    r = post(d, path, {"model": "rank", "query": query, "documents": documents, "return_documents": True}).json
    assert r["model"] == "rank" and r["usage"]["total_tokens"] > 0
    assert [x["index"] for x in r["results"]] == [i for _, i in want]
    for x, (score, i) in zip(r["results"], want):
        assert abs(x["relevance_score"] - score) <= 1e-5 and x["document"] == {"text": documents[i]}
    r = post(d, path, {"model": "rank", "query": query, "documents": [{"text": t} for t in documents], "top_n": 1}).json
    assert [x["index"] for x in r["results"]] == [want[0][1]] and "document" not in r["results"][0]
    # a document that is too long is cut
    assert post(d, path, {"model": "rank", "query": query, "documents": ["a " * 5000]}).status == 200
    e = post(d, path, {"model": "rank", "query": "a " * 5000, "documents": ["x"]}).json["error"]
    assert e["code"] == "context_length_exceeded"
    e = post(d, path, {"model": "rank", "documents": ["x"]}).json["error"]
    assert e["param"] == "query"


def test_gone(d):
    """A client that leaves: its texts are not computed to the end, and the row says so."""
    body = json.dumps({"model": "bert", "input": ["a cat sat on the mat " * 50] * 2048}).encode()
    s = d.connect()
    s.sendall(b"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" %
              len(body) + body)
    until(lambda: d.http("GET", "/v1/ingot/requests").json["data"], "it runs")
    s.close()
    d.until_idle()
    until(lambda: [x["status"] for x in ledger(d)[:1]] == [499], "its row")
