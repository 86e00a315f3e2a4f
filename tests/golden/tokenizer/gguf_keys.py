"""The keys of a GGUF file, as a dict; enough for the scripts in this folder."""
import mmap
import struct

_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q",
            12: "d"}
_STRING, _ARRAY = 8, 9


def read_keys(path):
    with open(path, "rb") as f:
        data = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
    pos = 4
    if data[:4] != b"GGUF":
        raise SystemExit(f"{path}: not a GGUF file")

    def number(fmt):
        nonlocal pos
        value, = struct.unpack_from("<" + fmt, data, pos)
        pos += struct.calcsize("<" + fmt)
        return value

    def string():
        nonlocal pos
        n = number("Q")
        pos += n
        return data[pos - n:pos].decode()

    def value(kind):
        if kind == _STRING:
            return string()
        if kind == _ARRAY:
            elem, n = number("I"), number("Q")
            return [value(elem) for _ in range(n)]
        return number(_FORMATS[kind])

    if number("I") != 3:
        raise SystemExit(f"{path}: not version 3")
    number("Q")
    keys = {}
    for _ in range(number("Q")):
        key = string()
        keys[key] = value(number("I"))
    return keys
