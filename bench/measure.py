"""Shared by the benches that run other programs: an idle machine, alternating rounds, tables.
A round begins when the machine is idle, and is discarded and repeated if other processes used
more than a given share of its processors (Linux; elsewhere all rounds count).
"""
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time


def say(text):
    print(text, file=sys.stderr, flush=True)


# ---- an idle machine ------------------------------------------------------------------

def busy_seconds():
    """Processor seconds of all processes since boot, or None if unknown."""
    try:
        fields = open("/proc/stat").readline().split()[1:]
    except OSError:
        return None
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, fields[:8])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def child_seconds():
    """Processor seconds of children that run, daemons say, which getrusage does not know yet."""
    ticks = 0
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(") ", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid():
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def own_seconds():
    return child_seconds() + sum(resource.getrusage(who).ru_utime + resource.getrusage(who).ru_stime
                                 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


class Quiet:
    """Runs measurements, and repeats those that other processes disturbed."""

    def __init__(self, foreign_percent, patience_s):
        self.limit, self.patience_s = foreign_percent / 100, patience_s
        self.n_dropped = 0

    def wait_idle(self):
        end = time.monotonic() + self.patience_s
        while busy_seconds() is not None and time.monotonic() < end:
            before, t = busy_seconds(), time.monotonic()
            time.sleep(0.5)
            share = (busy_seconds() - before) / (time.monotonic() - t) / os.cpu_count()
            if share <= self.limit:
                return
        if busy_seconds() is not None:
            sys.exit("the machine was never idle for %d s; see --foreign and "
                     "--patience" % self.patience_s)

    def measure(self, run, tries=8):
        """run()'s result from an undisturbed round."""
        for _ in range(tries):
            self.wait_idle()
            busy, own, t = busy_seconds(), own_seconds(), time.monotonic()
            result = run()
            if busy is None:
                return result
            wall = time.monotonic() - t
            foreign = (busy_seconds() - busy) - (own_seconds() - own)
            if foreign / wall / os.cpu_count() <= self.limit:
                return result
            self.n_dropped += 1
            say("  dropped: other processes used %.0f %%"
                % (100 * foreign / wall / os.cpu_count()))
        sys.exit("%d rounds in a row were disturbed; see --foreign" % tries)


def output_of(argv):
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True)
    if done.returncode:
        sys.exit("%s failed (%d):\n%s" % (" ".join(map(str, argv)), done.returncode,
                                          done.stderr[-2000:]))
    return done.stdout


def spread(samples, digits=0):
    return "%.*f (%.*f–%.*f)" % (digits, statistics.median(samples), digits, min(samples),
                                 digits, max(samples))


def alternate(quiet, n_rounds, what, runs):
    """Samples of several competitors, {name: {metric: [..]}}, round after round."""
    out = {}
    for i in range(n_rounds):
        for name, run in runs:
            say("%s, round %d of %d: %s" % (what, i + 1, n_rounds, name))
            for metric, samples in quiet.measure(run).items():
                if isinstance(samples, list):
                    out.setdefault(name, {}).setdefault(metric, []).extend(samples)
                else:
                    out.setdefault(name, {})[metric] = samples
    return out


def print_table(head, rows):
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for r in rows:
        print("| " + " | ".join(r) + " |")
    print()
