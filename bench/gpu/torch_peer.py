#!/usr/bin/env python3
"""Measures PyTorch on this GPU with the shapes of `run`: a device copy, and decoding of a llama
with random half-precision weights and a static cache in a CUDA graph.  Prints one JSON object
per line.

    torch_peer.py copy | decode tinyllama-1.1b|devstral-24b STREAMS TOKENS
"""
import json
import sys

import torch
import torch.nn.functional as F

from random_gguf import SHAPES

DEVICE, HALF = "cuda", torch.float16


def median(x):
    return sorted(x)[len(x) // 2]


def graph_of(f):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            f()
    torch.cuda.current_stream().wait_stream(side)
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        f()
    return g


def seconds(f, rounds=10):
    times = []
    for _ in range(rounds):
        a, b = torch.cuda.Event(True), torch.cuda.Event(True)
        a.record()
        f()
        b.record()
        b.synchronize()
        times.append(a.elapsed_time(b) * 1e-3)
    return median(times)


def copy():
    x = torch.randint(0, 255, (4 << 30,), dtype=torch.uint8, device=DEVICE)
    y = torch.empty_like(x)
    t = seconds(lambda: y.copy_(x))
    print(json.dumps({"what": "device copy, read and written", "TB/s": 2 * x.numel() / t / 1e12}))


class Llama:
    """Decoding only: one token of each stream per step, a cache of fixed length."""

    def __init__(self, shape, streams, context):
        self.layers, self.width, self.ff, self.heads, self.kv, self.head, self.vocab = shape
        self.streams = streams
        # uniform values: normal ones take too long for 24 billion weights
        make = lambda n, k: torch.empty(n, k, device=DEVICE, dtype=HALF).uniform_(-0.012, 0.012)
        self.embedding, self.output = make(self.vocab, self.width), make(self.vocab, self.width)
        q, kv = self.heads * self.head, self.kv * self.head
        self.blocks = [(make(q + 2 * kv, self.width), make(self.width, q),
                        make(2 * self.ff, self.width), make(self.width, self.ff))
                       for _ in range(self.layers)]
        self.ones = torch.ones(self.width, device=DEVICE, dtype=HALF)
        cache = (self.layers, streams, self.kv, context, self.head)
        self.k = torch.zeros(cache, device=DEVICE, dtype=HALF)
        self.v = torch.zeros(cache, device=DEVICE, dtype=HALF)
        self.ids = torch.ones(streams, device=DEVICE, dtype=torch.long)
        self.at = torch.zeros(1, device=DEVICE, dtype=torch.long)
        angles = torch.arange(context)[:, None] * 1e6 ** (-torch.arange(0, self.head, 2) / self.head)
        self.cos = torch.cos(angles).to(DEVICE, HALF)
        self.sin = torch.sin(angles).to(DEVICE, HALF)
        self.places = torch.arange(context, device=DEVICE)

    def rotate(self, x):
        c, s = self.cos[self.at], self.sin[self.at]
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack((a * c - b * s, a * s + b * c), -1).flatten(-2)

    def step(self):
        q, kv, n = self.heads * self.head, self.kv * self.head, self.streams
        x = self.embedding[self.ids]
        mask = (self.places <= self.at)[None, None, None, :]
        for i, (w_qkv, w_out, w_up, w_down) in enumerate(self.blocks):
            y = F.linear(F.rms_norm(x, (self.width,), self.ones, 1e-5), w_qkv)
            h = y.view(n, -1, self.head)
            self.k[i].index_copy_(2, self.at, self.rotate(h[:, self.heads:self.heads + self.kv])[:, :, None])
            self.v[i].index_copy_(2, self.at, h[:, self.heads + self.kv:][:, :, None])
            a = F.scaled_dot_product_attention(self.rotate(h[:, :self.heads])[:, :, None], self.k[i],
                                               self.v[i], attn_mask=mask, enable_gqa=True)
            x = x + F.linear(a.reshape(n, q), w_out)
            g, u = F.linear(F.rms_norm(x, (self.width,), self.ones, 1e-5), w_up).chunk(2, -1)
            x = x + F.linear(F.silu(g) * u, w_down)
        logits = F.linear(F.rms_norm(x, (self.width,), self.ones, 1e-5), self.output)
        self.ids.copy_(logits.argmax(-1))
        self.at.add_(1)


def decode(name, streams, tokens):
    with torch.inference_mode():
        m = Llama(SHAPES[name], streams, tokens + 16)
        g = graph_of(m.step)
        times = []
        for _ in range(3):
            m.at.zero_()
            torch.cuda.synchronize()
            times.append(seconds(lambda: [g.replay() for _ in range(tokens)], 1))
        print(json.dumps({"what": "torch, one CUDA graph a step", "model": name, "streams": streams,
                          "tok/s": streams * tokens / median(times)}))


def main():
    if sys.argv[1:2] == ["copy"]:
        copy()
    elif sys.argv[1:2] == ["decode"] and len(sys.argv) == 5 and sys.argv[2] in SHAPES:
        decode(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        sys.exit(__doc__.strip())


if __name__ == "__main__":
    main()
