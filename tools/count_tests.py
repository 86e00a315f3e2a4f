#!/usr/bin/env python3
"""Count the tests of one stage of ./check, and say which failed and what they said.

    count_tests.py meson  OUT RC LOG.json     what `meson test` logged; each line of TAP is a test
    count_tests.py pytest OUT RC JUNIT.xml

Writes OUT.count ("passed failed skipped"), OUT.note (one line for people) and, if any
failed, OUT.report (a line for each failure, its log's tail below it, indented).  A run that
ended badly (RC) without a failed test, or had no test at all, is itself one failure.
"""
import json
import re
import sys
import xml.etree.ElementTree

TAIL = 30
WIDTH = 300
TAP = re.compile(r"^(not ok|ok)\b(?:\s+\d+)?(?:\s+-)?\s*(.*)$")


def tail(text, n=TAIL):
    return [line[:WIDTH] for line in text.rstrip().split("\n") if line.strip()][-n:]


def count_meson(path):
    passed, failures, skipped = 0, [], 0
    with open(path, encoding="utf-8", errors="replace") as f:
        for line in f:
            t = json.loads(line)
            name = t["name"].split(" / ")[-1]
            said = (t.get("stdout") or "") + "\n" + (t.get("stderr") or "")
            good, bad, omitted = 0, [], 0
            for said_line in (t.get("stdout") or "").split("\n"):
                m = TAP.match(said_line)
                if m and "# SKIP" in m.group(2).upper():
                    omitted += 1
                elif m and m.group(1) == "ok":
                    good += 1
                elif m:
                    bad.append(m.group(2))
            result = t["result"]
            if result == "SKIP" and not good and not bad:
                omitted = max(omitted, 1)
            elif result == "OK" and not good and not bad and not omitted:
                good = 1  # a test without TAP: its exit code
            passed += good
            skipped += omitted
            for b in bad:
                failures.append(("%s: %s" % (name, b), tail(said)))
            if result not in ("OK", "SKIP", "EXPECTEDFAIL") and not bad:
                failures.append(("%s: %s, exit code %s" % (name, result, t.get("returncode")),
                                 tail(said)))
    return passed, failures, skipped


def count_pytest(path):
    passed, failures, skipped = 0, [], 0
    for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
        name = "%s::%s" % (case.get("classname", "").split(".")[-1], case.get("name"))
        wrong = [c for c in case if c.tag in ("failure", "error")]
        if wrong:
            failures.append((name, tail(wrong[0].text or wrong[0].get("message") or "")))
        elif any(c.tag == "skipped" for c in case):
            skipped += 1
        else:
            passed += 1
    return passed, failures, skipped


def main():
    kind, out, rc, path = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    try:
        passed, failures, skipped = {"meson": count_meson, "pytest": count_pytest}[kind](path)
    except (OSError, ValueError, KeyError, xml.etree.ElementTree.ParseError) as e:
        passed, failures, skipped = 0, [("no record of the run: %s" % e, [])], 0
    if rc and not failures:
        failures = [("the run ended with exit code %d" % rc, [])]
    if not passed and not failures:
        failures = [("no test ran", [])]
    with open(out + ".count", "w") as f:
        f.write("%d %d %d\n" % (passed, len(failures), skipped))
    with open(out + ".note", "w") as f:
        f.write("%d passed, %d failed" % (passed, len(failures)))
        f.write(", %d skipped\n" % skipped if skipped else "\n")
    with open(out + ".report", "w") as f:
        for name, lines in failures:
            f.write(name[:WIDTH // 2] + "\n")
            f.writelines("  %s\n" % line for line in lines)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
