#!/usr/bin/env python3
"""Grammars in lark's notation against the package lark: both must allow the same texts.

    lark_golden.py WALK_GRAMMAR [--walks N] [--texts N] [--seed N] [--only NAME]

Texts made by a grammar's rules must be taken; changed texts must be taken when lark's Earley
parser takes them, and only then.  What random walks write must be text that lark takes.  All of it
twice: as text, and inside a JSON string.  Needs lark.
"""
import argparse
import functools
import json
import random
import sys
import unicodedata

try:
    from re import _parser as sre
except ImportError:  # Python 3.10 and older
    import sre_parse as sre

import lark
from lark.grammar import Terminal

from golden import Judge, run
from lark_corpus import GRAMMARS

ALPHABET = "ab(x+* \n\"\\1:=,;{}[]yze\u00e9\U0001F600\t\r"


def for_lark(definition):
    """lark wants terminals that are not empty."""
    return definition.replace("/(.*)/", "/(.+)/?")


@functools.cache
def parser_of(name):
    return lark.Lark(for_lark(GRAMMARS[name]), parser="earley", lexer="dynamic_complete", ambiguity="resolve",
                     keep_all_tokens=True)


@functools.cache
def allows(name, text):
    try:
        parser_of(name).parse(text)
    except lark.exceptions.LarkError:
        return False
    return True


class Maker:
    """Texts of a grammar, by its rules as lark has compiled them."""

    def __init__(self, name, rng):
        self.parser, self.rng = parser_of(name), rng
        self.rules, self.ignored = {}, self.parser.ignore_tokens
        for r in self.parser.rules:
            self.rules.setdefault(r.origin, []).append(r.expansion)
        self.terminals = {t.name: t.pattern for t in self.parser.terminals}
        # The least number of rules that an end takes.
        self.least = {origin: 10**6 for origin in self.rules}
        for _ in self.rules:
            for origin, expansions in self.rules.items():
                self.least[origin] = min(self.cost(e) for e in expansions)

    def cost(self, expansion):
        return 1 + max((self.least[s] for s in expansion if not isinstance(s, Terminal)), default=0)

    def make(self):
        start = next(o for o in self.rules if o.name == "start")
        return self.of_rule(start, 0) + self.spaces()

    def spaces(self):
        if not self.ignored or self.rng.random() < 0.6:
            return ""
        return self.of_terminal(self.rng.choice(self.ignored))

    def of_rule(self, origin, depth):
        expansions = self.rules[origin]
        if depth > 12:
            least = min(map(self.cost, expansions))
            expansions = [e for e in expansions if self.cost(e) == least]
        return "".join(self.spaces() + self.of_terminal(s.name) if isinstance(s, Terminal) else self.of_rule(s, depth + 1)
                       for s in self.rng.choice(expansions))

    def of_terminal(self, name):
        pattern = self.terminals[name]
        fold = "i" in pattern.flags
        return self.of_regex(sre.parse(pattern.to_regexp()), fold)

    def cased(self, c, fold):
        return self.rng.choice([c.lower(), c.upper()]) if fold and len(c.upper()) == 1 else c

    def of_regex(self, items, fold):
        return "".join(self.of_item(str(op), value, fold) for op, value in items)

    def of_item(self, op, value, fold):
        rng = self.rng
        if op == "LITERAL":
            return self.cased(chr(value), fold)
        if op == "NOT_LITERAL":
            return rng.choice([c for c in ALPHABET if ord(c) != value])
        if op == "ANY":
            return rng.choice([c for c in ALPHABET if c != "\n"])
        if op == "IN":
            return self.of_class(value, fold)
        if op in ("MAX_REPEAT", "MIN_REPEAT"):
            low, high, inside = value
            n = rng.randint(low, min(int(high), low + 3))
            return "".join(self.of_regex(inside, fold) for _ in range(n))
        if op == "BRANCH":
            return self.of_regex(rng.choice(value[1]), fold)
        if op == "SUBPATTERN":
            return self.of_regex(value[3], fold or bool(value[1] & 2))
        if op == "ASSERT_NOT":  # of ESCAPED_STRING: what was made is judged afterwards
            return ""
        raise NotImplementedError(op)

    def of_class(self, value, fold):
        members = [(str(op), v) for op, v in value]
        if members[0][0] == "NEGATE":
            fits = [c for c in ALPHABET + "cdef" if not any(self.is_member(c, m) for m in members[1:])]
            return self.rng.choice(fits)
        op, v = self.rng.choice(members)
        if op == "RANGE":
            return self.cased(chr(self.rng.randint(*v)), fold)
        if op == "CATEGORY":
            return self.rng.choice([c for c in ALPHABET if self.is_member(c, (op, v))])
        return self.cased(chr(v), fold)

    @staticmethod
    def is_member(c, member):
        op, v = member
        if op == "RANGE":
            return v[0] <= ord(c) <= v[1]
        if op == "LITERAL":
            return ord(c) == v
        word = c == "_" or unicodedata.category(c)[0] in "LN"
        return {"CATEGORY_DIGIT": c.isdigit(), "CATEGORY_SPACE": c.isspace(), "CATEGORY_WORD": word,
                "CATEGORY_NOT_WORD": not word, "CATEGORY_NOT_DIGIT": not c.isdigit()}[str(v)]


