"""`ingot pull` of repositories: against fake_hub.py, which answers like the Hugging Face Hub, lies,
breaks and redirects to another port.  Needs no daemon."""
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess

import pytest
import yaml

import daemon as ingot
from fake_hub import Hub, Repo, git_sha1, sha256
from test_pull import INGOT

MODELS = pathlib.Path(__file__).resolve().parents[2] / "etc/models.yaml"
R = random.Random(11)
Q4 = b"GGUF" + R.randbytes(300_000)
Q8 = b"GGUF" + R.randbytes(500_000)
PARTS = [b"GGUF" + R.randbytes(n) for n in (90_000, 80_000, 20_000)]
CONFIG, TOKENIZER = b'{"model_type": "llama"}', R.randbytes(40_000)
SHARDS = [R.randbytes(200_000), R.randbytes(100_000)]

GGUF = {"README.md": b"# a model", ".gitattributes": b"*.gguf lfs", "imatrix.gguf": R.randbytes(20_000),
        "mmproj-F16.gguf": R.randbytes(30_000), "tiny-Q4_K_M.gguf": Q4, "tiny-UD-Q8_K_XL.gguf": Q8}
FOLDER = {"README.md": b"# a model", "config.json": CONFIG, "tokenizer.json": TOKENIZER,
          "model.safetensors.index.json": b'{"weight_map": {}}', "original/params.json": b"{}",
          "model-00001-of-00002.safetensors": SHARDS[0], "consolidated.safetensors": b"x" * 30_000,
          "model-00002-of-00002.safetensors": SHARDS[1], "modeling.py": b"raise SystemExit"}
SPLIT = {"Q6_K/big-Q6_K-%05d-of-00003.gguf" % (i + 1): p for i, p in enumerate(PARTS)}


@pytest.fixture
def hub():
    h = Hub()
    h.repos = {"them/tiny-GGUF": Repo(GGUF), "them/tiny": Repo(FOLDER, license="mit"),
               "them/big-GGUF": Repo(SPLIT), "them/one": Repo({"tiny-Q4_K_M.gguf": Q4}),
               "them/none": Repo({"README.md": b"# nothing"}),
               "them/gated": Repo({"tiny-Q4_K_M.gguf": Q4}, gated="manual"),
               "them/secret": Repo({"tiny-Q4_K_M.gguf": Q4}, private=True)}
    h.users = {"hf_good": {"them/gated", "them/secret"}, "hf_other": set()}
    yield h
    h.stop()


class Puller:
    def __init__(self, folder, hub):
        self.folder, self.hub, self.to = folder, hub, folder / "models"
        self.list = folder / "models.yaml"
        self.list.write_text("models: []\n")

    def env(self, **extra):
        env = {k: v for k, v in ingot.clean_env(self.folder).items() if not k.startswith(("HF_", "HUGGING"))}
        return dict(env, HF_ENDPOINT=self.hub.url, **extra)

    def command(self, name, *args):
        return [str(INGOT), "pull", name, "--models", str(self.list), "--to", str(self.to),
                "--retry-wait", "0.01", *args]

    def __call__(self, name, *args, env=None, **kw):
        p = subprocess.run(self.command(name, *args), capture_output=True, text=True, env=env or self.env(),
                           stdin=subprocess.DEVNULL, timeout=60 * ingot.PATIENCE, **kw)
        assert not ingot.REPORT.search(p.stderr), p.stderr
        return p

    def left(self):
        return sorted(str(p.relative_to(self.to)) for p in self.to.rglob("*")) if self.to.exists() else []

    def lock(self, name):
        return json.loads((self.to / (name + ".lock")).read_text())


@pytest.fixture
def pull(tmp_path, hub):
    return Puller(tmp_path, hub)


def arrived(pull, p, name="tiny-Q4_K_M.gguf", data=Q4):
    assert p.returncode == 0, p.stderr
    assert (pull.to / name).read_bytes() == data
    assert pull.left() == [name, name + ".lock"], p.stderr
    return True


def refused(pull, p, *texts):
    assert p.returncode == 1 and p.stdout == "" and pull.left() == [], (p.stdout, p.stderr, pull.left())
    for text in texts:
        assert text in p.stderr, p.stderr
    return True


