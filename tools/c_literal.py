"""Bytes as text of a C file."""
ESCAPES = {ord("\n"): "\\n", ord("\t"): "\\t", ord('"'): '\\"', ord("\\"): "\\\\", ord("?"): "\\?"}
WIDTH = 96


def literal(data):
    """The bytes as adjacent string literals, a line each."""
    lines, current = [], ""
    for b in data:
        current += ESCAPES.get(b) or (chr(b) if 32 <= b < 127 else "\\%03o" % b)
        if len(current) >= WIDTH or b == 10:
            lines.append('\t"%s"' % current)
            current = ""
    if current or not lines:
        lines.append('\t"%s"' % current)
    return "\n".join(lines)
