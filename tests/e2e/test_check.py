"""The counting of ./check: what is counted as passed, failed, not run; that a run which breaks off
or is empty is a failure; what the last lines say; and in which order stages run."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/check"))

import count  # noqa: E402
import runner  # noqa: E402
import conftest  # noqa: E402
import daemon as ingot  # noqa: E402
import stages  # noqa: E402

pytestmark = pytest.mark.home("release")


def counted(tmp_path, kind, text, rc=0):
    log = tmp_path / "log"
    if text is not None:
        log.write_text(text)
    return count.count("release", kind, log, rc)


def numbers(r):
    return r.passed, len(r.failures), len(r.not_run)


def meson(*tests):
    return "".join(json.dumps(dict({"stderr": "", "returncode": 0, "name": "folder / t"}, **t)) + "\n"
                   for t in tests)


OK = {"stdout": "1..2\nok 1 - one\nok 2 - two\n", "result": "OK"}


def test_each_line_of_tap_is_a_test(tmp_path):
    r = counted(tmp_path, "meson", meson(OK, OK))
    assert numbers(r) == (4, 0, 0) and r.ran == {"t: one", "t: two"}


def test_a_failed_line(tmp_path):
    bad = {"stdout": "ok 1 - one\nnot ok 2 - two\n", "stderr": "why", "result": "FAIL"}
    r = counted(tmp_path, "meson", meson(OK, bad), 1)
    assert numbers(r) == (3, 1, 0)
    assert r.failures == [("t: two", ["ok 1 - one", "not ok 2 - two", "why"])]


def test_a_crash_after_good_lines(tmp_path):
    crash = {"stdout": "1..2\nok 1 - one\n", "stderr": "AddressSanitizer", "result": "ERROR",
             "returncode": 99}
    assert numbers(counted(tmp_path, "meson", meson(crash), 1)) == (1, 1, 0)


def test_a_sanitizer_that_speaks_after_good_tests(tmp_path):
    """All lines are fine and the exit code is not."""
    assert numbers(counted(tmp_path, "meson", meson(dict(OK, result="FAIL", returncode=66)), 1)) == (2, 1, 0)


def test_skips_are_neither(tmp_path):
    some = {"stdout": "ok 1 - one\nok 2 - two # SKIP no model\n", "result": "OK"}
    whole = {"stdout": "1..0 # SKIP no compiler\n", "result": "SKIP", "name": "folder / u"}
    silent = {"stdout": "", "result": "SKIP", "returncode": 77, "name": "folder / v"}
    r = counted(tmp_path, "meson", meson(some, whole, silent))
    assert numbers(r) == (1, 0, 3)
    assert r.not_run == [("t: two", "no model"), ("u", "no compiler"), ("v", "no reason given")]
    assert r.note() == "1 passed, 0 failed, 3 not run"


def test_a_test_without_tap_counts_by_its_exit_code(tmp_path):
    assert numbers(counted(tmp_path, "meson", meson({"stdout": "5 inputs replayed\n", "result": "OK"},
                                                    {"stdout": "", "result": "TIMEOUT"}), 1)) == (1, 1, 0)


def test_what_this_machine_cannot_run(tmp_path):
    said = dict(OK, stdout=OK["stdout"] + "# not run: kernels for avx512\n")
    assert counted(tmp_path, "meson", meson(said)).cannot == ["kernels for avx512"]


@pytest.mark.parametrize("kind, text", [
    ("meson", ""), ("meson", None), ("meson", "not json\n"), ("pytest", None), ("pytest", "<a"),
    ("pytest", "<testsuites><testsuite/></testsuites>"),
])
def test_nothing_is_a_failure(tmp_path, kind, text):
    assert numbers(counted(tmp_path, kind, text)) == (0, 1, 0)


def test_a_run_that_breaks_off(tmp_path):
    assert numbers(counted(tmp_path, "meson", meson(OK), 2)) == (2, 1, 0)


def test_pytest_cases(tmp_path):
    text = ("<testsuites><testsuite><testcase classname='a.b' name='good'/>"
            "<testcase classname='a.b' name='bad'><failure message='m'>what\nwas</failure></testcase>"
            "<testcase classname='a.b' name='worse'><error message='setup'/></testcase>"
            "<testcase classname='a.b' name='not'><skipped message='no fish'/></testcase></testsuite></testsuites>")
    (tmp_path / "log.deselected").write_text('["b::later", "for --long"]\n')
    r = counted(tmp_path, "pytest", text, 1)
    assert numbers(r) == (1, 2, 2)
    assert r.failures == [("b::bad", ["what", "was"]), ("b::worse", ["setup"])]
    assert r.not_run == [("b::not", "no fish"), ("b::later", "for --long")]
    assert r.ran == {"b::good", "b::bad", "b::worse"}


def test_deselected_tests_are_named(tmp_path):
    """By tests/e2e/conftest.py, in a run of its own."""
    xml = tmp_path / "x.xml"
    p = subprocess.run([sys.executable, "-m", "pytest", "-c", "tests/e2e/pytest.ini", "--rootdir", "tests/e2e", "-q",
                        "--junitxml", xml, "--collect-only", "tests/e2e/test_soak.py"], cwd=ROOT,
                       stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert p.returncode == 0, p.stdout + p.stderr
    dropped = [json.loads(line) for line in pathlib.Path(str(xml) + ".deselected").read_text().splitlines()]
    assert ["test_soak::test_soak", "for --long"] in dropped


# ---- the last lines ------------------------------------------------------------------

def record(build, ran=(), not_run=(), failures=(), **more):
    return count.Record(build, len(ran) - len(failures), [(f, []) for f in failures], list(not_run), set(ran), **more)


def test_all_is_well():
    lines, good = count.summary({"a": record("release", ["x", "y"]), "b": record("asan", ["x"])}, True, 61, 99.5)
    assert good
    assert lines == ["passed by build: release 2, asan 1", "61 s in all, 99 s of processor time", "3 passed, 0 failed"]


def test_what_ran_nowhere_fails_where_all_can_run():
    records = {"a": record("release", ["x"], [("y", "no fish"), ("z", "no fish"), ("m", "no model")]),
               "b": record("asan", ["x"], [("y", "no fish")])}
    lines, good = count.summary(records, True, 1, 1)
    assert not good
    assert lines[:3] == ["not run: 2 x no fish (y, z)", "not run: 1 x no model (m)",
                         "3 that can run here did not: each counts as failed"]
    assert lines[-1] == "2 passed, 3 failed"
    lines, good = count.summary(records, False, 1, 1)
    assert good and lines[0] == "not run: 2 x no fish (y, z)" and lines[-1] == "2 passed, 0 failed"


def test_what_another_build_ran_is_said_and_no_failure():
    records = {"a": record("release", ["x", "y", "z"]),
               "b": record("tsan", ["x"], [("y", "slow"), ("z", "slow")]),
               "c": record("asan", ["y"], [("soak", "for --long")])}
    lines, good = count.summary(records, True, 1, 1)
    assert good
    assert lines[:3] == ["tsan left out what another build ran: 2 x slow", "--long has 1 more",
                         "passed by build: release 3, tsan 1, asan 1"]


def test_a_failed_test_has_run():
    """Also where it is the only one: it counts once."""
    lines, good = count.summary({"a": record("release", ["x"], failures=["x"]),
                                 "b": record("asan", ["w"], [("x", "slow")])}, True, 1, 1)
    assert not good and lines[0:2] == ["failed in a:", "    x"] and lines[-1] == "1 passed, 1 failed"


def test_a_machine_that_lacks_instructions_is_no_failure():
    lines, good = count.summary({"a": record("release", ["x"], cannot=["kernels for avx512"])}, True, 1, 1)
    assert good and lines[0] == "this machine cannot run: kernels for avx512"


def test_no_test_at_all():
    assert count.summary({}, False, 1, 1)[1] is False


# ---- stages --------------------------------------------------------------------------

class Order:
    """Stages that note when they begin and end."""

    def __init__(self, tmp_path, n_cpus):
        self.runner, self.events, self.lock = runner.Runner(tmp_path, n_cpus), [], threading.Lock()

    def stage(self, name, good=True, waits_for=None, **options):
        def run(job):
            with self.lock:
                self.events.append("+" + name)
            if waits_for:  # runs beside it: else this would take for ever
                assert waits_for.wait(30)
            job.do(["true" if good else "false"])
            with self.lock:
                self.events.append("-" + name)
            return count.Record("b", 1, ran={name})
        return runner.Stage(name, run, **options)


def test_stages_wait_for_what_they_need(tmp_path, capsys):
    o = Order(tmp_path, 2)
    o.runner.run([o.stage("b", needs=["a"]), o.stage("c", after=["b", "elsewhere"]), o.stage("a")])
    assert o.events == ["+a", "-a", "+b", "-b", "+c", "-c"]
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert [line.split()[-1] for line in (tmp_path / "timeline.log").read_text().splitlines()] == o.events


def test_stages_whose_need_failed_do_not_run(tmp_path, capsys):
    o = Order(tmp_path, 2)
    o.runner.run([o.stage("a", good=False), o.stage("b", needs=["a"]), o.stage("c", needs=["b"]), o.stage("d", after=["b"])])
    assert o.events == ["+a", "+d", "-d"]
    assert o.runner.records["b"].not_run == [("b", "a failed")]
    assert o.runner.records["c"].not_run == [("c", "b failed")]
    lines, good = count.summary(o.runner.records, False, 1, 1)
    assert not good and lines[0] == "failed in a:" and lines[-1] == "1 passed, 1 failed"


def test_stages_share_the_processors(tmp_path, capsys):
    """Two of one processor each run at once, beside one that only waits and one behind them; what
    wants both comes after."""
    o, met = Order(tmp_path, 2), threading.Barrier(4)

    class Meeting:
        def wait(self, seconds):
            return met.wait(seconds) + 1
    o.runner.run([o.stage(name, waits_for=Meeting(), **options) for name, options in
                  (("a", {}), ("b", {}), ("waits", {"cost": 0}), ("behind", {"behind": True, "cost": 2}))] +
                 [o.stage("both", cost=2), o.stage("later")])
    assert set(o.events[:4]) == {"+a", "+b", "+waits", "+behind"}
    assert o.events.index("+both") > max(o.events.index("-a"), o.events.index("-b"))
    assert o.events.index("+later") > o.events.index("-both")


def test_what_waits_shares_a_processor(tmp_path, capsys):
    """Two of half a processor run beside one that computes; no third one does."""
    o, met = Order(tmp_path, 2), threading.Barrier(3)

    class Meeting:
        def wait(self, seconds):
            return met.wait(seconds) + 1
    o.runner.run([o.stage(name, waits_for=Meeting(), cost=cost) for name, cost in (("a", 0.5), ("b", 1), ("c", 0.5))] +
                 [o.stage("later", cost=0.5)])
    assert set(o.events[:3]) == {"+a", "+b", "+c"}
    assert o.events.index("+later") > min(o.events.index("-" + name) for name in "abc")


@pytest.mark.parametrize("program, fast", [
    ("golden/test_model_truth", False), ("unit/store/test_store_ledger_memory", False), ("golden/test_model_invariance", False), ("ops/test_ops", True),
    ("ops/test_gpu_ops_checked", False), ("metal/test_model_truth_metal", False),
    ("metal/soft/test_soft_bugs", False), ("unit/runtime/test_runtime_cuda", True), ("fuzz/fuzz_json", True)])
def test_what_fast_leaves_out(program, fast):
    left_out = stages.LONGEST + stages.SOFTWARE_METAL + stages.SLOW_PROGRAMS
    assert stages.in_folders("/b/tests/" + program, left_out) is not fast


def test_fast_runs_nothing_on_the_double_of_metal():
    """Its build has none: a test that skips without it is left out by its file or by its parameter's name."""
    release = {s.name: s for s in stages.release_stages(stages.Tests(None), True, False)}
    for name in "release-e2e", "release-e2e-half":
        assert stages.BUT_METAL[1] in release[name].run.args
    for path in (ROOT / "tests/e2e").glob("test_*.py"):
        if "METAL.exists()" in path.read_text() and str(path.relative_to(ROOT)) not in stages.METAL_E2E:
            assert 'pytest.param("metal"' in path.read_text(), path


