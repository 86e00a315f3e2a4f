"""A program on a terminal of its own, driven as a person would."""
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

import pytest

import daemon as ingot

ESCAPE = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|[=>])")


@pytest.fixture
def env(tmp_path):
    e = ingot.clean_env(tmp_path, {"TERM": "xterm", "LC_ALL": "C.UTF-8"})
    e.pop("NO_COLOR", None)
    return e


class Terminal:
    def __init__(self, args, env, columns=400, rows=50):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.at_first = termios.tcgetattr(slave)
        # kept open: the settings can be looked at after the end
        self.slave = slave
        self.process = subprocess.Popen(
            args, stdin=slave, stdout=slave, stderr=slave, env=env, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.raw, self.seen, self.end = b"", "", False

    def resize(self, columns):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))

    def type(self, text):
        os.write(self.master, text.encode() if isinstance(text, str) else text)

    def say(self, line):
        self.type(line + "\r")

    def _read(self, wait_s):
        if not select.select([self.master], [], [], wait_s)[0]:
            return False
        try:
            piece = os.read(self.master, 65536)
        except OSError: # the other side has gone
            piece = b""
        self.end = self.end or not piece
        self.raw += piece
        self._show(piece)
        return bool(piece)

    def _show(self, piece):
        self.seen = ESCAPE.sub("", self.raw.decode(errors="replace")).replace("\r\n", "\n")

    def until(self, text, deadline_s=None):
        """Read up to text; what came before it since the last call, without escapes."""
        end = time.monotonic() + (deadline_s or ingot.DEADLINE_S)
        start = getattr(self, "taken", 0)
        while True:
            at = self.seen.find(text, start)
            if at >= 0:
                self.taken = at + len(text)
                return self.seen[start:at]
            assert time.monotonic() < end and not self.end, \
                "%r never came after:\n%s" % (text, self.seen[start:])
            self._read(0.05)

    def prompt(self):
        """What came before the next prompt."""
        return self.until("\n> ")

    def ask(self, line):
        """Say it, and what is printed until the next prompt."""
        self.say(line)
        self.until("\n")
        self.taken -= 1 # an empty output leaves one newline before the prompt
        return self.prompt().removeprefix("\n")

    def wait(self):
        """The exit status; everything that came is in seen."""
        end = time.monotonic() + ingot.DEADLINE_S
        while self.process.poll() is None:
            assert time.monotonic() < end, "it does not end:\n" + self.seen[-2000:]
            self._read(0.05)
        while self._read(0):
            pass
        said = self.raw.decode(errors="replace")
        assert not ingot.REPORT.search(said), said
        return self.process.returncode

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.slave)
        os.close(self.master)


class Screen(Terminal):
    """One whose screen can be looked at: pyte is the terminal."""

    def __init__(self, args, env, columns=80, rows=50):
        import pyte
        super().__init__(args, env, columns, rows)
        self.screen = pyte.Screen(columns, rows)
        self.stream = pyte.ByteStream(self.screen)

    def _show(self, piece):
        self.stream.feed(piece)

    def look(self):
        """The lines that are shown now."""
        while self._read(0.02):
            pass
        return [line.rstrip() for line in self.screen.display]
