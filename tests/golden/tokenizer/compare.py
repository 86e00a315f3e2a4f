#!/usr/bin/env python3
"""Ids and texts of encode_lines beside those of sentencepiece and tokenizers.

    compare.py ENCODE_LINES [--lines N] [--speed] [--keep FOLDER] [--real FOLDER]

Makes small vocabularies of every kind from generated text, writes each as the GGUF keys
that converters write, and compares N lines (10,000) of many scripts, code, emoji and
control characters: SentencePiece's BPE and unigram with `sentencepiece`, byte-level BPE
with `tokenizers` under each family's own expression.  Bytes that are not UTF-8 must come
back as they went in.  --speed prints one thread's megabytes per second instead.  --real
takes SentencePiece models (*.model*) and Tekken's files (tekken*.json, beside `tiktoken`)
from a folder in the place of those that are made; the package mistral-common has such.

Needs the packages gguf, sentencepiece and tokenizers.  Prints a line a vocabulary and ends
with `N passed, N failed`.
"""
import argparse
import io
import os
import random
import struct
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import sentencepiece
from gguf import GGUFWriter
from make import make_lines
from sentencepiece import sentencepiece_model_pb2 as spm_proto
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

SPECIALS = ["<s>", "</s>", "<unk>", "<0x0A>", "<|im_end|>", "[INST]"]
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


# ---- vocabularies ---------------------------------------------------------------

def train_spm(lines, **options):
    out = io.BytesIO()
    settings = dict(vocab_size=8000, normalization_rule_name="identity", byte_fallback=True,
                    remove_extra_whitespaces=False, add_dummy_prefix=True, split_digits=True,
                    character_coverage=0.98, num_threads=1, minloglevel=2,
                    hard_vocab_limit=False, max_sentence_length=100000,
                    allow_whitespace_only_pieces=True)
    settings.update(options)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([x for line in lines for x in line.split("\n") if x]),
        model_writer=out, **settings)
    return out.getvalue()


def set_unused(model, r):
    """Some pieces that merges go through become unused ones."""
    proto = spm_proto.ModelProto.FromString(model)
    for piece in proto.pieces:
        if piece.type == NORMAL and len(piece.piece) > 1 and r.random() < .2:
            piece.type = UNUSED
    return proto.SerializeToString()


def write_spm(path, model):
    proto = spm_proto.ModelProto.FromString(model)
    w = GGUFWriter(path, "llama")
    w.add_tokenizer_model("t5" if proto.trainer_spec.model_type == 1 else "llama")
    w.add_token_list([p.piece.encode() for p in proto.pieces])
    w.add_token_scores([p.score for p in proto.pieces])
    w.add_token_types([p.type for p in proto.pieces])
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_unk_token_id(0)
    w.add_add_space_prefix(proto.normalizer_spec.add_dummy_prefix)
    w.add_remove_extra_whitespaces(proto.normalizer_spec.remove_extra_whitespaces)
    close(w)


def close(w):
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()


def split(*expressions):
    """A pre-tokenizer as the families' tokenizer.json have it."""
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(e), "isolated") for e in expressions] +
        [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
ENDING = r"\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def cl100k(digits):
    return (CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|" + digits +
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*|" + ENDING)


def o200k(digits, suffix=""):
    lead = r"[^\r\n\p{L}\p{N}]?"
    return (f"{lead}{UPPER}*{LOWER}+{suffix}|{lead}{UPPER}+{LOWER}*{suffix}|{digits}"
            r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + ENDING)


# Name in tokenizer.ggml.pre: its pre-tokenizer, whether pieces are looked up whole.
FAMILIES = {
    "gpt-2": (pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True), False),
    "smollm": (pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]), False),
    "llama-bpe": (split(cl100k(r"\p{N}{1,3}")), True),
    "qwen2": (split(cl100k(r"\p{N}")), False),
    "tekken": (split(o200k(r"\p{N}")), True),
    "gpt-4o": (split(o200k(r"\p{N}{1,3}", CONTRACTIONS + "?")), False),
    "deepseek-coder": (pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"[\r\n]"), "isolated"),
        pre_tokenizers.Split(Regex(r"\s?\p{L}+"), "isolated"),
        pre_tokenizers.Split(Regex(r"\s?\p{P}+"), "isolated"),
        pre_tokenizers.Split(Regex("[一-龥ࠀ-一가-퟿]+"), "isolated"),
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]), False),
    "deepseek-v3": (split(
        r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
        r"| ?[\p{P}\p{S}]+[\r\n]*|" + ENDING), False),
}


def train_bpe(pre, whole, lines):
    t = Tokenizer(models.BPE(ignore_merges=whole))
    t.pre_tokenizer = pre
    t.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=3000, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


def write_bpe(path, name, t):
    import json
    model = json.loads(t.to_str())["model"]
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    w = GGUFWriter(path, "llama")
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre(name)
    w.add_token_list(tokens)
    w.add_token_types([NORMAL] * len(tokens))
    w.add_token_merges(merges)
    close(w)


# ---- vocabularies that models have ----------------------------------------------