def test_sanitizers_builds_have_what_tests_run():
    """What other tests run is built though the tests of whole models beside it are not."""
    programs = {"tests/" + "/".join(re.findall(r'"(\w+)"', m)) for path in (ROOT / "tests/e2e").rglob("*.py")
                for m in re.findall(r'BUILD / "tests"((?: / "\w+")+)', path.read_text())}
    assert "tests/golden/encode_lines" in programs
    assert not {p for p in programs if stages.in_folders("/b/" + p, stages.GOLDEN_TESTS)}
    assert stages.in_folders("/b/tests/golden/test_model_truth", stages.GOLDEN_TESTS)


def once():
    """The stages of ./check, without --fast and --long."""
    tests = stages.Tests(None)
    return stages.release_stages(tests, False, False) + stages.other_stages(tests)


def test_every_program_runs_somewhere():
    """What a build leaves out another one runs; those of whole models and of the software Metal device are in the
    release build alone.  --long and --fast leave out nothing."""
    programs = {t["cmd"][0] for t in stages.introspect("tests", ingot.BUILD)}
    assert len(programs) > 200
    runs = {s.name: s.run.has for s in once() if hasattr(s.run, "has")}
    assert {"release-unit", "asan-unit", "tsan-unit"} <= set(runs)
    nowhere = {p for p in programs if not runs["release-unit"](p) and
               not (runs["asan-unit"](p) and stages.in_folders(p, ["unit", "fuzz"]))}
    assert not nowhere
    assert sum(map(runs["release-unit"], programs)) < len(programs)
    whole = stages.Tests(None, once=False)
    for fast in False, True:
        has, = (s.run.has for s in stages.release_stages(whole, fast, not fast) if s.name == "release-unit")
        assert {p for p in programs if not has(p)} == {
            p for p in programs if fast and stages.in_folders(p, stages.LONGEST + stages.SOFTWARE_METAL + stages.SLOW_PROGRAMS)}


