"""Fixtures: one browser for all tests of the page, and a daemon whose models do what a page must show."""
import pytest

import conftest as e2e
from page import browser as page

# What the model `book` writes, by what it is asked.
CODE = "def greet(name):\n    # say hello\n    return f\"Hello, {name}!\""
MARKDOWN = ("# A title\n\nSome **bold**, *lean* and `code` with <b>HTML</b>.\n\n| model | tok/s |\n|---|---:|\n| small | 189 |\n\n"
            "1. one\n2. two\n   - within\n\n```python\n" + CODE + "\n```\n\n> Quoted, [a link](https://example.org/a).\n\n"
            "[bad](javascript:alert(1))")
BOOK = [
    ("'markdown' in ask", MARKDOWN),
    ("last.role == 'user' and messages | length > 2", "I remember."),
    ("true", "Hello."),
]


def pytest_collection_modifyitems(items):
    if page.CHROMIUM and page.DRIVER:
        return
    for item in items:
        if "page" in item.path.parts:
            item.add_marker(pytest.mark.skip(reason="no chromium and chromedriver"))


@pytest.fixture(scope="session")
def browser_process(tmp_path_factory):
    b = page.Browser(tmp_path_factory.mktemp("chromium"))
    yield b
    b.close()


@pytest.fixture
def browser(browser_process):
    """At the end the console must have no complaint, of a script or of the policy."""
    browser_process.complaints()
    browser_process.network()
    yield browser_process
    assert browser_process.complaints() == []


@pytest.fixture(scope="module")
def pages(shared_folder, models):
    """A daemon for a file's tests: `book`, `thinks`, `tools`, which calls a tool, and `slow`, which never ends."""
    s = e2e.Starter(shared_folder)
    d = s(config=with_models(shared_folder, models))
    yield d
    s.finish()


def with_models(folder, models, extra=None):
    return e2e.configuration(folder, extra=e2e.ingot.merged({"models": [
        {"name": "book", "path": models.book(BOOK)},
        {"name": "thinks", "path": models(kind="thinks", n_context=2048, template="tools"), "load": "first_use"},
        {"name": "tools", "path": models(kind="tools", n_context=2048), "load": "first_use"},
        {"name": "slow", "path": models.slow(), "load": "first_use"},
    ]}, extra or {}))
