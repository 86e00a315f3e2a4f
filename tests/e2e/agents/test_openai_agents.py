"""OpenAI's package for agents, unmodified: a tool, a handoff, a structured result, a stream; over
Responses and over chat completions."""
import json
import subprocess

import pytest

from agents.codex import AGENTS, call

PYTHON = AGENTS / "bin/python"
pytestmark = [pytest.mark.release,
              pytest.mark.skipif(not PYTHON.exists(), reason="INGOT_AGENTS names no virtual environment")]

BOOK = [
    ("last.role == 'tool' and 'sunny in Paris' in last.content", "It is sunny in Paris."),
    ("last.role == 'tool' and 'assistant' in last.content and 'Paris' not in last.content", "The poet speaks now."),
    ("'weather' in ask", call("weather", city="Paris")),
    ("'poem' in ask", call("transfer_to_poet")),
    ("'person' in ask", '{"name": "Ada", "age": 36}'),
    ("true", "Good day to you, dear agent."),
]
PROGRAM = r'''
import asyncio, json, sys
from openai import AsyncOpenAI
from pydantic import BaseModel
from agents import (Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool,
                    set_tracing_disabled)

url, api, what = sys.argv[1:]
set_tracing_disabled(True)
client = AsyncOpenAI(base_url=url, api_key="unused")
model = {"responses": OpenAIResponsesModel, "chat": OpenAIChatCompletionsModel}[api](model="book", openai_client=client)


@function_tool
def weather(city: str) -> str:
    """The weather in a city."""
    return "sunny in " + city


class Person(BaseModel):
    name: str
    age: int


poet = Agent(name="poet", instructions="You write poems.", model=model)


async def main():
    agent = Agent(name="helper", instructions="You help.", model=model,
                  tools=[weather] if what == "tool" else [], handoffs=[poet] if what == "handoff" else [],
                  output_type=Person if what == "person" else None)
    ask = {"tool": "What is the weather?", "handoff": "A poem, please.", "person": "Name a person.",
           "stream": "Say hello."}[what]
    if what == "stream":
        result = Runner.run_streamed(agent, ask)
        n = 0
        async for event in result.stream_events():
            n += event.type == "raw_response_event" and event.data.type == "response.output_text.delta"
        print(json.dumps({"output": result.final_output, "deltas": n}))
        return
    result = await Runner.run(agent, ask)
    output = result.final_output
    print(json.dumps({"output": output.model_dump() if what == "person" else output, "last": result.last_agent.name,
                      "tokens": result.context_wrapper.usage.total_tokens}))


asyncio.run(main())
'''


@pytest.fixture(params=["responses", "chat"])
def run(request, d, tmp_path):
    def run(what):
        p = subprocess.run([PYTHON, "-c", PROGRAM, "http://127.0.0.1:%d/v1" % d.port, request.param, what],
                           capture_output=True, text=True, timeout=120, cwd=tmp_path)
        assert p.returncode == 0, p.stderr
        return json.loads(p.stdout)
    return run


def test_a_tool(run):
    got = run("tool")
    assert got["output"] == "It is sunny in Paris." and got["tokens"] > 0


def test_a_handoff(run):
    got = run("handoff")
    assert (got["output"], got["last"]) == ("The poet speaks now.", "poet")


def test_a_structured_result(run):
    assert run("person")["output"] == {"name": "Ada", "age": 36}


def test_a_stream(run):
    got = run("stream")
    assert got["output"] == "Good day to you, dear agent." and got["deltas"] >= 1
