"""NAME_wide.gguf from NAME.gguf: experts of twice as many columns, each of which is there twice and counts three
quarters and one quarter, so that the results are those of NAME.golden.  They are wide enough to be divided."""
import sys

import gguf
import numpy as np


def widen(name, a):
    if "_exps" not in name or name.endswith("scale"):
        return a
    if "down" in name:
        return a if name.endswith("bias") else np.concatenate([a * np.float32(0.75), a * np.float32(0.25)], axis=2)
    if "gate_up" in name:
        pairs = a.reshape(a.shape[0], 2, -1, a.shape[2])
        return np.concatenate([pairs, pairs], axis=2).reshape(a.shape[0], -1, a.shape[2])
    return np.concatenate([a, a], axis=1)


def main(name):
    file = gguf.GGUFReader(f"{name}.gguf")
    out = gguf.GGUFWriter(f"{name}_wide.gguf", file.fields["general.architecture"].contents())
    for f in file.fields.values():
        if f.name.startswith("GGUF.") or f.name == "general.architecture":
            continue
        value = f.contents() * (2 if f.name.endswith("expert_feed_forward_length") else 1)
        out.add_key_value(f.name, value, f.types[0], f.types[1] if f.types[0] == gguf.GGUFValueType.ARRAY else None)
    for t in file.tensors:
        out.add_tensor(t.name, widen(t.name, np.array(t.data)))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


if __name__ == "__main__":
    for name in sys.argv[1:]:
        main(name)
