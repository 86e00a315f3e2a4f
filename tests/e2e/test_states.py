"""A model with recurrent layers: agents at work, whose states are found in the prefix cache and never mixed up."""
import concurrent.futures
import shutil
import threading

import pytest

from daemon import until
from test_kv_disk import ask, disk, files, kept, said, started

pytestmark = pytest.mark.home("release")

WORDS = " ".join("word%d and so on;" % i for i in range(110))
TURNS, REPLY = 5, 10


def recurrent(models, **options):
    return models.random(arch="qwen35", **options)


class Agent:
    """A conversation; two of them begin alike."""

    def __init__(self, number):
        self.number, self.turns, self.texts = number, [], []
        self.messages = [said("You are %d. %s" % (number // 2, WORDS), "system")]

    def work(self, d, turns):
        for turn in range(turns):
            self.messages.append(said("Go %d.%d." % (self.number, turn), "user"))
            r = d.http("POST", "/v1/chat/completions", {
                "model": "tiny", "messages": self.messages, "max_tokens": REPLY, "temperature": 0})
            assert r.status == 200, r
            used, text = r.json["usage"], r.json["choices"][0]["message"]["content"]
            self.turns.append((used["prompt_tokens"], used["prompt_tokens_details"]["cached_tokens"]))
            self.texts.append(text)
            self.messages.append(said(text, "assistant"))


def at_work(d, n=4, turns=TURNS):
    """So many agents, when they have done their turns side by side."""
    agents = [Agent(i) for i in range(n)]
    threads = [threading.Thread(target=a.work, args=(d, turns)) for a in agents]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all(len(a.turns) == turns for a in agents)
    return agents


def ask_all(d, requests):
    """The texts of the answers to requests side by side."""
    with concurrent.futures.ThreadPoolExecutor(len(requests)) as pool:
        replies = list(pool.map(lambda r: d.http("POST", "/v1/chat/completions", {"model": "tiny", **r}), requests))
    assert {r.status for r in replies} == {200}, replies
    return [r.json["choices"][0]["message"]["content"] for r in replies]


def test_agents(start, models):
    """Of every prompt but the first ones at least 95 % come from the cache, with the texts of a daemon that has none."""
    path = recurrent(models)
    d = start(path)
    cached = at_work(d)
    d.stop()
    for a in cached:
        assert all(n_cached >= 0.95 * n for n, n_cached in a.turns[1:]), a.turns
        assert all(n > 1500 for n, _ in a.turns)
    # of two that begin alike, one reads what they share
    assert sum(a.turns[0][1] > 1000 for a in cached) == 2, [a.turns[0] for a in cached]
    computed = at_work(start(path, {"kvcache": {"prefix_cache": False}}))
    assert [a.texts for a in cached] == [a.texts for a in computed]
    assert all(n_cached == 0 for a in computed for _, n_cached in a.turns)


def states(folder):
    """The files of states, of the groups after that of pages, by the number of tokens."""
    parts = [(p, p.name.split(".")) for p in files(folder)]
    return {(int(depth, 16) + 1) * 16: p for p, (_, groups, depth) in parts if groups == "6"}


@pytest.mark.home("asan")
@pytest.mark.parametrize("how", ["kill", "damage"])
def test_after_a_crash(start, models, tmp_path, how):
    """A conversation goes on after SIGKILL where it was, with the same text; where its states are damaged it is read."""
    path, folder, extra = recurrent(models), tmp_path / "kv", kept(tmp_path / "kv")
    talk = [said("You are brief. " + WORDS, "system"), said("Who?")]
    d = started(start, path, extra)
    first, n_prompt, n_cached = ask(d, talk, seed=5, temperature=1)
    assert n_cached == 0
    # the last one that is saved, behind all blocks
    until(lambda: max(states(folder), default=0) >= n_prompt // 16 * 16, "the states are saved")
    d.kill()
    talk += [said(first, "assistant"), said("And then?")]
    for p in states(folder).values() if how == "damage" else []:
        data = bytearray(p.read_bytes())
        data[len(data) // 2] ^= 16
        p.write_bytes(data)
    d = started(start, path, extra)
    more, n_more, n_cached = ask(d, talk)
    if how == "kill":
        assert n_cached in states(folder) and n_cached >= n_prompt - 33
        assert d.metrics().sum("ingot_kv_cache_disk_restored_tokens_total") == n_cached
    else:
        assert n_cached == 0
        until(lambda: disk(d)["damaged"] == 1, "it is said")
    d.stop()
    assert ask(start(path), talk) == (more, n_more, 0)


@pytest.mark.parametrize("source, least", [("lookup", 100), ("model", 4)])
def test_drafts(start, models, tmp_path, source, least):
    """Text is looked up, or guessed by a model with recurrent layers: the same answers, of one and side by side, though
    states went back."""
    path, copy = recurrent(models), tmp_path / "copy.gguf"
    shutil.copy(path, copy)
    asked = [{"messages": [said("Go.")], "max_tokens": 150, "ignore_eos": True, "logit_bias": {str(i): 100 for i in ids}, **more}
             for ids, more in (((100,), {"temperature": 0}), ((101, 102), {"temperature": 1, "seed": 3}),
                               ((103, 104), {"temperature": 0, "frequency_penalty": 0.1}))]
    d = start(path, {"scheduler": {"speculation": "off"}})
    plain = [ask_all(d, [a])[0] for a in asked]
    d.stop()
    d = start(path, {"scheduler": {"speculation": "draft" if source == "model" else source}, "models": [
        {"name": "tiny", "path": str(path), **({"draft": str(copy)} if source == "model" else {})}]})

    def accepted():
        assert [ask_all(d, [a])[0] for a in asked] == plain
        assert ask_all(d, asked) == plain
        return d.metrics().sum("ingot_spec_decode_num_accepted_tokens_total", source=source) >= least
    until(accepted, "right drafts")  # how many there are is measured
