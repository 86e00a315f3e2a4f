"""What the documentation says, where that can be held against what there is: figures that
two files show, the schema of the ledger, the names of metrics, packages, files."""
import pathlib
import re
import sqlite3
import xml.etree.ElementTree

import pytest

from test_adapters import adapter, entry
from test_ledger import until_rows

ROOT = pathlib.Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.release  # an instrumented build would say the same


def text_of(path):
    return (ROOT / path).read_text()


def table(text, head):
    """The rows of the first table whose head begins so, as lists of cells."""
    assert "\n| %s" % head in text, "there is no table | %s" % head
    lines = text.split("\n| " + head, 1)[1].split("\n\n")[0].split("\n")[2:]
    return [[c.strip() for c in line.strip("|").split("|")] for line in lines]


# ---- figures ----------------------------------------------------------------------------


def test_figures_of_the_readme():
    """They are those of docs/performance.md, docs/gpu.md and docs/accuracy.md."""
    readme, performance = text_of("README.md"), text_of("docs/performance.md")
    wanted = {}
    for file, what, ours, theirs, *_ in table(performance, "file | one stream"):
        wanted.setdefault(file, []).append((ours.split()[0], theirs.split()[0]))
    for file, _, ours, _, theirs, *_ in table(performance, "file | ingot, 1 stream"):
        wanted[file].append((ours.split()[0], theirs.split()[0]))
    shown = {file: [re.fullmatch(r"(\d+) \((?:llama\.cpp )?(\d+)\)", c).groups() for c in cells]
             for file, *cells in table(readme, "file | prefill")}
    assert shown == wanted and len(shown) == 3

    mixtures = {row[0]: ["%s (%s)" % (row[i].split(", ")[-1], row[i + 1]) for i in (1, 4, 7)]
                for row in table(text_of("docs/gpu.md"), "shape | 1 stream: before, now | llama.cpp | ratio | 16 streams: before, now"
                                 " | llama.cpp | ratio | prefill: before, now")}
    shown = table(readme, "model | decode, one stream")
    assert [mixtures[model] for model, *_ in shown] == [cells for _, *cells in shown] and len(shown) == 4

    runs = {r[0]: float(r[1].split()[0]) for r in table(text_of("docs/accuracy.md"), "run | equal")}
    equal = [v for k, v in runs.items() if k.startswith("Ingot, fast")]
    peers = [v for k, v in runs.items() if k.endswith("on the same file")]
    said = re.search(r"on the fast path (\d+) %, llama\.cpp's (\d+) %", readme).groups()
    assert said == ("%.0f" % equal[0], "%.0f" % peers[0])


# ---- docs/metrics.md ----------------------------------------------------------------------


def test_schema_of_the_ledger(start, models):
    d = start(models.script())
    d.chat()
    until_rows(d, 1)
    d.stop()
    docs = text_of("docs/metrics.md")
    db = sqlite3.connect(d.config["ledger"]["path"])
    real = {name: kind for _, name, kind, *_ in db.execute("PRAGMA table_info(requests)")}
    said = {}
    for names, kind, _ in table(docs, "column | type"):
        for name in re.findall(r"`(\w+)`", names):
            said[name] = kind
    first, last = [int(n) for n in re.search(r"`itl_(\d+)` … `itl_(\d+)`", docs).groups()]
    said.update(("itl_%d" % i, "INTEGER") for i in range(first, last + 1))
    assert said == real
    version, = db.execute("PRAGMA user_version").fetchone()
    assert re.search(r"`PRAGMA user_version` \(now (\d+)\)", docs)[1] == str(version)
    bounds = re.search(r"The upper ends of the buckets, in ms: ([\d., \n]+);", docs)[1]
    source = re.search(r"ig_itl_bounds_ms\[.*?\{(.*?)\}", text_of("store/ledger.c"), re.S)[1]
    numbers = [float(n) for n in re.findall(r"[\d.]+", source)]
    assert [float(n) for n in bounds.split(",")] == numbers and len(numbers) == last
    # each example runs
    examples = re.findall(r'\n  "(SELECT [^"]*)"', docs)
    assert examples
    for sql in examples:
        assert db.execute(sql).fetchall()
    db.close()


def test_names_of_metrics(start, models, tmp_path):
    """Each series that the daemon shows is in the table, and the other way round."""
    d = start(extra={"models": [entry(models, ("one", adapter(tmp_path / "one")))]})
    d.chat()
    shown = {}
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", d.http("GET", "/metrics").body.decode(),
                                 re.M):
        shown[name] = kind
    said = {}
    for names, kinds, *_ in table(text_of("docs/metrics.md"), "name | type"):
        names, kinds = re.findall(r"`([\w:]+)`", names), kinds.split(", ")
        for i, name in enumerate(names):
            if name.startswith("_"):  # the same beginning, another end
                name = names[0].replace("_arena_bytes", name)
            said[name] = kinds[min(i, len(kinds) - 1)]
    assert said == shown


# ---- packages -----------------------------------------------------------------------------

# What is called otherwise in prose than in Debian's packages.
LIBRARIES = {"libwebsockets": "websockets", "libyaml": "yaml", "sqlite3": "sqlite3",
             "jansson": "jansson", "PCRE2": "pcre2", "utf8proc": "utf8proc", "OpenSSL": "ssl",
             "libcurl": "curl4-openssl", "zlib": "zlib1g", "libedit": "edit", "OpenMPI": "openmpi",
             "cmocka": "cmocka"}
