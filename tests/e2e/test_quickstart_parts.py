"""The parts of quickstart that need neither packages nor a build: arguments, and what
--stop does and leaves alone."""
import contextlib
import pathlib
import shutil
import subprocess
import sys

import pytest

import daemon as ingot

pytestmark = pytest.mark.home("release")

QUICKSTART = pathlib.Path(__file__).resolve().parents[2] / "quickstart"


@pytest.fixture
def tree(tmp_path):
    shutil.copy(QUICKSTART, tmp_path / "quickstart")
    (tmp_path / "build" / "daemon").mkdir(parents=True)
    return tmp_path


def quickstart(tree, *args):
    return subprocess.run(["bash", str(tree / "quickstart"), *args], cwd="/", text=True,
                          capture_output=True, stdin=subprocess.DEVNULL,
                          timeout=ingot.DEADLINE_S)


def test_help(tree):
    p = quickstart(tree, "--help")
    assert p.returncode == 0 and "usage: ./quickstart" in p.stdout and p.stderr == ""


@pytest.mark.parametrize("args", [["--zeppelin"], ["a", "b"]])
def test_wrong_usage(tree, args):
    p = quickstart(tree, *args)
    assert p.returncode == 2 and "usage: ./quickstart" in p.stderr
    assert not (tree / "build" / "quickstart.log").exists(), "it began to work"


def test_stop_without_a_daemon(tree):
    p = quickstart(tree, "--stop")
    assert p.returncode == 0 and "no daemon of quickstart is running" in p.stdout


@pytest.mark.parametrize("text", ["", "nonsense", "-1", "0", "99999999999", "1 2"])
def test_stop_with_a_damaged_pid_file(tree, text):
    path = tree / "build" / "ingotd.pid"
    path.write_text(text)
    p = quickstart(tree, "--stop")
    assert p.returncode == 0 and "no daemon of quickstart is running" in p.stdout, p.stderr
    if text and not text.isdigit():  # what was not understood is not deleted
        assert path.read_text() == text and "ingotd.pid is kept" in p.stdout


def test_stop_leaves_other_processes_alone(tree):
    """The pid file is old, its number belongs to another program by now."""
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        (tree / "build" / "ingotd.pid").write_text("%d\n" % other.pid)
        p = quickstart(tree, "--stop")
        assert p.returncode == 0 and "no daemon" in p.stdout
        assert other.poll() is None, "it was killed"
        assert not (tree / "build" / "ingotd.pid").exists()
    finally:
        other.stdin.close()
        other.kill()
        other.wait()


@contextlib.contextmanager
def stand_in(tree, folder):
    """A python whose argv[0] says that it is the daemon of the checkout in this folder; the
    pid file of the tree has its number."""
    exe = str(folder / "build" / "daemon" / "ingotd")
    p = subprocess.Popen([exe, "-c", "print('up', flush=True); input()"],
                         executable=sys.executable, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert p.stdout.readline() == b"up\n"
        (tree / "build" / "ingotd.pid").write_text("%d\n" % p.pid)
        yield p
    finally:
        p.kill()
        p.wait()
        p.stdin.close()
        p.stdout.close()


@pytest.mark.parametrize("through", ["its path", "a symlink"])
def test_stop(tree, through):
    called = tree
    if through == "a symlink":
        called = tree / "link"
        called.symlink_to(tree)
    with stand_in(tree, tree.resolve()) as p:
        # reaped at once, as init would
        stopper = subprocess.Popen(["bash", str(called / "quickstart"), "--stop"], text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        p.wait(ingot.DEADLINE_S)
        out = stopper.communicate(timeout=ingot.DEADLINE_S)[0]
        assert stopper.returncode == 0 and "stopped" in out, out
        assert not (tree / "build" / "ingotd.pid").exists()


def test_stop_leaves_another_daemon_alone(tree):
    """One of a checkout that was moved, or copied with its build."""
    with stand_in(tree, tree / "elsewhere") as p:
        out = quickstart(tree, "--stop")
        assert out.returncode == 0 and "process %d is another daemon" % p.pid in out.stdout
        assert p.poll() is None, "it was stopped"
        assert (tree / "build" / "ingotd.pid").read_text() == "%d\n" % p.pid