def parts(ranks, token):
    """The two that a token was merged from: its bytes merged by lower ranks alone."""
    pieces = [bytes([b]) for b in token]
    while len(pieces) > 2:
        best, at = min((ranks.get(pieces[i] + pieces[i + 1], len(ranks)), i)
                       for i in range(len(pieces) - 1))
        assert best < ranks[token], token
        pieces[at:at + 2] = [pieces[at] + pieces[at + 1]]
    return pieces


def letters():
    """GPT-2's letter for each byte."""
    plain = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    others = [b for b in range(256) if b not in plain]
    return {**{b: chr(b) for b in plain}, **{b: chr(0x100 + i) for i, b in enumerate(others)}}


def write_tekken(path, source):
    """Writes the GGUF keys; returns what tiktoken makes of the file."""
    import base64
    import json
    import tiktoken
    with open(source, encoding="utf-8") as f:
        tekken = json.load(f)
    config = tekken["config"]
    n_special = config["default_num_special_tokens"]
    n = config["default_vocab_size"] - n_special
    tokens = [base64.b64decode(v["token_bytes"]) for v in tekken["vocab"][:n]]
    ranks = {t: i for i, t in enumerate(tokens)}
    letter = letters()
    spell = lambda b: "".join(letter[x] for x in b)
    w = GGUFWriter(path, "llama")
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("tekken")
    w.add_token_list([f"<SPECIAL_{i}>" for i in range(n_special)] + [spell(t) for t in tokens])
    w.add_token_types([CONTROL] * n_special + [NORMAL] * n)
    w.add_token_merges([" ".join(map(spell, parts(ranks, t))) for t in tokens if len(t) > 1])
    close(w)
    t = tiktoken.Encoding("tekken", pat_str=config["pattern"], mergeable_ranks=ranks,
                          special_tokens={})
    return lambda line: [n_special + i for i in t.encode_ordinary(line)]


# ---- lines ----------------------------------------------------------------------

def not_utf8(r, lines):
    out = []
    for line in lines:
        b = bytearray(line.encode())
        for _ in range(r.randint(1, 4)):
            b[r.randint(0, len(b)):r.randint(0, len(b))] = bytes(
                r.choice([0x80, 0xbf, 0xc0, 0xc3, 0xe2, 0xed, 0xf0, 0xf5, 0xff])
                for _ in range(r.randint(1, 3)))
        out.append(bytes(b))
    return out


def with_marks(r, lines):
    """U+2581 itself, and more spaces than one."""
    return [line.replace(" ", r.choice([" ", "\u2581", "  ", " \u2581"]), 3) for line in lines]


def pack(texts):
    return b"".join(struct.pack("<I", len(x)) + x for x in texts)


def encode(program, path, texts):
    out = subprocess.run([program, path], input=pack(texts), stdout=subprocess.PIPE,
                         check=True).stdout
    pos, results = 0, []

    def part(size):
        nonlocal pos
        n, = struct.unpack_from("<I", out, pos)
        pos += 4 + n * size
        return out[pos - n * size:pos]

    for _ in texts:
        ids = part(4)
        results.append((list(struct.unpack(f"<{len(ids) // 4}i", ids)), part(1), part(1)))
    assert pos == len(out)
    return results


# ---- comparing ------------------------------------------------------------------

def differences(program, path, lines, want, back):
    """back: what text a line's ids give, or None when that is not looked at."""
    bad = 0
    for line, (ids, _, text) in zip(lines, encode(program, path, [x.encode() for x in lines])):
        expected = want(line)
        same_text = back is None or text.decode() == back(line, expected)
        if ids != expected or not same_text:
            bad += 1
            if bad <= 3:
                print(f"    {line!r}\n      ours   {ids} {text!r}\n      theirs {expected}"
                      f" {back and back(line, expected)!r}")
    return bad


def lost_bytes(program, path, texts, prefix):
    """Texts whose tokens' bytes are others than the text's."""
    return sum(raw != (prefix + text if text else b"") for text, (_, raw, _) in
               zip(texts, encode(program, path, texts)))


def speed(program, path, lines, theirs):
    data = [x.encode() for x in lines]
    size = sum(map(len, data)) / 1e6
    ours, opening = map(float, subprocess.run([program, path, "5"], input=pack(data),
                                              stdout=subprocess.PIPE, check=True).stdout.split())
    best = 1e9
    for _ in range(5):
        begin = time.perf_counter()
        theirs(lines)
        best = min(best, time.perf_counter() - begin)
    return f"{size / ours:7.1f} MB/s, theirs {size / best:7.1f}; opened in {opening * 1e3:.1f} ms"