TOOLS = {"c6", "gnustep-base"}  # the compilers'


def debian_libraries(script):
    return set(re.findall(r"\b(?:lib)?((?<=lib)[\w-]+|zlib1g)-dev\b", script)) - TOOLS


def test_dependencies_are_said():
    said = re.search(r"Dependencies are libraries that .*? have: (.*?) for tests\.", text_of("CONTRIBUTING.md"),
                     re.S)[1]
    packages = re.search(r'^debian_packages="(.*?)"', text_of("check"), re.S | re.M)[1]
    installed = debian_libraries(packages)
    assert {LIBRARIES[n] for n in re.findall(r"\w+", said) if n != "and"} == installed
    # the quickstart builds all but the tests and the transport between machines
    quick = re.search(r"packages_debian\(\) \{(.*?)\n\}", text_of("quickstart"), re.S)[1]
    assert debian_libraries(quick) - {"curl4-gnutls", "curl4-nss"} == installed - {"cmocka", "openmpi"}


# ---- files --------------------------------------------------------------------------------

DOCS = sorted(p.relative_to(ROOT) for p in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"),
                                            *ROOT.glob("tests/golden/*/README.md"),
                                            *ROOT.glob("tools/*/README.md")])
TOPS = {p.name for p in ROOT.iterdir() if p.is_dir() and not p.name.startswith((".", "build"))}
FILES = {str(p.relative_to(ROOT)) for top in TOPS for p in (ROOT / top).rglob("*") if p.is_file()}
FILES |= {p.name for p in ROOT.iterdir() if p.is_file()}
# What the build makes of the tree, by the paths in its folder.
BUILT = re.compile(r"build(-check)?/.*|(bench/ingot|tests/ops/bench|tests/golden/test_model)-?[\w-]+")


def there(name, folder):
    if BUILT.fullmatch(name) or (ROOT / name).exists() or (folder / name).exists():
        return True
    if name.partition("/")[0] in TOPS:
        return bool(list(ROOT.glob(name)))
    if not re.search(r"\.(c|h|m|metal|py|md|sh|yml)$", name):
        return True  # a model's file, a path of the API …
    return any(pathlib.PurePath(f).match(name) for f in FILES)


@pytest.mark.parametrize("path", DOCS, ids=str)
def test_files_that_are_named(path):
    text = re.sub(r"^```.*?^```", "", text_of(path), flags=re.S | re.M)
    named = [w for span in re.findall(r"`([^`\n]+)`", text) for w in span.split()
             if re.fullmatch(r"[\w.*/-]*\w[\w.*/-]*", w)]
    assert not [n for n in named if not there(n.rstrip("/."), (ROOT / path).parent)]
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        target = link.partition("#")[0]
        if not re.match(r"[a-z]+:", link) and target:
            assert (ROOT / path).parent.joinpath(target).exists(), link


def test_goldens_say_where_they_come_from():
    """A folder with data has a page that names the script, the packages and the day."""
    golden = ROOT / "tests" / "golden"
    data = {golden / p.relative_to(golden).parts[0] for p in golden.glob("*/**/*")
            if p.suffix in (".gguf", ".golden", ".truth", ".json", ".txt", ".safetensors")}
    assert len(data) >= 3
    for folder in data:
        page = (folder / "README.md").read_text()
        scripts = re.findall(r"`([a-z]+\.py)[ `]", page)
        assert scripts and all((folder / s).exists() for s in scripts), folder
        assert re.search(r"\b20\d\d-\d\d-\d\d\b", page), folder
        assert all((folder / f.name).exists() and f.name in page or f.suffix in page
                   for f in folder.iterdir() if f.suffix in (".truth", ".txt")), folder


def test_bugs_of_others_have_their_tests():
    """Of each the file is there and has what the table names."""
    rows = table(text_of("docs/accuracy.md"), "wrong elsewhere")
    assert len(rows) > 20
    for what, where in rows:
        named = re.findall(r"`(tests/[^`]+)`: ((?:`[^`]+`(?:, )?)+)", where)
        assert named, what
        for path, names in named:
            for name in re.findall("`([^`]+)`", names):
                assert re.search(r"\b%s\b" % re.escape(name), text_of(path)), (what, path, name)


def test_files_that_public_headers_name():
    for header in (ROOT / "include").rglob("*.h"):
        for name in re.findall(r"(?<![<\w/.-])(?:%s)/[\w./*-]*\w" % "|".join(TOPS), header.read_text()):
            assert list(ROOT.glob(name)), "%s names %s" % (header.name, name)


def test_pictures():
    """Of a size that a page of text may have; the one of the terminal is of text."""
    folder = ROOT / "docs" / "images"
    page = (folder / "page.png").read_bytes()
    assert page.startswith(b"\x89PNG\r\n") and len(page) < 100_000
    svg = xml.etree.ElementTree.parse(folder / "top.svg").getroot()
    shown = " ".join(e.text or "" for e in svg.iter("{http://www.w3.org/2000/svg}text"))
    assert "ingot\u00a0top" in shown and "Memory" in shown and "REQUEST" in shown
    assert (folder / "top.svg").stat().st_size < 50_000
