#!/usr/bin/env python3
"""Write a GGUF file with the shape of a known model and random weights, for timing.

    bench/random_model.py SHAPE OUT.gguf [--type Q4_0|Q5_0|Q8_0|Q4_K|Q6_K] [--layers N] [--context N]
        [--experts N] [--vocab N] [--tokenizer FILE.gguf] [--empty]

Every matrix has the same type, or as llama.cpp's quantizer has it Q5_0 for Q4_K and Q8_0 for Q6_K where its rows are no
multiple of 256; gpt-oss has its experts in MXFP4.  Values are of a size at which activations neither grow nor
vanish; vectors are float32.  The shapes are in shapes.py.  The file has no tokenizer, or another file's, and the vocabulary and the chat template with it: then the model
answers in random words, because all other tokens (and the end of a text) have the logit 0.
With --empty the file is as long but has a hole for its weights, which take no space on a disk and are zeros: for
`ingot doctor`, which reads none.
"""
import argparse
import math
import os
import pathlib
import random
import re
import struct

from shapes import SHAPES, keys_of, tensors_of

F32, ALIGNMENT = 0, 32
U32_KEY, F32_KEY, BOOL_KEY, TEXT_KEY, ARRAY_KEY = 4, 6, 7, 8, 9
# type: (GGUF's number, values of a block, bytes of a block)
TYPES = {"Q4_0": (2, 32, 18), "Q5_0": (6, 32, 22), "Q8_0": (8, 32, 34), "Q4_K": (12, 256, 144),
         "Q6_K": (14, 256, 210)}
FORMS = {**TYPES, "MXFP4": (39, 32, 17), "exact": (F32, 1, 4)}     # and what a shape asks for itself
FALLBACK = {"Q4_K": "Q5_0", "Q6_K": "Q8_0"}     # for rows that have no whole blocks

def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


def key(name, value):
    if isinstance(value, str):
        return text(name) + struct.pack("<I", TEXT_KEY) + text(value)
    if isinstance(value, float):
        return text(name) + struct.pack("<If", F32_KEY, value)
    if isinstance(value, bool):
        return text(name) + struct.pack("<IB", BOOL_KEY, value)
    if isinstance(value, list):
        of, form = (BOOL_KEY, "B") if isinstance(value[0], bool) else (U32_KEY, "I")
        return text(name) + struct.pack("<IIQ%d%s" % (len(value), form), ARRAY_KEY, of, len(value), *value)
    return text(name) + struct.pack("<II", U32_KEY, value)


# Bytes of a value by GGUF's number of its type; 8: text, 9: an array.
FIXED = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


class Tokenizer:
    """The keys of a GGUF file's tokenizer as they are there, and which of its tokens are words."""

    def __init__(self, path):
        self.raw, self.at = pathlib.Path(path).read_bytes(), 0
        magic, version, _, n_keys = self.take("<4sIQQ")
        if magic != b"GGUF" or version != 3:
            raise SystemExit("%s is no GGUF file of version 3" % path)
        self.keys, arrays = [], {}
        for _ in range(n_keys):
            begin, name = self.at, self.text().decode()
            kind, = self.take("<I")
            value = self.value(kind)
            if name.startswith("tokenizer."):
                self.keys.append(self.raw[begin:self.at])
                arrays[name] = value
        if not arrays.get("tokenizer.ggml.tokens"):
            raise SystemExit("%s has no tokenizer" % path)
        del self.raw
        self.is_word = [re.fullmatch("(Ġ|▁)?[A-Za-z]+".encode(), t) is not None
                        for t in arrays["tokenizer.ggml.tokens"]]

    def take(self, form):
        out = struct.unpack_from(form, self.raw, self.at)
        self.at += struct.calcsize(form)
        return out

    def text(self):
        n, = self.take("<Q")
        self.at += n
        return self.raw[self.at - n:self.at]

    def value(self, kind):
        """Texts and arrays of texts; of all others nothing is kept."""
        if kind == TEXT_KEY:
            return self.text()
        if kind != 9:
            self.at += FIXED[kind]
            return None
        of, n = self.take("<IQ")
        if of in FIXED:
            self.at += n * FIXED[of]
            return None
        return [self.value(of) for _ in range(n)]


