#!/usr/bin/env python3
"""Conversations and completions of gpt-oss in Ingot and in openai-harmony, the library of the model's authors,
unmodified.

    harmony.py CHAT_TOKENS --templates FOLDER --vocabulary FOLDER

FOLDER of the vocabulary is made if it is not there.

The prompt's ids: those that the library renders beside those of Ingot, with the model's published template (from
../template/golden.py) and vocabulary (o200k.py).  Where the template differs from the library, RENDERS says how, and
the library's ids are changed in that way before the comparison.  Completions: ids that the library wrote, whole, cut
off, with other headers than it writes, and damaged; Ingot must find the messages that the library's parser finds.
Where it does not, by intent, READS says why.  A difference that is listed and never met is a failure.
"""
import argparse
import datetime
import functools
import json
import os
import random
import re
import sys
from pathlib import Path

import o200k
from tokens import Ingot, Tally, arguments, same_json, texts

TEMPLATE = "openai-gpt-oss-120b.jinja"
NOW = 1753791330  # 2025-07-29
ENDS = ["<|end|>", "<|call|>", "<|return|>"]
MARKERS = ["<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|call|>", "<|return|>"]

RENDERS = {
    "results": "the template writes a tool's result as a JSON string, the library its text",
    "instructions": "the template ends instructions without tools with an empty line",
    "effort": "the template writes the effort as it is given, the library as one of three",
    "reasoning": "the template leaves out all reasoning before a later final message, the library that before the "
                 "first one, and only if no call comes after the last",
    "text beside a call": "the template writes it as reasoning; the library has no such message",
    "second call": "the template writes a message's first call only",
}
READS = {
    "no to=": "the library takes <|constrain|>… or any single word of a header as recipient, Ingot only what follows to=",
    "cut header": "the end within a header that has no marker yet, as in \" to=f\": the library refuses it, Ingot takes "
                  "it for text",
    "words": "words before the first header's marker, or after another message: the library skips them, Ingot shows them",
    "line in a header": "the library takes any white space between words, Ingot shows a header of several lines as text",
    "marker in a header": "the library takes it for a part of a word, Ingot for what it is",
    "start in a message": "<|start|> within a message is text for the library; Ingot begins the next message",
    "role": "a message of another role than the assistant's: the library names the role, Ingot has no place for it",
    "arguments": "arguments that begin as an object and are none: for Ingot a string that does not end goes on over "
                 "the markers, and what follows the object is text",
}

TOOLS = [("get_weather", "The weather of a place, \"now\" <or> later", {
    "place": {"type": "string", "description": "City & country, é ü 東京"},
    "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
    "days": {"type": "integer", "description": "From today"},
    "near": {"type": "array", "items": {"type": "number"}},
    "wind": {"type": "boolean"}}, ["place", "days"]),
    ("now", "What time it is", {}, [])]
# Parameters that the two write differently: the library's lines, the template's.
TYPES = [
    ({"type": "object", "properties": {"wind": {"type": "boolean"}, "at": {"type": "string"}}, "required": ["wind"]},
     "p?: {\n    wind: boolean,\n    at?: string,\n    },\n", "p?: {\nwind: \n                boolean, at?: \n                string},\n"),
    ({"type": "integer", "default": 3}, "p?: number, // default: 3\n", "p?: number, // default: 3,\n"),
    ({"type": "string", "enum": ["a", "b"], "default": "a"}, "// default: a\n", "// default: a,\n"),
    ({"type": "string", "default": "x"}, "p?: string, // default: \"x\"\n", "p?: string, // default: \"x\",\n"),
]


def load(folder):
    os.environ["TIKTOKEN_ENCODINGS_BASE"] = str(folder)
    import openai_harmony
    return openai_harmony, openai_harmony.load_harmony_encoding("HarmonyGptOss")


# ---- conversations ----------------------------------------------------------------------------

def tool(name, description, properties, required):
    return {"type": "function", "function": {"name": name, "description": description, "parameters": {
        "type": "object", "properties": properties, "required": required}}}


