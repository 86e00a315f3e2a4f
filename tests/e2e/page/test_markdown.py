"""The page's Markdown: what it makes of texts, among them hostile ones, and that it takes no long time."""
import pytest

pytestmark = pytest.mark.release

SHOW = """const { Markdown } = await import('/ui/markdown.js');
    return args[0].map((text) => { const m = new Markdown(); m.show(text);
      m.element.querySelectorAll('.code-head, .code button').forEach((e) => e.remove());
      return m.element.innerHTML.replace(/ (?:tabindex|role|aria-label|rel|target|class|scope)="[^"]*"/g, ''); });"""
CASES = {
    "plain": "<p>plain</p>",
    "a *b* **c** ***d*** ~~e~~": "<p>a <em>b</em> <strong>c</strong> <strong><em>d</em></strong> <del>e</del></p>",
    "snake_case_name and 2 * 3 * 4": "<p>snake_case_name and 2 * 3 * 4</p>",
    "**open and `code with **`": "<p>**open and <code>code with **</code></p>",
    "``a ` b``": "<p><code>a ` b</code></p>",
    "<script>alert(1)</script>": "<p>&lt;script&gt;alert(1)&lt;/script&gt;</p>",
    "[x](javascript:alert(1))": "<p>[x](javascript:alert(1))</p>",
    "[x](data:text/html,y)": "<p>[x](data:text/html,y)</p>",
    "[*x*](https://a.b/c_(d))": '<p><a href="https://a.b/c_(d)"><em>x</em></a></p>',
    "see https://a.b/c?d=e.": '<p>see <a href="https://a.b/c?d=e">https://a.b/c?d=e</a>.</p>',
    "![pic](https://a.b/c.png)": '<p><a href="https://a.b/c.png">image: pic</a></p>',
    "\\*no\\*": "<p>*no*</p>",
    "# one\n## two ##": "<h3>one</h3><h4>two</h4>",
    "#none": "<p>#none</p>",
    "- a\n- b\n  - c\n- d": "<ul><li>a</li><li>b<ul><li>c</li></ul></li><li>d</li></ul>",
    "3. a\n4. b": '<ol start="3"><li>a</li><li>b</li></ol>',
    "- [x] done\n- [ ] not": '<ul><li><input type="checkbox" disabled="" checked="">done</li>'
                             '<li><input type="checkbox" disabled="">not</li></ul>',
    "> a\n> > b": "<blockquote><p>a</p><blockquote><p>b</p></blockquote></blockquote>",
    "```c\nint x; // <b>\n```\nafter": "<div><pre><code>int x; // &lt;b&gt;</code></pre></div><p>after</p>",
    "```\nnot closed": "<div><pre><code>not closed</code></pre></div>",
    "|a|b|\n|-|:-:|\n|1|`x|y`|": "<div><table><thead><tr><th>a</th><th>b</th></tr></thead>"
                                  "<tbody><tr><td>1</td><td><code>x|y</code></td></tr></tbody></table></div>",
    "a\n\n---\n\nb": "<p>a</p><hr><p>b</p>",
    "a  \nb\nc": "<p>a<br>b\nc</p>",
}
LONG = 100_000
HOSTILE = ["*" * LONG, "**a" * (LONG // 3), "[" * LONG, "[a](" * (LONG // 4), "`" * LONG, "`a``b```c" * (LONG // 9),
           "> " * LONG, "- " * LONG, "|" * LONG + "\n" + "|-" * (LONG // 2), "# a" + " " * LONG + "b", "_a" * (LONG // 2),
           "1. a\n" * (LONG // 5), "h" * LONG, "https://" * (LONG // 8), "~~" * (LONG // 2), "\\" * LONG, "\n" * LONG]


@pytest.fixture(scope="module")
def shown(browser_process, pages):
    browser_process.visit(pages)
    return dict(zip(CASES, browser_process.ask(SHOW, list(CASES))))


@pytest.mark.parametrize("text", CASES)
def test_markdown(shown, text):
    assert shown[text].rstrip() == CASES[text]


def test_text_that_grows_is_shown_as_at_its_end(browser, pages):
    """The nodes of blocks that did not change are kept."""
    browser.visit(pages)
    text = "# T\n\na *b*\n\n- x\n- y\n\n```py\nz\n```\n\nend"
    assert browser.ask("""const { Markdown } = await import('/ui/markdown.js');
        const grown = new Markdown(), whole = new Markdown(); let first;
        for (let i = 0; i <= args[0].length; i++) { grown.show(args[0].slice(0, i)); if (i === 6) first = grown.element.firstChild; }
        whole.show(args[0]);
        return [grown.element.innerHTML === whole.element.innerHTML, grown.element.firstChild === first];""", text) == [True, True]


def test_hostile_texts_take_no_long_time(browser, pages):
    browser.visit(pages)
    took = browser.ask("""const { Markdown } = await import('/ui/markdown.js');
        return args[0].map((text) => { const began = performance.now(); new Markdown().show(text); return performance.now() - began; });""", HOSTILE)
    assert len(took) == len(HOSTILE) and max(took) < 5000, took
