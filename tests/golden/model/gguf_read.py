"""A GGUF version 3 reader in numpy, for the truth scripts only: metadata, and tensors
dequantised by the plain definition of each format.  Every quantised value is a product
(and a sum) of an f16 scale and a small integer, which float64 holds exactly, so the
weights are exact; nothing here is shared with the C reader that it helps to judge."""
import struct

import numpy as np

_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?",
            10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
# dtype number: (values a block, bytes a block)
_BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 8: (32, 34), 30: (1, 2)}


class Gguf:
    def __init__(self, path):
        self.path = path
        self.data = np.memmap(path, dtype=np.uint8, mode="r")
        self._head = memoryview(self.data)
        self._at = 0
        if bytes(self._head[:4]) != b"GGUF":
            raise ValueError("%s: not a GGUF file" % path)
        self._at = 4
        version = self._get("<I")
        if version != 3:
            raise ValueError("%s: GGUF version %d, only 3 is known" % (path, version))
        n_tensors, n_keys = self._get("<Q"), self._get("<Q")
        self.meta = {}
        for _ in range(n_keys):
            key = self._string()
            self.meta[key] = self._value(self._get("<I"))
        infos = []
        for _ in range(n_tensors):
            name = self._string()
            dims = [self._get("<Q") for _ in range(self._get("<I"))]
            dtype, offset = self._get("<I"), self._get("<Q")
            infos.append((name, dims, dtype, offset))
        align = self.meta.get("general.alignment", 32)
        start = (self._at + align - 1) // align * align
        self.tensors = {n: (d, t, start + o) for n, d, t, o in infos}

    def _get(self, fmt):
        v, = struct.unpack_from(fmt, self._head, self._at)
        self._at += struct.calcsize(fmt)
        return v

    def _string(self):
        n = self._get("<Q")
        s = bytes(self._head[self._at:self._at + n])
        self._at += n
        return s.decode("utf-8", "surrogateescape")

    def _value(self, kind):
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            inner, n = self._get("<I"), self._get("<Q")
            return [self._value(inner) for _ in range(n)]
        return self._get(_SCALARS[kind])

    def tensor(self, name, dtype=np.float64):
        """The tensor as [rows, columns] (or [columns]), GGUF's first dimension last."""
        dims, kind, at = self.tensors[name]
        if kind not in _BLOCKS:
            raise ValueError("%s: %s has type %d, which is not known here"
                             % (self.path, name, kind))
        n = int(np.prod(dims))
        per, size = _BLOCKS[kind]
        raw = self.data[at:at + n // per * size]
        if kind == 0:
            v = raw.view("<f4").astype(dtype)
        elif kind == 1:
            v = raw.view("<f2").astype(dtype)
        elif kind == 30:
            v = (raw.view("<u2").astype(np.uint32) << 16).view(np.float32).astype(dtype)
        else:
            b = raw.reshape(-1, size)
            d = np.ascontiguousarray(b[:, 0:2]).view("<f2").astype(dtype)
            if kind == 8:
                v = np.ascontiguousarray(b[:, 2:]).view(np.int8).astype(dtype) * d
            else:
                first = 2 if kind == 2 else 4
                q = b[:, first:]
                q = np.concatenate([q & 15, q >> 4], axis=1).astype(dtype)
                if kind == 2:
                    v = (q - 8) * d
                else:
                    v = q * d + np.ascontiguousarray(b[:, 2:4]).view("<f2").astype(dtype)
        return v.reshape([int(x) for x in reversed(dims)])
