"""The Debian packages: lintian, what is in them, the unit, the configuration, a module's author."""
import json
import os
import re
import shlex
import subprocess

import tiny_model
from conftest import ROOT, run

UNIT = (ROOT / "debian/ingot.service").read_text()


def test_lintian_finds_nothing(packages):
    home = packages.unpacked  # it would write below the user's
    out = run("lintian", "--profile", "debian", "--fail-on", "error,warning", "--allow-root", packages.changes,
              env=dict(os.environ, HOME=str(home), LC_ALL="C.UTF-8"))
    assert not re.search(r"^[EW]:", out, re.M), out


def test_its_version_is_the_build_s():
    version = re.search(r"version: '([^']+)'", (ROOT / "meson.build").read_text())[1]
    assert run("dpkg-parsechangelog", "-l", ROOT / "debian/changelog", "-S", "Version").strip() == version


def test_the_build_s_dependencies_are_named():
    """All are here, since the packages could be built; and all that meson asks for is among them."""
    run("dpkg-checkbuilddeps", "-I", "-P", "nocheck,pkg.ingot.nogpu", ROOT / "debian/control")
    named = re.search(r"^Build-Depends:\n((?: .*\n)+)", (ROOT / "debian/control").read_text(), re.M)[1]
    for name in re.findall(r"dependency\('([^']+)'", (ROOT / "meson.build").read_text()):
        word = {"yaml-0.1": "libyaml", "libcrypto": "libssl", "libcurl": "libcurl4", "libpcre2-8": "libpcre2"}.get(name, name)
        assert name == "threads" or re.search(r"^ (lib)?%s" % re.escape(word), named, re.M), name


def test_what_is_in_them(packages):
    triplet = run("dpkg-architecture", "-q", "DEB_HOST_MULTIARCH").strip()
    files = packages.files("ingot")
    assert {
        "/etc/ingot/ingot.yaml", "/lib/systemd/system/ingot.service", "/usr/bin/ingot", "/usr/bin/ingotd",
        "/usr/lib/sysusers.d/ingot.conf", "/usr/lib/tmpfiles.d/ingot.conf", "/usr/share/ingot/models.yaml",
        "/usr/share/man/man1/ingot.1.gz", "/usr/share/man/man5/ingot.yaml.5.gz", "/usr/share/man/man8/ingotd.8.gz",
        "/usr/share/bash-completion/completions/ingot", "/usr/share/doc/ingot/examples/ingot.yaml",
        *("/usr/lib/%s/ingot/modules/%s.so" % (triplet, m) for m in ("attention", "kvcache", "moe", "recurrent")),
    } <= files
    assert not [f for f in files if "/tests/" in f or "/bench/" in f or "ingot-bench" in f or f.endswith((".a", ".h"))]
    headers = {"/usr/include/ingot/" + p.name for p in (ROOT / "include/ingot").glob("*.h")}
    assert packages.files("ingot-dev") >= headers | {
        "/usr/lib/%s/pkgconfig/ingot.pc" % triplet, "/usr/share/ingot/examples/module/pebble.c"}
    assert run("dpkg-deb", "-I", packages.debs["ingot"], "conffiles") == "/etc/ingot/ingot.yaml\n"


def test_open_mpi_is_for_a_package_of_its_own(packages):
    """Who does not install it links nothing of Open MPI."""
    module, unit = "/usr/lib/%s/ingot/modules/transport-mpi.so", "/lib/systemd/system/ingot-machines.service"
    module %= run("dpkg-architecture", "-q", "DEB_HOST_MULTIARCH").strip()
    assert packages.files("ingot-mpi") >= {module, unit} and module not in packages.files("ingot")
    depends = {name: run("dpkg-deb", "-f", packages.debs[name], "Depends") for name in ("ingot", "ingot-mpi")}
    version = run("dpkg-deb", "-f", packages.debs["ingot"], "Version").strip()
    assert "mpi" not in depends["ingot"]
    assert {"ingot (= %s)" % version, "openmpi-bin"} <= set(depends["ingot-mpi"].strip().split(", ")), depends
    assert re.search(r"\blibopenmpi\d", depends["ingot-mpi"]), depends
    installed = (packages.unpack("ingot-mpi") / unit[1:]).read_text()
    assert installed == (ROOT / "debian/ingot-mpi.ingot-machines.service").read_text()
    script = run("dpkg-deb", "-I", packages.debs["ingot-mpi"], "postinst")  # it neither starts nor restarts
    assert "ingot-machines.service" in script and not re.search(r"\b(re)?start\b.*ingot-machines", script)


