#!/usr/bin/env python3
"""Renders the chat templates of real models in Ingot and in jinja2, set up as Hugging
Face's transformers does, and compares every byte.  Where jinja2 refuses a conversation, Ingot must
refuse it for the same reason, and refused.json must name it.

    golden.py RENDER_TEMPLATE [--templates FOLDER | --fetch FOLDER] [--least N]
    golden.py --list [--templates FOLDER | --fetch FOLDER]      prints a new refused.json

The templates are those that the source package of PyPI's llama-cpp-python carries below
vendor/llama.cpp/models/templates; --fetch has pip download it into FOLDER (kept there)
and unpacks only them.  Needs jinja2 (3.1.6).  Ends with `N templates, N cases, N differ`.
"""
import argparse
import datetime
import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

PACKAGE = "llama-cpp-python==0.3.36"
# Where Python has a generator (of map, select …) Ingot has a list, which can do more: in this
# template, what jinja2 refuses with these words is rendered.
LENIENT = "llama-cpp-deepseek-r1", "TypeError: Object of type generator is not JSON serializable"
# What jinja2 says, and what Ingot says then, after the line's number.
SAME_ERRORS = [(re.compile(theirs, re.S), ours) for theirs, ours in (
    (r"TemplateError: (.*)", r"the template refuses this: \1"),
    (r"UndefinedError: ('\w+' is undefined)", r"\1"),
    (r"UndefinedError: .* has no attribute ('\w+')", r"there is no attribute \1"),
    (r"UndefinedError: .* has no element \d+", r"there is no attribute '[]'"),
    (r'TypeError: can only concatenate (\w+) \(not "(\w+)"\) to \1', r"+ between \1 and \2"),
    (r"TypeError: (?:argument of type )?'(\w+)'(?: object)? is not iterable",
     r"a value of type \1 can't be iterated over"),
    (r"TypeError: object of type '(\w+)' has no len\(\)", r"a value of type \1 has no length"),
    (r"TypeError: Can only get item pairs from a mapping\.", r"items needs a dict, not str"),
    (r"SecurityError: access to attribute ('\w+') of .* object is unsafe\.",
     r"\1 would change a value, which templates may not do"),
    (r"TemplateRuntimeError: No filter named ('\w+') found\.", r"there is no filter named \1"),
)]
INSIDE = "/vendor/llama.cpp/models/templates/"
NOW = 1753791330  # 2025-07-29


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("passed"), [], [], body).set_lineno(line)

    def passed(self, caller):
        return caller()


class Dict:
    def __call__(self, *args, **kwargs):
        return dict(*args, **kwargs)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def strftime_now(form):
    return datetime.datetime.fromtimestamp(NOW).strftime(form)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals.update(raise_exception=raise_exception, strftime_now=strftime_now, dict=Dict())
    return env


def fetch(folder):
    folder = Path(folder)
    out = folder / "templates"
    if out.is_dir() and any(out.iterdir()):
        return out
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary",
                    "llama-cpp-python", "-d", str(folder), PACKAGE], check=False)
    archives = sorted(folder.glob("llama_cpp_python-*.tar.gz"))
    if not archives:
        sys.exit("golden.py: the package could not be had")
    out.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archives[-1]) as tar:
        for member in tar:
            if INSIDE in member.name and member.name.endswith(".jinja") and member.isfile():
                (out / os.path.basename(member.name)).write_bytes(tar.extractfile(member).read())
    return out


def say(role, content, **more):
    return dict(role=role, content=content, **more)


def call(name, arguments, number=0):
    return {"id": f"call{number:05d}", "type": "function",
            "function": {"name": name, "arguments": arguments}}


TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "The weather of a place, \"now\" <or> later",
        "parameters": {"type": "object", "properties": {
            "place": {"type": "string", "description": "City & country, é ü 東京"},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
            "days": {"type": "integer", "minimum": 0, "maximum": 14},
            "near": {"type": "array", "items": {"type": "number"}},
            "how": {"type": "object", "properties": {"wind": {"type": "boolean"}},
                    "required": ["wind"], "additionalProperties": False},
        }, "required": ["place"]}}},
    {"type": "function", "function": {
        "name": "now", "description": "What time it is",
        "parameters": {"type": "object", "properties": {}}}},
]
ARGUMENTS = {"place": "Łódź, \"PL\"", "days": 3, "near": [1.5, -2e-7, 1e22], "how": {"wind": True},
             "none": None}
PARTS = [{"type": "text", "text": "First part. "}, {"type": "text", "text": "Second part."}]

