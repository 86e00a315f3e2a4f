"""The chats of the page: a whole one, forks, tools, stopping, a reload in mid-stream, a restart of the
daemon."""
import json

import pytest

from page.conftest import CODE, with_models

pytestmark = pytest.mark.release


@pytest.fixture
def chat(browser, pages):
    return browser.visit(pages)


def saved(browser):
    """The chats that the browser keeps."""
    return browser.js("return Object.keys(localStorage).filter((k) => k.startsWith('ingot.chat.'))"
                      ".map((k) => JSON.parse(localStorage[k]))")


def choose(browser, model):
    browser.until("document.querySelector('#model').options.length === 4", "the models")
    browser.js("const m = document.querySelector('#model'); m.value = arguments[0]; m.dispatchEvent(new Event('change'))", model)


def test_a_whole_chat(chat):
    chat.say("Show me markdown")
    chat.replied()
    shown = chat.js("const m = document.querySelector('.markdown'); return [m.querySelector('h3').textContent,"
                    "m.querySelector('strong').textContent, m.querySelector('em').textContent,"
                    "m.querySelector('td.right').textContent, m.querySelector('ol > li > ul > li').textContent,"
                    "m.querySelector('blockquote a').href, m.querySelector('pre').textContent]")
    assert shown == ["A title", "bold", "lean", "189", "within", "https://example.org/a", CODE]
    # what a model writes is text: no element of its own, no script's address
    assert chat.js("return [document.querySelectorAll('.markdown b').length,"
                   "document.querySelectorAll('.markdown a').length]") == [0, 1]
    assert "<b>HTML</b>" in chat.text(".markdown") and "javascript:alert(1)" in chat.text(".markdown")
    assert "tokens" in chat.text(".turn.assistant .figures")
    chat.say("And now?")
    chat.replied(2)
    assert chat.text(".turn.assistant:last-child .markdown") == "I remember."
    # the second request continues the first response, and sends nothing twice
    creates = [m for m in chat.sent() if m["type"] == "response.create"]
    assert [c.get("previous_response_id", "")[:5] for c in creates] == ["", "resp_"]
    assert creates[1]["input"] == [{"type": "message", "role": "user", "content": "And now?"}]


def test_code_is_copied(chat):
    chat.say("markdown")
    chat.replied()
    chat.driver.execute_cdp_cmd("Browser.grantPermissions", {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]})
    chat.click(".code button")
    assert chat.ask("return navigator.clipboard.readText()") == CODE


def test_reasoning_is_folded(chat):
    choose(chat, "thinks")
    chat.say("think")
    chat.replied()
    assert chat.text(".reasoning summary") == "Reasoning"
    assert chat.js("return document.querySelector('.reasoning').open") is False
    chat.click(".reasoning summary")
    assert "alpha bravo" in chat.text(".reasoning")
    assert chat.text(".content > .markdown") == "Charlie delta echo"


def test_retry_edit_and_fork(chat):
    chat.say("first")
    chat.replied()
    chat.click("[aria-label='Ask again']")
    chat.until_text(".turn.assistant .choose", "2/2")
    chat.replied()
    chat.click("[aria-label='The version before']")
    chat.until_text(".turn.assistant .choose", "1/2")
    # an edit of the second message forks there; the first turn stays
    chat.say("second")
    chat.replied(2)
    chat.sent()
    chat.click_last("[aria-label='Edit, and go on from there']")
    chat.write(".turn.user textarea", "other")
    chat.click(".turn.user .primary")
    chat.until_text(".turn.user .choose", "2/2")
    chat.replied(2)
    assert chat.text(".said") == "first\nother"
    create, = [m for m in chat.sent() if m["type"] == "response.create"]
    assert create["previous_response_id"].startswith("resp_") and create["input"][0]["content"] == "other"
    assert len(saved(chat)[0]["turns"]) == 7


def test_the_settings_are_sent(chat):
    chat.click("[aria-controls=settings]")
    for name, value in (("instructions", "Be short."), ("temperature", "0.5"), ("max_output_tokens", "2"), ("seed", "7"), ("stop", "one")):
        chat.write("#set-" + name, value)
    chat.click("[aria-controls=settings]")
    chat.say("markdown")
    chat.replied()
    create, = [m for m in chat.sent() if m["type"] == "response.create"]
    assert {k: create[k] for k in ("instructions", "temperature", "max_output_tokens", "seed", "stop")} == {
        "instructions": "Be short.", "temperature": 0.5, "max_output_tokens": 2, "seed": 7, "stop": ["one"]}
    assert chat.text(".turn.assistant .figures").startswith("2 tokens")