# ---- what is pulled ---------------------------------------------------------------------------------

@pytest.mark.parametrize("name", [
    "hf:them/tiny-GGUF:Q4_K_M", "them/tiny-GGUF:q4_k_m", "hf.co/them/tiny-GGUF:tiny-Q4_K_M.gguf",
    "https://huggingface.co/them/tiny-GGUF:Q4_K_M", "them/one"])
def test_a_file(pull, hub, name):
    p = pull(name)
    assert arrived(pull, p)
    path = os.path.realpath(pull.to / "tiny-Q4_K_M.gguf")
    assert p.stdout == "%s\nmodels:\n  - name: tiny-Q4_K_M\n    path: %s\n" % (path, path)
    assert p.stderr.index("licence apache-2.0") < p.stderr.index("100 %") and " left" in p.stderr
    repo = hub.repos["them/one" if name.endswith("one") else "them/tiny-GGUF"]
    lock = pull.lock("tiny-Q4_K_M.gguf")
    assert lock["files"] == [{"path": "tiny-Q4_K_M.gguf", "bytes": len(Q4), "sha256": sha256(Q4)}]
    assert lock["revision"] == repo.sha and lock["endpoint"] == hub.url
    assert (lock["name"], lock["license"], lock["choice"]) == ("tiny-Q4_K_M", "apache-2.0", "Q4_K_M")
    # in ranges, all of the revision that was listed; the whole of it once
    ranges = [h["range"] for _, h in hub.seen("files", "GET")]
    assert len(ranges) == len(set(ranges)) > 3
    assert all("/resolve/%s/" % repo.sha in p for p, _ in hub.seen("hub") if "resolve" in p)
    # again: checked, not fetched
    n = len(ranges)
    p = pull(name)
    assert p.returncode == 0 and "is downloaded already" in p.stderr and len(hub.seen("files")) == n


def test_one_connection(pull, hub):
    """It is one option's doing that there are several ranges."""
    assert arrived(pull, pull("them/one", "--connections", "1"))
    few = len(hub.seen("files"))
    (pull.to / "tiny-Q4_K_M.gguf").unlink()
    assert arrived(pull, pull("them/one", "--connections", "16"))
    assert len(hub.seen("files")) - few >= few


def test_a_tag_means_the_file_with_ud_where_there_is_no_other(pull):
    assert arrived(pull, pull("them/tiny-GGUF:Q8_K_XL"), "tiny-UD-Q8_K_XL.gguf", Q8)


