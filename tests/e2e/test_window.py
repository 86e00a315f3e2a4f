"""A model with sliding-window layers: the cache has only their window, freed blocks change no
token, and a conversation continues where its last turn ended."""
import threading

import pytest

from tiny_model import WINDOW

# Of Gemma 3's six tiny layers two are global; a block has 16 tokens of 2 heads of 32, K and V.
GLOBAL_BLOCK, LOCAL_BLOCK = 2 * 4096, 4 * 4096


def model(models):
    return models.random(arch="gemma3", n_blocks=6)


def converse(d, n_turns=5):
    """Texts and (prompt's tokens, those of them that were cached) of a long conversation."""
    messages, texts, counts = [], [], []
    for i in range(n_turns):
        messages.append({"role": "user", "content": "turn %d of a long talk; " % i * 8})
        r = d.http("POST", "/v1/chat/completions", {
            "model": "tiny", "messages": messages, "temperature": 0, "max_tokens": 50})
        assert r.status == 200, r
        text, usage = r.json["choices"][0]["message"]["content"], r.json["usage"]
        texts.append(text)
        counts.append((usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]))
        messages.append({"role": "assistant", "content": text})
    return texts, counts


def test_turns(start, models):
    all_texts = []
    for chunk, prefix_cache in ((512, True), (16, True), (100, False), (512, False)):
        d = start(model(models), {"scheduler": {"prefill_chunk": chunk},
                                  "kvcache": {"prefix_cache": prefix_cache}})
        texts, counts = converse(d)
        all_texts.append(texts)
        for (before, _), (now, cached) in zip(counts, counts[1:]):
            assert now > before > WINDOW
            # all of the last prompt except its last blocks: a reply is not always split
            # into the tokens that were sampled
            assert cached >= before // 16 * 16 - 16 if prefix_cache else cached == 0
        d.until_idle()
        d.stop()
    assert all(len(set(t)) > 1 for t in all_texts)
    assert all(t == all_texts[0] for t in all_texts[1:])


@pytest.mark.tsan
def test_a_long_text_uses_its_window(start, models):
    d = start(model(models), {"scheduler": {"prefill_chunk": 32}})
    replies, used = [], []
    t = threading.Thread(target=lambda: replies.append(
        d.chat("a long prompt, " * 60, max_tokens=300, ignore_eos=True)))
    t.start()
    while t.is_alive():
        used.append(d.metrics().sum("ingot_kv_cache_used_bytes"))
    t.join()
    assert replies[0].status == 200, replies[0]
    n = replies[0].json["usage"]["total_tokens"]
    assert n > 500
    all_global, window = (n + 31) // 16 * GLOBAL_BLOCK, (WINDOW + 32 + 28) // 16 + 2
    assert max(used) <= all_global + window * LOCAL_BLOCK, (max(used), n)
    assert max(used) >= all_global // 3, (max(used), n)
    d.until_idle()
    # blocks outside the window stay cached while there is space, and are freed with the rest
    assert d.metrics().sum("ingot_kv_cache_cached_bytes") >= n // 16 * LOCAL_BLOCK
    assert d.metrics().sum("ingot_kv_cache_used_bytes") == 0
