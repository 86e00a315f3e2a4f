#!/usr/bin/env python3
"""Write a model file of a known shape with random half-precision weights: it generates
nonsense at the speed of the real model.

    random_gguf.py tinyllama-1.1b|devstral-24b FILE

The weights repeat 64 MiB of random values of both signs between 2^-7 and 2^-6, so that sums
neither vanish nor overflow; norms are ones.
"""
import os
import struct
import sys

SHAPES = {  # layers, width, feed-forward, heads, KV heads, head, vocabulary
    "tinyllama-1.1b": (22, 2048, 5632, 32, 4, 64, 32000),
    "devstral-24b": (40, 5120, 32768, 32, 8, 128, 131072),
}
F32, F16 = 0, 1
U32_KEY, F32_KEY, STRING_KEY = 4, 6, 8
PIECE = 64 << 20


def tensors(shape):
    """Name, rows, columns; one row and float32 for norms."""
    layers, width, ff, heads, kv_heads, head, vocab = shape
    yield "token_embd.weight", vocab, width
    for i in range(layers):
        p = "blk.%d." % i
        yield p + "attn_norm.weight", 1, width
        yield p + "attn_q.weight", heads * head, width
        yield p + "attn_k.weight", kv_heads * head, width
        yield p + "attn_v.weight", kv_heads * head, width
        yield p + "attn_output.weight", width, heads * head
        yield p + "ffn_norm.weight", 1, width
        yield p + "ffn_gate.weight", ff, width
        yield p + "ffn_up.weight", ff, width
        yield p + "ffn_down.weight", width, ff
    yield "output_norm.weight", 1, width
    yield "output.weight", vocab, width


def string(s):
    return struct.pack("<Q", len(s)) + s.encode()


def header(shape, places):
    layers, width, ff, heads, kv_heads, head, vocab = shape
    keys = [("general.architecture", STRING_KEY, "llama"), ("llama.block_count", U32_KEY, layers),
            ("llama.embedding_length", U32_KEY, width), ("llama.feed_forward_length", U32_KEY, ff),
            ("llama.attention.head_count", U32_KEY, heads),
            ("llama.attention.head_count_kv", U32_KEY, kv_heads),
            ("llama.attention.key_length", U32_KEY, head),
            ("llama.attention.value_length", U32_KEY, head),
            ("llama.rope.dimension_count", U32_KEY, head), ("llama.vocab_size", U32_KEY, vocab),
            ("llama.context_length", U32_KEY, 32768),
            ("llama.attention.layer_norm_rms_epsilon", F32_KEY, 1e-5),
            ("llama.rope.freq_base", F32_KEY, 1e6)]
    out = [b"GGUF", struct.pack("<IQQ", 3, len(places), len(keys))]
    for name, kind, value in keys:
        out += [string(name), struct.pack("<I", kind),
                string(value) if kind == STRING_KEY else
                struct.pack("<I" if kind == U32_KEY else "<f", value)]
    for name, rows, cols, at in places:
        dims = (cols,) if rows == 1 else (cols, rows)
        out += [string(name), struct.pack("<I", len(dims)), struct.pack("<%dQ" % len(dims), *dims),
                struct.pack("<IQ", F32 if rows == 1 else F16, at)]
    data = b"".join(out)
    return data + b"\0" * (-len(data) % 32)


def piece():
    low, high = os.urandom(PIECE // 2), os.urandom(PIECE // 2)
    # sign, exponent 8 (2^-7), the two upper bits of the mantissa
    table = bytes((b & 0x80) | 0x20 | (b & 3) for b in range(256))
    out = bytearray(PIECE)
    out[0::2], out[1::2] = low, high.translate(table)
    return memoryview(out)


def write(name, path):
    shape, places, at = SHAPES[name], [], 0
    for tensor, rows, cols in tensors(shape):
        places.append((tensor, rows, cols, at))
        at += (rows * cols * (4 if rows == 1 else 2) + 31) // 32 * 32
    weights = piece()
    with open(path, "wb", buffering=0) as f:
        f.write(header(shape, places))
        for tensor, rows, cols, _ in places:
            n = rows * cols * (4 if rows == 1 else 2)
            if rows == 1:
                f.write(struct.pack("<f", 1.0) * cols)
            for done in range(0, n if rows > 1 else 0, PIECE):
                f.write(weights[:min(PIECE, n - done)])
            f.write(b"\0" * (-n % 32))


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in SHAPES:
        sys.exit(__doc__.strip())
    write(sys.argv[1], sys.argv[2])
