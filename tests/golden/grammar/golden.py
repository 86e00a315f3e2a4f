#!/usr/bin/env python3
"""Walks at random through the grammars of a corpus of schemas and expressions, and has
Python's jsonschema (and re) judge what comes out.

    golden.py WALK_GRAMMAR [--model MODEL.gguf] [--walks N] [--seed N] [--only NAME]

Every walk must end in a value that the schema allows.  The other way about: values made
for a schema, which jsonschema allows, must be taken in compact form with the members in the
schema's order; such values with something changed must not be taken when jsonschema
refuses them.  Once with a made-up vocabulary, and with the model's.  Needs jsonschema.
"""
import argparse
import json
import os
import random
import re
import subprocess
import sys
import unicodedata
import warnings

import jsonschema

from corpus import REFUSED, REGEXES, SCHEMAS

warnings.simplefilter("ignore")
LEAST = 150
CHECKER = jsonschema.FormatChecker(["date", "email", "ipv4", "ipv6", "uuid", "time", "regex"])
# What jsonschema judges only with other packages at hand.
FORMATS = {
    "time": r"\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", "hostname": r"(?=.{1,253}$)[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})*",
    "date-time": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", "uri": r"[A-Za-z][\w+.-]*:[^\s<>\"{}|\\^`]*",
    "duration": r"P(?!$)(\d+W|(\d+Y)?(\d+M)?(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+S)?)?)",
}
for _name, _regex in FORMATS.items():
    CHECKER.checks(_name)(lambda v, r=re.compile(_regex, re.A): not isinstance(v, str) or r.fullmatch(v) is not None)
SAMPLES = {
    "date": ["2024-02-29", "1999-12-31"], "time": ["00:00:00Z", "23:59:59.5+01:00"], "date-time": ["2024-02-29T12:00:00Z"],
    "uuid": ["123e4567-e89b-12d3-a456-426614174000"], "email": ["a.b+c@example.org"], "ipv4": ["192.168.0.255"],
    "ipv6": ["::", "::1", "2001:db8::8a2e:370:7334", "1:2:3:4:5:6:7:8", "::ffff:1.2.3.4"], "hostname": ["a", "www.example.org"],
    "uri": ["https://example.org:8080/a/b?c=d#e", "urn:isbn:0451450523"], "duration": ["P1Y2M", "PT5S", "P3DT4H"],
}
PATTERNS = {  # values of the patterns in the corpus
    "^[0-9]{5}$": "01234", r"^[\w./-]+$": "src/a-b.c", "^0?[0-7]{3}$": "0644", "^[a-z]{2}(-[A-Z]{2})?$": "de-DE", "^[A-Z]{3}$": "FRA",
    "^[A-Z]{2}[0-9]{2}[A-Z0-9]{11,30}$": "DE89370400440532013000", "^#[0-9a-fA-F]{6}$": "#00ffAA", "^[0-9]{4}( [0-9]{4}){3}$": "1234 5678 9012 3456",
    "^(0[1-9]|1[0-2])/[0-9]{2}$": "12/29", "^[0-9]{3,4}$": "123", "^INV-[0-9]{6}$": "INV-000001", "^[α-ω]+$": "αβω", "^[a-z]+$": "abc",
    "[0-9]": "a\"1\n", "^ab": "abé", "ab$": "\\ab", "^a|b$": "xb", r"^\d{3}-\w+\s\S\D\W$": "123-ab x-!", r'^"\\[\n\t]"$': '"\\\n"',
    "^<a+?>(b*?)(?:c{2,3}?)$": "<aa>bcc", "^[a-zé]+$": "aéb", "^[\\u4e00-\\u9fff]{2,5}$": "日本語", "^[^a-z\"]{3}$": "A😀é", "^.{2}$": "😀\"",
    r"^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$": "1.20.3-rc.1", "^$": "", "^0x[\\da-fA-F]+$": "0xFf",
}
OTHERS = ["other", "aaaa", "é\"", "ab2"]
TEXTS = ["", "a", "hello world", "é", "日本語", "😀", "a\"b", "back\\slash", "tab\tnew\nline", "/", "\u0001", "\u007f", "x" * 20, "{}[],:\""]


class CannotMake(Exception):
    pass


def without_others(v):
    """Of merged schemas: names that neither knows would have to come last."""
    return {k: w for k, w in v.items() if k not in OTHERS}


def make(s, root, rng, depth=0):
    """A value of a schema, by luck: jsonschema has the last word."""
    if depth > 12:
        raise CannotMake
    if s is True or s == {}:
        return rng.choice([None, True, 5, "x", [1, {"a": []}], {"k": [None]}])
    if s is False:
        raise CannotMake
    if "$ref" in s:
        at = root
        for part in s["$ref"].split("/")[1:]:
            at = at[part.replace("~1", "/").replace("~0", "~").replace("%20", " ")]
        return make(at, root, rng, depth + 1)
    if "const" in s:
        return s["const"]
    if "enum" in s:
        return rng.choice(s["enum"])
    for key in ("anyOf", "oneOf"):
        if key in s:
            branch = rng.choice(s[key])
            rest = {k: v for k, v in s.items() if k != key}
            if isinstance(branch, dict) and ("properties" in rest or "allOf" in rest):
                a, b = make(rest, root, rng, depth), make({"type": "object", **branch}, root, rng, depth)
                known = list(s.get("properties", {}))
                both = without_others({**a, **b})
                return {k: both[k] for k in sorted(both, key=lambda k: known.index(k) if k in known else 99)}
            return make(branch, root, rng, depth + (1 if isinstance(branch, dict) and "$ref" in branch else 0))
    if "allOf" in s:
        made = [make(x, root, rng, depth + 1) for x in s["allOf"]]
        if all(isinstance(m, dict) for m in made):
            return without_others({k: v for m in made for k, v in m.items()})
        return rng.choice(made)
    t = s.get("type", "object" if "properties" in s or "required" in s else "integer" if "minimum" in s or "maximum" in s else "string")
    if isinstance(t, list):
        t = rng.choice(t)
    if s.get("nullable") and rng.random() < 0.3:
        return None
    if t == "null":
        return None
    if t == "boolean":
        return rng.random() < 0.5
    if t in ("integer", "number"):
        lo, hi = s.get("minimum", s.get("exclusiveMinimum", -1000)), s.get("maximum", s.get("exclusiveMaximum", 1000))
        lo, hi = max(lo, -10**15), min(hi, 10**15)
        hi = max(hi, lo + 1000) if "maximum" not in s and "exclusiveMaximum" not in s else hi
        lo = min(lo, hi - 1000) if "minimum" not in s and "exclusiveMinimum" not in s else lo
        if t == "integer" or s.get("multipleOf"):
            return rng.choice([int(lo), int(hi), rng.randint(int(lo), int(hi))])
        return rng.choice([lo, hi, round(rng.uniform(lo, hi), rng.randint(0, 6)), (lo + hi) / 2 if abs(lo + hi) < 1e6 else lo])
    if t == "string":
        if "pattern" in s:
            return PATTERNS.get(s["pattern"]) if "format" not in s else "2024-01-31"
        if "format" in s:
            return rng.choice(SAMPLES[s["format"]])
        text = rng.choice(TEXTS) + rng.choice(TEXTS)
        while len(text) < s.get("minLength", 0):
            text += rng.choice(TEXTS)
        return text[:s.get("maxLength", 10**6)]
    if t == "array":
        prefix, n_min = s.get("prefixItems", []), s.get("minItems", 0)
        n = rng.randint(n_min, min(s.get("maxItems", 10**6), max(n_min, 0 if depth > 8 else 3)))
        if s.get("items") is False:
            n = min(n, len(prefix))
        return [make(prefix[i] if i < len(prefix) else s.get("items", {}), root, rng, depth + 1) for i in range(n)]
    out = {}
    names = list(s.get("properties", {})) + [r for r in s.get("required", []) if r not in s.get("properties", {})]
    for name in names:
        if name in s.get("required", []) or (rng.random() < 0.5 and depth < 8):
            sub = s.get("properties", {}).get(name, s.get("additionalProperties", {}))
            if sub is not False:
                out[name] = make(sub, root, rng, depth + 1)
    more = s.get("additionalProperties", True)
    if more is not False and depth < 4 and rng.random() < 0.4 and s.get("maxProperties", 9) > len(out):
        out[rng.choice(OTHERS)] = make(more, root, rng, depth + 1)
    for pattern, sub in s.get("patternProperties", {}).items():
        if rng.random() < 0.5:
            out[{"^x-": "x-1", "^n[0-9]+$": "n12"}[pattern]] = make(sub, root, rng, depth + 1)
    return out


def change(v, rng):
    """v with one thing changed somewhere."""
    if isinstance(v, dict) and v and rng.random() < 0.8:
        key = rng.choice(list(v))
        out = dict(v)
        if rng.random() < 0.3:
            del out[key]
        else:
            out[key] = change(v[key], rng)
        return out
    if isinstance(v, list) and v and rng.random() < 0.8:
        out = list(v)
        i = rng.randrange(len(v))
        if rng.random() < 0.3:
            del out[i]
        elif rng.random() < 0.3:
            out.insert(i, v[i])
        else:
            out[i] = change(v[i], rng)
        return out
    if isinstance(v, dict) and rng.random() < 0.5:
        return {**v, "surplus": 1}
    if isinstance(v, str) and rng.random() < 0.6:
        return rng.choice([v + "!", v[:-1], v.upper(), v + v, "x" + v])
    if isinstance(v, (int, float)) and not isinstance(v, bool) and rng.random() < 0.7:
        return rng.choice([v + 1, v - 1, -v, v * 10, v + 0.5])
    return rng.choice([None, True, 7, -3, 2.5, "zz", [], {}, [1], {"a": 1}])


def dumps(v):
    return json.dumps(v, ensure_ascii=False, separators=(",", ":"))


def exact_number(v):
    """Whether Ingot writes such numbers: no 1.0 for an integer, no more digits than it has."""
    if isinstance(v, dict):
        return all(map(exact_number, v.values()))
    if isinstance(v, list):
        return all(map(exact_number, v))
    if isinstance(v, float):
        digits = repr(v).lstrip("-").replace(".", "")
        return not v.is_integer() and "e" not in digits and len(digits) <= 15
    return not isinstance(v, int) or isinstance(v, bool) or abs(v) < 10**15


def has_real(s):
    return '"number"' in json.dumps(s) or '"type"' not in json.dumps(s)


def validator_of(s):
    if s is not True and s.get("nullable"):  # OpenAPI's
        s = {**s, "type": [s["type"], "null"]}
    return jsonschema.Draft202012Validator(s, format_checker=CHECKER)


def loads(text):
    def refuse(name):
        raise ValueError(f"{name} is no JSON")
    return json.loads(text, parse_constant=refuse)


def run(walk, cases, seed, model):
    command = [walk, str(seed)] + ([model] if model else [])
    p = subprocess.run(command, input=json.dumps(cases).encode(), stdout=subprocess.PIPE, timeout=1500, check=False)
    lines = p.stdout.decode().split("\n")[:-1]
    if p.returncode or len(lines) != len(cases):
        sys.exit(f"golden.py: {command} ended with {p.returncode} after {len(lines)} of {len(cases)} cases")
    return [json.loads(line) for line in lines]


class Judge:
    """Counts faults and shows the first of them."""

    def __init__(self, show):
        self.bad, self.show = 0, show

    def fault(self, text):
        self.bad += 1
        if self.bad <= self.show:
            print(text[:2000])

    def whole(self, name, case, have):
        """Whether there is an output for each walk, and a verdict on each text; if not, a fault."""
        why = have.get("error") or have.get("problem")
        wanted = [case["walks"], len(case.get("accept", [])), len(case.get("reject", []))]
        got = [len(have.get(key, [])) for key in ("outputs", "accepted", "rejected")]
        if why or wanted != got:
            self.fault(f"{name}: {why or f'{got} results for {wanted} tasks'} {str(have.get('outputs'))[-300:]}")
        return not why and wanted == got


def schema_cases(names, walks, seed):
    cases, values = [], []
    for name in names:
        schema = SCHEMAS[name]
        rng = random.Random(f"{seed} {name}")
        validator = validator_of(schema)
        good, bad = [], []
        for _ in range(200):
            if len(good) == 8 and len(bad) == 25:
                break
            try:
                v = make(schema, schema, rng)
            except CannotMake:
                continue
            if validator.is_valid(v) and exact_number(v) and len(good) < 8:
                good.append(dumps(v))
            for _ in range(3):
                w = change(v, rng)
                if not validator.is_valid(w) and len(bad) < 25:
                    bad.append(dumps(w))
        cases.append({"schema": schema, "walks": walks, "accept": good, "reject": bad})
        values.append((good, bad))
    return cases, values


def judge_schemas(j, names, cases, got):
    n_walks = n_good = n_bad = 0
    for name, case, have in zip(names, cases, got, strict=True):
        validator = validator_of(case["schema"])
        if not j.whole(name, case, have):
            continue
        for text in have["outputs"]:
            n_walks += 1
            try:
                faults = list(validator.iter_errors(loads(text)))
            except (ValueError, TypeError) as e:
                faults = [e]
            if faults:
                j.fault(f"{name}: {str(faults[0])[:300]}\n  {text}")
        for text, ok in zip(case["accept"], have["accepted"], strict=True):
            n_good += 1
            if not ok:
                j.fault(f"{name}: not taken: {text}")
        for text, ok in zip(case["reject"], have["rejected"], strict=True):
            n_bad += 1
            if ok:
                j.fault(f"{name}: taken: {text}")
        if not case["accept"]:
            j.fault(f"{name}: no value could be made for it")
    return n_walks, n_good, n_bad


def python_regex(text):
    for name in ("Lu", "Ll"):
        if name in text:
            chars = [chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) == name]
            text = text.replace("\\p{%s}" % name, "[%s]" % "".join(chars))
    text = text.replace(r"\u{1F600}", "\U0001F600").replace("(?<", "(?P<")
    return re.compile(text, re.A if r"\W" not in text else 0)