def test_a_folder(pull, hub):
    p = pull("them/tiny", "--json")
    assert p.returncode == 0, p.stderr
    names = ["config.json", "tokenizer.json", "model.safetensors.index.json",
             "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    assert pull.left() == sorted(["tiny", "tiny.lock"] + ["tiny/" + n for n in names])
    for n in names:
        assert (pull.to / "tiny" / n).read_bytes() == FOLDER[n]
    got = json.loads(p.stdout)
    assert (got["name"], got["path"]) == ("tiny", os.path.realpath(pull.to / "tiny"))
    assert (got["license"], got["was_there"], got["sha256"]) == ("mit", False, None)
    assert (got["source"], got["revision"]) == ("them/tiny:safetensors", hub.repos["them/tiny"].sha)
    files = {f["path"]: f for f in pull.lock("tiny")["files"]}
    assert files["config.json"]["git_sha1"] == git_sha1(CONFIG)
    assert files["tokenizer.json"]["sha256"] == sha256(TOKENIZER)
    assert json.loads(pull("them/tiny", "--json").stdout)["was_there"] is True


def test_a_split_file(pull):
    p = pull("them/big-GGUF")
    assert p.returncode == 0, p.stderr
    for path, data in SPLIT.items():
        assert (pull.to / "big-Q6_K" / path.partition("/")[2]).read_bytes() == data
    assert len(pull.left()) == 5


def test_json_lines(pull):
    p = pull("them/tiny-GGUF:Q4_K_M", "--json-lines")
    got = [json.loads(line) for line in p.stdout.splitlines()]
    assert got[0] == {"status": "pulling manifest"} and arrived(pull, p)
    parts = [x for x in got if "total" in x]
    assert {x["digest"] for x in parts} == {"sha256:" + sha256(Q4)}
    assert (parts[0]["completed"], parts[-1]["completed"], parts[0]["total"]) == (0, len(Q4), len(Q4))
    assert [x["status"] for x in got[-3:-1]] == ["verifying sha256 digest", "writing manifest"]
    assert got[-1]["was_there"] is False
    last = json.loads(pull("them/nowhere", "--json-lines").stdout.splitlines()[-1])
    assert "them/nowhere" in last["error"]


def test_a_curated_name(pull, hub):
    """models.yaml names a repository and quantisations; sizes and hashes are the Hub's."""
    pull.list.write_text(json.dumps({"models": [
        {"name": "small", "description": "for tests", "hub": "them/tiny-GGUF", "tags": "Q5_K_M Q4_K_M",
         "memory_gb": 8, "about_bytes": 1}]}))
    assert arrived(pull, pull("small"))
    assert pull.lock("tiny-Q4_K_M.gguf")["name"] == "small"
    p = pull("small:UD-Q8_K_XL")
    assert p.returncode == 0 and pull.lock("tiny-UD-Q8_K_XL.gguf")["name"] == "small:UD-Q8_K_XL"
    p = pull("small:Q2_K")
    assert p.returncode == 1 and "no Q2_K" in p.stderr and "UD-Q8_K_XL" in p.stdout
    hub.repos["them/tiny-GGUF"].files = {"tiny-Q2_K.gguf": Q4, "tiny-Q3_K_M.gguf": Q8}
    p = pull("small")
    assert p.returncode == 1 and "none of Q5_K_M Q4_K_M" in p.stderr and "Q3_K_M" in p.stdout


# ---- choices ------------------------------------------------------------------------------------------

def test_every_known_name(pull, hub):
    """Each takes its first quantisation, of the several that its repository has."""
    with open(MODELS, encoding="utf-8") as f:
        known = [m for m in yaml.safe_load(f)["models"] if "hub" in m]
    assert len(known) > 20 and [m["memory_gb"] for m in known] == sorted(m["memory_gb"] for m in known)
    pull.list = MODELS
    for m in known:
        tags, base = m["tags"].split(), m["hub"].split("/")[1].removesuffix("-GGUF")
        hub.repos = {m["hub"]: Repo({"%s-%s.gguf" % (base, t): b"GGUF " + t.encode() for t in {"BF16", "Q2_K", *tags}})}
        p = pull(m["name"])
        assert p.returncode == 0 and p.stdout.splitlines()[0] == "%s/%s-%s.gguf" % (pull.to, base, tags[0]), p.stderr


def test_choices(pull, hub):
    budget = len(Q4) + (1 << 20)
    config = pull.folder / "ingot.yaml"
    config.write_text("memory: {budget: %d}\nkvcache: {arena: 1MiB}\n" % budget)
    limits = pull.env(INGOT_CONFIG=str(config))
    p = pull("them/tiny-GGUF", env=limits)
    assert p.returncode == 1 and "ingot pull them/tiny-GGUF:Q4_K_M" in p.stderr
    rows = [line.split() for line in p.stdout.splitlines()]
    assert rows[1] == ["Q4_K_M", "293", "KiB", "fits", "tiny-Q4_K_M.gguf"]
    assert rows[2] == ["UD-Q8_K_XL", "488", "KiB", "does", "not", "fit", "tiny-UD-Q8_K_XL.gguf"]
    assert rows[3] == [] and "1.0 MiB" in p.stdout.splitlines()[4]
    assert hub.seen("files") == [] and pull.left() == []
    got = json.loads(pull("them/tiny-GGUF", "--json", env=limits).stdout)
    assert [(c["choice"], c["fits"], c["bytes"]) for c in got["choices"]] == [
        ("Q4_K_M", True, len(Q4)), ("UD-Q8_K_XL", False, len(Q8))]
    # one byte of memory less, and it does not fit
    less = pull.env(INGOT_CONFIG=str(config), INGOT_MEMORY_BUDGET=str(budget - 1))
    assert not json.loads(pull("them/tiny-GGUF", "--json", env=less).stdout)["choices"][0]["fits"]
    p = pull("them/one", env=less)
    assert arrived(pull, p) and "does not fit your memory" in p.stderr
    p = pull("them/tiny-GGUF:Q3_K_S")
    assert p.returncode == 1 and "has no Q3_K_S" in p.stderr and "UD-Q8_K_XL" in p.stdout


def test_a_tag_of_two_files(pull, hub):
    hub.repos["them/two"] = Repo({"a-it-Q4_0.gguf": Q4, "a-pt-Q4_0.gguf": Q8})
    p = pull("them/two:Q4_0")
    assert p.returncode == 1 and "a-it-Q4_0.gguf or a-pt-Q4_0.gguf" in p.stderr
    assert arrived(pull, pull("them/two:a-pt-Q4_0.gguf"), "a-pt-Q4_0.gguf", Q8)


def test_a_split_file_without_a_part(pull, hub):
    del hub.repos["them/big-GGUF"].files["Q6_K/big-Q6_K-00002-of-00003.gguf"]
    assert refused(pull, pull("them/big-GGUF:Q6_K"), "parts of", "are missing")


def test_nothing_to_pull(pull):
    assert refused(pull, pull("them/none"), "neither a GGUF file nor")


@pytest.mark.parametrize("name", ["hf:one", "a/b/c", "them/tiny-GGUF:", "../x", "them/..", "a b/c",
                                  "them/%s" % ("x" * 300), "hf:../../etc", "them/\x1b[2J"])
def test_names_that_are_none(pull, hub, name):
    assert refused(pull, pull(name)) and hub.requests == []


# ---- the list of files ----------------------------------------------------------------------------------

@pytest.mark.parametrize("path", ["../tiny-Q4_K_M.gguf", "/etc/tiny-Q4_K_M.gguf", "a/../../tiny-Q4_K_M.gguf",
                                  "a//tiny-Q4_K_M.gguf", "./tiny-Q4_K_M.gguf", "", "tiny\n-Q4_K_M.gguf",
                                  "a\\..\\tiny-Q4_K_M.gguf", "x" * 300 + ".gguf", "tiny\0-Q4_K_M.gguf"])
def test_hostile_paths(pull, hub, path):
    def edit(entries):
        return [dict(e, path=path) if e["path"].endswith("M.gguf") else e for e in entries]
    hub.edit_tree = edit
    assert refused(pull, pull("them/one"), "list of files") and hub.seen("files") == []


@pytest.mark.parametrize("change, text", [
    ({"lfs": {"size": 5, "pointerSize": 1}}, "no hash"),
    ({"lfs": {"oid": "../" + "0" * 61, "size": 5, "pointerSize": 1}}, "no hash"),
    ({"lfs": {"oid": "0" * 64, "size": -1, "pointerSize": 1}}, "no size"),
    ({"lfs": {"oid": "0" * 64, "size": 1 << 60, "pointerSize": 1}}, "no size"),
    ({"lfs": {"oid": "0" * 64, "size": "5", "pointerSize": 1}}, "no size"),
    ({"lfs": None, "oid": 5}, "no hash")], ids=range(6))
def test_entries_that_say_nothing(pull, hub, change, text):
    hub.edit_tree = lambda entries: [dict(e, **change) for e in entries]
    assert refused(pull, pull("them/one"), text)


def test_a_path_twice(pull, hub):
    hub.edit_tree = lambda entries: entries * 2
    assert refused(pull, pull("them/one"), "twice")


def test_pages(pull, hub):
    hub.page = 1
    assert arrived(pull, pull("them/tiny-GGUF:Q4_K_M"))
    assert len([p for p, _ in hub.seen("hub") if "/tree/" in p]) == len(GGUF)


def test_a_page_at_another_host(pull, hub):
    """The token would go there."""
    hub.script_at, hub.script = "hub", [
        lambda h, seen: None,
        lambda h, seen: h.reply(200, [], Link='<%s/api/x>; rel="next"' % hub.files_url)]
    p = pull("them/one", env=pull.env(HF_TOKEN="hf_good"))
    assert refused(pull, p, "another host") and hub.seen("files") == []


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"id": "a/b"}', b'{"id": "../..", "sha": "%s"}' % (b"0" * 40),
                                  b'{"id": "a/b", "sha": "main"}', b"\xff" * 100, b"[" * 100_000])
