#!/usr/bin/env python3
"""Conversations and tool calls of Mistral's models in Ingot and in mistral-common, the library of the models' authors,
unmodified.

    mistral.py CHAT_TOKENS --templates FOLDER [--packages ENVIRONMENT]

For the vocabularies that the library has with it (SentencePiece v3 and v7; Tekken v3, and with the control tokens of
v11 and v13): the ids of texts; those of conversations, with the chat template that the library writes for that version
and with the published ones (from ../template/golden.py); and calls that the library encoded, which Ingot's parser must
find as the library's own does, also where the ids are damaged.  DIFFERENCES says where a template differs, READS where
Ingot's parser does.  Of bytes that are not UTF-8 the library and Ingot make another number of U+FFFD; and a result of more than 18
digits, which the v3 template computes with, is refused: Ingot's numbers have 64 bits.
ENVIRONMENT is a virtual one with the packages that the library needs for images.
"""
import argparse
import json
import random
import re
import site
import string
import sys
import tempfile
from pathlib import Path

from tokens import Ingot, Tally, arguments, same_json, texts

SPM3, SPM7, TEKKEN3, TEKKEN11, TEKKEN13 = "spm v3", "spm v7", "tekken v3", "tekken v11", "tekken v13"
FILES = {SPM3: "mistral_instruct_tokenizer_240323.model.v3", SPM7: "mistral_instruct_tokenizer_241114.model.v7",
         TEKKEN3: "tekken_240718.json", TEKKEN11: "tekken_240911.json", TEKKEN13: "tekken_240911.json"}
# The names of v11 and later, by id: those before are as in v3.
LATER = {32: "[ARGS]", 33: "[CALL_ID]", 34: "[THINK]", 35: "[/THINK]"}
# The published templates, each with a vocabulary of its version.
PUBLISHED = {"mistralai-Mistral-Nemo-Instruct-2407": TEKKEN3, "Mistral-Small-3.2-24B-Instruct-2506": TEKKEN11,
             "unsloth-mistral-Devstral-Small-2507": TEKKEN13, "mistralai-Ministral-3-14B-Reasoning-2512": TEKKEN13}
NEMO = "mistralai-Mistral-Nemo-Instruct-2407"

DIFFERENCES = {
    "results": "v3: the library reads a tool's result as JSON where it is that; the template that it writes for v3 has a "
               "string, and Nemo's the bare text",
    "no system message": "published templates from v7 on begin with a system message of their own; the library has none",
    "descriptions": "Nemo's template writes the texts of a tool without escapes",
    "system after tools": "Nemo's template has the system message only before a user's message that is the last",
}
READS = {
    "marker alone": "[ARGS] or [CALL_ID] in a text or in arguments: the library leaves it out, Ingot shows it",
    "names": "a call of a name with brackets, quotes or white space is text for Ingot",
    "ids": "a call of an id with quotes or brackets is text for Ingot",
    "twice": "of two values of a key the library takes the last, Ingot the first",
}
MARKERS = ["[INST]", "[/INST]", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "<s>", "</s>", "[AVAILABLE_TOOLS]",
           "[TOOL_RESULTS]"]
