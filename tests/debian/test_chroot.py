"""The package in a bare chroot: installed, started as its unit starts it, upgraded, removed, purged; and in a container
that systemd has booted, which runs the unit itself.  It needs root, or sudo, and the mirror that apt uses here."""
import http.client
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import time

import pytest

import tiny_model
from conftest import run
from daemon import DEADLINE_S, until

AS_ROOT = [] if os.geteuid() == 0 else ["sudo", "-n"]
# What dpkg and apt write for themselves, and what users are never told apart by.
NOT_OURS = re.compile(r"/(proc|sys|dev|run|tmp|root)/|/var/(cache|log)/|/var/lib/(dpkg|apt)/|/etc/(passwd|group|g?shadow|subuid|subgid)-$"
                      r"|/etc/\.pwd\.lock$")


class Chroot:
    def __init__(self, path, systemd="systemd-standalone-sysusers,systemd-standalone-tmpfiles"):
        self.path = path
        uri, suite = run("apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME)", "Created-By: Packages",
                         "Origin: Debian", "Component: main").split("\n")[0].split()
        run(*AS_ROOT, "mmdebstrap", "--quiet", "--variant=apt", "--include=" + systemd, suite, path, uri)
        run(*AS_ROOT, "mount", "-t", "proc", "proc", path / "proc")  # by which the daemon opens its modules

    def daemons(self):
        """The processes of its ingotd."""
        program = str(self.path / "usr/bin/ingotd")
        out = run("sh", "-c", " ".join([*AS_ROOT, "find", "/proc", "-maxdepth", "2", "-name", "exe", "-lname", shlex.quote(program),
                                        "2>/dev/null || :"]))
        return [line.split("/")[2] for line in out.splitlines()]

    def remove(self):
        for pid in self.daemons():
            run(*AS_ROOT, "kill", "-KILL", pid)
        run(*AS_ROOT, "umount", self.path / "proc")
        run(*AS_ROOT, "rm", "-rf", "--one-file-system", self.path)

    def __call__(self, *command, user=()):
        return run(*self.prefix(*user), *command)

    def prefix(self, *options):
        return [*AS_ROOT, "chroot", *options, self.path, "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root",
                "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8"]

    def files(self):
        """Every path with its owner and mode."""
        out = run(*AS_ROOT, "find", self.path, "-xdev", "-printf", "%P %U %G %m %y\\n").splitlines()
        return {line for line in ("/" + line for line in out) if not NOT_OURS.search(line.split(" ")[0] + "/")
                and not NOT_OURS.search(line.split(" ")[0])}

    def users(self):
        return [(self.path / "etc" / name).read_text() for name in ("passwd", "group")]

    def put(self, deb):
        run(*AS_ROOT, "cp", deb, self.path / "root")
        return "/root/" + deb.name