CONVERSATIONS = {
    "user": dict(messages=[say("user", "Hello!")]),
    "user, no prompt": dict(messages=[say("user", "Hello!")], prompt=False),
    "system": dict(messages=[say("system", "Be brief.\n"), say("user", "  What is 2 + 2?  ")]),
    "turns": dict(messages=[
        say("system", "You are <|im_end|> \"quoted\" & 'so' on."), say("user", "Tell a joke."),
        say("assistant", "<think>\nA joke, hm.\n</think>\n\nWhy did the chicken cross?\n"),
        say("user", "Why?"), say("assistant", "To get to the other side. "), say("user", "Ha 😀\n\nha")]),
    "turns, no system": dict(messages=[
        say("user", "One"), say("assistant", "Two"), say("user", "Three"), say("assistant", "Four")],
        prompt=False),
    "tools": dict(messages=[say("system", "Use tools."), say("user", "Weather?")], tools=TOOLS),
    "tools, no system": dict(messages=[say("user", "Weather in Łódź?")], tools=TOOLS),
    "call": dict(messages=[
        say("system", "Use tools."), say("user", "Weather?"),
        say("assistant", "", tool_calls=[call("get_weather", ARGUMENTS)]),
        say("tool", "{\"temp\": 21.5}", tool_call_id="call00000", name="get_weather")], tools=TOOLS),
    "call, content none": dict(messages=[
        say("user", "Weather?"),
        say("assistant", None, tool_calls=[call("get_weather", ARGUMENTS)]),
        say("tool", "{\"temp\": 21.5}", tool_call_id="call00000", name="get_weather"),
        say("assistant", "It is 21.5."), say("user", "Thanks")], tools=TOOLS),
    "call, text arguments": dict(messages=[
        say("user", "Weather?"),
        say("assistant", "", tool_calls=[call("get_weather", json.dumps(ARGUMENTS))]),
        say("tool", "sunny", tool_call_id="call00000", name="get_weather")], tools=TOOLS),
    "two calls": dict(messages=[
        say("system", "Use tools."), say("user", "Weather and time?"),
        say("assistant", "Let me look.", tool_calls=[call("get_weather", {"place": "Rome"}, 1),
                                                     call("now", {}, 2)]),
        say("tool", "rain", tool_call_id="call00001", name="get_weather"),
        say("tool", "12:30", tool_call_id="call00002", name="now"),
        say("assistant", "Rain, half past twelve."), say("user", "And tomorrow?")], tools=TOOLS),
    "parts": dict(messages=[say("system", PARTS), say("user", PARTS)]),
    "reasoning": dict(messages=[
        say("user", "2 + 2?"), say("assistant", "4", reasoning_content="Add them."),
        say("user", "3 + 3?")]),
    "thinking off": dict(messages=[say("user", "2 + 2?")], vars={"enable_thinking": False}),
    "thinking on": dict(messages=[say("user", "2 + 2?")],
                        vars={"enable_thinking": True, "thinking": True, "reasoning_effort": "high"}),
    "two systems": dict(messages=[say("system", "A"), say("system", "B"), say("user", "C")]),
    "developer": dict(messages=[say("developer", "A"), say("user", "C")]),
    "two users": dict(messages=[say("user", "A"), say("user", "B")]),
    "empty": dict(messages=[]),
    "white space": dict(messages=[say("system", " \n\t"), say("user", "\u00a0 x \u2003\n")]),
}


def variables(c):
    out = dict(messages=c["messages"], tools=c.get("tools"), documents=None,
               add_generation_prompt=c.get("prompt", True), bos_token="<s>", eos_token="</s>",
               pad_token="<pad>", unk_token="<unk>")
    out.update(c.get("vars", {}))
    return out


def expected(env, text, variables_):
    try:
        return {"text": env.from_string(text).render(**variables_)}
    except RecursionError:
        raise
    except Exception as e:  # whatever Python says no with
        return {"error": f"{type(e).__name__}: {e}"}


def same_error(theirs, ours):
    """Whether both name the same reason, with the same names and types in it."""
    for pattern, form in SAME_ERRORS:
        m = pattern.fullmatch(theirs.replace("NoneType", "None"))
        if m:
            return re.fullmatch(r"line \d+: " + re.escape(m.expand(form)), ours) is not None
    return False


def main():
    p = argparse.ArgumentParser()
    p.add_argument("render", nargs="?")
    p.add_argument("--list", action="store_true")
    p.add_argument("--templates")
    p.add_argument("--fetch")
    p.add_argument("--least", type=int, default=25, help="fewer templates are a failure")
    p.add_argument("--show", type=int, default=5)
    a = p.parse_args()
    folder = Path(a.templates) if a.templates else fetch(a.fetch or ".")
    os.environ["TZ"] = "UTC"

    env, cases, names, wants, refused = environment(), [], [], [], {}
    templates = sorted(folder.glob("*.jinja"))
    for path in templates:
        text = path.read_bytes().decode()
        for name, c in CONVERSATIONS.items():
            v = variables(c)
            names.append((path.stem, name))
            wants.append(expected(env, text, v))
            cases.append({"template": text, "vars": v, "now": NOW})
            if "error" in wants[-1]:
                refused.setdefault(path.stem, []).append(name)
    if a.list:
        print("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in refused.items()) + "\n}")
        return
    run = subprocess.run([a.render], input=json.dumps(cases).encode(), stdout=subprocess.PIPE,
                         check=True, timeout=300)
    got = [json.loads(line) for line in run.stdout.splitlines()]
    if len(got) != len(cases):
        sys.exit(f"golden.py: {len(got)} answers to {len(cases)} cases")
    n_differ = n_lenient = 0
    listed = json.loads((Path(__file__).parent / "refused.json").read_text())
    for stem in sorted(set(listed) | set(refused)):
        for name in set(listed.get(stem, [])) ^ set(refused.get(stem, [])):
            n_differ += 1
            print(f"{stem}, {name}: jinja2 {'refuses' if name in refused.get(stem, []) else 'renders'} it; "
                  "refused.json says otherwise")
    for name, want, have in zip(names, wants, got, strict=True):
        if "text" in want and want["text"] == have.get("text"):
            continue
        if (name[0], want.get("error")) == LENIENT and "text" in have:
            n_lenient += 1
            continue
        if "error" in want and "error" in have and same_error(want["error"], have["error"]):
            continue
        n_differ += 1
        if n_differ <= a.show:
            print(f"{', '.join(name)}:\n  jinja2: {json.dumps(want, ensure_ascii=False)[:1500]}\n"
                  f"  Ingot:  {json.dumps(have, ensure_ascii=False)[:1500]}")
    print(f"{len(templates)} templates, {len(cases)} cases ({sum(map(len, refused.values()))} of them refused), "
          f"{n_lenient} render though jinja2 refuses a generator, {n_differ} differ")
    if n_differ or len(templates) < a.least:
        sys.exit(1)


if __name__ == "__main__":
    main()