def test_a_reply_that_is_none(pull, hub, body):
    hub.script_at, hub.script = "hub", [lambda h, seen: h.reply(200, body)]
    assert refused(pull, pull("them/one"))


# ---- tokens and errors -------------------------------------------------------------------------------------

def test_the_token_goes_to_the_hub_alone(pull, hub):
    for env in ({"HF_TOKEN": "hf_good"}, {"HUGGING_FACE_HUB_TOKEN": "hf_good"}):
        hub.requests.clear()
        p = pull("them/gated", env=pull.env(**env))
        assert p.returncode == 0, p.stderr
        (pull.to / "tiny-Q4_K_M.gguf").unlink()
        assert all(h.get("authorization") == "Bearer hf_good" for _, h in hub.seen("hub"))
        assert hub.seen("files") and not any("authorization" in h for _, h in hub.seen("files"))
        assert "hf_good" not in p.stderr + p.stdout


@pytest.mark.parametrize("where", ["HF_TOKEN_PATH", "HF_HOME", "cache"])
def test_the_file_of_the_token(pull, where):
    home = pull.folder / ".cache/huggingface" if where == "cache" else pull.folder / "hf"
    home.mkdir(parents=True)
    (home / "token").write_text("hf_good\n")
    extra = {"HF_TOKEN_PATH": str(home / "token"), "HF_HOME": str(home)}
    env = pull.env(**{where: extra[where]} if where in extra else {})
    assert arrived(pull, pull("them/secret", env=env))