def test_a_tool_and_its_result(chat):
    choose(chat, "tools")
    chat.click("[aria-controls=settings]")
    chat.write("#set-tools", json.dumps([{"type": "function", "name": "get_weather", "parameters": {"type": "object"}}]))
    chat.say("the weather?")
    chat.replied()
    assert "get_weather" in chat.text(".call summary")
    assert json.loads(chat.js("return document.querySelector('.call pre').textContent")) == {"city": "Paris\u00e9", "days": 3}
    chat.write(".results textarea", "rain")
    chat.sent()
    chat.click(".results button")
    chat.replied(2)
    create, = [m for m in chat.sent() if m["type"] == "response.create"]
    assert [(i["type"], i["output"]) for i in create["input"]] == [("function_call_output", "rain")]


def test_stop(chat):
    choose(chat, "slow")
    chat.say("go on")
    chat.until("document.querySelector('.turn.running .markdown')?.textContent.length > 50", "some text")
    chat.click("[aria-label='Stop the reply']")
    chat.replied()
    assert chat.text(".turn.assistant .end") == "Stopped."
    assert saved(chat)[0]["turns"][saved(chat)[0]["leaf"]]["state"] == "stopped"


def test_a_reload_in_mid_stream(chat, pages):
    choose(chat, "slow")
    chat.say("go on")
    chat.until("document.querySelector('.turn.running .markdown')?.textContent.length > 50", "some text")
    chat.driver.refresh()
    chat.until("document.querySelector('.turn.assistant .end')?.textContent", "the chat again")
    assert "connection was lost" in chat.text(".turn.assistant .end")
    assert len(chat.text(".turn.assistant .markdown")) > 50
    pages.until_idle()  # its generation was cancelled
    # what the daemon does not have as a response is sent as a conversation
    choose(chat, "book")
    chat.say("And now?")
    chat.replied(2)
    create, = [m for m in chat.sent() if m["type"] == "response.create" and "previous_response_id" not in m and len(m["input"]) > 1]
    assert [i["role"] for i in create["input"]] == ["user", "assistant", "user"]


def test_a_restart_of_the_daemon(browser, start, models, tmp_path):
    config = with_models(tmp_path, models)
    d = start(config=config)
    chat = browser.visit(d)
    chat.say("hello")
    chat.replied()
    port = d.port
    d.stop()
    chat.until("document.querySelector('.state').textContent.includes('Connection lost')", "the loss")
    config["server"]["port"] = port
    start(config=config)
    chat.until("!document.querySelector('.state').textContent", "the connection again")
    chat.say("again")
    chat.replied(2)
    # it tried the lost response's id, then sent the conversation
    assert chat.text(".turn.assistant:last-child .markdown") == "I remember."
    assert chat.text(".turn.assistant .end") in ("", "\n")


def test_export(chat, tmp_path):
    chat.downloads(tmp_path)
    chat.say("markdown")
    chat.replied()
    chat.click(".menu summary")
    chat.click(".sheet button:first-child")
    text = chat.downloaded(tmp_path, "markdown.md").read_text()
    assert text.startswith("# markdown\n") and CODE in text and "## You\n\nmarkdown" in text
    assert chat.js("return document.querySelector('.menu').open") is False
    chat.click(".menu summary")
    chat.click_last(".sheet button")
    assert json.loads(chat.downloaded(tmp_path, "markdown.json").read_text()) == saved(chat)[0]


def test_chats_are_kept_and_deleted(chat):
    chat.say("one")
    chat.replied()
    chat.click(".side > button")
    chat.say("two")
    chat.replied()
    chat.driver.refresh()
    chat.until("document.querySelectorAll('.chats a').length === 2", "both chats")
    assert chat.text(".chats a") == "two\none"
    chat.click_last(".chats a")
    chat.until_text(".said", "one")
    chat.js("document.querySelector('.chats .current button').click()")
    chat.click("dialog .danger")
    chat.until("document.querySelectorAll('.chats a').length === 1", "one chat")
    assert [c["title"] for c in saved(chat)] == ["two"]


def test_only_the_daemon_is_asked(chat):
    chat.driver.refresh()
    chat.say("hi")
    chat.replied()
    urls = {e["params"]["request"]["url"] for e in chat.network() if e["method"] == "Network.requestWillBeSent"}
    asked = {u for u in urls if not u.startswith(("chrome:", "data:"))}
    assert asked and all(u.startswith(chat.base + "/") for u in asked)