def spm_reference(model, path, options):
    """Tokenizer of `tokenizers` over the same vocabulary, for --speed."""
    from tokenizers import decoders, normalizers
    proto = spm_proto.ModelProto.FromString(model)
    vocab = {p.piece: i for i, p in enumerate(proto.pieces)}
    score = {p.piece: p.score for p in proto.pieces}
    merges = sorted(((-score[p], p[:i], p[i:]) for p in vocab for i in range(1, len(p))
                     if p[:i] in vocab and p[i:] in vocab), key=lambda m: m[0])
    t = Tokenizer(models.BPE(vocab, [(a, b) for _, a, b in merges], unk_token="<unk>",
                             fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"),
                                         normalizers.Replace(" ", "\u2581")])
    return t


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("--lines", type=int, default=10000)
    p.add_argument("--speed", action="store_true")
    p.add_argument("--keep")
    p.add_argument("--real")
    args = p.parse_args()
    r = random.Random(6)
    lines = make_lines(r, SPECIALS, args.lines)
    corpus = make_lines(random.Random(7), SPECIALS, 4000)
    marked = with_marks(r, lines[:2000])
    broken = not_utf8(r, lines[:2000])
    folder = args.keep or tempfile.mkdtemp()
    os.makedirs(folder, exist_ok=True)
    passed = failed = 0

    def judge(name, bad, lost):
        nonlocal passed, failed
        good = not bad and not lost
        passed, failed = passed + good, failed + (not good)
        print(f"{name:16} {'ok' if good else 'FAILED'}: {bad} of {len(lines)} lines differ, "
              f"{lost} of {len(broken)} broken texts", flush=True)

    user = ["<tool>", "\u2581\u2581", "\u2581\u2581\u2581\u2581", "x\u2581y", "des", "\n\n", "\t"]
    kinds = {
        "llama": dict(model_type="bpe"),
        "gemma": dict(model_type="bpe", add_dummy_prefix=False, user_defined_symbols=user),
        "user": dict(model_type="bpe", user_defined_symbols=user, split_by_whitespace=False),
        "unused": dict(model_type="bpe"),
        "no-bytes": dict(model_type="bpe", byte_fallback=False),
        "trimmed": dict(model_type="bpe", remove_extra_whitespaces=True),
        "unigram": dict(model_type="unigram"),
        # Not two that can stand in another order: a tie that only rounding decides.
        "unigram-user": dict(model_type="unigram", user_defined_symbols=["<tool>", "x\u2581y"],
                             remove_extra_whitespaces=True, byte_fallback=False),
        "unigram-unused": dict(model_type="unigram"),
    }
    real = sorted(os.listdir(args.real)) if args.real else []
    if args.real:
        kinds = {name: {} for name in real if ".model" in name}
    for name, options in kinds.items():
        if args.real:
            with open(os.path.join(args.real, name), "rb") as f:
                model = f.read()
            spec = spm_proto.ModelProto.FromString(model).normalizer_spec
            options = {"add_dummy_prefix": spec.add_dummy_prefix,
                       "remove_extra_whitespaces": spec.remove_extra_whitespaces}
        else:
            model = train_spm(corpus, **options)
        if not args.real and "unused" in name:
            model = set_unused(model, random.Random(8))
        path = os.path.join(folder, name + ".gguf")
        write_spm(path, model)
        sp = sentencepiece.SentencePieceProcessor(model_proto=model)
        if args.speed:
            line = speed(args.program, path, lines, lambda x: [sp.encode(y) for y in x])
            print(f"{name:16} {line} (sentencepiece)", flush=True)
            if name == "llama":
                t = spm_reference(model, path, options)
                line = speed(args.program, path, lines,
                             lambda x: [t.encode(y, add_special_tokens=False) for y in x])
                print(f"{name:16} {line} (tokenizers)", flush=True)
            continue
        # Unknown characters come back as U+2047 there and not at all here.
        whole = options.get("byte_fallback", True)
        bad = differences(args.program, path, lines + marked, sp.encode,
                          (lambda line, ids: sp.decode(ids)) if whole else None)
        prefix = b" " if options.get("add_dummy_prefix", True) else b""
        texts = [b for b in broken if "\u2581".encode() not in b]
        lost = lost_bytes(args.program, path, texts, prefix) \
            if whole and not options.get("remove_extra_whitespaces") else 0
        judge(name, bad, lost)
    for name in (x for x in real if x.startswith("tekken")):
        path = os.path.join(folder, name + ".gguf")
        want = write_tekken(path, os.path.join(args.real, name))
        if args.speed:
            line = speed(args.program, path, lines, lambda x: [want(y) for y in x])
            print(f"{name:16} {line} (tiktoken)", flush=True)
            continue
        bad = differences(args.program, path, lines, want, lambda line, ids: line)
        judge(name, bad, lost_bytes(args.program, path, broken, b""))
    for name, (pre, whole) in FAMILIES.items() if not args.real else ():
        t = train_bpe(pre, whole, corpus)
        path = os.path.join(folder, name + ".gguf")
        write_bpe(path, name, t)
        if args.speed:
            line = speed(args.program, path, lines,
                         lambda x: [t.encode(y, add_special_tokens=False) for y in x])
            print(f"{name:16} {line} (tokenizers)", flush=True)
            continue
        bad = differences(args.program, path, lines,
                          lambda line: t.encode(line, add_special_tokens=False).ids,
                          lambda line, ids: line)
        judge(name, bad, lost_bytes(args.program, path, broken, b""))
    if not args.speed:
        print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
