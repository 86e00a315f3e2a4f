#!/usr/bin/env python3
"""Which form of calls Ingot sees in the chat templates of real models, and whether it reads
back the calls that they write.

    answers.py ANSWER_EVENTS [--templates FOLDER | --fetch FOLDER]

The templates are those of ../template/golden.py.  For each of a form that Ingot knows,
jinja2 renders conversations that end in an assistant's turn with text, reasoning and calls;
that turn is fed to Ingot's parser, and its events must be the message that was rendered.
Ends with `N templates, N of a known form, N turns, N wrong`.
"""
import argparse
import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "template"))
import golden  # noqa: E402

# What is not here is "none".  "opens": a prompt without further variables ends in <think>.
STYLES = {
    "Bielik-11B-v3.0-Instruct": "hermes reasoning",
    "GLM-4.6": "glm reasoning",
    "GLM-4.7-Flash": "glm compact reasoning opens",
    "HuggingFaceTB-SmolLM3-3B": "none reasoning",
    "Kimi-K2-Instruct": "kimi",
    "Kimi-K2-Thinking": "kimi reasoning",
    "LFM2.5-8B-A1B": "lfm2 reasoning",
    "LFM2.5-Instruct": "none reasoning",
    "MiMo-VL": "hermes",
    "MiniMax-M2": "minimax reasoning opens",
    "Mistral-Small-3.2-24B-Instruct-2506": "mistral-args",
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "qwen3-coder reasoning opens",
    "NVIDIA-Nemotron-Nano-v2": "none reasoning opens",
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": "hermes",
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": "hermes",
    "Qwen-QwQ-32B": "hermes reasoning",
    "Qwen-Qwen2.5-7B-Instruct": "hermes",
    "Qwen-Qwen3-0.6B": "hermes reasoning",
    "Qwen3-Coder": "qwen3-coder",
    "Qwen3.5-4B": "qwen3-coder reasoning opens",
    "Reka-Edge": "hermes reasoning",
    "Spark2.5": "glm compact reasoning opens",
    "StepFun3.5-Flash": "qwen3-coder reasoning opens",
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": "deepseek reasoning opens",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": "deepseek reasoning",
    "deepseek-ai-DeepSeek-V3.1": "deepseek-v3.1 reasoning",
    "deepseek-ai-DeepSeek-V3.2": "deepseek-v3.2 reasoning",
    "deepseek-ai-DeepSeek-V4": "deepseek-v4 reasoning",
    "deepseek-ai-DeepSeek-V4-Flash-0731": "deepseek-v4 reasoning",
    "google-gemma-4-31B-it": "gemma think reasoning",
    "google-gemma-4-31B-it-interleaved": "gemma think reasoning",
    "ibm-granite-granite-3.3-2B-Instruct": "granite reasoning",
    "ibm-granite-granite-4.0": "hermes",
    "ibm-granite-granite-4.1": "hermes",
    "inclusionai-ling-3.0-flash": "glm reasoning opens",
    "llama-cpp-deepseek-r1": "deepseek reasoning opens",
    "llama-cpp-rwkv-world": "none reasoning",
    "meta-llama-Llama-3.1-8B-Instruct": "llama3",
    "meta-llama-Llama-3.2-3B-Instruct": "llama3",
    "meta-llama-Llama-3.3-70B-Instruct": "llama3",
    "mistralai-Ministral-3-14B-Reasoning-2512": "mistral-args think reasoning",
    "mistralai-Mistral-Nemo-Instruct-2407": "mistral",
    "moonshotai-Kimi-K2": "kimi",
    "openai-gpt-oss-120b": "harmony",
    "openbmb-MiniCPM5-1B": "none reasoning",
    "poolside-Laguna-S-2.1": "glm compact reasoning opens",
    "poolside-Laguna-XS-2.1": "glm reasoning",
    "poolside-Laguna-XS.2": "glm reasoning",
    "unsloth-mistral-Devstral-Small-2507": "mistral-args",
}
# A turn's end in these templates.
ENDS = ("<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "<sep>", "</s>", "<|eom_id|>", "</assistant>",
        "<|call|>", "<|return|>", "<｜end▁of▁sentence｜>", "<turn|>", "[e~[", "<|user|>", "<|role_end|>",
        "<|tool_response>")