def change(text, rng):
    """A text with one thing changed."""
    i = rng.randint(0, len(text))
    k = min(len(text), i + rng.choice([1, 1, 1, 2, 5]))
    return rng.choice([text[:i] + text[k:], text[:i] + rng.choice(ALPHABET) + text[i:], text[:i] + rng.choice(ALPHABET) + text[k:],
                       text[:i] + text[i:k] * 2 + text[k:], text[:i] + text[i:k][::-1] + text[k:], text + text[:i]])


def texts_of(j, name, n, seed):
    """(taken by both, not taken by lark)"""
    rng = random.Random(f"{seed} {name}")
    maker, good, bad = Maker(name, rng), [], []
    for _ in range(20 * n):
        if len(good) >= n and len(bad) >= n:
            break
        text = maker.make()
        # Very ambiguous texts have more readings than a matcher keeps.
        if len(text) > (30 if name == "ambiguous" else 120):
            continue
        if not allows(name, text) and name not in ("json",):
            j.fault(f"{name}: lark does not take what its rules make: {text!r}")
        for one in (text, change(text, rng), change(change(text, rng), rng)):
            to = good if allows(name, one) else bad
            if one not in to and len(to) < n:
                to.append(one)
    return good, bad


def main():
    p = argparse.ArgumentParser()
    p.add_argument("walk")
    p.add_argument("--walks", type=int, default=12)
    p.add_argument("--texts", type=int, default=40)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--only")
    p.add_argument("--show", type=int, default=10)
    a = p.parse_args()
    j = Judge(a.show)
    names = [n for n in GRAMMARS if not a.only or n == a.only]
    texts = {name: texts_of(j, name, a.texts, a.seed) for name in names}
    totals = [0, 0, 0]
    for in_json in (False, True):
        cases = []
        for name in names:
            form = {"syntax": "lark", "definition": GRAMMARS[name]}
            good, bad = ([json.dumps(t, ensure_ascii=False) if in_json else t for t in part] for part in texts[name])
            what = {"schema": {"type": "string", "x-ingot-grammar": form}} if in_json else {"format": form}
            cases.append({**what, "walks": a.walks, "most": 600, "accept": good, "reject": bad})
        for name, case, have in zip(names, cases, run(a.walk, cases, a.seed, None), strict=True):
            if not j.whole(name, case, have):
                continue
            for text, ok in zip(case["accept"], have["accepted"], strict=True):
                if not ok:
                    j.fault(f"{name}: not taken: {text!r}")
            for text, ok in zip(case["reject"], have["rejected"], strict=True):
                if ok:
                    j.fault(f"{name}: taken: {text!r}")
            outputs = [out for out in have["outputs"] if out is not False]
            for out in outputs:
                try:
                    text = json.loads(out) if in_json else out
                except ValueError:
                    text = None
                if text is None or (len(text) < 500 and not allows(name, text)):
                    j.fault(f"{name}: wrote {out!r}")
            totals = [t + len(case[k]) for t, k in zip(totals, ("accept", "reject"), strict=False)] + [totals[2] + len(outputs)]
    print(f"{len(names)} grammars, {totals[0]} texts taken, {totals[1]} not, {totals[2]} walks; {j.bad} faults")
    if not a.only and (min(totals[:2]) < 40 * len(names) or totals[2] < 12 * len(names)):
        sys.exit("lark_golden.py: too few texts")
    sys.exit(1 if j.bad else 0)


if __name__ == "__main__":
    main()