def test_tokens_that_are_none(pull, hub):
    for token in ("hf_\nHost: x", "a b", "h\u00e9"):
        assert refused(pull, pull("them/one", env=pull.env(HF_TOKEN=token)), "HF_TOKEN", "not a token")
    assert hub.requests == []


def test_no_token_over_http_to_another_machine(pull):
    env = dict(pull.env(HF_TOKEN="hf_good"), HF_ENDPOINT="http://ingot-test.invalid:1")
    p = pull("them/one", "--retries", "0", env=env)
    assert refused(pull, p, "the token is not sent")


@pytest.mark.parametrize("endpoint", ["ftp://x", "huggingface.co", "https://u@h", "https://", "https://h?x"])
def test_endpoints_that_are_none(pull, endpoint):
    p = pull("them/one", env=dict(pull.env(), HF_ENDPOINT=endpoint))
    assert refused(pull, p, "HF_ENDPOINT")


def test_an_endpoint_with_a_path_and_a_slash(pull, hub):
    p = pull("them/one", env=dict(pull.env(), HF_ENDPOINT=hub.url + "/"))
    assert arrived(pull, p)


@pytest.mark.parametrize("name, token, texts", [
    ("them/nowhere", None, ["no them/nowhere", "private or gated", "HF_TOKEN"]),
    ("them/secret", None, ["no them/secret", "private or gated"]),
    ("them/secret", "hf_other", ["that the token of HF_TOKEN may see"]),
    ("them/gated", None, ["is gated", "/them/gated", "set HF_TOKEN"]),
    ("them/gated", "hf_other", ["is gated", "the token of HF_TOKEN has not done so"]),
    ("them/one", "hf_bad", ["does not know the token of HF_TOKEN"])])
def test_no_access(pull, name, token, texts):
    p = pull(name, env=pull.env(HF_TOKEN=token) if token else None)
    assert refused(pull, p, *texts)


def test_a_renamed_repository(pull, hub):
    hub.renamed["them/old"] = "them/one"
    assert arrived(pull, pull("them/old", env=pull.env(HF_TOKEN="hf_good")))
    assert pull.lock("tiny-Q4_K_M.gguf")["repository"] == "them/one"


def test_busy(pull, hub):
    """A 429 says how long to wait; a server's error is retried."""
    hub.script_at, hub.script = "hub", [
        lambda h, seen: h.reply(429, RateLimit='"api";r=0;t=0'),
        lambda h, seen: h.reply(503), lambda h, seen: h.reply(429, Retry_After="0")]
    p = pull("them/one", "--retry-wait", "0.01")
    assert arrived(pull, p) and p.stderr.count("HTTP 429; retrying in 0 s") == 2
    hub.script = [lambda h, seen: h.reply(500)] * 9
    p = pull("them/two", "--retries", "2")
    assert p.returncode == 1 and "HTTP 500" in p.stderr and len(hub.script) == 6


