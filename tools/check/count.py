"""Counts the tests of each stage of ./check, and writes its last lines.

A test that one build leaves out, because another finds what it can find, or it is slow under a sanitizer or
measures times, counts as run when another build runs it: names are compared over all stages.
"""
import collections
import dataclasses
import json
import re
import xml.etree.ElementTree

TAIL = 30
WIDTH = 300
TAP = re.compile(r"^(not ok|ok)\b(?:\s+\d+)?(?:\s+-)?\s*(.*)$")
SKIP = re.compile(r"(.*?)\s*#\s*SKIP\b\s*(.*)$", re.I)
# A test prints this about a part that this machine cannot run; the test itself has run.
CANNOT = re.compile(r"^# not run: (.*)$", re.M)
LONG = "for --long"


@dataclasses.dataclass
class Record:
    """The counts of a stage.  failures are (name, lines), not_run (name, why)."""
    build: str
    passed: int = 0
    failures: list = dataclasses.field(default_factory=list)
    not_run: list = dataclasses.field(default_factory=list)
    ran: set = dataclasses.field(default_factory=set)
    cannot: list = dataclasses.field(default_factory=list)

    def note(self):
        out = "%d passed, %d failed" % (self.passed, len(self.failures))
        return out + (", %d not run" % len(self.not_run) if self.not_run else "")


def tail(text, n=TAIL):
    return [line[:WIDTH] for line in text.rstrip().split("\n") if line.strip()][-n:]


def add_meson_test(r, t):
    """One program: each line of TAP is a test; a program without TAP is one test, by its exit code."""
    name, out = t["name"].split(" / ")[-1], t.get("stdout") or ""
    said = out + "\n" + (t.get("stderr") or "")
    n_before = r.passed, len(r.failures), len(r.not_run)
    for line in out.split("\n"):
        m = TAP.match(line)
        skip = SKIP.match(m.group(2)) if m else None
        if skip:
            r.not_run.append(("%s: %s" % (name, skip.group(1)), skip.group(2) or "no reason given"))
        elif m:
            test = "%s: %s" % (name, m.group(2))
            r.ran.add(test)
            if m.group(1) == "ok":
                r.passed += 1
            else:
                r.failures.append((test, tail(said)))
    r.cannot += CANNOT.findall(out)
    new = r.passed - n_before[0], len(r.failures) - n_before[1], len(r.not_run) - n_before[2]
    if t["result"] == "SKIP" and new == (0, 0, 0):
        why = re.search(r"^1\.\.0\s*#\s*SKIP\b\s*(.+)", out, re.M | re.I)
        r.not_run.append((name, why.group(1).strip() if why else "no reason given"))
    elif t["result"] == "OK" and new == (0, 0, 0):
        r.passed += 1
        r.ran.add(name)
    elif t["result"] not in ("OK", "SKIP", "EXPECTEDFAIL") and not new[1]:
        r.failures.append(("%s: %s, exit code %s" % (name, t["result"], t.get("returncode")), tail(said)))


def add_meson(r, path):
    with open(path, encoding="utf-8", errors="replace") as f:
        for line in f:
            add_meson_test(r, json.loads(line))


def add_pytest(r, path):
    """JUnit's XML, and the list of tests that tests/e2e/conftest.py deselected."""
    for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
        name = "%s::%s" % (case.get("classname", "").split(".")[-1], case.get("name"))
        wrong = [c for c in case if c.tag in ("failure", "error")]
        skips = [c for c in case if c.tag == "skipped"]
        if wrong:
            r.failures.append((name, tail(wrong[0].text or wrong[0].get("message") or "")))
        elif skips:
            r.not_run.append((name, skips[0].get("message") or "no reason given"))
        else:
            r.passed += 1
        if not skips:
            r.ran.add(name)
    try:
        with open(str(path) + ".deselected", encoding="utf-8") as f:
            r.not_run += [tuple(json.loads(line)) for line in f]
    except FileNotFoundError:
        pass


def count(build, kind, path, rc):
    """The record of a run with exit code rc.  A run that failed without a failed test, or without
    any test, is a failure itself."""
    r = Record(build)
    try:
        {"meson": add_meson, "pytest": add_pytest}[kind](r, path)
    except (OSError, ValueError, KeyError, xml.etree.ElementTree.ParseError) as e:
        r = Record(build, failures=[("no record of the run: %s" % e, [])])
    if rc and not r.failures:
        r.failures.append(("the run ended with exit code %d" % rc, []))
    if not r.passed and not r.failures:
        r.failures.append(("no test ran", []))
    return r


def groups(pairs):
    """[(number, reason, names)], the largest first."""
    by = collections.defaultdict(set)
    for name, why in pairs:
        by[why].add(name)
    return sorted(((len(names), why, sorted(names)) for why, names in by.items()),
                  key=lambda g: (-g[0], g[1]))


def summary(records, all_can_run, seconds, cpu_seconds):
    """The last lines, and whether all tests passed.  records: {stage: Record}; all_can_run: on this
    system every test must run."""
    lines, ran = [], set().union(*(r.ran for r in records.values()))
    n_passed = sum(r.passed for r in records.values())
    n_failed = sum(len(r.failures) for r in records.values())
    for stage, r in records.items():
        if r.failures:
            lines += ["failed in %s:" % stage] + ["    " + name[:WIDTH // 2] for name, _ in r.failures]
    nowhere = [(name, why) for r in records.values() for name, why in r.not_run
               if name not in ran and why != LONG]
    for n, why, names in groups(nowhere):
        lines.append("not run: %d x %s (%s)" % (n, why, ", ".join(names[:3]) + (", ..." if n > 3 else "")))
    for build in dict.fromkeys(r.build for r in records.values()):
        for n, why, _ in groups((name, why) for r in records.values() if r.build == build
                                for name, why in r.not_run if name in ran and why != LONG):
            lines.append("%s left out what another build ran: %d x %s" % (build, n, why))
    n_long = len({name for r in records.values() for name, why in r.not_run if why == LONG})
    if n_long:
        lines.append("--long has %d more" % n_long)
    lines += ["this machine cannot run: " + what
              for what in sorted({w for r in records.values() for w in r.cannot})]
    n_nowhere = len({name for name, _ in nowhere})
    if n_nowhere and all_can_run:
        lines.append("%d that can run here did not: each counts as failed" % n_nowhere)
        n_failed += n_nowhere
    if not n_passed and not n_failed:
        lines.append("no test ran")
        n_failed = 1
    by_build = collections.Counter()
    for r in records.values():
        by_build[r.build] += r.passed
    lines.append("passed by build: " + ", ".join("%s %d" % b for b in by_build.items() if b[1]))
    lines.append("%d s in all, %d s of processor time" % (seconds, cpu_seconds))
    lines.append("%d passed, %d failed" % (n_passed, n_failed))
    return lines, n_failed == 0
