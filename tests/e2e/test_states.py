"""A model with recurrent layers: agents at work, whose states are found in the prefix cache and never mixed up."""
import threading

from test_kv_disk import said

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
