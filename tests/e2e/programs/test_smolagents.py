"""smolagents, unmodified: an agent that calls tools and one that writes code, whole and streamed."""
import pytest

from agents.codex import call
from programs.venvs import left_out, needs, run_python, url

pytestmark = needs("libraries")

# The agent that writes code has no tools of the protocol.  What its code printed comes as "Observation:".
BOOK = [
    ("tools and 'sunny in Paris' in last.content", call("final_answer", answer="It is sunny in Paris.")),
    ("tools", call("weather", city="Paris")),
    ("'sunny in Rome' in last.content", "I know it.\n<code>\nfinal_answer('Rome: ' + str(6 * 7))\n</code>"),
    ("true", "Thought: I look.\n<code>\nprint(weather(city='Rome'))\n</code>"),
]
PROGRAM = r'''
import json, sys
from smolagents import CodeAgent, LogLevel, OpenAIServerModel, ToolCallingAgent, tool

url, kind, stream = sys.argv[1:]
asked = []


@tool
def weather(city: str) -> str:
    """The weather in a city.

    Args:
        city: The city's name.
    """
    asked.append(city)
    return "sunny in " + city


agent = {"tools": ToolCallingAgent, "code": CodeAgent}[kind](
    tools=[weather], model=OpenAIServerModel("book", api_base=url + "/v1", api_key="unused"), max_steps=4,
    stream_outputs=stream == "stream", verbosity_level=LogLevel.OFF)
result = agent.run("What is the weather?", return_full_result=True)
print()  # what it shows of a stream ends without one
print(json.dumps({"output": result.output, "state": result.state, "asked": asked, "steps": len(agent.memory.steps),
                  "tokens": [result.token_usage.input_tokens, result.token_usage.output_tokens]}))
'''


@pytest.mark.parametrize("stream", ["whole", "stream"])
@pytest.mark.parametrize("kind, city, answer", [("tools", "Paris", "It is sunny in Paris."),
                                                ("code", "Rome", "Rome: 42")])
def test_an_agent(d, tmp_path, kind, city, answer, stream):
    got = run_python("libraries", PROGRAM, tmp_path, url(d), kind, stream)
    assert (got["output"], got["state"], got["asked"]) == (answer, "success", [city])
    assert got["steps"] == 3 and min(got["tokens"]) > 0  # the task and two steps
    assert left_out(d) == set()