def conversation(r, lines):
    """A request as Ingot's template gets it."""
    messages = []
    if r.random() < .6:
        messages.append({"role": r.choice(["system", "developer"]), "content": r.choice(lines)})
    tools = [tool(*t) for t in TOOLS[:r.randrange(3)]]
    for _ in range(r.randrange(1, 4)):
        messages.append({"role": "user", "content": r.choice(lines)})
        for _ in range(r.randrange(3) if tools else 0):
            messages += call_and_results(r, lines)
        if r.random() < .8:
            messages.append(with_reasoning(r, lines, {"role": "assistant", "content": r.choice(lines)}))
    if messages[-1]["role"] == "assistant" and "tool_calls" not in messages[-1]:
        messages.append({"role": "user", "content": r.choice(lines)})
    return {"messages": messages, "tools": tools, "effort": r.choice([None, "low", "medium", "high", "none"])}


def with_reasoning(r, lines, message):
    if r.random() < .6:
        message["thinking"] = r.choice(lines)
    return message


def call_and_results(r, lines):
    name = r.choice(["get_weather", "now"])
    calls = [{"id": f"call{i}", "type": "function", "function": {"name": name, "arguments": arguments(r, lines)}}
             for i in range(1 + (r.random() < .15))]
    message = with_reasoning(r, lines, {"role": "assistant", "content": "", "tool_calls": calls})
    if "thinking" not in message and r.random() < .3:
        message["content"] = r.choice(lines)
    return [message] + [{"role": "tool", "tool_call_id": c["id"], "content": r.choice(lines)} for c in calls]


class Library:
    """The same conversation as the library's messages."""

    def __init__(self, module, encoding, tally):
        self.m, self.encoding, self.tally = module, encoding, tally

    def say(self, role, content):
        return self.m.Message.from_role_and_content(role, content)

    def head(self, c):
        m, messages = self.m, c["messages"]
        system = m.SystemContent.new().with_conversation_start_date(
            datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).strftime("%Y-%m-%d"))
        if c["effort"] in ("low", "high"):
            system = system.with_reasoning_effort(m.ReasoningEffort[c["effort"].upper()])
        developer = m.DeveloperContent.new()
        instructions = messages[0]["content"] if messages[0]["role"] in ("system", "developer") else None
        if instructions:
            developer = developer.with_instructions(instructions)
        if c["tools"]:
            developer = developer.with_function_tools([m.ToolDescription.new(
                f["name"], f["description"], f["parameters"] if f["parameters"]["properties"] else None)
                for f in (t["function"] for t in c["tools"])])
        out = [self.say(m.Role.SYSTEM, system)]
        return out + [self.say(m.Role.DEVELOPER, developer)] if instructions or c["tools"] else out

    def assistant(self, message, later_final):
        m, out = self.m, []
        calls = message.get("tool_calls", [])
        if calls and message["content"]:
            self.tally.uses("text beside a call")
        reasoning = message.get("thinking") or (message["content"] if calls else None)
        if reasoning:
            analysis = self.say(m.Role.ASSISTANT, reasoning).with_channel("analysis")
            out.append((analysis, not calls or later_final))
        if len(calls) > 1:
            self.tally.uses("second call")
        for c in calls[:1]:
            f = c["function"]
            out.append((self.say(m.Role.ASSISTANT, json.dumps(f["arguments"], ensure_ascii=False)).with_recipient(
                "functions." + f["name"]).with_channel("commentary").with_content_type("json"), False))
        if not calls:
            out.append((self.say(m.Role.ASSISTANT, message["content"]).with_channel("final"), False))
        return out

    def body(self, c):
        """Pairs of a message and whether the template leaves it out."""
        m, messages, name = self.m, c["messages"], None
        for i, message in enumerate(messages):
            if message["role"] == "user":
                yield self.say(m.Role.USER, message["content"]), False
            elif message["role"] == "assistant":
                final = any(x["role"] == "assistant" and "tool_calls" not in x for x in messages[i + 1:])
                yield from self.assistant(message, final)
                name = message["tool_calls"][0]["function"]["name"] if "tool_calls" in message else name
            elif message["role"] == "tool":
                author = m.Author.new(m.Role.TOOL, "functions." + name)
                yield m.Message.from_author_and_content(author, message["content"]).with_channel(
                    "commentary").with_recipient("assistant"), False

    def render(self, messages, drops):
        return self.encoding.render_conversation_for_completion(
            self.m.Conversation.from_messages(messages), self.m.Role.ASSISTANT,
            config=self.m.RenderConversationConfig(auto_drop_analysis=drops))

    def ids(self, c):
        head, body = self.head(c), list(self.body(c))
        ids = self.render(head + [message for message, _ in body], True)
        kept = self.render(head + [message for message, left_out in body if not left_out], False)
        if ids != kept:
            self.tally.uses("reasoning")
        return self.as_template(kept, c)

    def as_template(self, ids, c):
        """The library's ids with the template's other differences."""
        out, text, header = [], [], []
        e = self.encoding

        def flush():
            nonlocal text
            s = e.decode_utf8(text)
            if header[:1] == ["functions"]:
                s = json.dumps(s, ensure_ascii=False)
                self.tally.uses("results")
            elif header == ["developer"] and not c["tools"]:
                s += "\n\n"
                self.tally.uses("instructions")
            elif header == ["system"] and c["effort"] == "none":
                s = s.replace("Reasoning: medium", "Reasoning: none")
                self.tally.uses("effort")
            out.extend(e.encode(s, disallowed_special=()))
            text = []
        in_body = False
        for i in ids:
            if not e.is_special_token(i):
                text.append(i)
                continue
            if in_body:
                flush()
            elif text:
                header = header or [e.decode(text).split(".")[0].split()[0]]
                out.extend(text)
                text = []
            in_body = e.decode([i]) == "<|message|>"
            header = [] if e.decode([i]) == "<|start|>" else header
            out.append(i)
        return out + text