def test_what_a_build_leaves_is_there():
    """A program that is renamed is not left out in silence, nor is one kept that was never left."""
    programs = [t["cmd"][0] for t in stages.introspect("tests", ingot.BUILD)]
    for leaves, keeps in stages.LEFT.values():
        for pattern in [*leaves, *keeps]:
            assert any(stages.in_folders(p, [pattern]) for p in programs), pattern
        for p in programs:
            assert not stages.in_folders(p, keeps) or stages.in_folders(p, leaves), p


@pytest.mark.parametrize("build", ["release", "asan", "tsan"])
def test_every_file_is_in_a_stage_of_each_build(build):
    """Which of its tests run there say their marks.  Where no test of a file is at home, it may be missing."""
    files = {"tests/e2e/" + p.name for p in (ROOT / "tests/e2e").glob("test_*.py")}
    there = []
    for s in once():
        args = getattr(s.run, "args", ())
        if s.build != build or args[:1] in ((stages.AGENTS,), (stages.PAGE_TESTS,)) or "tests/cross" in args:
            continue
        there += files - set(args) if args[:1] == ("tests/e2e",) else args
    assert sorted(there) == sorted(files - (set(stages.SLOW) if build == "release" else set()))


def test_every_mark_has_a_home():
    for n in range(16):
        names = {name for i, name in enumerate(("release", "real", "asan", "tsan")) if n >> i & 1}
        home, = conftest.homes(names)
        assert not conftest.cannot(names, home)
    assert conftest.homes(set()) == {"asan"} and conftest.homes({"tsan"}) == {"tsan"}
    assert conftest.homes({"tsan"}, ("release", "asan")) == {"release", "asan"}
    for names, named in ((set(), ("tsan",)), ({"release"}, ("asan",)), (set(), ("assan",))):
        with pytest.raises(ValueError, match="its home is " + named[0]):
            conftest.homes(names, named)


