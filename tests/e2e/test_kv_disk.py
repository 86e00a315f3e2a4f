"""Computed blocks outlive the daemon: after a stop, a crash and a change of models a prompt is not read again, and
the answer is the same; with damaged files, a full disk and without the option it is computed."""
import pathlib
import stat

import pytest

from daemon import until
from test_disk_full import Limit, resource
from test_ledger import rows

WORDS = " ".join("word%d and so on;" % i for i in range(60))


def kept(folder, **options):
    return {"kvcache": {"disk": str(folder), **options}}


def disk(d):
    return d.http("GET", "/v1/ingot/status").json["kvcache"]["disk"]


def started(start, path, extra):
    """A daemon that knows the folder's files, but not yet whether reading them is faster than computing: of so small a
    model, on a busy machine, it need not be."""
    pathlib.Path(extra["kvcache"]["disk"], "rates").unlink(missing_ok=True)
    d = start(path, extra)
    until(lambda: disk(d)["ready"], "the folder is known")
    return d


def ask(d, messages, **options):
    r = d.http("POST", "/v1/chat/completions",
               {"model": "tiny", "messages": messages, "max_tokens": 8, "temperature": 0, **options})
    assert r.status == 200, r
    used = r.json["usage"]
    return r.json["choices"][0]["message"]["content"], used["prompt_tokens"], used["prompt_tokens_details"]["cached_tokens"]


def said(text, role="user"):
    return {"role": role, "content": text}