def compare_prompts(ingot, library, template, r, lines, tally):
    conversations = [conversation(r, lines) for _ in range(200)]
    for c in conversations:
        got = ingot.ask({"template": template, "messages": c["messages"], "tools": c["tools"] or None, "prompt": True,
                         "now": NOW, "vars": {"reasoning_effort": c["effort"]} if c["effort"] else {}})
        want = library.ids(c)
        tally.judge("prompts", got.get("ids") == want, json.dumps(c, ensure_ascii=False),
                    "library: " + repr(library.encoding.decode(want)),
                    "Ingot:   " + (repr(library.encoding.decode(got["ids"])) if "ids" in got else str(got)))


def compare_types(ingot, library, template, tally):
    for schema, theirs, ours in TYPES:
        c = {"messages": [{"role": "user", "content": "x"}], "effort": None,
             "tools": [tool("f", "F", {"p": schema}, [])]}
        got = ingot.ask({"template": template, "messages": c["messages"], "tools": c["tools"], "prompt": True,
                         "now": NOW})
        want = library.encoding.decode(library.ids(c))
        tally.judge("types", theirs in want and want.replace(theirs, ours) == library.encoding.decode(got["ids"]),
                    repr(want), repr(library.encoding.decode(got["ids"])))


def compare_texts(ingot, encoding, lines, tally):
    for special in (False, True):
        for line in lines:
            got = ingot.ask({"text": line, "special": special})["ids"]
            want = (encoding.encode(line, allowed_special="all") if special else
                    encoding.encode(line, disallowed_special=()))
            tally.judge("texts", got == want, repr(line), want, got)


# ---- completions ------------------------------------------------------------------------------

def written(r, lines, library):
    """Ids of a completion as the library writes one, and its messages' number."""
    m, e, ids = library.m, library.encoding, []
    for _ in range(r.randrange(1, 5)):
        kind = r.choice(["analysis", "final", "commentary", "call", "call"])
        message = library.say(m.Role.ASSISTANT, r.choice(lines) if kind != "call" else body_of_call(r, lines))
        message = message.with_channel("commentary" if kind == "call" else kind)
        if kind == "call":
            message = message.with_recipient(r.choice(["functions.get_weather", "functions.now", "python"]))
            types = ["json", "<|constrain|>json", None, "code"]
            content_type = r.choice(types)
            message = message.with_content_type(content_type) if content_type else message
        ids += e.render(message)
    if r.random() < .5 and ids[-1] == end_of(e, "<|end|>"):
        ids[-1] = end_of(e, "<|return|>")
    return ids[2:]  # the prompt has <|start|>assistant


@functools.cache
def end_of(e, name):
    return e.encode(name, allowed_special="all")[0]