@pytest.mark.parametrize("build", ["", "address", "thread"])
def test_what_runs_once(build, monkeypatch):
    """Only at home; and a test that is for --long or has no model is nowhere, as before."""
    monkeypatch.setattr(ingot, "SANITIZER", build)
    here = conftest.BUILDS[build]
    assert (conftest.why_not(set(), (), once=True) is None) == (here == "asan")
    assert (conftest.why_not({"tsan"}, (), once=True) is None) == (here == "tsan")
    assert conftest.why_not({"tsan"}, ("release", "asan", "tsan"), once=True) is None
    assert conftest.why_not({"tsan"}, ("release",)) is None
    assert conftest.why_not({"long", "tsan"}, ()) == count.LONG and conftest.why_not({"long", "tsan"}, (), long=True) is None


def test_fast_has_a_build_of_its_own():
    names = {fast: {s.name for s in stages.release_stages(stages.Tests(None), fast, False)} for fast in (False, True)}
    assert names[True] - names[False] == {"build-fast"} and names[False] - names[True] == {"build-release"}
    # it is where the workflow for Macs looks for it
    macs = (ROOT / ".github/workflows/macos.yml").read_text().split("\n  linux:\n")[0]
    assert "./check --fast" in macs and set(re.findall(r"build-check/(\w+)/", macs)) == {"fast"}


def test_packages_are_there_before_what_uses_them():
    """./check itself installs only what the stages that begin at once need."""
    all_stages = once()
    waits = {"packages"}
    for _ in all_stages:
        waits |= {s.name for s in all_stages if s.after & waits}
    early = {s.name for s in all_stages} - waits
    assert {name for name in early if not name.startswith(("fetch-", "cross-", "arm64-tools"))} <= {
        "python", "build-release", "model", "format"}