def saved(d, n_tokens):
    """All whole blocks of so many tokens are in files."""
    until(lambda: disk(d)["blocks"] >= n_tokens // 16, "%d tokens are saved" % n_tokens)


def files(folder):
    return sorted(p for p in pathlib.Path(folder).glob("??/*"))


@pytest.mark.tsan
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_after_a_restart(start, models, tmp_path, how):
    extra, talk = kept(tmp_path / "kv"), [said("You are brief. " + WORDS, "system"), said("Who?")]
    d = started(start, models.random(), extra)
    first, n_prompt, n_cached = ask(d, talk, seed=5, temperature=1)
    assert n_cached == 0 and n_prompt > 300
    saved(d, n_prompt)
    assert stat.S_IMODE((tmp_path / "kv").stat().st_mode) == 0o700
    assert all(stat.S_IMODE(p.stat().st_mode) == 0o600 for p in files(tmp_path / "kv"))
    d.kill() if how == "kill" else d.stop()

    d = started(start, models.random(), extra)
    again, _, n_cached = ask(d, talk, seed=5, temperature=1)
    assert n_prompt - 17 <= n_cached < n_prompt and again == first
    assert d.metrics().sum("ingot_kv_cache_disk_restored_tokens_total") == n_cached // 16 * 16
    until(lambda: {r["restored_tokens"] for r in rows(d)} - {0} == {n_cached // 16 * 16}, "the ledger has them")
    # the conversation goes on, after one more
    saved(d, n_prompt)
    d.stop()
    d = started(start, models.random(), extra)
    talk += [said(first, "assistant"), said("And then?")]
    more, n_more, n_cached = ask(d, talk)
    assert n_cached >= n_prompt - 17
    d.stop()
    d = start(models.random())  # without the folder
    assert disk(d) is None
    assert ask(d, talk) == (more, n_more, 0)


def test_q8_0(start, models, tmp_path):
    """A cache in q8_0, of all models or of one, is restored; files of another type are not."""
    path, talk = models.random(), [said(WORDS)]
    d = started(start, path, kept(tmp_path / "kv", dtype="q8_0"))
    first, n_prompt, _ = ask(d, talk, seed=5, temperature=1)
    saved(d, n_prompt)
    size = disk(d)["bytes"]
    d.stop()
    own = {"models": [{"name": "tiny", "path": path, "kv_dtype": "q8_0"}]}
    d = started(start, None, {**kept(tmp_path / "kv"), **own})
    again, _, n_cached = ask(d, talk, seed=5, temperature=1)
    assert n_prompt - 17 <= n_cached < n_prompt and again == first
    d.stop()
    d = started(start, path, kept(tmp_path / "f16"))
    ask(d, talk)
    saved(d, n_prompt)
    assert size < 0.7 * disk(d)["bytes"]  # 0.53, but files have heads and whole pages
    d.stop()
    d = started(start, path, kept(tmp_path / "kv"))
    assert ask(d, talk)[2] == 0


def test_another_model_between(start, models, tmp_path):
    two = [{"name": "tiny", "path": models.random()}, {"name": "other", "path": models.random(width=128)}]
    d = started(start, None, {**kept(tmp_path / "kv"), "models": two})
    first, n_prompt, _ = ask(d, [said(WORDS)])
    other, n_other, n_cached = ask(d, [said(WORDS)], model="other")
    assert n_cached == 0
    for name in ("tiny", "other"):
        assert d.http("POST", "/v1/ingot/models/unload", {"model": name}).status == 200
    saved(d, n_prompt // 16 * 16 + n_other // 16 * 16)  # an unload waits until they are handed over, not written
    assert ask(d, [said(WORDS)])[2] >= n_prompt - 17
    assert ask(d, [said(WORDS)], model="other") == (other, n_other, ask(d, [said(WORDS)], model="other")[2])
    assert ask(d, [said(WORDS)])[0] == first


def test_another_file_of_that_name(start, models, tmp_path):
    """Weights that change under a path: nothing of the old ones is used."""
    extra, talk = kept(tmp_path / "kv"), [said(WORDS)]
    d = started(start, models.random(), extra)
    n_prompt = ask(d, talk)[1]
    saved(d, n_prompt)
    d.stop()
    d = started(start, models.random(seed=7), extra)
    assert ask(d, talk)[2] == 0


def test_damaged(start, models, tmp_path):
    extra, talk = kept(tmp_path / "kv"), [said(WORDS)]
    d = started(start, models.random(), extra)
    first, n_prompt, _ = ask(d, talk)
    saved(d, n_prompt)
    d.kill()
    for i, p in enumerate(files(tmp_path / "kv")):
        data = bytearray(p.read_bytes())
        data[(i * 7919) % len(data)] ^= 1 << i % 8
        p.write_bytes(data if i % 3 else data[:-1])
    d = started(start, models.random(), extra)
    assert ask(d, talk) == (first, n_prompt, 0)
    assert disk(d)["damaged"] >= 1 and disk(d)["error"] is None
    assert "is left out: it is damaged" in d.log

    # Files that were asked for beside the first bad one may be read, and left out, after their blocks were passed
    # over as saved: these are written after another request.
    def written_again():
        assert ask(d, talk)[0] == first
        return disk(d)["blocks"] >= n_prompt // 16
    until(written_again, "%d tokens are saved again" % n_prompt)


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only on Linux")
def test_a_full_disk(start, models, tmp_path):
    d = started(start, models.random(), kept(tmp_path / "kv"))
    limit = Limit(tmp_path)
    limit.fill(d)
    first = ask(d, [said(WORDS)])
    until(lambda: disk(d)["error"], "it is said")
    assert d.log.count("a block can't be written") == 1 and not files(tmp_path / "kv")
    limit.free(d)
    assert ask(d, [said(WORDS)])[0] == first[0]
    assert not list((tmp_path / "kv").glob("part.*"))


def test_size(start, models, tmp_path):
    extra = kept(tmp_path / "kv", disk_size=20 * 65536)
    d = started(start, models.random(), extra)
    for i in range(3):
        ask(d, [said("%d: %s" % (i, WORDS))])
    until(lambda: disk(d)["evicted"] > 0, "some were removed")
    d.stop()
    assert 0 < sum(-(-p.stat().st_size // 4096) * 4096 for p in files(tmp_path / "kv")) <= 20 * 65536


def test_default(start, models, tmp_path):
    """Beside the ledger; where that can't be, the daemon says so and goes on; a folder that is named must be usable."""
    ledger = tmp_path / "state" / "ledger.db"
    d = started(start, models.random(), {"ledger": {"path": str(ledger)}, "kvcache": {"disk": ""}})
    n_prompt = ask(d, [said(WORDS)])[1]
    saved(d, n_prompt)
    assert files(ledger.with_name("kv"))
    total = disk(d)["max_bytes"]
    assert 0 < total <= 20 << 30
    d.stop()
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "kv").write_text("a file")
    d = start(models.random(), {"ledger": {"path": str(tmp_path / "else" / "l.db")}, "kvcache": {"disk": ""}})
    assert disk(d) is None and "are not kept on disk" in d.log
    log = start.refused(models.random(), kept(tmp_path / "else" / "kv"))
    assert str(tmp_path / "else" / "kv") in log
