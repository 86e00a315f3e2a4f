#!/usr/bin/env python3
"""Builds Ingot in all its test builds and runs every test: ./check, which installs what this needs
and calls it with its own arguments."""
import argparse
import fcntl
import os
import pathlib
import signal
import sys
import tempfile
import time

sys.dont_write_bytecode = True

import count  # noqa: E402
import stages  # noqa: E402
from runner import Runner  # noqa: E402

PROGRAMS = ("daemon/ingotd", "cli/ingot", "tests/metal/ingotd-metal", "tests/metal/ingotd-metal-checked")


def orphans():
    """Kill programs of these builds that still run; returns their names."""
    out = []
    for p in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            program = os.readlink(p / "exe")
            if program.startswith(str(stages.OUT)) and program.endswith(PROGRAMS):
                os.kill(int(p.name), signal.SIGKILL)
                out.append("%s %s" % (p.name, os.path.relpath(program, stages.ROOT)))
        except OSError:
            continue
    return out


def clean_environment(tmp):
    """Remove what the results could depend on from the environment."""
    for name in list(os.environ):
        if name.startswith(("INGOT_", "XDG_")) or name in (
                "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "CC", "CXX", "PYTHONPATH", "PYTHONHOME", "PYTEST_ADDOPTS",
                "PYTHONDONTWRITEBYTECODE", "PYTEST_PLUGINS", "MESON_TESTTHREADS", "MAKEFLAGS", "LANGUAGE", "CDPATH"):
            del os.environ[name]
    locale = "C.UTF-8" if stages.LINUX else "en_US.UTF-8"
    os.environ.update(
        stages.SANITIZERS, LC_ALL=locale, LANG="C.UTF-8", TZ="UTC",
        # Once for all stages: half of pytest's start is rewriting the tests' assertions.
        PYTHONPYCACHEPREFIX=str(stages.OUT / "pycache"),
        PIP_DISABLE_PIP_VERSION_CHECK="1", TMPDIR=str(tmp), ZIG_GLOBAL_CACHE_DIR=str(stages.CROSS / "zig-cache"),
        ZIG_LOCAL_CACHE_DIR=str(stages.CROSS / "zig-cache"), CCACHE_BASEDIR=str(stages.ROOT),
        CCACHE_NOHASHDIR="1", **{name: str(folder) for name, folder in stages.CACHES.items()})


def drop_old(folder, days):
    for path in folder.glob("*"):
        if path.stat().st_mtime < time.time() - days * 86400:
            path.unlink()


def judge(runner, began, fast):
    left = orphans()
    if left:
        print("daemons that a test left running (ended now):", *left, sep="\n    ")
        runner.records["orphans"] = count.Record("other", failures=[("a test left a daemon running", [])])
    lines, good = count.summary(runner.records, stages.DEBIAN, time.time() - began, runner.cpu_s)
    if fast:
        print("--fast leaves to the whole ./check: " + "; ".join(stages.FAST_LEAVES_OUT))
    print("\n".join(lines), flush=True)
    return 0 if good else 1


def main():
    p = argparse.ArgumentParser(prog="check", add_help=False)
    p.add_argument("--fast", action="store_true")
    p.add_argument("--long", action="store_true")
    p.add_argument("--began", type=float, default=time.time())
    a = p.parse_args()
    os.umask(0o022)
    stages.LOGS.mkdir(parents=True, exist_ok=True)
    lock = open(stages.OUT / "lock", "a+", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit("check: another ./check runs here")
    for path in stages.LOGS.glob("*"):
        path.unlink()
    for cache in stages.CACHES.values():
        cache.mkdir(exist_ok=True)
        drop_old(cache, 30)
    runner = Runner(stages.LOGS, stages.N_CPUS)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    with tempfile.TemporaryDirectory(prefix="ingot-check-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        clean_environment(folder)
        tests = stages.Tests(pathlib.Path(folder), once=not (a.fast or a.long))
        all_stages = stages.release_stages(tests, a.fast, a.long) + ([] if a.fast else stages.other_stages(tests))
        try:
            runner.run(all_stages)
            if a.long:
                runner.run(stages.long_stages(tests))
            return judge(runner, a.began, a.fast)
        finally:
            runner.stop()
            orphans()


if __name__ == "__main__":
    sys.exit(main())
