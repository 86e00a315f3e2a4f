"""The package in a bare chroot: installed, started as its unit starts it, upgraded, removed, purged.  It needs root, or
sudo, and the mirror that apt uses here; systemd does not run there."""
import http.client
import json
import os
import re
import shlex
import socket
import subprocess

import pytest

import tiny_model
from conftest import run
from daemon import DEADLINE_S

AS_ROOT = [] if os.geteuid() == 0 else ["sudo", "-n"]
# What dpkg and apt write for themselves, and what users are never told apart by.
NOT_OURS = re.compile(r"/(proc|sys|dev|run|tmp|root)/|/var/(cache|log)/|/var/lib/(dpkg|apt)/|/etc/(passwd|group|g?shadow|subuid|subgid)-$"
                      r"|/etc/\.pwd\.lock$")


class Chroot:
    def __init__(self, path):
        self.path = path
        uri, suite = run("apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME)", "Created-By: Packages",
                         "Origin: Debian", "Component: main").split("\n")[0].split()
        run(*AS_ROOT, "mmdebstrap", "--quiet", "--variant=apt", "--include=systemd-standalone-sysusers,systemd-standalone-tmpfiles",
            suite, path, uri)
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
        run(*AS_ROOT, "cp", deb, self.path / "tmp")
        return "/tmp/" + deb.name


@pytest.fixture(scope="module")
def chroot(tmp_path_factory):
    if AS_ROOT and subprocess.run([*AS_ROOT, "true"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("a chroot needs root")
    c = Chroot(tmp_path_factory.mktemp("chroot") / "root")
    yield c
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


def test_from_the_installation_to_the_purge(chroot, packages, tmp_path):
    first, second = chroot.put(packages.debs["ingot"]), chroot.put(newer(packages, tmp_path))
    depends = run("dpkg-deb", "-f", packages.debs["ingot"], "Depends")
    chroot("apt-get", "update", "-q")
    chroot("apt-get", "install", "-q", "-y", "--no-install-recommends",
           *[d.split()[0] for d in depends.split(", ") if "|" not in d])
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