def body_of_call(r, lines):
    if r.random() < .9:
        return json.dumps(arguments(r, lines), ensure_ascii=r.random() < .5, indent=r.choice([None, None, 2]))
    return r.choice(["print(1)\n", "[1, 2]", "\"text\"", "", " {} ", r.choice(lines)])


def models_own(r, lines, e):
    """Headers as the model writes them, which the library reads and never writes."""
    out = []
    for _ in range(r.randrange(1, 4)):
        args = json.dumps(arguments(r, lines))
        out.append(r.choice([
            f"<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{args}<|call|>",
            f"<|channel|>commentary to=functions.now<|constrain|>json<|message|>{args}<|call|>",
            f"<|channel|>analysis to=functions.now code<|message|>{args}<|call|>",
            f" to=functions.now<|channel|>commentary <|constrain|>json<|message|>{args}<|call|>",
            f" to=functions.now<|message|>{args}<|end|>",
            f"<|channel|>commentary to=all<|message|>{r.choice(lines)}<|end|>",
            f"<|channel|>commentary to=assistant<|message|>{r.choice(lines)}<|end|>",
            f"<|channel|>final <|constrain|>json<|message|>{args}<|return|>",
            f"<|message|>{r.choice(lines)}<|end|>",
            f"<|channel|>other<|message|>{r.choice(lines)}<|end|>",
            f"<|channel|>final\n<|message|>{r.choice(lines)}<|end|>",
        ]))
    return encode_marked(e, "<|start|>assistant".join(out))


def encode_marked(e, text):
    return e.encode(text, allowed_special="all")


def damaged(r, ids, pool):
    ids = list(ids)
    for _ in range(r.randrange(1, 4)):
        at, what = r.randrange(len(ids) + 1), r.randrange(4)
        if what == 0:
            ids[at:at] = [r.choice(pool)]
        elif what == 1:
            ids[at:at + 1] = []
        elif what == 2:
            ids[at:at + 1] = [r.choice(pool)]
        else:
            other = r.randrange(len(ids) + 1)
            ids[at:at] = ids[other:other + 6]
    return ids


def library_messages(library, ids):
    """The messages, and whether the last header is not complete; None: the library refuses it."""
    p = library.m.StreamableParser(library.encoding, library.m.Role.ASSISTANT)
    try:
        for i in ids:
            p.process(i)
        if p.state == library.m.StreamState.HEADER:
            return p.messages, True
        p.process_eos()
    except library.m.HarmonyError:
        return None
    return p.messages, False


def headers(e, ids):
    """The text of each message's header, and that of one that is not complete, or empty."""
    out, start, in_header = [], 0, True
    message, ends = end_of(e, "<|message|>"), [end_of(e, x) for x in ENDS]
    for at, i in enumerate(ids):
        if in_header and i == message:
            out.append(e.decode(ids[start:at]))
            in_header = False
        elif not in_header and i in ends:
            in_header, start = True, at + 1
    return out, e.decode(ids[start:]) if in_header else ""


def excuse(messages, heads, rest):
    """Why the whole completion may be read differently; None."""
    inner = [head.removeprefix("<|start|>") for head in [*heads, rest]]
    if any(m.author.role.value != "assistant" for m in messages):
        return "role"
    if any("<|start|>" in c.text for m in messages for c in m.content):
        return "start in a message"
    if any(x in head for head in inner for x in ENDS + ["<|start|>"]) or any("<|" in (m.recipient or "").removeprefix(
            "<|constrain|>") for m in messages):
        return "marker in a header"
    if any(re.search(r"\n\s*[^\s<]", head) for head in inner):
        return "line in a header"
    if any(m.recipient and "to=" in head and f"to={m.recipient}" not in head for m, head in zip(messages, heads)):
        return "no to="
    if heads and not re.match(r"<\|(channel|start|constrain)\|>| ?to=|$", heads[0]):
        return "words"
    return None


def wanted(messages, heads, tally):
    """The library's messages as Ingot's: text, reasoning and calls, in order."""
    out = []
    for message, head in zip(messages, heads, strict=True):
        to, text = message.recipient, "".join(c.text for c in message.content)
        if to and f"to={to}" not in head:
            tally.uses("no to=")
            to = None
        if to and to not in ("all", "assistant"):
            out.append(["call", to.removeprefix("functions."), text])
            continue
        kind = "reasoning" if message.channel == "analysis" else "text"
        if out and out[-1][0] == kind:
            out[-1][1] += text
        elif text:
            out.append([kind, text])
    return out


