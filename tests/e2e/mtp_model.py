"""Tiny models of architectures glm4moe and qwen35 with a head that guesses the token after the next one.

The head's layer has the tensors of the model's last layer, which has attention.  Of a model that is a table from a token to the next one
(kinds script and loop: layers add nothing) the head sees only the token that follows, so its guess is what the
table says of that: always right.  `wrong`: its matrix of tokens is moved by one, so it is always wrong.
"""
import struct

import tiny_model


class Headed(tiny_model.Model):
    wrong = False

    def metadata(self):
        a = self.arch + "."
        replaced = {a + "block_count": self.n_blocks + 1}
        return [(k, t, replaced.get(k, v)) for k, t, v in super().metadata()] + [(a + "nextn_predict_layers", "u32", 1)]

    def tensors(self):
        w, n = self.width, self.n_blocks
        out = [(name.replace("ffn_norm", "post_attention_norm"), *rest) for name, *rest in super().tensors()]
        last, head = "blk.%d." % (n - 1), "blk.%d." % n
        out += [(head + name[len(last):], *rest) for name, *rest in out if name.startswith(last)]
        ones = struct.pack("<%df" % w, *[1.0] * w)
        out += [(head + "nextn.%s.weight" % name, [w], tiny_model.F32, ones)
                for name in ("enorm", "hnorm", "shared_head_norm")]
        rows = b"".join(struct.pack("<%de" % (2 * w), *[float(k == i) for k in range(2 * w)]) for i in range(w))
        out.append((head + "nextn.eh_proj.weight", [2 * w, w], tiny_model.F16, rows))
        if self.wrong:
            dims, dtype, data = next(rest for name, *rest in out if name == "output.weight")
            row = tiny_model.ROW_BYTES[dtype](w)
            out.append((head + "nextn.shared_head_head.weight", dims, dtype, data[-row:] + data[:-row]))
        return out


class Glm(Headed):
    def __init__(self, wrong=False, **options):
        super().__init__(n_experts=4, **options)
        self.arch, self.wrong = "glm4moe", wrong

    def metadata(self):
        a = self.arch + "."
        return super().metadata() + [(a + "expert_feed_forward_length", "u32", self.n_ff),
                                     (a + "expert_gating_func", "u32", 2), (a + "expert_weights_norm", "bool", True)]


def write(path, arch="glm4moe", **options):
    path.write_bytes(tiny_model.build(Glm(**options) if arch == "glm4moe" else Headed(arch=arch, **options)))
    return str(path)
