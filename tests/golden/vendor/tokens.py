"""What harmony.py and mistral.py have in common: cases through chat_tokens, random arguments, and a tally."""
import json
import math
import string
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tokenizer"))
from make import make_lines  # noqa: E402


class Ingot:
    """chat_tokens with a vocabulary."""

    def __init__(self, program, vocabulary):
        self.process = subprocess.Popen([program, vocabulary], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.template = None

    def ask(self, case):
        if "template" in case:  # it keeps the last one
            template, self.template = self.template, case["template"]
            if template == self.template:
                case = {k: v for k, v in case.items() if k != "template"}
        self.process.stdin.write(json.dumps(case).encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"chat_tokens ended with {self.process.wait()}")
        return json.loads(line)

    def close(self):
        self.process.stdin.close()
        if self.process.wait(60):
            sys.exit("chat_tokens failed at its end")


def texts(r, specials, n):
    """Lines of many scripts, code and control tokens' names, none empty; a NUL can't be in a key of jansson's."""
    return [line for line in make_lines(r, specials, n) if line.strip() and "\0" not in line]


def value(r, lines, depth=0):
    kind = r.randrange(8 if depth < 3 else 6)
    if kind < 2:
        return r.choice(lines)[:60]
    if kind == 2:
        return r.choice([0, -1, 7, 10 ** 12, 1.5, -2e-7, 1e22, 3.0])
    if kind == 3:
        return r.choice([True, False, None])
    if kind == 4:
        return r.choice(["\"quoted\"", "back\\slash", "two\nlines\t", "</tool_call>", "{\"a\": [1]}", "", "é 東京 😀"])
    if kind == 5:
        return "".join(r.choice(string.ascii_letters) for _ in range(r.randrange(9)))
    if kind == 6:
        return [value(r, lines, depth + 1) for _ in range(r.randrange(4))]
    return {key(r, lines): value(r, lines, depth + 1) for _ in range(r.randrange(4))}


def key(r, lines):
    return r.choice(["a", "place", "é", "a b", "\"", "{", r.choice(lines)[:12]])


def arguments(r, lines):
    return {key(r, lines): value(r, lines) for _ in range(r.randrange(4))}


def same_json(a, b):
    """Equal, with numbers and booleans of the same type."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same_json(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same_json, a, b))
    return a == b or (isinstance(a, float) and math.isnan(a) and math.isnan(b))


class Tally:
    """Counts what was compared, by a name, and prints the first differences."""

    def __init__(self, show=3):
        self.n, self.bad, self.rules, self.show = {}, 0, {}, show

    def adds(self, name):
        self.n[name] = self.n.get(name, 0) + 1

    def judge(self, name, good, *about):
        self.adds(name)
        if good:
            return
        self.bad += 1
        if self.bad <= self.show:
            print(f"{name}:", *(f"\n  {str(x)[:700]}" for x in about))

    def uses(self, rule):
        """A known difference was met."""
        self.rules[rule] = self.rules.get(rule, 0) + 1

    def finish(self, least, rules):
        """least: how many of each there must be; rules: all known differences, each of which must have been met."""
        for name, n in least.items():
            if self.n.get(name, 0) < n:
                self.bad += 1
                print(f"{name}: only {self.n.get(name, 0)} compared, at least {n} are wanted")
        for rule in sorted(set(rules) ^ set(self.rules)):
            self.bad += 1
            print(f"{rule}: a known difference that {'is gone' if rule in rules else 'is not listed'}")
        print("; ".join(f"{n} {name}" for name, n in self.n.items()) +
              f"; known differences met: {', '.join(f'{k} {v}' for k, v in sorted(self.rules.items())) or 'none'}")
        print(f"{sum(self.n.values())} compared, {self.bad} differ")
        return 1 if self.bad else 0
