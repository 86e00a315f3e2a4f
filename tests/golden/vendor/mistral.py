#!/usr/bin/env python3
"""Conversations and tool calls of Mistral's models in Ingot and in mistral-common, the library of the models' authors,
unmodified.

    mistral.py CHAT_TOKENS --templates FOLDER [--packages ENVIRONMENT]

For the vocabularies that the library has with it (SentencePiece v3 and v7; Tekken v3, and with the control tokens of
v11 and v13): the ids of texts; those of conversations, with the chat template that the library writes for that version
and with the published ones (from ../template/golden.py); and calls that the library encoded, which Ingot's parser must
find as the library's own does, also where the ids are damaged.  DIFFERENCES and READS say where Ingot or a template
differs.  ENVIRONMENT is a virtual one with the packages that the library needs for images.
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


def in_words(c):
    """As the library takes it: arguments are a text."""
    messages = [dict(m, tool_calls=[
        dict(x, function=dict(x["function"], arguments=json.dumps(x["function"]["arguments"], ensure_ascii=False)))
        for x in m["tool_calls"]]) if "tool_calls" in m else m for m in c["messages"]]
    return {"messages": messages, "tools": c["tools"] or None}


class Library:
    def __init__(self, path):
        from mistral_common.protocol.instruct.request import ChatCompletionRequest
        from mistral_common.tokens.tokenizers.base import SpecialTokenPolicy
        from mistral_common.tokens.tokenizers.mistral import MistralTokenizer
        self.request, self.keep = ChatCompletionRequest, SpecialTokenPolicy.KEEP
        self.all = MistralTokenizer.from_file(str(path))
        self.instruct = self.all.instruct_tokenizer
        self.tokenizer = self.instruct.tokenizer

    def ids(self, c):
        return self.all.encode_chat_completion(self.request(**in_words(c))).tokens

    def text(self, ids):
        return self.all.decode(ids, special_token_policy=self.keep)


def compare_prompts(ingot, library, name, template, r, lines, tally):
    for _ in range(60):
        c = conversation(r, lines)
        got = ingot.ask({"template": template, "messages": c["messages"], "tools": c["tools"] or None, "prompt": True})
        want = library.ids(c)
        tally.judge(name + " prompts", got.get("ids") == want, *difference(library, want, got))


def difference(library, want, got):
    """The two texts from a little before the first difference on."""
    theirs, ours = library.text(want), library.text(got["ids"]) if "ids" in got else str(got)
    same = next((i for i, (a, b) in enumerate(zip(theirs, ours)) if a != b), 0)
    return [f"{who}: …{text[max(0, same - 40):]!r}" for who, text in (("library", theirs), ("Ingot", ours))]


def compare_texts(ingot, library, name, lines, tally):
    for line in lines:
        got, want = ingot.ask({"text": line})["ids"], library.tokenizer.encode(line, bos=False, eos=False)
        tally.judge(name + " texts", got == want, repr(line), want, got)


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
    lines = texts(r, MARKERS, 400)
    with tempfile.TemporaryDirectory() as folder:
        for name in FILES:
            path = prepare(name, data, Path(folder))
            library, ingot = Library(path), Ingot(a.program, path.parent)
            compare_texts(ingot, library, name, lines, tally)
            compare_prompts(ingot, library, name, generated_template(name), r, lines, tally)
            ingot.close()
    sys.exit(tally.finish({}, []))


if __name__ == "__main__":
    main()