def test_the_unit_of_several_machines(packages, tmp_path):
    """systemd takes it, and its command serves a model with what the packages have, on this machine."""
    root = packages.unpack("ingot", "ingot-mpi")
    unit = root / "lib/systemd/system/ingot-machines.service"
    assert run("systemd-analyze", "verify", "--man=no", unit) == ""
    text = unit.read_text().replace("\\\n", "")
    command = re.search(r"^ExecStart=(.*)", text, re.M)[1]
    for name, value in re.findall(r"(\w+)=(\S+)", re.search(r"^Environment=(.*)", text, re.M)[1]):
        assert "${%s}" % name in command
        command = command.replace("${%s}" % name, value)
    grace = int(re.search(r"odls_base_sigkill_timeout (\d+)", command)[1])
    drain = int(re.search(r"#drain_timeout: (\d+)s", (ROOT / "etc/ingot.yaml").read_text())[1])
    silence = int(re.search(r"#transport_timeout: (\d+)s", (ROOT / "etc/ingot.yaml").read_text())[1])
    assert grace > silence and int(re.search(r"^TimeoutStopSec=(\d+)", text, re.M)[1]) > max(drain, 2 * grace)
    tiny_model.write(tmp_path / "tiny.gguf", kind="script")
    (tmp_path / "ingot.yaml").write_text(json.dumps({
        "server": {"port": 0}, "runtime": {"transport": "mpi", "driver": "cpu", "threads": 1}, "kvcache": {"arena": "16MiB"},
        "ledger": {"path": str(tmp_path / "ledger.db")}, "modules": {"path": [str(p) for p in root.glob("usr/lib/*/ingot/modules")]},
        "models": [{"name": "tiny", "path": str(tmp_path / "tiny.gguf")}]}))
    command = command.replace("/etc/ingot/ingot.yaml", str(tmp_path / "ingot.yaml")).replace("/usr/bin/ingotd", str(root / "usr/bin/ingotd"))
    p = subprocess.Popen(command.replace("timeout %d " % grace, "timeout 2 ").split(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                         text=True, env=dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", TMPDIR="/tmp",
                                             OMPI_MCA_btl="vader,self", OMPI_MCA_oob_tcp_if_include="lo"))
    try:
        url = next(line for line in p.stdout if line.startswith("ready ")).split()[1]
        assert run(root / "usr/bin/ingot", "run", "tiny", "Hello", env=dict(
            os.environ, HOME=str(tmp_path), INGOT_URL=url)).startswith(tiny_model.SCRIPT)
    finally:
        p.terminate()
        p.wait(60)


def test_it_is_a_release_build(packages):
    commands = (packages.folder / "commands").read_text()
    compiled = [line for line in commands.split("\n") if " -c ../" in line]
    assert len(compiled) > 100
    for line in compiled:
        assert re.findall(r" (-O\w)", line)[-1] == "-O3", line
        assert "-D_FORTIFY_SOURCE=2" in line and "-fstack-protector-strong" in line, line


def setting(name):
    return re.findall(r"^%s=(.*)" % name, UNIT, re.M)