def test_nobody_there(pull):
    """The last line says who does not answer."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        url = "http://127.0.0.1:%d" % s.getsockname()[1]
        p = pull("them/one", "--retries", "1", env=pull.env() | {"HF_ENDPOINT": url})
    assert refused(pull, p, "retrying in 0.01 s")
    assert re.fullmatch(r"ingot: %s/api/models/them/one: \S.*" % url, p.stderr.splitlines()[-1]), p.stderr


# ---- redirects ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("to, text", [
    ("file:///etc/passwd", "not supported"), ("ftp://127.0.0.1/x", "not supported"),
    ("https://127.0.0.1:1/x", "retrying"), ("/api/nothing", "no such file")])
def test_redirects_to_nowhere(pull, hub, to, text):
    hub.location = to
    p = pull("them/one", "--retries", "1")
    assert refused(pull, p) and text.lower() in p.stderr.lower()


def test_a_redirect_loop(pull, hub):
    hub.location = "/them/one/resolve/main/tiny-Q4_K_M.gguf"
    assert refused(pull, pull("them/one"), "more than 5 redirects")


def test_the_second_server_redirects_on(pull, hub):
    hub.script = [lambda h, seen: h.reply(302, Location=h.path + "&again=1")] * 2
    assert arrived(pull, pull("them/one"))


def test_signed_addresses_expire(pull, hub):
    def expire(h, seen):
        hub.valid.clear()
    hub.script = [lambda h, seen: None, expire]
    p = pull("them/one")
    assert arrived(pull, p) and "HTTP 403; retrying" in p.stderr
    assert len([1 for p, _ in hub.seen("hub") if "/resolve/" in p]) > 1


# ---- bytes -----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("data, text", [
    (Q4[:-1] + b"x", "SHA-256 is %s, expected %s" % (sha256(Q4[:-1] + b"x"), sha256(Q4))),
    (Q4[:-1], "has 300003 bytes, the Hub lists 300004"), (Q4 + b"x", "has 300005 bytes, the Hub lists 300004")],
    ids=["hash", "short", "long"])
def test_other_bytes_leave_nothing(pull, hub, data, text):
    hub.serve = lambda path, good: data
    assert refused(pull, pull("them/one"), text, "nothing is left")


def test_a_small_file_of_other_bytes(pull, hub):
    real = hub.answer_resolve
    hub.answer_resolve = lambda h, name, rev, path, seen: (
        h.reply(200, b'{"model_type": "gemma"}') if path == "config.json" else real(h, name, rev, path, seen))
    p = pull("them/tiny")
    assert p.returncode == 1 and "git's SHA-1 is" in p.stderr
    assert not (pull.to / "tiny").exists() and "config.json" not in " ".join(pull.left())


def test_the_hub_contradicts_itself(pull, hub):
    for fields, text in (({"X_Linked_Size": "5"}, "says that it has 5"),
                         ({"X_Linked_Etag": '"%s"' % ("0" * 64)}, "another"),
                         ({"X_Repo_Commit": "0" * 40}, "another revision")):
        hub.script_at, hub.script = "hub", [
            lambda h, seen: None, lambda h, seen: None,
            lambda h, seen, f=fields: h.reply(302, Location=hub.files_url + "/x", **f)]
        assert refused(pull, pull("them/one"), text)


def test_a_server_without_ranges(pull, hub):
    hub.ranges = False
    p = pull("them/one")
    assert arrived(pull, p) and "from its start" in p.stderr
    assert any("range" not in h for _, h in hub.seen("files"))


def test_more_bytes_than_announced(pull, hub):
    def more(h, seen):
        start = int(seen["range"].split("=")[1].split("-")[0])
        h.reply(206, b"x" * 200_000, Content_Range="bytes %d-%d/%d" % (start, start + 10, len(Q4)))
    hub.script = [more] * 4
    assert refused(pull, pull("them/one"), "more bytes than the file has")


def test_another_range(pull, hub):
    def wrong(h, seen):
        h.reply(206, b"x" * 100, Content_Range="bytes 0-99/%d" % len(Q4))
    hub.script = [lambda h, seen: None, wrong]
    assert arrived(pull, pull("them/one", "--connections", "1"))


def broken_off(h, seen):
    start = int(seen["range"].split("=")[1].split("-")[0])
    h.cut(Q4[start:], 40_000, 206, Content_Range="bytes %d-%d/%d" % (start, len(Q4) - 1, len(Q4)))


def test_resumes_after_a_cut(pull, hub):
    hub.script = [broken_off]
    p = pull("them/one", "--connections", "1")
    assert arrived(pull, p) and "retrying" in p.stderr
    assert hub.seen("files")[1][1]["range"].startswith("bytes=40000-")


def test_resumes_in_another_process(pull, hub):
    hub.script = [broken_off] + [lambda h, seen: h.reply(500)] * 3
    p = pull("them/one", "--connections", "1", "--retries", "1")
    assert p.returncode == 1 and "the same command resumes" in p.stderr
    assert pull.left() == ["tiny-Q4_K_M.gguf.part", "tiny-Q4_K_M.gguf.part.meta"]
    n = len(hub.seen("files"))
    hub.script = []
    p = pull("them/one")
    assert arrived(pull, p) and "resuming after the 40000 bytes" in p.stderr
    assert "bytes=0-" not in " ".join(h["range"] for _, h in hub.seen("files")[n:])


def test_resumed_bytes_that_are_wrong(pull, hub):
    """The hash of the whole finds them, and the file is downloaded from its start."""
    hub.script = [broken_off] + [lambda h, seen: h.reply(500)] * 3
    assert pull("them/one", "--connections", "1", "--retries", "1").returncode == 1
    part = pull.to / "tiny-Q4_K_M.gguf.part"
    with open(part, "r+b") as f:
        f.write(b"other bytes")
    hub.script = []
    p = pull("them/one")
    assert arrived(pull, p) and "downloading it from the start" in p.stderr


@pytest.mark.parametrize("meta", [b"", b"x", b"ingot pieces 1\n%s\n300004 1\n" % sha256(Q4).encode(),
                                  b"ingot pieces 1\n%s\n300004 65536\n999999999\n" % sha256(Q4).encode(),
                                  b"ingot pieces 1\n%s\n300004 65536\n-1\n" % sha256(Q4).encode()])
def test_a_meta_that_is_none(pull, meta):
    pull.to.mkdir()
    (pull.to / "tiny-Q4_K_M.gguf.part").write_bytes(b"x" * len(Q4))
    (pull.to / "tiny-Q4_K_M.gguf.part.meta").write_bytes(meta)
    p = pull("them/one")
    assert arrived(pull, p) and "resuming" not in p.stderr


def test_interrupt_keeps_the_part(pull, hub):
    waits = ingot_event()

    def stall(h, seen):
        h.cut(Q4[:60_000], 50_000, 206, Content_Range="bytes 0-65535/%d" % len(Q4))
        waits["reached"].set()
        waits["released"].wait(30)
    hub.script = [stall]
    p = subprocess.Popen(pull.command("them/one", "--connections", "1"), env=pull.env(), text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    part = pull.to / "tiny-Q4_K_M.gguf.part"
    ingot.until(lambda: part.exists() and part.read_bytes()[:50_000] == Q4[:50_000], "the first bytes")
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=30 * ingot.PATIENCE)
    waits["released"].set()
    assert p.returncode == 130 and out == "" and "is kept" in err, err
    p = pull("them/one")
    assert arrived(pull, p) and "resuming after the 50000 bytes" in p.stderr


def ingot_event():
    import threading
    return {"reached": threading.Event(), "released": threading.Event()}


def test_a_stall(pull, hub):
    waits = ingot_event()

    def stall(h, seen):
        h.cut(Q4[:65536], 50_000, 206, Content_Range="bytes 0-65535/%d" % len(Q4))
        waits["released"].wait(30)
    hub.script = [stall]
    p = pull("them/one", "--connections", "1", "--stall-timeout", "1")
    waits["released"].set()
    assert arrived(pull, p) and "retrying" in p.stderr


def test_a_folder_resumes(pull, hub):
    seen_shards = []

    def serve(path, data):
        seen_shards.append(path)
        return data if not path.startswith("model-00002") or len(hub.script) > 1 else data[::-1]
    hub.serve = serve
    p = pull("them/tiny")
    assert p.returncode == 1 and "the same command resumes" in p.stderr
    assert "tiny.part/model-00001-of-00002.safetensors" in pull.left() and "tiny" not in pull.left()
    hub.serve = lambda path, data: data
    hub.requests.clear()
    p = pull("them/tiny")
    assert p.returncode == 0 and (pull.to / "tiny/model-00002-of-00002.safetensors").read_bytes() == SHARDS[1]
    assert not any("model-00001" in p for p, _ in hub.seen("files"))
    assert "tiny.part" not in pull.left()


# ---- the models folder ------------------------------------------------------------------------------------------

def test_links_in_place(pull):
    """A link where a part would be written is not followed."""
    victim = pull.folder / "victim"
    victim.write_bytes(b"mine")
    pull.to.mkdir()
    for name in ("tiny-Q4_K_M.gguf.part", "tiny-Q4_K_M.gguf.part.meta", "tiny-Q4_K_M.gguf.part.meta.new",
                 "tiny-Q4_K_M.gguf.lock"):
        (pull.to / name).symlink_to(victim)
    p = pull("them/one")
    assert p.returncode == 1 and "tiny-Q4_K_M.gguf.part" in p.stderr and victim.read_bytes() == b"mine"
    (pull.to / "tiny-Q4_K_M.gguf.part").unlink()
    os.link(victim, pull.to / "tiny-Q4_K_M.gguf.part")
    p = pull("them/one")
    assert p.returncode == 1 and "not a plain file" in p.stderr and victim.read_bytes() == b"mine"
    (pull.to / "tiny-Q4_K_M.gguf.part").unlink()
    p = pull("them/one")
    assert p.returncode == 0 and victim.read_bytes() == b"mine"
    assert not (pull.to / "tiny-Q4_K_M.gguf.lock").is_symlink()
    elsewhere = pull.folder / "elsewhere"
    elsewhere.mkdir()
    (pull.to / "tiny.part").symlink_to(elsewhere)
    p = pull("them/tiny")
    assert p.returncode == 1 and "is not a folder" in p.stderr and not list(elsewhere.iterdir())


def test_what_is_there_is_another_file(pull):
    pull.to.mkdir()
    (pull.to / "tiny-Q4_K_M.gguf").write_bytes(Q8)
    p = pull("them/one")
    assert p.returncode == 1 and "move or delete it" in p.stderr
    assert (pull.to / "tiny-Q4_K_M.gguf").read_bytes() == Q8


def test_a_full_disk_is_said_before(pull, hub):
    def edit(entries):
        return [dict(e, lfs=dict(e["lfs"], size=1 << 43)) for e in entries]
    hub.edit_tree = edit
    p = pull("them/one")
    assert refused(pull, p, "8.0 TiB are needed") and hub.seen("files") == []


def limit_file_size():
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000))


def test_a_file_that_can_not_grow(pull):
    p = pull("them/one", preexec_fn=limit_file_size)
    assert refused(pull, p, "can't write", "File too large")


def test_two_at_once(pull, hub):
    waits = ingot_event()

    def stall(h, seen):
        waits["reached"].set()
        waits["released"].wait(60)
    hub.script = [stall]
    first = subprocess.Popen(pull.command("them/one"), env=pull.env(), stderr=subprocess.PIPE, text=True,
                             stdout=subprocess.DEVNULL)
    assert waits["reached"].wait(30)
    second = pull("them/one")
    assert second.returncode == 1 and "another process is fetching" in second.stderr
    waits["released"].set()
    err = first.communicate(timeout=60 * ingot.PATIENCE)[1]
    assert first.returncode == 0, err
    assert (pull.to / "tiny-Q4_K_M.gguf").read_bytes() == Q4


def test_no_python_is_run(pull):
    marks = pull.folder / "python3"
    marks.write_text("#!/bin/sh\n: >%s.ran\n" % marks)
    marks.chmod(0o755)
    env = pull.env(INGOT_PYTHON=str(marks), PATH="%s:%s" % (pull.folder, os.environ["PATH"]))
    assert arrived(pull, pull("them/one", env=env)) and not (pull.folder / "python3.ran").exists()