ODD = {"a": "\"}]</tool_call>[ARGS]\\", "é": ["ü 😀", None, True, -1.5e-7], "{": {"}": {}}, "\n": " \t"}
# Names that need no quotes: these formats have none for a name; LFM2's template escapes nothing.
PLAIN = {"a": "\"}]</tool_call>[ARGS]", "é": ["ü 😀", True, -1.5e-7], "b": {"c": {}}, "d": "\n \t"}
BARE = ("gemma", "lfm2")
# These templates write no calls, no two calls in one turn, or are refused by the sandbox.
FEW_TURNS = ("Kimi-K2-Instruct", "Kimi-K2-Thinking", "ibm-granite-granite-3.3-2B-Instruct",
             "deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "llama-cpp-deepseek-r1")
TURNS = {
    "a call": dict(content="", calls=[("get_weather", {"place": "Rome", "days": 3})]),
    "odd arguments": dict(content="", calls=[("get_weather", ODD)]),
    "no arguments": dict(content="", calls=[("now", {})]),
    "text": dict(content="Hello, 東京 <b>{\"a\": [1]}</b>"),
    "two calls": dict(content="", calls=[("get_weather", {"place": "Łódź"}), ("now", {})]),
    "text and a call": dict(content="Let me look.", calls=[("now", {})]),
    "text and two calls": dict(content="I see.\n\nWell.", calls=[("now", {}), ("get_weather", ODD)]),
    "reasoning": dict(content="Four.", reasoning="Two and\n\ntwo."),
    "reasoning and a call": dict(content="", reasoning="A tool.", calls=[("now", {})]),
}


def message(turn, style):
    m = golden.say("assistant", turn["content"])
    if style.startswith("deepseek ") and "calls" in turn:
        m["content"] = None  # else it comes after the calls
    if "reasoning" in turn:
        m["reasoning_content"] = turn["reasoning"]
    if "calls" in turn:
        m["tool_calls"] = [dict(golden.call(name, args, i), id=f"abcdefgh{i}")
                           for i, (name, args) in enumerate(turn["calls"])]
    return m


def assistants_turn(env, template, turn, style):
    """The text of the last turn as a model would write it; None: the template says no, or leaves
    the calls out."""
    user = [golden.say("user", "Weather?")]

    def render(messages, prompt):
        return golden.expected(env, template, golden.variables(
            dict(messages=messages, tools=golden.TOOLS, prompt=prompt))).get("text")
    prompt, whole = render(user, True), render(user + [message(turn, style)], False)
    if prompt is None or whole is None:
        return None
    same = 0
    while same < min(len(prompt), len(whole)) and prompt[same] == whole[same]:
        same += 1
    if same < len(prompt):  # the prompt goes on with reasoning, this turn does not
        same = max(prompt.rfind(c, 0, same) for c in "\n>:]") + 1
    if whole[:same].endswith(CHANNEL):
        same -= len(CHANNEL)
    text = whole[same:]
    if "opens" in style and "</think>" not in text:
        text = "</think>" + text  # it comes before an answer, but is left out of the history
    elif "opens" not in style and text.startswith("</think>"):
        text = text[len("</think>"):]  # the prompt ends with it
    if any(name not in text for name, _ in turn.get("calls", [])):
        return None
    ends = [text.rfind(e) for e in ENDS if e in text]
    return text[:max(ends)] if ends else text


CHANNEL = "<|channel>thought\n"


def read(events):
    out = dict(content="", reasoning="", calls=[])
    for kind, data in events:
        if kind == "call":
            out["calls"].append([data, ""])
        elif kind == "arguments":
            out["calls"][-1][1] += data
        elif kind != "end":
            out["content" if kind == "text" else "reasoning"] += data
    return out


def is_right(turn, text, got):
    try:
        calls = [(name, json.loads(args)) for name, args in got["calls"]]
    except ValueError:
        return False
    # gpt-oss' template writes only the first call.
    wanted = turn.get("calls", [])
    if "<|call|>" not in text and "<|channel|>" in text:
        wanted = wanted[:1]
    # A template may leave out text beside calls, or reasoning; what it wrote must be read.
    content = turn["content"] if turn["content"] in text else ""
    reasoning = turn.get("reasoning", "")
    reasoning = reasoning if reasoning in text else ""
    if content and not got["content"]:  # gpt-oss: text before a call is on the channel of reasoning
        got["content"], got["reasoning"] = got["reasoning"], ""
    return (got["content"].strip() == content and got["reasoning"] == reasoning and
            calls == wanted)


def turn_of(name, style):
    turn = TURNS[name]
    if style.split()[0] in BARE and "calls" in turn:
        calls = [(n, PLAIN if a is ODD else a) for n, a in turn["calls"]]
        return dict(turn, calls=calls)
    return turn


def main():
    p = argparse.ArgumentParser()
    p.add_argument("events")
    p.add_argument("--templates")
    p.add_argument("--fetch")
    a = p.parse_args()
    folder = Path(a.templates) if a.templates else golden.fetch(a.fetch or ".")
    env, cases, turns = golden.environment(), [], []
    templates = sorted(folder.glob("*.jinja"))
    for path in templates:
        text = path.read_bytes().decode()
        rendered = {}
        if STYLES.get(path.stem, "none").split()[0] != "none":
            style = STYLES[path.stem]
            rendered = {name: assistants_turn(env, text, turn_of(name, style), style)
                        for name in TURNS}
        turns.append({name: t for name, t in rendered.items() if t is not None})
        cases.append({"template": text, "tools": golden.TOOLS, "answers": list(turns[-1].values())})
    run = subprocess.run([a.events], input=json.dumps(cases).encode(), stdout=subprocess.PIPE,
                         check=True, timeout=300)
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    if len(lines) != len(cases):
        sys.exit(f"answers.py: {len(lines)} answers to {len(cases)} templates")
    n_known = n_turns = n_wrong = 0
    for path, texts, line in zip(templates, turns, lines, strict=True):
        want = STYLES.get(path.stem, "none")
        n_known += not want.startswith("none")
        if line.get("style") != want:
            n_wrong += 1
            print(f"{path.name}: {line.get('style') or line}, not {want}")
        if not want.startswith("none") and len(texts) < 3 and path.stem not in FEW_TURNS:
            n_wrong += 1
            print(f"{path.name}: only {len(texts)} turns could be rendered")
        read_back = line.get("events", [])
        if len(read_back) != len(texts):
            n_wrong += 1
            print(f"{path.name}: {len(texts)} turns, {len(read_back)} read back")
            continue
        for (name, text), events in zip(texts.items(), read_back, strict=True):
            n_turns += 1
            if not is_right(turn_of(name, want), text, read(events)):
                n_wrong += 1
                print(f"{path.name}, {name}: {text!r}\n  {events}")
    missing = set(STYLES) - {path.stem for path in templates}
    if missing:
        n_wrong += len(missing)
        print("no such template:", ", ".join(sorted(missing)))
    print(f"{len(templates)} templates, {n_known} of a known form, {n_turns} turns, {n_wrong} wrong")
    sys.exit(1 if n_wrong else 0)


if __name__ == "__main__":
    main()