class Container(Chroot):
    """A chroot that systemd boots, without a network.  Commands run beside it, as of a root who is logged in."""

    def __init__(self, path):
        super().__init__(path, "systemd,systemd-sysv")
        self.boots = self.init = None

    def boot(self):
        run(*AS_ROOT, "umount", self.path / "proc")
        self.boots = subprocess.Popen([*AS_ROOT, "systemd-nspawn", "--quiet", "--directory", self.path, "--boot", "--register=no",
                                       "--keep-unit", "--private-network"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                      stderr=subprocess.STDOUT, start_new_session=True)
        self.init = until(self.first_process, "systemd is there")
        until(lambda: self.try_("systemctl", "is-system-running").stdout in ("running\n", "degraded\n"), "it has booted")

    def first_process(self):
        """By its name, and by who started it: sudo may stand between."""
        parents, out = {str(self.boots.pid)}, None
        while parents and not out:
            found = [line.split() for line in run("ps", "-e", "-o", "pid=,ppid=,comm=").splitlines()]
            found = [f for f in found if f[1] in parents]
            out = next((f[0] for f in found if f[2] == "systemd"), None)
            parents = {f[0] for f in found}
        return out

    def prefix(self, *options):
        if not self.init:
            return super().prefix(*options)
        return [*AS_ROOT, "nsenter", "--target", self.init, "--mount", "--pid", "--net", "--uts", "--ipc", "env", "-i",
                "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8"]

    def try_(self, *command):
        return subprocess.run([*self.prefix(), *command], capture_output=True, text=True, stdin=subprocess.DEVNULL)

    def install(self, *debs):
        self("apt-get", "install", "-q", "-y", "--no-install-recommends", *["/root/" + deb.name for deb in debs])

    def unit(self, name, of="ingot"):
        return self("systemctl", "show", of, "--property", name, "--value").strip()

    def signal(self, name):
        self("sh", "-c", "kill -%s %s" % (name, self.unit("MainPID")))

    def remove(self):
        if self.init:
            self.try_("systemctl", "poweroff", "--force")
            try:
                self.boots.wait(DEADLINE_S)
            except subprocess.TimeoutExpired:  # a test has left something that does not end
                run(*AS_ROOT, "kill", "-KILL", self.init)
                self.boots.wait(DEADLINE_S)
            run(*AS_ROOT, "rm", "-rf", "--one-file-system", self.path)
        else:
            super().remove()


def made(kind, folder):
    if AS_ROOT and subprocess.run([*AS_ROOT, "true"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("a chroot needs root")
    return kind(folder / "root")


@pytest.fixture(scope="module")
def chroot(tmp_path_factory):
    c = made(Chroot, tmp_path_factory.mktemp("chroot"))
    yield c
    c.remove()


@pytest.fixture(scope="module")
def container(tmp_path_factory, packages):
    """Booted, and in /root the packages and the model tiny.gguf; what the packages need lies in apt's cache."""
    if not shutil.which("systemd-nspawn") or not os.path.isdir("/sys/fs/cgroup/systemd") and not os.path.exists(
            "/sys/fs/cgroup/cgroup.controllers"):
        pytest.skip("systemd-nspawn is not here, or no control group for it")
    folder = tmp_path_factory.mktemp("container")
    c = made(Container, folder)
    try:
        tiny_model.write(folder / "tiny.gguf", kind="script")
        for deb in packages.debs["ingot"], packages.debs["ingot-mpi"]:
            install_what_it_needs(c, deb, "--download-only")  # there is no network later
            c.put(deb)
        run(*AS_ROOT, "cp", folder / "tiny.gguf", c.path / "root")
        c.boot()
        yield c
    finally:
        c.remove()


class Service:
    """The daemon as the unit starts it: its command, its user, and a socket for its messages."""

    def __init__(self, chroot):
        unit = (chroot.path / "lib/systemd/system/ingot.service").read_text()
        command = shlex.split(re.search(r"^ExecStart=(.*)", unit, re.M)[1])
        user, group = (re.search(r"^%s=(.*)" % word, unit, re.M)[1] for word in ("User", "Group"))
        home = chroot("getent", "passwd", user).split(":")[5]
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(b"\0ingot-chroot-%d" % os.getpid())
        self.socket.settimeout(DEADLINE_S)
        self.process = subprocess.Popen(
            [*chroot.prefix("--userspec=%s:%s" % (user, group)), "HOME=" + home, "INGOT_SERVER_PORT=0",
             "INGOT_KVCACHE_ARENA=64MiB", "NOTIFY_SOCKET=@ingot-chroot-%d" % os.getpid(), *command],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        while self.socket.recv(4096) != b"READY=1":
            pass
        line = next(line for line in self.process.stdout if line.startswith("ready "))
        self.url = line.split()[1]

    def streamed(self, model):
        """The pieces of an answer."""
        c = http.client.HTTPConnection(self.url.split("//")[1], timeout=DEADLINE_S)
        c.request("POST", "/v1/chat/completions", json.dumps({
            "model": model, "stream": True, "temperature": 0, "messages": [{"role": "user", "content": "Hello"}]}),
            {"Content-Type": "application/json"})
        events = [line[6:] for line in c.getresponse().read().decode().split("\n") if line.startswith("data: {")]
        c.close()
        return [e["choices"][0]["delta"].get("content") or "" for e in map(json.loads, events) if e["choices"]]

    def stop(self, chroot):
        pid, = chroot.daemons()
        run(*AS_ROOT, "kill", pid)
        out = self.process.communicate(timeout=DEADLINE_S)[0]
        assert self.process.returncode == 0, out
        self.socket.close()


def newer(packages, folder):
    """The same package, one version later."""
    tree = folder / "newer"
    run("dpkg-deb", "-R", packages.debs["ingot"], tree)
    control = tree / "DEBIAN/control"
    text, n = re.subn(r"(?m)^(Version: .*)$", r"\1+1", control.read_text())
    assert n == 1
    control.write_text(text)
    default = tree / "etc/ingot/ingot.yaml"
    default.write_text(default.read_text() + "# newer\n")
    out = folder / "ingot_newer.deb"
    run("dpkg-deb", "--root-owner-group", "-b", tree, out)
    return out


def install_what_it_needs(chroot, deb, *options):
    depends = run("dpkg-deb", "-f", deb, "Depends")
    chroot("apt-get", "update", "-q")
    chroot("apt-get", "install", "-q", "-y", "--no-install-recommends", *options,
           *[d.split()[0] for d in depends.split(", ") if "|" not in d and d.split()[0] != "ingot"])


def test_from_the_installation_to_the_purge(chroot, packages, tmp_path):
    first, second = chroot.put(packages.debs["ingot"]), chroot.put(newer(packages, tmp_path))
    install_what_it_needs(chroot, packages.debs["ingot"])
    before, users = chroot.files(), chroot.users()

    chroot("apt-get", "install", "-q", "-y", "--no-install-recommends", first)
    assert "ingot:" in chroot.users()[0]
    tiny_model.write(tmp_path / "tiny.gguf", kind="script")
    run(*AS_ROOT, "cp", tmp_path / "tiny.gguf", chroot.path / "var/lib/ingot/models/tiny.gguf")
    s = Service(chroot)
    pieces = s.streamed("tiny")
    assert "".join(pieces) == tiny_model.SCRIPT
    assert chroot("INGOT_URL=" + s.url, "ingot", "run", "tiny", "Hello").strip().startswith(tiny_model.SCRIPT.strip())
    pull = subprocess.run([*chroot.prefix("--userspec=nobody:nogroup"), "INGOT_URL=" + s.url, "ingot", "pull", "qwen3-4b"],
                          capture_output=True, text=True)
    assert pull.returncode == 1 and "/var/lib/ingot/models: Permission denied; run it with sudo -u ingot, or" in pull.stderr
    s.stop(chroot)

    config = chroot.path / "etc/ingot/ingot.yaml"
    changed = config.read_text() + "# changed\n"
    run(*AS_ROOT, "sh", "-c", "echo '# changed' >> %s" % shlex.quote(str(config)))
    chroot("dpkg", "--force-confdef", "--force-confold", "-i", second)
    assert chroot("dpkg-query", "-W", "-f", "${Version}", "ingot").endswith("+1") and config.read_text() == changed
    s = Service(chroot)
    assert "".join(s.streamed("tiny")) == tiny_model.SCRIPT
    s.stop(chroot)

    chroot("dpkg", "--remove", "ingot")
    left = {f.split(" ")[0] for f in chroot.files() - before}
    assert "/etc/ingot/ingot.yaml" in left and "/var/lib/ingot/models/tiny.gguf" in left and "/var/lib/ingot/ledger.db" in left
    assert not [f for f in left if f.startswith("/usr/")]
    chroot("dpkg", "--purge", "ingot")
    assert chroot.files() - before == set() and before - chroot.files() == set()
    assert chroot.users() == users


def test_systemd_runs_it(container, packages):
    """Two commands from nothing to the first token; then all that systemd does with a service."""
    began = time.monotonic()
    container.install(packages.debs["ingot"])
    container("install", "-o", "ingot", "/root/tiny.gguf", "/var/lib/ingot/models/tiny.gguf")  # for `ingot pull`
    until(lambda: container.try_("ingot", "run", "tiny", "Hello").stdout.startswith(tiny_model.SCRIPT), "the first token")
    assert time.monotonic() - began < 60
    assert (container.unit("ActiveState"), container.unit("NRestarts")) == ("active", "0")
    assert container.unit("StatusText").startswith("Serving at http://")

    pid = container.unit("MainPID")
    container("sh", "-c", "echo '# changed' >>/etc/ingot/ingot.yaml")
    container("systemctl", "reload", "ingot")  # by a program that every Debian has
    assert container.unit("MainPID") == pid
    container.signal("USR2")
    until(lambda: container.unit("MainPID") != pid, "the successor is the main process")
    assert (container.unit("ActiveState"), container.unit("NRestarts")) == ("active", "0")
    container.signal("KILL")
    until(lambda: container.unit("NRestarts") == "1" and container.unit("ActiveState") == "active", "it is started again")

    # Signs of life: with them nothing happens, without them it is ended and started again.
    container("mkdir", "-p", "/etc/systemd/system/ingot.service.d")
    container("sh", "-c", "printf '[Service]\nWatchdogSec=3\n' >/etc/systemd/system/ingot.service.d/watchdog.conf")
    container("systemctl", "daemon-reload")
    container("systemctl", "restart", "ingot")
    time.sleep(5)
    assert container.unit("NRestarts") == "0"
    container.signal("STOP")
    until(lambda: container.unit("NRestarts") == "1" and container.unit("ActiveState") == "active", "the watchdog barks")
    assert "Failed with result 'watchdog'" in container("journalctl", "--unit", "ingot", "--no-pager")
    container("systemctl", "stop", "ingot")
    assert [container.unit(name) for name in ("ActiveState", "Result", "ExecMainStatus")] == ["inactive", "success", "0"]


def test_systemd_runs_several_machines(container, packages):
    """Both ranks on one machine, as the unit has it until it is edited: ready when the first one says so, started again when
    one is killed, and ended by a stop, with nothing of them left."""
    def ranks():
        found = container.try_("sh", "-c", "grep -lx ingotd /proc/[0-9]*/comm").stdout.split()
        return sorted((f.split("/")[2] for f in found), key=int)

    def answers():
        r = container.try_("ingot", "run", "tiny", "Hello")
        assert r.stdout.startswith(tiny_model.SCRIPT), r
        return True

    unit = "ingot-machines"
    container.install(packages.debs["ingot"], packages.debs["ingot-mpi"])
    container("install", "-o", "ingot", "/root/tiny.gguf", "/var/lib/ingot/models/tiny.gguf")
    container("sh", "-c", "printf 'runtime:\n  transport: mpi\n  threads: 1\n' >>/etc/ingot/ingot.yaml")
    container("systemctl", "start", unit)
    assert [container.unit("ActiveState", of) for of in (unit, "ingot")] == ["active", "inactive"]  # one or the other
    assert container.unit("StatusText", unit).startswith("Serving at http://")
    assert len(ranks()) == 2 and answers()
    assert "rank 1 of 2" in container("journalctl", "--unit", unit, "--no-pager")
    container("sh", "-c", "kill -KILL " + ranks()[-1])
    until(lambda: container.unit("NRestarts", unit) == "1" and container.unit("ActiveState", unit) == "active", "it is started again", 90)
    assert len(ranks()) == 2 and answers()
    began = time.monotonic()
    container("systemctl", "stop", unit)
    assert time.monotonic() - began < 10, container("journalctl", "--unit", unit, "--no-pager", "-o", "short-precise")
    assert [container.unit(name, unit) for name in ("ActiveState", "Result")] == ["inactive", "success"] and not ranks()
