"""The counting of ./check: what is counted as passed, failed, skipped, and that a run which
breaks off or is empty is a failure."""
import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
COUNT = str(ROOT / "tools" / "count_tests.py")


def count(tmp_path, kind, text, rc=0):
    log = tmp_path / "log"
    if text is not None:
        log.write_text(text)
    out = tmp_path / "out"
    p = subprocess.run([sys.executable, COUNT, kind, str(out), str(rc), str(log)],
                       stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert p.stderr == ""
    passed, failed, skipped = map(int, (tmp_path / "out.count").read_text().split())
    assert p.returncode == (1 if failed else 0)
    return passed, failed, skipped, (tmp_path / "out.report").read_text()


def meson(*tests):
    return "".join(json.dumps(dict({"stderr": "", "returncode": 0, "name": "room / t"}, **t)) + "\n"
                   for t in tests)


OK = {"stdout": "1..2\nok 1 - one\nok 2 - two\n", "result": "OK"}


def test_each_line_of_tap_is_a_test(tmp_path):
    assert count(tmp_path, "meson", meson(OK, OK))[:3] == (4, 0, 0)


def test_a_failed_line(tmp_path):
    bad = {"stdout": "ok 1 - one\nnot ok 2 - two\n", "stderr": "why", "result": "FAIL"}
    passed, failed, skipped, report = count(tmp_path, "meson", meson(OK, bad), 1)
    assert (passed, failed, skipped) == (3, 1, 0)
    assert report.startswith("t: two\n") and "  why\n" in report


def test_a_crash_after_good_lines(tmp_path):
    crash = {"stdout": "1..2\nok 1 - one\n", "stderr": "AddressSanitizer", "result": "ERROR",
             "returncode": 99}
    assert count(tmp_path, "meson", meson(crash), 1)[:3] == (1, 1, 0)


def test_a_sanitizer_that_speaks_after_good_tests(tmp_path):
    """All lines are fine and the exit code is not."""
    assert count(tmp_path, "meson", meson(dict(OK, result="FAIL", returncode=66)), 1)[:3] == (2, 1, 0)


def test_skips_are_neither(tmp_path):
    some = {"stdout": "ok 1 - one\nok 2 - two # SKIP no model\n", "result": "OK"}
    whole = {"stdout": "", "result": "SKIP", "returncode": 77}
    assert count(tmp_path, "meson", meson(some, whole))[:3] == (1, 0, 2)


def test_a_test_without_tap_counts_by_its_exit_code(tmp_path):
    assert count(tmp_path, "meson", meson({"stdout": "5 inputs replayed\n", "result": "OK"},
                                          {"stdout": "", "result": "TIMEOUT"}), 1)[:3] == (1, 1, 0)


@pytest.mark.parametrize("kind, text", [
    ("meson", ""), ("meson", None), ("meson", "not json\n"), ("pytest", None), ("pytest", "<a"),
    ("pytest", "<testsuites><testsuite/></testsuites>"),
])
def test_nothing_is_a_failure(tmp_path, kind, text):
    assert count(tmp_path, kind, text)[:3] == (0, 1, 0)


def test_a_run_that_breaks_off(tmp_path):
    assert count(tmp_path, "meson", meson(OK), 2)[:3] == (2, 1, 0)


def test_pytest_cases(tmp_path):
    text = ("<testsuites><testsuite><testcase classname='a.b' name='good'/>"
            "<testcase classname='a.b' name='bad'><failure message='m'>what\nwas</failure></testcase>"
            "<testcase classname='a.b' name='worse'><error message='setup'/></testcase>"
            "<testcase classname='a.b' name='not'><skipped/></testcase></testsuite></testsuites>")
    passed, failed, skipped, report = count(tmp_path, "pytest", text, 1)
    assert (passed, failed, skipped) == (1, 2, 1)
    assert report == "b::bad\n  what\n  was\nb::worse\n  setup\n"


def test_unknown_option_of_check():
    p = subprocess.run([str(ROOT / "check"), "--zeppelin"], stdin=subprocess.DEVNULL,
                       capture_output=True, text=True)
    assert p.returncode == 2 and "--zeppelin" in p.stderr
