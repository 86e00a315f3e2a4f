"""Runs the stages of ./check: each when what it needs is there, as many at once as there are
processors.

What computes takes a processor (cost 1, or as many as it uses); what mostly waits, for a network
or for deadlines, costs nothing and runs beside the others, and what waits for a third of its time costs
half: one more runs beside it then, and no processor waits.  Stages begin in their order: the longest
come first, and short ones fill what is left, at the end too.  Builds of what later stages want run
behind the tests, one at a time, at the lowest priority.  A stage's output is in logs/NAME.log; a
line says how long it took and how much processor time it and all its processes used.  logs/timeline.log has
when each began (+) and ended (-), and how much of the processors nobody used since the line before.
"""
import os
import signal
import subprocess
import threading
import time

import count

MAX_SHOWN = 20  # failures of a stage whose output is printed; all are in its log


class Failed(Exception):
    """A command of a stage failed; the cause is in the log."""


def idle_s():
    """Seconds that processors had nothing to do, of all together since the machine began; 0 where the system does
    not say."""
    try:
        with open("/proc/stat", encoding="ascii") as f:
            return sum(map(int, f.readline().split()[4:6])) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return 0.0


class Stage:
    """run(job) raises Failed, or returns a Record, or None for a stage without tests.  It starts
    when all of `after` have ended, and only if all of `needs` succeeded."""

    def __init__(self, name, run, needs=(), after=(), cost=1, behind=False, build="other"):
        self.name, self.run, self.build = name, run, build
        self.needs, self.after = set(needs), set(needs) | set(after)
        self.cost, self.behind = cost, behind
        self.good = self.thread = None


class Job:
    """A stage that runs: its commands, their output and processor time."""

    def __init__(self, runner, stage):
        self.stage, self.runner, self.cpu_s = stage, runner, 0.0
        self.path = runner.logs / (stage.name + ".log")
        self.log = open(self.path, "w", encoding="utf-8")

    def say(self, text):
        self.log.write(text + "\n")
        self.log.flush()

    def code(self, command, **options):
        """Run a command to its end; returns the exit code."""
        if self.stage.behind:
            command = ["nice", "-n", "19", *command]
        p = subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=self.log,
                             stderr=subprocess.STDOUT, start_new_session=True, **options)
        with self.runner.lock:
            self.runner.processes.add(p)
        _, status, usage = os.wait4(p.pid, 0)
        with self.runner.lock:
            self.runner.processes.discard(p)
        p.returncode = os.waitstatus_to_exitcode(status)
        self.cpu_s += usage.ru_utime + usage.ru_stime
        return p.returncode

    def do(self, command, **options):
        """Run; a failure ends the stage."""
        code = self.code(command, **options)
        if code:
            raise Failed("%s ended with %d" % (command[0], code))


class Runner:
    def __init__(self, logs, n_cpus):
        self.logs, self.n_cpus = logs, n_cpus
        self.lock, self.changed = threading.Lock(), threading.Condition()
        self.processes, self.records, self.cpu_s = set(), {}, 0.0
        self.began = time.monotonic()
        self.noted = self.began, idle_s()

    def note(self, text):
        """Under the lock `changed`."""
        (before, idle_before), self.noted = self.noted, (time.monotonic(), idle_s())
        seconds = max(self.noted[0] - before, 1e-3) * self.n_cpus
        with open(self.logs / "timeline.log", "a", encoding="utf-8") as f:
            f.write("%5d s  idle %3d %%  %s\n" % (self.noted[0] - self.began,
                                                 min(100, 100 * (self.noted[1] - idle_before) / seconds), text))

    def stop(self):
        """Kill the running commands and their children."""
        with self.lock:
            for p in self.processes:
                try:
                    os.killpg(p.pid, signal.SIGTERM)
                except ProcessLookupError:
                    pass

    def run_stage(self, stage):
        start, job, note, failed = time.monotonic(), Job(self, stage), "ok", []
        record = None
        try:
            record = stage.run(job)
        except Failed as e:
            failed = [("%s: %s" % (stage.name, e), count.tail(job.path.read_text(errors="replace"), 25))]
        except Exception as e:  # noqa: BLE001 - an error of this script is a failure too
            failed = [("%s: %r" % (stage.name, e), [])]
        record = record or (count.Record(stage.build, failures=failed) if failed else None)
        if record:
            note = (record.note() if len(record.ran) > 1 else "FAILED" if record.failures else
                    "ok" if record.passed else "not run: " + record.not_run[0][1])
            if record.failures:
                note += " (see build-check/logs/%s.log)" % stage.name
        lines = ["%-20s %4d s %5d s cpu  %s" % (stage.name, time.monotonic() - start, job.cpu_s, note)]
        for name, said in record.failures[:MAX_SHOWN] if record else []:
            lines += ["    " + name] + ["      " + line for line in said]
        if record and len(record.failures) > MAX_SHOWN:
            lines.append("    and %d more" % (len(record.failures) - MAX_SHOWN))
        job.log.close()
        with self.changed:
            print("\n".join(lines), flush=True)
            self.cpu_s += job.cpu_s
            self.note("-" + stage.name)
            if record:
                self.records[stage.name] = record
            stage.good = not (record and record.failures)
            self.changed.notify()

    def may_begin(self, stage, stages, ended):
        """Whether a processor is free for the stage."""
        running = [s for s in stages if s.thread and s.name not in ended]
        if stage.behind and self.n_cpus > 1:
            return not any(s.behind for s in running)
        if not stage.cost:
            return True
        taken = sum(s.cost for s in running if not (s.behind and self.n_cpus > 1))
        return not taken or taken + stage.cost <= self.n_cpus

    def begin_some(self, stages):
        """Start the stages that can start; whether one ended without a start."""
        names, ended = {s.name for s in stages}, {s.name for s in stages if s.good is not None}
        bad, full = {s.name for s in stages if s.good is False}, False
        for s in stages:
            if s.thread or s.good is not None or (s.after & names) - ended:
                continue
            if s.needs & bad:
                why = "%s failed" % sorted(s.needs & bad)[0]
                self.records[s.name] = count.Record(s.build, not_run=[(s.name, why)])
                s.good = False
                return True
            # later stages do not overtake one that waits for a processor
            if (full and s.cost and not s.behind) or not self.may_begin(s, stages, ended):
                full = full or not s.behind
                continue
            self.note("+" + s.name)
            s.thread = threading.Thread(target=self.run_stage, args=(s,), daemon=True)
            s.thread.start()
        return False

    def run(self, stages):
        with self.changed:
            while any(s.good is None for s in stages):
                if not self.begin_some(stages):
                    self.changed.wait()