def test_a_mistake_in_a_stage_is_a_failure(tmp_path, capsys):
    r = runner.Runner(tmp_path, 1)
    r.run([runner.Stage("a", lambda job: 1 / 0)])
    assert "ZeroDivisionError" in r.records["a"].failures[0][0]
    assert "FAILED" in capsys.readouterr().out


def test_processor_time_is_counted(tmp_path, capsys):
    r = runner.Runner(tmp_path, 1)
    r.run([runner.Stage("a", lambda job: job.do(["sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done"]))])
    assert r.cpu_s > 0.01


@pytest.mark.release
@pytest.mark.skipif(not shutil.which("clang-19"), reason="clang 19 is not here")
def test_shaders_are_parsed_for_nvidia(tmp_path):
    """What is wrong in one architecture's branch, in an instance of a template, is found, and only there."""
    text = ("#include <metal_stdlib>\nusing namespace metal;\ntemplate <typename T> T twice(T x) {\n"
            "#ifdef %s\n    return x.nothing;\n#endif\n    return 2 * x; }\n"
            "kernel void k(device float *p [[buffer(0)]], uint i [[thread_position_in_grid]]) { p[i] = twice(p[i]); }\n")
    for name, macro in ("good", "NEVER"), ("bad", "NV_WGMMA"):
        (tmp_path / (name + ".metal")).write_text(text % macro)

    def parse(sm):
        r = subprocess.run([sys.executable, ROOT / "tools/msl/msl", "parse", "--sm", sm, tmp_path / "good.metal", tmp_path / "bad.metal"],
                           stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
        return r.returncode, r.stdout
    assert parse("80") == (0, "1..2\nok 1 - good\nok 2 - bad\n")
    code, said = parse("90a")
    assert code == 1 and said.startswith("1..2\nok 1 - good\nnot ok 2 - bad\n# ") and "nothing" in said


@pytest.mark.release
@pytest.mark.skipif(not shutil.which("clang-19"), reason="clang 19 is not here")
def test_shaders_are_made_once(tmp_path):
    """A second build takes what the first has made; another text, option or tool is another key."""
    cache, header, shader = tmp_path / "cache", tmp_path / "x.h", tmp_path / "x.metal"
    cache.mkdir()

    def make(*options, name="x.ptx"):
        out = tmp_path / name
        subprocess.run([sys.executable, ROOT / "tools/msl/msl", "ptx", shader, out, "--depfile", tmp_path / "d", *options],
                       env=dict(os.environ, INGOT_SHADER_CACHE=str(cache)), check=True, stdin=subprocess.DEVNULL)
        return out.read_text()
    header.write_text("constant float a = 2;\n")
    shader.write_text('#include <metal_stdlib>\n#include "x.h"\nusing namespace metal;\n'
                      "kernel void k(device float *p [[buffer(0)]], uint i [[thread_position_in_grid]]) { p[i] = a; }\n")
    first = make()
    kept, = cache.iterdir()
    assert kept.read_text() == first and "k" in first
    named = (tmp_path / "d").read_text()
    assert str(shader) in named and "x.h" in named and "tools/msl/include/msl.h" in named
    kept.write_text("from the cache")
    assert make(name="y.ptx") == "from the cache"
    assert make("--sm", "90a") != "from the cache"
    assert make("-D", "X") == first and make("--optimize", "0") not in ("from the cache", first)
    cache.rename(tmp_path / "away")
    subprocess.run([sys.executable, ROOT / "tools/msl/msl", "ptx", shader, tmp_path / "z.ptx", "--depfile", tmp_path / "d"], check=True,
                   stdin=subprocess.DEVNULL, env={k: v for k, v in os.environ.items() if k != "INGOT_SHADER_CACHE"})
    target, names = (tmp_path / "d").read_text().replace("\\\n", " ").split(":")
    assert target == str(tmp_path / "z.ptx") and str(header) in names.split()
    assert all(os.path.exists(name) for name in names.split())  # else each build would compile anew
    (tmp_path / "away").rename(cache)
    header.write_text("constant float a = 3;\n")
    assert make() not in ("from the cache", first)
    assert len(list(cache.iterdir())) == 5


def test_unknown_option_of_check():
    p = subprocess.run([str(ROOT / "check"), "--zeppelin"], stdin=subprocess.DEVNULL,
                       capture_output=True, text=True)
    assert p.returncode == 2 and "--zeppelin" in p.stderr
