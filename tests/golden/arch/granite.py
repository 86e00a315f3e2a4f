#!/usr/bin/env python3
"""granite.gguf, granite/ and granite.golden from those of granite4a: a Granite 4 without Mamba-2 and experts computes what
a Granite 3 does, which has other names.  The logits of both are those of granite4a.golden.

    pip install gguf numpy
    granite.py
"""

import json
import pathlib
import struct

import gguf
import numpy as np

HERE = pathlib.Path(__file__).parent


def write_file():
    file = gguf.GGUFReader(HERE / "granite4a.gguf")
    out = gguf.GGUFWriter(HERE / "granite.gguf", "granite")
    for f in file.fields.values():
        name, value, kind = f.name.replace("granitehybrid.", "granite."), f.contents(), f.types[0]
        if name.startswith("GGUF.") or name in ("general.architecture", "granite.rope.scaling.finetuned",
                                                "granite.expert_shared_feed_forward_length"):
            continue
        if name.endswith("head_count_kv"):
            value, kind = value[0], gguf.GGUFValueType.UINT32
        out.add_key_value(name, value, kind)
    for t in file.tensors:
        out.add_tensor(t.name, np.array(t.data))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def write_folder():
    config = json.loads((HERE / "granite4a/config.json").read_text())
    config = {k: v for k, v in config.items()
              if not k.startswith(("mamba_", "layer_", "shared_", "num_local", "num_experts", "time_step", "router",
                                   "output_router", "position_embedding"))}
    old = json.loads((HERE / "granite4a/config.json").read_text())
    config |= {"architectures": ["GraniteForCausalLM"], "model_type": "granite", "mlp_bias": False,
               "intermediate_size": old["shared_intermediate_size"]}
    data = (HERE / "granite4a/model.safetensors").read_bytes()
    n, = struct.unpack_from("<Q", data)
    head, tensors, at = json.loads(data[8:8 + n]), [], 0
    for name, t in head.items():
        if name == "__metadata__":
            continue
        first, last = t["data_offsets"]
        raw, shape = data[8 + n + first:8 + n + last], t["shape"]
        if name.endswith("shared_mlp.input_linear.weight"):
            half = [shape[0] // 2, shape[1]]
            for part, part_raw in (("gate", raw[:len(raw) // 2]), ("up", raw[len(raw) // 2:])):
                tensors.append((name.replace("shared_mlp.input_linear", f"mlp.{part}_proj"), t["dtype"], half, part_raw))
        else:
            tensors.append((name.replace("shared_mlp.output_linear", "mlp.down_proj"), t["dtype"], shape, raw))
    new = {"__metadata__": {"format": "pt"}}
    for name, dtype, shape, raw in tensors:
        new[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(raw)]}
        at += len(raw)
    text = json.dumps(new, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    (HERE / "granite").mkdir(exist_ok=True)
    (HERE / "granite/config.json").write_text(json.dumps(config, indent=1) + "\n")
    (HERE / "granite/model.safetensors").write_bytes(
        struct.pack("<Q", len(text)) + text + b"".join(raw for *_, raw in tensors))


if __name__ == "__main__":
    (HERE / "granite.golden").write_bytes((HERE / "granite4a.golden").read_bytes())
    write_file()
    write_folder()
