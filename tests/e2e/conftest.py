"""Fixtures: tiny models made once a session, daemons that are stopped (and judged) after
each test.  Folders: INGOT_BUILD is the build, INGOT_TEST_MODEL the demo model if there,
INGOT_SANITIZER says how the build was instrumented."""
import hashlib
import json
import os
import pathlib
import shutil
import sys
import tempfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import access  # noqa: E402
import daemon as ingot  # noqa: E402
import tiny_model  # noqa: E402
from witness import Witness  # noqa: E402


BUILDS = {"": "release", "address": "asan", "thread": "tsan"}  # by INGOT_SANITIZER


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="run the long tests too")
    parser.addoption("--once", action="store_true",
                     help="run a test only in the builds in which it finds what its run in another build does not")


def cannot(names, build):
    """Why a test with these marks can tell nothing in a build; None: it can."""
    if "release" in names and build != "release":
        return "a figure that only the release build can meet"
    if build != "release" and "real" in names and "asan" not in names:
        return "the demo model's kernels, which tests/ops runs under AddressSanitizer"
    if build == "tsan" and "tsan" not in names:
        return "slow under ThreadSanitizer"
    return None


def homes(names, named=()):
    """The builds in which ./check runs a test with these marks: those that the mark home has named, or the one
    in which it can find most.  AddressSanitizer's finds what the release build does, and how a wrong byte
    got there; who starts many threads shows it to ThreadSanitizer's, which also sees what is used after its
    end."""
    wanted = named or [next(build for build in ("tsan", "asan", "release")
                            if not cannot(names, build))]
    for build in wanted:
        if build not in BUILDS.values() or cannot(names, build):
            raise ValueError("its home is %s: %s" % (build, cannot(names, build) or "there is no such build"))
    return set(wanted)


def why_not(names, named, long=False, once=False):
    """Why a test with these marks does not run in this build now; None: it does."""
    build = BUILDS[ingot.SANITIZER]
    if "long" in names and not long:
        return "for --long"
    if "real" in names and not os.environ.get("INGOT_TEST_MODEL"):
        return "the demo model is not here"
    at_home = homes(names, named)
    return cannot(names, build) or ("another build finds what it can find" if once and build not in at_home else None)


def pytest_collection_modifyitems(config, items):
    """What does not belong to this build is deselected; ./check reads beside the record of the run
    which that was, and sees that another build ran it."""
    drop = []
    for item in items:
        home = item.get_closest_marker("home")
        try:
            why = why_not({m.name for m in item.iter_markers()}, home.args if home else (),
                          config.getoption("--long"), config.getoption("--once"))
        except ValueError as e:
            raise pytest.UsageError("%s: %s" % (item.nodeid, e)) from None
        if why:
            drop.append((item, why))
    if config.option.xmlpath:
        with open(config.option.xmlpath + ".deselected", "w", encoding="utf-8") as f:
            f.writelines(json.dumps(["%s::%s" % (i.path.stem, i.name), why]) + "\n" for i, why in drop)
    if drop:
        config.hook.pytest_deselected(items=[item for item, _ in drop])
        items[:] = [i for i in items if i not in {item for item, _ in drop}]


class Models:
    """Makes each tiny model on first use.  INGOT_TINY_MODELS names a folder in which they are kept for
    other sessions, which get copies."""

    def __init__(self, folder):
        self.folder = folder
        self.kept = os.environ.get("INGOT_TINY_MODELS")
        self.source = pathlib.Path(tiny_model.__file__).read_bytes()

    def __call__(self, **options):
        name = "-".join("%s_%s" % kv for kv in sorted(options.items())) or "plain"
        if len(name) > 200:  # a book's pages are in it
            name = hashlib.sha256(name.encode()).hexdigest()
        path = self.folder / (name + ".gguf")
        if path.exists():
            return str(path)
        if not self.kept:
            tiny_model.write(path, **options)
            return str(path)
        kept = pathlib.Path(self.kept, hashlib.sha256(self.source + name.encode()).hexdigest())
        if not kept.exists():
            part = kept.with_suffix(".%d" % os.getpid())
            tiny_model.write(part, **options)
            part.replace(kept)
        shutil.copyfile(kept, path)
        os.utime(kept)
        return str(path)

    def script(self):
        return self(kind="script")

    def random(self, **options):
        return self(kind="random", n_context=2048, **options)

    def book(self, pages, n_context=8192):
        """Answers with the first page whose condition, in its template's language, holds."""
        return self(kind="book", width=512, n_context=n_context, book=pages)

    def slow(self):
        """Never ends its answer, and a step has enough to do to be caught under way."""
        return self(kind="loop", n_blocks=16, width=256, n_ff=1024, n_context=16384)

    def quick(self):
        """Says the same as that one: a draft model for it."""
        return self(kind="loop", n_context=16384)


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    return Models(tmp_path_factory.mktemp("models"))


def configuration(folder, path=None, extra=None):
    """A whole configuration for one model named `tiny`."""
    base = {
        "server": {"host": "127.0.0.1", "port": 0},
        "runtime": {"threads": 2, "strict": True},
        "kvcache": {"arena": 64 << 20, "disk": "none"},
        # Steps are counted, and models that repeat themselves are caught under way; test_speculation.py has it on.
        "scheduler": {"speculation": "off"},
        "memory": {"budget": 1 << 30},
        "modules": {"path": ingot.module_folders()},
        "ledger": {"path": str(folder / "ledger.db")},
        "log": {"level": "info"},
    }
    if path:
        base["models"] = [{"name": "tiny", "path": path}]
    return ingot.merged(base, extra or {})