def test_the_unit(packages):
    assert (packages.unpack("ingot") / "lib/systemd/system/ingot.service").read_text() == UNIT
    program, *args = shlex.split(setting("ExecStart")[0])
    assert {program, args[-1]} <= packages.files("ingot")
    assert setting("Type") == ["notify"] and setting("Restart") == ["on-failure"] and setting("WatchdogSec")
    # What runs beside it is on every Debian: /bin/kill would be in procps.
    assert shlex.split(setting("ExecReload")[0]) == ["/bin/sh", "-c", "kill -HUP ${MAINPID}"]
    drain = re.search(r"#drain_timeout: (\d+)s", (ROOT / "etc/ingot.yaml").read_text())
    assert int(setting("TimeoutStopSec")[0]) > int(drain[1])
    score = re.search(r"Overall exposure level for ingot\.service: ([\d.]+)", run(
        "systemd-analyze", "security", "--offline=true", "--no-pager", ROOT / "debian/ingot.service"))[1]
    assert float(score) <= 1.5
    assert "`%s`" % score in (ROOT / "docs/install.md").read_text()


def test_the_configuration(packages):
    """The daemon takes it, and its paths are those that the package makes and purges."""
    root = packages.unpack("ingot")
    config = root / "etc/ingot/ingot.yaml"
    state = re.findall(r": (/\S+)", "".join(x for x in config.read_text().splitlines(True) if x.strip()[:1] != "#"))
    made = re.findall(r"^d (\S+)", (ROOT / "debian/ingot.tmpfiles").read_text(), re.M)
    assert len(state) == 3 and all(p.startswith("/var/lib/ingot/") for p in state) and set(made) >= {
        "/var/lib/ingot", "/var/lib/ingot/models"}
    modules, = root.glob("usr/lib/*/ingot/modules")
    env = dict(os.environ, INGOT_MODULES_PATH=str(modules))
    p = subprocess.run([root / "usr/bin/ingotd", "--config", config, "--check-config"], env=env, capture_output=True, text=True)
    assert p.returncode == 0 and p.stdout == "%s: ok\n" % config, p.stderr


def test_the_container_file(packages):
    """What it names is in the package, and its numbers are those of the configuration."""
    text = (ROOT / "Containerfile").read_text()
    health, command = (json.loads(x) for x in re.findall(r"CMD (\[.*\])", text))
    for name in (health[0], command[0]):
        assert "/usr/bin/" + name in packages.files("ingot")
    assert command[1:] == shlex.split(setting("ExecStart")[0])[1:]
    assert health[2] in run(packages.unpack("ingot") / "usr/bin/ingot", "help", health[1])
    port = re.search(r"#port: (\d+)", (ROOT / "etc/ingot.yaml").read_text())[1]
    assert re.search(r"^EXPOSE (\d+)", text, re.M)[1] == port
    assert re.search(r"^USER (\S+)", text, re.M)[1] == "%s:%s" % (
        re.search(r"useradd .*--uid (\d+)", text)[1], re.search(r"groupadd .*--gid (\d+)", text)[1])
    home = re.search(r"^VOLUME (\S+)", text, re.M)[1]
    assert home == re.search(r"--home-dir (\S+)", text)[1] == (ROOT / "debian/ingot.sysusers").read_text().split()[-1]


def test_a_module_from_the_dev_package(packages, tmp_path):
    """The example is built with what the package has, and the package's program takes it."""
    root = packages.unpack("ingot", "ingot-dev")
    pc, = root.glob("usr/lib/*/pkgconfig")
    env = dict(os.environ, PKG_CONFIG_SYSROOT_DIR=str(root), PKG_CONFIG_LIBDIR=str(pc))
    flags = run("pkg-config", "--cflags", "ingot", env=env).split()
    assert flags and all(str(root) in f for f in flags if f.startswith("-I"))
    (tmp_path / "modules").mkdir()
    run("cc", "-Wall", "-Werror", "-shared", "-fPIC", *flags, "-o", tmp_path / "modules/pebble.so",
        root / "usr/share/ingot/examples/module/pebble.c")
    modules, = root.glob("usr/lib/*/ingot/modules")
    out = run(root / "usr/bin/ingot", "doctor", env=dict(
        os.environ, HOME=str(tmp_path), INGOT_MODULES_PATH="%s,%s" % (modules, tmp_path / "modules"),
        INGOT_URL="http://127.0.0.1:9"))
    assert re.search(r"pebble", out), out
