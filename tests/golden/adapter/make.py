#!/usr/bin/env python3
"""Two random adapters of the tiny model ../arch/llama3, and what PEFT says of them.

    pip install torch transformers peft numpy
    make.py [CONVERT_LORA_TO_GGUF]

writes the folders `all` and `some` as PEFT saves adapters, and all.golden and some.golden beside
this script, in the format of ../arch/make.py, by float64 along the greedy continuation.  `all` has
every matrix of a layer, at one rank; `some` only three kinds, with rsLoRA and ranks and alphas of
their own.  The prompts are those of the model's golden.  With the path of llama.cpp's
convert_lora_to_gguf.py also all.gguf, of the folder `all` in float32.
"""

import os
import pathlib
import struct
import subprocess
import sys

import numpy as np
import peft
import torch
import transformers as tf

HERE = pathlib.Path(__file__).parent
BASE = HERE.parent / "arch" / "llama3"
ADAPTERS = {
    "all": (11, dict(r=4, lora_alpha=6, target_modules=[
        "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"])),
    "some": (12, dict(r=8, lora_alpha=5, use_rslora=True,
                      target_modules=["q_proj", "v_proj", "down_proj"],
                      rank_pattern={"layers.0.self_attn.v_proj": 3}, alpha_pattern={"down_proj": 9})),
}


def prompts():
    data = (BASE.parent / "llama3.golden").read_bytes()
    n_vocab, n, n_steps = struct.unpack_from("<3I", data, 4)
    at, out = 16, []
    for _ in range(n):
        n_ids, = struct.unpack_from("<I", data, at)
        out.append(np.frombuffer(data, "<i4", n_ids, at + 4).copy())
        at += 4 + 4 * n_ids + 4 * n_steps + 4 * n_steps * n_vocab
    return n_vocab, n_steps, out


def fill(model, seed):
    """Values of a size at which the adapter matters, exact in float32."""
    g = torch.Generator().manual_seed(seed)
    for name, p in model.named_parameters():
        if "lora_" in name:
            r = torch.randn(p.shape, generator=g, dtype=torch.float64)
            p.data = (r / p.shape[1] ** 0.5).float().double()


def run(name, model):
    n_vocab, n_steps, ids = prompts()
    out = b"IGA1" + struct.pack("<3I", n_vocab, len(ids), n_steps)
    for p in ids:
        text, rows = list(map(int, p)), []
        for _ in range(n_steps):
            with torch.no_grad():
                rows.append(model(torch.tensor([text]), use_cache=False).logits[0, -1].numpy())
            text.append(int(rows[-1].argmax()))
        top = np.sort(np.array(rows), axis=1)
        assert ((top[:, -1] - top[:, -2]) / top.std(axis=1)).min() > 1e-3, "another seed is needed"
        out += struct.pack("<I", len(p)) + p.astype("<i4").tobytes()
        out += np.array(text[len(p):], "<i4").tobytes()
        out += np.array(rows, "<f4").tobytes()
    (HERE / f"{name}.golden").write_bytes(out)


def main():
    for name, (seed, options) in ADAPTERS.items():
        base = tf.AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float64).eval()
        model = peft.get_peft_model(base, peft.LoraConfig(task_type="CAUSAL_LM", **options)).eval()
        model = model.double()
        fill(model, seed)
        run(name, model)
        model.peft_config["default"].base_model_name_or_path = "llama3"
        model.float().save_pretrained(HERE / name)
        (HERE / name / "README.md").unlink(missing_ok=True)
    for script in map(pathlib.Path, sys.argv[1:]):
        subprocess.run([sys.executable, script, "--base", BASE, "--outtype", "f32", "--outfile",
                        HERE / "all.gguf", HERE / "all"], check=True,
                       env={**os.environ, "PYTHONPATH": str(script.parent / "gguf-py")})


if __name__ == "__main__":
    main()