def blocks(rng, kind, n_cols, n):
    """n blocks of a matrix whose rows have n_cols values: about n_cols ** -0.5 in size."""
    size, half = n_cols ** -0.5, lambda x: struct.pack("<e", x)
    if kind == "exact":
        return struct.pack("<%df" % n, *(rng.gauss(0, size) for _ in range(n)))
    if kind == "Q4_0":
        d = half(size / 4.6)
        return b"".join(d + rng.randbytes(16) for _ in range(n))
    if kind == "Q5_0":
        d = half(size / 9.2)
        return b"".join(d + rng.randbytes(20) for _ in range(n))
    if kind == "Q6_K": # scales of 8 bits, codes of 6 around 0
        d = half(size / 1370)
        return b"".join(rng.randbytes(208) + d for _ in range(n))
    if kind == "MXFP4": # a power of two (128 stands for 1 in these halves), codes up to 12
        scale = bytes([128 + round(math.log2(size / 10))])
        return b"".join(scale + rng.randbytes(16) for _ in range(n))
    if kind == "Q8_0":
        d = half(size / 73)
        return b"".join(d + rng.randbytes(32) for _ in range(n))
    # scales of 6 bits around 31, codes of 4 around 7.5; the minima cancel the average
    d, m = half(size / 190), half(size / 190 * 7.5)
    return b"".join(d + m + rng.randbytes(140) for _ in range(n))


def write(path, name, kind="Q4_0", layers=None, seed=1, context=None, tokenizer=None, experts=None, vocab=None,
          empty=False):
    """Write a temporary file beside it, then rename it."""
    s = dict(SHAPES[name])
    s.update(layers=layers or s["layers"], context=context or s["context"],
             vocab=len(tokenizer.is_word) if tokenizer else vocab or s["vocab"])
    if "experts" in s:
        s["experts"] = experts or s["experts"]
    rng = random.Random(seed)
    keys, tensors = [key(k, v) for k, v in keys_of(s).items()], tensors_of(s)
    if tokenizer:
        keys = [k for k in keys if b"tokenizer.ggml.model" not in k] + tokenizer.keys
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(keys)) + b"".join(keys)
    offset, pools = 0, {}
    plan = []
    for tensor, dims, value in tensors:
        n_values = 1
        for d in dims:
            n_values *= d
        of = kind if value is None else value if isinstance(value, str) else None
        if of in FALLBACK and dims[-1] % TYPES[of][1]:
            of = FALLBACK[of]
        number, per_block, block_bytes = FORMS[of] if of else (F32, 1, 4)
        n_bytes = n_values // per_block * block_bytes
        head += text(tensor) + struct.pack("<I", len(dims))
        head += b"".join(struct.pack("<Q", d) for d in reversed(dims))
        head += struct.pack("<IQ", number, offset)
        plan.append((dims[-1], n_bytes, of, value, tokenizer is not None and tensor == "output.weight"))
        offset += -(-n_bytes // ALIGNMENT) * ALIGNMENT
    part = pathlib.Path(str(path) + ".part")
    with open(part, "wb") as f:
        f.write(head + b"\0" * (-len(head) % ALIGNMENT))
        if empty:
            f.truncate(f.tell() + offset)
            plan = []
        for n_cols, n_bytes, of, value, words_only in plan:
            if isinstance(value, list):
                f.write(struct.pack("<%df" % len(value), *value))
            elif of is None:
                f.write(struct.pack("<f", value) * (n_bytes // 4))
            else:
                _, per_block, block_bytes = FORMS[of]
                if (of, n_cols) not in pools:
                    pools[of, n_cols] = blocks(rng, of, n_cols, 1 << 13 if per_block == 256 else 1 << 16)
                pool, left = pools[of, n_cols], n_bytes
                for is_word in tokenizer.is_word if words_only else ():
                    row = n_cols // per_block * block_bytes
                    at = rng.randrange((len(pool) - row) // block_bytes) * block_bytes
                    f.write(pool[at:at + row] if is_word else bytes(row))
                    left -= row
                while left: # starts at another block each time: all tensors differ
                    at = rng.randrange(len(pool) // block_bytes) * block_bytes
                    piece = pool[at:at + left]
                    f.write(piece)
                    left -= len(piece)
            f.write(b"\0" * (-n_bytes % ALIGNMENT))
    os.replace(part, path)


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    ap.add_argument("shape", choices=SHAPES)
    ap.add_argument("out")
    ap.add_argument("--type", default="Q4_0", choices=TYPES)
    ap.add_argument("--layers", type=int, help="fewer than the model's")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--context", type=int, help="another one than the model's")
    ap.add_argument("--experts", type=int, help="fewer than the model's")
    ap.add_argument("--vocab", type=int, help="fewer tokens than the model's")
    ap.add_argument("--tokenizer", type=Tokenizer, metavar="FILE.gguf")
    ap.add_argument("--empty", action="store_true", help="no values")
    args = ap.parse_args()
    write(args.out, args.shape, args.type, args.layers, args.seed, args.context, args.tokenizer,
          args.experts, args.vocab, args.empty)


if __name__ == "__main__":
    main()