def judge_regexes(j, cases, got):
    n = 0
    for case, have in zip(cases, got, strict=True):
        text = case["regex"]
        if not j.whole(text, case, have):
            continue
        for out in have["outputs"]:
            n += 1
            if out is None or not python_regex(text).fullmatch(out):
                j.fault(f"{text}: {out!r}")
    return n


def main():
    p = argparse.ArgumentParser()
    p.add_argument("walk")
    p.add_argument("--model", default=os.environ.get("INGOT_TEST_MODEL"))
    p.add_argument("--walks", type=int, default=9)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--only")
    p.add_argument("--show", type=int, default=10)
    a = p.parse_args()
    j = Judge(a.show)
    names = [n for n in SCHEMAS if not a.only or n == a.only]
    for model in [None] + ([a.model] if a.model else []):
        cases, _ = schema_cases(names, a.walks, a.seed)
        n_walks, n_good, n_bad = judge_schemas(j, names, cases, run(a.walk, cases, a.seed, model))
        regexes = [{"regex": r, "walks": a.walks} for r in REGEXES]
        n_regex = judge_regexes(j, regexes, run(a.walk, regexes, a.seed, model))
        refusals = run(a.walk, [{"schema": s, "walks": 0} for s, _ in REFUSED], a.seed, model)
        for (schema, part), have in zip(REFUSED, refusals, strict=True):
            if part not in have.get("error", ""):
                j.fault(f"{json.dumps(schema)}: {have.get('error', 'is taken')}; should say {part}")
        print(f"{'the model' if model else 'made up'}: {len(names)} schemas, {n_walks} walks, {n_good} values taken, "
              f"{n_bad} not, {n_regex} walks of {len(REGEXES)} expressions, {len(REFUSED)} refusals")
        if not a.only and (n_good < 4 * len(names) or n_bad < 8 * len(names)):
            j.fault(f"only {n_good} values could be made for {len(names)} schemas, and {n_bad} bad ones")
    print(f"{j.bad} faults")
    sys.exit(1 if j.bad or (not a.only and len(names) < LEAST) else 0)


if __name__ == "__main__":
    main()