def is_well(text):
    """Whether a call's text is a whole object or no object at all."""
    try:
        return not text.lstrip().startswith("{") or isinstance(json.loads(text), dict)
    except ValueError:
        return False


def found(events):
    out = []
    for kind, data in events:
        if kind == "call":
            out.append(["call", data, ""])
        elif kind == "arguments":
            out[-1][2] += data
        elif kind != "end":
            out.append([kind, data])
    return out


def same_arguments(theirs, ours):
    if ours == "{}" and not theirs.strip():
        return True
    try:
        a = json.loads(theirs)
    except ValueError:
        return ours == theirs
    try:
        return same_json(a, json.loads(ours))
    except ValueError:
        return False


def same_message(w, g):
    return w[:2] == g[:2] and (w[0] != "call" or same_arguments(w[2], g[2]))


def same_messages(want, got, tally):
    for at, w in enumerate(want):
        if at < len(got) and same_message(w, got[at]):
            continue
        if at < len(got) and w[:2] == got[at][:2] and w[0] == "call" and not is_well(w[2]):
            tally.uses("arguments")
            return True
        return False
    return len(want) == len(got)


def compare_completions(ingot, library, template, name, completions, tally):
    tools = [tool(*t) for t in TOOLS]
    e = library.encoding
    for ids in completions:
        answer = ingot.ask({"template": template, "tools": tools, "completion": ids})
        read = library_messages(library, ids)
        if read is None:
            tally.adds(name + " refused by the library")
            continue
        messages, cut = read
        heads, rest = headers(e, ids)
        why = excuse(messages, heads, rest)
        if why:
            tally.uses(why)
            continue
        want, got = wanted(messages, heads, tally), found(answer["events"])
        if cut and not messages and got and got == [["text", rest.split("<|")[0]]]:
            tally.uses("cut header")
            got = []
        tally.judge(name, same_messages(want, got, tally), repr(e.decode(ids)), f"library: {want}", f"Ingot:   {got}")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("--templates", required=True)
    p.add_argument("--vocabulary", required=True)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--show", type=int, default=3)
    a = p.parse_args()
    folder = o200k.fetch(a.vocabulary)
    module, encoding = load(folder)
    specials = {s: end_of(encoding, s) for s in encoding.special_tokens_set}
    vocabulary = folder / "o200k_harmony.gguf"
    o200k.write(folder, vocabulary, {s: i for s, i in specials.items() if i < o200k.N_VOCAB})
    template = (Path(a.templates) / TEMPLATE).read_text()
    tally, r = Tally(a.show), random.Random(a.seed)
    library = Library(module, encoding, tally)
    lines = texts(r, MARKERS + ["to=functions.now", "assistant"], 1000)
    ingot = Ingot(a.program, vocabulary)
    compare_texts(ingot, encoding, lines, tally)
    compare_prompts(ingot, library, template, r, lines, tally)
    compare_types(ingot, library, template, tally)
    plain = [x for x in lines if "<|" not in x]
    whole = [written(r, plain, library) for _ in range(300)]
    own = [models_own(r, plain, encoding) for _ in range(200)]
    pool = [i for s, i in sorted(specials.items()) if s in MARKERS] * 3 + encoding.encode(
        " to=functions.now assistant commentary json analysis final\n{}", disallowed_special=())
    compare_completions(ingot, library, template, "completions", whole, tally)
    compare_completions(ingot, library, template, "other headers", own, tally)
    compare_completions(ingot, library, template, "cut completions",
                        [ids[:r.randrange(len(ids))] for ids in whole + own], tally)
    compare_completions(ingot, library, template, "damaged completions",
                        [encode_marked(encoding, "<|channel|>final<|message|>a<|end|><|start|>assistant\nx<|message|>b")] +
                        [damaged(r, ids, pool) for ids in (whole + own) * 2], tally)
    ingot.close()
    vocabulary.unlink()
    sys.exit(tally.finish({"texts": 1800, "prompts": 200, "types": 4, "completions": 300, "other headers": 150,
                           "cut completions": 300, "damaged completions": 150}, [*RENDERS, *READS]))


if __name__ == "__main__":
    main()
