#!/usr/bin/env python3
"""The prompts of the model truth: short questions, code, several languages, chats of
more than one turn, and long contexts up to more than 1,100 tokens, so that attention
crosses several ranges of 256 positions.

    prompts.py MODEL.gguf [--llama DIR]

prints each prompt's number of tokens.  The ids come from the PyPI package
`tokenizers` with the file's own vocabulary and merges; --llama names a folder with
llama.cpp's llama-tokenize and compares the two.  truth.py imports encode_all().
"""
import argparse
import os
import subprocess
import sys
import tempfile

from gguf_read import Gguf

DEFAULT_SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


def _log_lines(n):
    """A service's log, written by a small generator: numbers, names, repetition."""
    parts, state = [], 12345
    services = ["billing", "search", "mailer", "gateway", "indexer"]
    words = ["started", "finished", "was retried", "timed out", "was cancelled"]
    for i in range(n):
        state = (state * 1103515245 + 12345) % 2147483648
        parts.append("%02d:%02d:%02d %s job %d %s after %d ms" % (
            6 + i // 40, (i * 7) % 60, state % 60, services[state // 64 % 5],
            1000 + state // 4096 % 9000, words[state // 512 % 5], state // 8192 % 3000))
    return "\n".join(parts)


HARBOUR = """\
The harbour of Lindmouth was built twice. The first one, finished in 1834, was a plain \
stone wall with a lamp at its end, and it served the herring boats well until the winter \
of 1861, when a storm from the north-east took the lamp, the keeper's hut and forty \
metres of the wall in a single night. For nine years the boats were drawn up on the \
beach by hand. The second harbour was paid for by the railway company, which wanted a \
place to load slate, and its engineer, Agnes Hallward, chose to build two walls that \
overlap like the hands of a person who shelters a candle. A ship had to turn twice to \
come in, which the captains hated, but no wave has ever reached the inner basin. \
Hallward kept a diary of the work. She wrote that the divers were paid by the stone, \
that the stones were lifted by a crane which had been bought second-hand from Rotterdam, \
and that the cook was the most important person on the site, because men who eat badly \
build badly. When the slate trade ended in 1912 the railway closed, and the harbour \
went back to the herring boats. Today it shelters a ferry, a rowing club and a research \
vessel that measures the temperature of the sea every day at noon; the series has no \
gap since 1953 and is one of the longest in the north."""

BEES = """\
A colony of honey bees decides where to live by a kind of debate. In late spring, when \
the old nest has become too small, about two thirds of the workers leave with the queen \
and settle as a cluster on a branch. From there a few hundred of the oldest bees fly out \
to look for a hollow tree. A scout that has found one returns and dances on the surface \
of the cluster: the angle of the dance tells the direction, its length the distance, and \
the number of repeats tells how good she thinks the place is. Other scouts follow the \
dance, go and see for themselves, and dance in turn if they agree. Each scout repeats her \
dance less often every time she comes back, so that a poor site is forgotten unless new \
scouts are convinced by it. Scouts of one site also butt the dancers of another with \
their heads, which makes them stop. When about thirty scouts are present at one site at \
the same moment, a quorum is reached: they return, run through the cluster, warm up the \
resting bees, and within an hour the swarm is in the air. The whole process takes from a \
few hours to several days, and in experiments the bees chose the best of five boxes in \
four trials out of five."""

STACK_C = """\
struct stack {
	int *items;
	size_t n, cap;
};

int stack_push(struct stack *s, int v)
{
	if (s->n == s->cap) {
		size_t cap = s->cap ? 2 * s->cap : 8;
		int *items = realloc(s->items, cap * sizeof *items);
		if (!items)
			return -1;
		s->items = items;
		s->cap = cap;
	}
	s->items[s->n++] = v;
	return 0;
}

int stack_pop(struct stack *s, int *v)
{
	if (!s->n)
		return -1;
	*v = s->items[--s->n];
	return 0;
}"""

RECIPES = "\n".join(
    "%d. %s: %s" % (i + 1, name, how) for i, (name, how) in enumerate([
        ("Lentil soup", "Soften one onion and two carrots in oil, add 200 g of red lentils "
         "and a litre of stock, simmer for 25 minutes, finish with lemon."),
        ("Flat bread", "Mix 300 g of flour, 180 g of water, a spoon of oil and some salt; "
         "rest for half an hour, roll thin, bake in a dry hot pan for a minute a side."),
        ("Baked apples", "Core four apples, fill them with oats, raisins, butter and "
         "cinnamon, bake at 190 degrees for 35 minutes."),
        ("Potato salad", "Boil a kilo of small potatoes, slice while warm, pour over hot "
         "stock with vinegar and mustard, add chives when cold."),
        ("Tomato rice", "Fry garlic in oil, add 250 g of rice and a tin of tomatoes with "
         "the same amount of water, cover, cook for 17 minutes, rest for five."),
        ("Cucumber yoghurt", "Grate a cucumber, salt it, press out the water, stir into "
         "400 g of yoghurt with garlic, mint and a little oil."),
    ]))

# Each prompt: a list of (role, content); without a system message the template's own.
PROMPTS = [
    [("user", "What is the capital of France?")],
    [("user", "Explain in three sentences why the sky is blue.")],
    [("user", "Write a short poem about a lighthouse in winter.")],
    [("user", "List five things to check before a long bicycle trip.")],
    [("user", "Write a Python function that returns the n-th Fibonacci number "
              "without recursion, and explain how it works.")],
    [("user", "Write a C function that reverses a string in place.")],
    [("user", "def median(values):\n    values = sorted(values)\n    n = len(values)\n"
              "    return values[n // 2]\n\nWhat is wrong with this function for an even "
              "number of values? Show the corrected code.")],
    [("user", "SELECT name, count(*) FROM orders JOIN clients USING (client_id) "
              "GROUP BY name HAVING count(*) > 3;\n\nExplain this query step by step.")],
    [("user", "Explique la photosynthèse à un enfant de dix ans.")],
    [("user", "Warum ist der Himmel am Abend rot? Bitte antworte auf Deutsch.")],
    [("user", "¿Cuáles son los planetas del sistema solar, en orden?")],
    [("user", "日本の首都はどこですか?")],
    [("user", "Расскажи коротко, кто такой Юрий Гагарин.")],
    [("user", "用中文写一句关于春天的话。")],
    [("user", "A train leaves at 9:15 and arrives at 11:40. It stops for 12 minutes on "
              "the way. How long does it move? Think step by step.")],
    [("user", "What is 17 * 23? Then subtract 91 and divide by 10.")],
    [("system", "You answer like a pirate."), ("user", "How do I make a cup of tea?")],
    [("system", "You are a terse assistant. Answer in JSON only."),
     ("user", "Give me the name, age and job of an invented person.")],
    [("user", "My name is Ada and I live in Lisbon."),
     ("assistant", "Nice to meet you, Ada! How can I help you today?"),
     ("user", "Where do I live, and which language do people speak there?")],
    [("user", "Name a mammal that lays eggs."),
     ("assistant", "The platypus lays eggs."),
     ("user", "And another one?"),
     ("assistant", "The echidna lays eggs as well."),
     ("user", "Tell me more about the second one: where does it live, what does it eat?")],
    [("user", "Translate to French: \"The early bird catches the worm, but the second "
              "mouse gets the cheese.\"")],
    [("user", "🙂🚀 Write a cheerful birthday message with emoji for my friend Zoë! 🎂")],
    [("user", "    indented\n\ttabs\t\tand   spaces   \n\n\n12345 67,890.12 3e-7 0x7fff\n"
              "What do these lines contain?")],
    [("user", "Write a long story about a clockmaker who repairs the town's clock only at "
              "night. Begin with the sound of the clock.")],
    [("user", HARBOUR + "\n\nWho was Agnes Hallward, and what did she write about the "
              "cook?")],
    [("user", BEES + "\n\nSummarise the text in two sentences.")],
    [("user", "Review this code and describe every function:\n\n" + STACK_C)],
    [("user", RECIPES + "\n\nWhich of these recipes need an oven? Then write a shopping "
              "list for the second and the sixth.")],
    [("user", HARBOUR + "\n\n" + BEES + "\n\n" + RECIPES + "\n\nOf the three texts above, "
              "the first is about a harbour. What are the other two about?")],
    [("user", "Here is a part of a log:\n\n" + _log_lines(44) + "\n\nWhich service had the "
              "most jobs that timed out? Explain how you counted.")],
]


def render(messages):
    """ChatML as the model's own template writes it, with the assistant's turn opened."""
    if messages[0][0] != "system":
        messages = [("system", DEFAULT_SYSTEM)] + list(messages)
    turns = ["<|im_start|>%s\n%s<|im_end|>\n" % m for m in messages]
    return "".join(turns) + "<|im_start|>assistant\n"


def make_tokenizer(gguf):
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
    meta = gguf.meta
    if meta["tokenizer.ggml.pre"] != "smollm":
        sys.exit("prompts.py knows the pre-tokenizer smollm only")
    tokens = meta["tokenizer.ggml.tokens"]
    types = meta["tokenizer.ggml.token_type"]
    merges = [tuple(m.split(" ")) for m in meta["tokenizer.ggml.merges"]]
    t = Tokenizer(models.BPE(vocab={s: i for i, s in enumerate(tokens)}, merges=merges))
    # smollm: every digit is a word of its own, then GPT-2's pattern.
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    t.add_special_tokens([AddedToken(s, normalized=False, special=True)
                          for s, kind in zip(tokens, types) if kind == 3])
    return t


def encode_all(gguf):
    t = make_tokenizer(gguf)
    return [t.encode(render(p), add_special_tokens=False).ids for p in PROMPTS]


def llama_tokenize(llama_dir, model, text):
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as f:
        f.write(text)
        f.flush()
        out = subprocess.run([os.path.join(llama_dir, "llama-tokenize"), "-m", model, "-f",
                              f.name, "--ids", "--no-bos", "--log-disable"],
                             check=True, capture_output=True, text=True).stdout
    return [int(x) for x in out[out.index("[") + 1:out.rindex("]")].split(",")]


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    ap.add_argument("model")
    ap.add_argument("--llama", help="folder with llama-tokenize")
    args = ap.parse_args()
    wrong = 0
    for i, (prompt, ids) in enumerate(zip(PROMPTS, encode_all(Gguf(args.model)))):
        same = ""
        if args.llama:
            ok = llama_tokenize(args.llama, args.model, render(prompt)) == ids
            wrong += not ok
            same = "  as llama.cpp" if ok else "  DIFFERS FROM llama.cpp"
        print("%2d  %5d tokens%s  %r" % (i, len(ids), same, prompt[-1][1][:50]))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