TOOLS = [{"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}
         for name, description, parameters in (
    ("get_weather", "The weather of a place, \"now\" <or> later", {"type": "object", "properties": {
        "place": {"type": "string", "description": "City & country, é ü 東京"},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
        "near": {"type": "array", "items": {"type": "number", "minimum": -1.5e-7}}}, "required": ["place"]}),
    ("now", "What time it is", {"type": "object", "properties": {}}))]


# ---- vocabularies -----------------------------------------------------------------------------

def prepare(name, data, folder):
    """A folder with the version's vocabulary; its file."""
    folder = folder / name.replace(" ", "-")
    folder.mkdir()
    source = data / FILES[name]
    if "spm" in name:
        path = folder / "tokenizer.model"
        path.write_bytes(source.read_bytes())
        named = folder / source.name  # from which the library knows the version
        named.write_bytes(source.read_bytes())
        return named
    path, tekken = folder / "tekken.json", json.loads(source.read_bytes())
    if name != TEKKEN3:
        from mistral_common.tokens.tokenizers.tekken import Tekkenizer
        names = {i: str(t["token_str"].value) for i, t in enumerate(Tekkenizer.DEPRECATED_SPECIAL_TOKENS)} | LATER
        tekken["config"]["version"] = name.split()[1]
        tekken["special_tokens"] = [
            {"rank": i, "token_str": names.get(i, f"<SPECIAL_{i}>"), "is_control": True} for i in range(max(names) + 1)]
        tekken.pop("image", None)
    n = tekken["config"]["default_vocab_size"] - tekken["config"]["default_num_special_tokens"]
    tekken["vocab"] = tekken["vocab"][:n]
    path.write_text(json.dumps(tekken))
    return path


def generated_template(name):
    from mistral_common.integrations.chat_templates.chat_templates import generate_chat_template
    from mistral_common.tokens.tokenizers.base import TokenizerVersion
    return generate_chat_template(
        spm="spm" in name, tokenizer_version=TokenizerVersion(name.split()[1]), image_support=False,
        audio_support=False, thinking_support=False, default_system_prompt=None, plain_thinking_support=False,
        use_special_token_variables=True, model_settings_fields=None, reasoning_effort_values=None,
        reasoning_effort_default=None)


# ---- conversations ----------------------------------------------------------------------------

def call(r, lines):
    return {"id": "".join(r.choice(string.ascii_letters + string.digits) for _ in range(9)), "type": "function",
            "function": {"name": r.choice(["get_weather", "now"]), "arguments": arguments(r, lines)}}


def conversation(r, lines):
    messages, tools = [], TOOLS[:r.randrange(3)]
    if r.random() < .6:
        messages.append({"role": "system", "content": r.choice(lines)})
    for n in range(r.randrange(3)):
        messages.append({"role": "user", "content": r.choice(lines)})
        for _ in range(r.randrange(3) if tools else 0):
            messages += rounds(r, lines)
        messages.append({"role": "assistant", "content": r.choice(lines).strip()})
    messages.append({"role": "user", "content": r.choice(lines)})
    if tools and r.random() < .4:
        messages += rounds(r, lines)
    return {"messages": messages, "tools": tools}


def rounds(r, lines):
    calls = [call(r, lines) for _ in range(r.choice([1, 1, 2]))]
    return [{"role": "assistant", "content": "", "tool_calls": calls}] + [
        {"role": "tool", "tool_call_id": c["id"], "name": c["function"]["name"],
         "content": r.choice([r.choice(lines), json.dumps(arguments(r, lines)), "21.50", "true"])} for c in calls]


def in_words(c, as_string):
    """As the library takes it: arguments are a text, and so is a result where that is wanted."""
    out = []
    for m in c["messages"]:
        if "tool_calls" in m:
            m = dict(m, tool_calls=[dict(x, function=dict(x["function"], arguments=json.dumps(
                x["function"]["arguments"], ensure_ascii=False))) for x in m["tool_calls"]])
        if m["role"] == "tool" and as_string and is_json(m["content"]):
            m = dict(m, content=json.dumps(m["content"], ensure_ascii=False))
        out.append(m)
    return {"messages": out, "tools": c["tools"] or None}


def is_json(text):
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


class Library:
    def __init__(self, path):
        from mistral_common.protocol.instruct.request import ChatCompletionRequest
        from mistral_common.tokens.tokenizers.base import SpecialTokenPolicy
        from mistral_common.tokens.tokenizers.mistral import MistralTokenizer
        self.request, self.keep = ChatCompletionRequest, SpecialTokenPolicy.KEEP
        self.all = MistralTokenizer.from_file(str(path))
        self.instruct = self.all.instruct_tokenizer
        self.tokenizer = self.instruct.tokenizer

    def ids(self, c, as_string=False):
        return self.all.encode_chat_completion(self.request(**in_words(c, as_string))).tokens

    def text(self, ids):
        return self.all.decode(ids, special_token_policy=self.keep)


def compare_prompts(ingot, library, name, template, conversations, tally, as_string=False):
    for c in conversations:
        got = ask_prompt(ingot, template, c)
        want = library.ids(c, as_string)
        tally.judge(name + " prompts", got.get("ids") == want, *difference(library, want, got))


def ask_prompt(ingot, template, c):
    return ingot.ask({"template": template, "messages": c["messages"], "tools": c["tools"] or None, "prompt": True})


def published(name, c):
    """The conversation without what the template writes in another way, which compare_differences has."""
    messages = [dict(m) for m in c["messages"]]
    if messages[0]["role"] != "system" and name != NEMO:
        messages.insert(0, {"role": "system", "content": "Be brief."})
    if name != NEMO:
        return {"messages": messages, "tools": c["tools"]}
    if messages[0]["role"] == "system" and messages[-1]["role"] == "tool":
        del messages[0]
    for m in messages:
        if m["role"] == "tool":
            m["content"] = json.dumps(json.loads(m["content"]) if is_json(m["content"]) else m["content"],
                                      ensure_ascii=False)
    tools = [json.loads(json.dumps(t).replace('\\"', "'")) for t in c["tools"]]
    return {"messages": messages, "tools": tools}


def compare_differences(ingot, library, name, template, tally):
    """Each known difference: the same text but for one part."""
    say = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    quoted = {"role": "tool", "tool_call_id": "abcdefgh1", "name": "now", "content": '"sunny, 21"'}
    result = {"role": "tool", "tool_call_id": "abcdefgh1", "name": "now", "content": "sunny, 21"}
    called = [{"role": "assistant", "content": "", "tool_calls": [
        {"id": "abcdefgh1", "type": "function", "function": {"name": "now", "arguments": {}}}]}]
    quiet = [t for t in TOOLS if "\"" not in t["function"]["description"]]
    if name != NEMO:
        ours = text_of(ingot, library, template, {"messages": say[1:], "tools": []})
        theirs = library.text(library.ids({"messages": say[1:], "tools": []}))
        head, tail = theirs[:len("<s>")], theirs[len("<s>"):]
        tally.uses("no system message")
        tally.judge("differences", re.fullmatch(re.escape(head) + r"\[SYSTEM_PROMPT\].+\[/SYSTEM_PROMPT\]" + re.escape(tail),
                                                ours, re.S), repr(theirs), repr(ours))
        return
    for rule, c, theirs, ours in (
            ("results", {"messages": say[1:] + called + [result], "tools": quiet}, '"content": "sunny, 21"', '"content": sunny, 21'),
            ("descriptions", {"messages": say, "tools": TOOLS[:1]}, '\\"now\\"', '"now"'),
            ("system after tools", {"messages": say + called + [quoted], "tools": quiet}, "Be brief.\n\n", "")):
        want = library.text(library.ids(c))
        tally.uses(rule)
        tally.judge("differences", theirs in want and want.replace(theirs, ours) == text_of(ingot, library, template, c),
                    repr(want), repr(text_of(ingot, library, template, c)))


def text_of(ingot, library, template, c):
    got = ask_prompt(ingot, template, c)
    return library.text(got["ids"]) if "ids" in got else str(got)


def difference(library, want, got):
    """The two texts from a little before the first difference on."""
    theirs, ours = library.text(want), library.text(got["ids"]) if "ids" in got else str(got)
    same = next((i for i, (a, b) in enumerate(zip(theirs, ours)) if a != b), 0)
    return [f"{who}: …{text[max(0, same - 40):]!r}" for who, text in (("library", theirs), ("Ingot", ours))]


def compare_texts(ingot, library, name, lines, tally):
    for line in lines:
        got, want = ingot.ask({"text": line})["ids"], library.tokenizer.encode(line, bos=False, eos=False)
        tally.judge(name + " texts", got == want, repr(line), want, got)


# ---- completions ------------------------------------------------------------------------------

def answer(r, lines, library):
    """Ids of an assistant's turn, without its end."""
    from mistral_common.protocol.instruct.messages import AssistantMessage
    from mistral_common.protocol.instruct.tool_calls import FunctionCall, ToolCall
    calls = [ToolCall(id=c["id"], function=FunctionCall(
        name=c["function"]["name"], arguments=json.dumps(c["function"]["arguments"], ensure_ascii=False)))
        for c in (call(r, lines) for _ in range(r.choice([0, 1, 1, 2, 3])))]
    text = r.choice(lines).strip() if not calls or (r.random() < .3 and library.later) else None
    ids = library.instruct.encode_assistant_message(AssistantMessage(content=text, tool_calls=calls or None), False)
    return ids[:-1] if ids[-1] == library.tokenizer.eos_id else ids


def library_reads(library, ids):
    """Text and calls; None: the library refuses them."""
    from mistral_common.experimental.tools import _decode_tool_calls, _split_content_and_tool_calls
    try:
        content, calls = _split_content_and_tool_calls(ids, library.tokenizer.get_special_token("[TOOL_CALLS]"))
        found = [[c.function.name, json.loads(c.function.arguments)] for c in
                 _decode_tool_calls(calls, library.tokenizer)]
    except ValueError:  # pydantic's errors are such, too
        return None
    return library.tokenizer.decode(content), found


def ingot_reads(events):
    text, calls = "", []
    for kind, data in events:
        if kind == "call":
            calls.append([data, ""])
        elif kind == "arguments":
            calls[-1][1] += data
        elif kind != "end":
            text += data
    return text, calls


def plain(text):
    return re.sub("\ufffd+", "\ufffd", text.strip())


def same_calls(theirs, ours):
    try:
        return len(theirs) == len(ours) and all(
            a[0] == b[0] and same_json(json.loads(plain(json.dumps(a[1], ensure_ascii=False))), json.loads(plain(b[1]))) for a, b in zip(theirs, ours))
    except ValueError:
        return False


def excuse(library, ids, calls):
    """Why the whole completion may be read differently; None."""
    text = library.text(ids).replace("\u2581", " ")
    head, *parts = text.split("[TOOL_CALLS]")
    if any(re.search(r"\[(ARGS|CALL_ID)\]", x) for x in [head, *(part.partition("[ARGS]")[2] for part in parts)]):
        return "marker alone"
    if any(part.startswith("[CALL_ID]") or (library.version == TEKKEN13 and "[CALL_ID]" in part) for part in parts):
        return "marker alone"
    if any(re.search(r"[\"{}\[\]]", x) for x in re.findall(r"\[CALL_ID\](.*?)\[ARGS\]", text, re.S)):
        return "ids"
    if not all(re.fullmatch(r"[^\s\[\]{}\"]+", name) for name, _ in calls):
        return "names"

    def pairs(members):
        keys.append(len(members) != len(dict(members)))
        return dict(members)
    for part in [] if library.later else parts:
        keys = []
        json.loads(part, object_pairs_hook=pairs)
        if any(keys):
            return "twice"
    return None


def compare_completions(ingot, library, name, template, completions, tally):
    for ids in completions:
        read = library_reads(library, ids)
        if read is None:
            tally.adds("completions refused by the library")
            continue
        why = excuse(library, ids, read[1])
        if why:
            tally.uses(why)
            continue
        events = ingot.ask({"template": template, "tools": TOOLS, "completion": ids})["events"]
        text, calls = ingot_reads(events)
        tally.judge(name + " completions", same_calls(read[1], calls) and plain(text) == plain(read[0]),
                    repr(library.text(ids)), f"library: {read}", f"Ingot:   {text!r} {calls}")


def damaged(r, ids, pool):
    ids = list(ids)
    for _ in range(r.randrange(1, 3)):
        at = r.randrange(len(ids) + 1)
        ids[at:at + r.randrange(2)] = [r.choice(pool)] if r.random() < .6 else []
    return ids


def compare_version(a, name, path, r, lines, tally):
    library, ingot = Library(path), Ingot(a.program, path.parent)
    library.version, library.later = name, name in (TEKKEN11, TEKKEN13)
    template = generated_template(name)
    compare_texts(ingot, library, name, lines, tally)
    conversations = [conversation(r, lines) for _ in range(40)]
    compare_prompts(ingot, library, name, template, conversations, tally, as_string=name in (SPM3, TEKKEN3))
    if name in (SPM3, TEKKEN3):
        tally.uses("results")
    for stem in (stem for stem, version in PUBLISHED.items() if version == name):
        source = (Path(a.templates) / (stem + ".jinja")).read_text()
        compare_prompts(ingot, library, stem, source, [published(stem, c) for c in conversations], tally)
        compare_differences(ingot, library, stem, source, tally)
    clean = [x for x in lines if "[" not in x]
    whole = [answer(r, clean, library) for _ in range(60)]
    names = ["[TOOL_CALLS]"] + (["[ARGS]", "[CALL_ID]"] if library.later else [])
    pool = [library.tokenizer.get_special_token(x) for x in names] + library.tokenizer.encode(
        "[{\"name\": \"now\", \"arguments\": {}}], now", bos=False, eos=False)
    compare_completions(ingot, library, name, template, whole, tally)
    twice = [pool[0], *library.tokenizer.encode('[{"name": "now", "arguments": {}, "name": "x"}]', bos=False, eos=False)]
    compare_completions(ingot, library, name + " damaged", template,
                        [twice] + [damaged(r, ids, pool) for ids in whole * 3], tally)
    ingot.close()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("--templates", required=True)
    p.add_argument("--packages")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--show", type=int, default=3)
    a = p.parse_args()
    for folder in Path(a.packages).glob("lib/python*/site-packages") if a.packages else ():
        site.addsitedir(str(folder))
    import mistral_common
    data = Path(mistral_common.__file__).parent / "data"
    tally, r = Tally(a.show), random.Random(a.seed)
    lines = [x for x in texts(r, MARKERS, 400) if not re.fullmatch(r"\s*\d{19,}\s*", x)]
    with tempfile.TemporaryDirectory() as folder:
        for name in FILES:
            compare_version(a, name, prepare(name, data, Path(folder)), r, lines, tally)
    least = {kind: n for name in FILES for kind, n in (
        (name + " texts", 300), (name + " prompts", 40), (name + " completions", 60), (name + " damaged completions", 20))}
    least.update({stem + " prompts": 40 for stem in PUBLISHED}, differences=6)
    sys.exit(tally.finish(least, [*DIFFERENCES, *READS]))


if __name__ == "__main__":
    main()