class Starter:
    def __init__(self, folder):
        self.folder, self.n, self.running = folder, 0, []

    def config(self, path=None, extra=None):
        return configuration(self.folder, path, extra)

    def __call__(self, path=None, extra=None, config=None, **options):
        """Start a daemon for the model at path, with `extra` merged into its configuration."""
        folder = self.folder / ("d%d" % self.n)
        self.n += 1
        d = None
        try:
            d = ingot.Daemon(folder, self.config(path, extra) if config is None else config,
                             wait=False, **options)
            d.wait_ready()
        finally:
            if d:
                self.running.append(d)
        return d

    def refused(self, path=None, extra=None, config=None, **options):
        """Start one that must not come up; what it said, after it ended with an error."""
        folder = self.folder / ("d%d" % self.n)
        self.n += 1
        d = ingot.Daemon(folder, self.config(path, extra) if config is None else config,
                         wait=False, **options)
        self.running.append(d)
        code = d.wait_exit()
        said = d.process.stdout.read()
        d.check_reports()
        assert code not in (0, 66, 99) and code > 0, "exit code %d; it said:\n%s" % (code, d.log)
        assert said == b"", "it printed %r and then failed" % said
        return d.log

    def finish(self):
        failures = []
        for d in self.running:
            try:
                d.stop()
            except AssertionError as e:
                failures.append(str(e))
            finally:
                if not d.stopped:
                    d.kill()
                d.close()
        assert not failures, "\n".join(failures)


@pytest.fixture
def short():
    """A folder of few letters, wherever the tests lie: a socket's path has at most 107 bytes, on
    some systems 103."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="ingot-") as folder:
        yield pathlib.Path(folder)


@pytest.fixture
def start(tmp_path):
    s = Starter(tmp_path)
    yield s
    s.finish()


@pytest.fixture
def begin(start, models):
    """begin(extra) starts a daemon that listens in whatever way."""
    def one(extra, **options):
        folder = start.folder / ("a%d" % start.n)
        start.n += 1
        d = access.AnyDaemon(folder, start.config(models.script(), extra), wait=False, **options)
        start.running.append(d)
        d.wait_ready()
        return d
    return one


@pytest.fixture(scope="module")
def shared_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="module")
def scripted(shared_folder, models):
    """One daemon for a file's tests, with three models: `tiny` answers with a known text,
    `random` with nonsense that depends on everything before it, `slow` never ends."""
    s = Starter(shared_folder)
    d = s(config=configuration(shared_folder, extra={"models": [
        {"name": "tiny", "path": models.script()},
        {"name": "random", "path": models.random()},
        {"name": "slow", "path": models.slow()},
    ]}))
    yield d
    d.until_idle()
    s.finish()


@pytest.fixture(scope="module")
def family(shared_folder, models):
    """As scripted, of models for clients' packages: `tiny`; `tools`, which thinks, speaks and
    calls a tool; `noise`, whose template knows tools."""
    s = Starter(shared_folder)
    d = s(config=configuration(shared_folder, extra={"models": [
        {"name": "tiny", "path": models.script()},
        {"name": "tools", "path": models(kind="tools", n_context=2048, n_blocks=16, width=256,
                                          n_ff=1024)},
        {"name": "noise", "path": models.random(template="tools")},
    ]}))
    yield d
    d.until_idle()
    s.finish()


@pytest.fixture
def d(start, request, models):
    """A daemon whose model, `book`, answers with the pages of the test's file: BOOK, for BOOK_CONTEXT tokens."""
    path = models.book(request.module.BOOK, getattr(request.module, "BOOK_CONTEXT", 8192))
    return start(extra={"models": [{"name": "book", "path": path}]})


@pytest.fixture
def ws(scripted):
    c = scripted.ws()
    yield c
    c.close()


@pytest.fixture(scope="module")
def witness(scripted):
    """A client of its own process that streams from the file's daemon all the time."""
    w = Witness(scripted)
    yield w
    w.stop()


def judge(report):
    """Nobody may have noticed: every answer as when all was quiet, no pause in it."""
    assert report["wrong"] == [] and report["answers"] > 0 and report["deltas"] > 0, report
    assert report["gap_s"] < 2 * ingot.PATIENCE, "a stream stood still for %.1f s" % report["gap_s"]
    assert report["wait_s"] < 15 * ingot.PATIENCE, "an answer began after %.1f s" % report["wait_s"]


@pytest.fixture
def undisturbed(witness):
    """For a test that attacks the file's daemon: the witness streams on undisturbed."""
    judge(witness.report())
    yield witness
    judge(witness.report())


@pytest.fixture
def watched():
    """watched(d) starts a witness of a daemon of the test's own, which is judged at the end."""
    running = []

    def watch(d, **options):
        running.append(Witness(d, **options))
        return running[-1]
    yield watch
    try:
        for w in running:
            judge(w.report())
    finally:
        for w in running:
            w.stop()
