"""pydantic-ai, unmodified: a tool and a structured result in one run, and a stream; over chat completions and
Responses, and through its provider for Ollama."""
import pytest

from agents.codex import call
from programs.venvs import left_out, needs, run_python, url

pytestmark = needs("libraries")

STORY = "Once upon a time: %s, and so on." % ", ".join("%d foxes" % n for n in range(150))
BOOK = [
    ("last.role == 'tool' and 'sunny in Paris' in last.content and tools | length == 2",
     call("final_result", city="Paris", degrees=21)),
    ("last.role == 'tool' and 'sunny in Paris' in last.content", '{"city": "Paris", "degrees": 22}'),
    ("last.role == 'tool'", "The tool said something else."),
    ("'weather' in ask", call("weather", city="Paris")),
    ("'story' in ask", STORY),
    ("true", "Good day to you, dear model."),
]
PROGRAM = r'''
import asyncio, json, sys
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, RunContext, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.ollama import OllamaProvider
from pydantic_ai.providers.openai import OpenAIProvider

url, api, what = sys.argv[1:]
provider = OpenAIProvider(base_url=url + "/v1", api_key="unused")
model = {"chat": lambda: OpenAIChatModel("book", provider=provider),
         "responses": lambda: OpenAIResponsesModel("book", provider=provider),
         "ollama": lambda: OpenAIChatModel("book", provider=OllamaProvider(base_url=url + "/v1"))}[api]()


class Weather(BaseModel):
    city: str
    degrees: int


agent = Agent(model, deps_type=str, instructions="You help.",
              output_type={"tool": ToolOutput(Weather, name="final_result"), "native": NativeOutput(Weather),
                           "stream": str}[what])
asked = []


@agent.tool
def weather(ctx: RunContext[str], city: str) -> str:
    """The weather in a city."""
    asked.append(city)
    return "%s in %s" % (ctx.deps, city)


async def main():
    if what == "stream":
        async with agent.run_stream("Tell a story.", deps="sunny") as result:
            texts = [text async for text in result.stream_text(delta=True, debounce_by=None)]
            print(json.dumps({"texts": texts, "tokens": result.usage.output_tokens}))
        return
    result = await agent.run("What is the weather?", deps="sunny")
    usage = result.usage
    print(json.dumps({"output": result.output.model_dump(), "asked": asked, "requests": usage.requests,
                      "input": usage.input_tokens, "output_tokens": usage.output_tokens}))


asyncio.run(main())
'''


@pytest.fixture(params=["chat", "responses", "ollama"])
def run(request, d, tmp_path):
    yield lambda what: run_python("libraries", PROGRAM, tmp_path, url(d), request.param, what)
    assert left_out(d) == set()


@pytest.mark.parametrize("what, degrees", [("tool", 21), ("native", 22)])
def test_a_tool_and_a_structured_result(run, what, degrees):
    got = run(what)
    assert got["output"] == {"city": "Paris", "degrees": degrees} and got["asked"] == ["Paris"]
    assert got["requests"] == 2 and got["input"] > 0 and got["output_tokens"] > 0


def test_a_stream(run):
    got = run("stream")
    assert "".join(got["texts"]) == STORY
    assert len(got["texts"]) > 1 and got["tokens"] > len(got["texts"]) - 1
