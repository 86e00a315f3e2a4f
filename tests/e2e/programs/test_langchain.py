"""langchain-openai and langchain-ollama, unmodified: an answer, a stream, tools, structured results."""
import pytest

from agents.codex import call
from programs.venvs import left_out, needs, run_python, url

pytestmark = needs("libraries")

STORY = "Once upon a time: %s, and so on." % ", ".join("%d foxes" % n for n in range(150))
BOOK = [
    ("last.role == 'tool' and 'sunny in Paris' in last.content", "It is sunny in Paris."),
    ("last.role == 'tool'", "The tool said something else."),
    ("'person' in ask and tools", call("Person", name="Ada", age=36)),
    ("'person' in ask", '{"name": "Eve", "age": 41}'),
    ("'weather' in ask", call("weather", city="Paris")),
    ("'again' in ask and messages | length > 2", "You have said something before."),
    ("true", STORY),
]
PROGRAM = r'''
import json, sys
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_ollama import ChatOllama
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

url, api, what, how = sys.argv[1:]
if api == "ollama":
    model = ChatOllama(model="book", base_url=url, temperature=0, num_predict=900, seed=1, num_ctx=4096)
else:
    model = ChatOpenAI(model="book", base_url=url + "/v1", api_key="unused", temperature=0, max_tokens=900,
                       stream_usage=True, use_responses_api=api == "responses")


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return "sunny in " + city


class Person(BaseModel):
    """A person."""
    name: str
    age: int


def show(**values):
    print(json.dumps(values))


def whole(stream):
    """All pieces in one, and how many had text."""
    total, n = None, 0
    for piece in stream:
        total = piece if total is None else total + piece
        n += bool(piece.text)
    return total, n


if what == "answer":
    story = [SystemMessage("You help."), HumanMessage("Tell a story.")]
    first = model.invoke(story)
    second = model.invoke([*story, first, HumanMessage("again")])
    show(first=first.text, second=second.text, usage=first.usage_metadata)
elif what == "stream":
    message, n = whole(model.stream("Tell a story."))
    show(text=message.text, n=n, usage=message.usage_metadata)
elif what == "tools":
    model = model.bind_tools([weather])
    ask = [HumanMessage("What is the weather?")]
    answer = whole(model.stream(ask))[0] if how == "stream" else model.invoke(ask)
    calls = [[c["name"], c["args"]] for c in answer.tool_calls]
    results = [weather.invoke(c) for c in answer.tool_calls]
    show(calls=calls, text=model.invoke([*ask, answer, *results]).text)
elif what == "structured":
    show(person=model.with_structured_output(Person, method=how).invoke("Name a person.").model_dump())
'''


@pytest.fixture(params=["chat", "responses", "ollama"])
def run(request, d, tmp_path):
    yield lambda what, how="": run_python("libraries", PROGRAM, tmp_path, url(d), request.param, what, how)
    assert left_out(d) == ({"options.num_ctx"} if request.param == "ollama" else set())


def test_an_answer(run):
    got = run("answer")
    assert (got["first"], got["second"]) == (STORY, "You have said something before.")
    usage = got["usage"]
    assert usage["input_tokens"] > 0 < usage["output_tokens"]
    assert usage["input_tokens"] + usage["output_tokens"] == usage["total_tokens"]


def test_a_stream(run):
    got = run("stream")
    assert got["text"] == STORY and got["n"] > 1 and got["usage"]["output_tokens"] >= got["n"]


@pytest.mark.parametrize("how", ["whole", "stream"])
def test_a_tool(run, how):
    assert run("tools", how) == {"calls": [["weather", {"city": "Paris"}]], "text": "It is sunny in Paris."}


@pytest.mark.parametrize("how, name", [("json_schema", "Eve"), ("function_calling", "Ada"), ("json_mode", "Eve")])
def test_a_structured_result(run, how, name):
    assert run("structured", how)["person"] == {"name": name, "age": {"Eve": 41, "Ada": 36}[name]}


REASONING = r'''
import json, sys
from langchain_ollama import ChatOllama

model = ChatOllama(model="thinks", base_url=sys.argv[1], temperature=0, reasoning=True)
whole, total = model.invoke("hi"), None
for piece in model.stream("hi"):
    total = piece if total is None else total + piece
print(json.dumps([[m.additional_kwargs["reasoning_content"], m.text] for m in (whole, total)]))
'''


def test_reasoning(start, models, tmp_path):
    d = start(extra={"models": [{"name": "thinks", "path": models(kind="thinks", template="qwen3", n_context=2048)}]})
    got = run_python("libraries", REASONING, tmp_path, url(d))
    assert got == [["alpha bravo", "Charlie delta echo"]] * 2
