"""Homebrew's formula, without Homebrew: Debian's ruby evaluates it against a stand-in of the DSL
(tests/formula/stand_in.rb), installs the build that is tested, and runs the formula's own test.  And tools/release."""
import hashlib
import json
import pathlib
import plistlib
import re
import shlex
import shutil
import subprocess

import pytest

from daemon import BUILD, clean_env
from terminal import Terminal
from test_first_start import Bare, hub  # noqa: F401 - hub is a fixture
from tiny_model import SCRIPT

ROOT = pathlib.Path(__file__).resolve().parents[2]
FORMULA = ROOT / "Formula/ingot.rb"
FOLDER = ROOT / "tests/formula"
PREFIX = "/opt/homebrew"
# What Homebrew calls what meson.build asks for.
NAMES = {"yaml-0.1": "libyaml", "sqlite3": "sqlite", "jansson": "jansson", "libpcre2-8": "pcre2", "libutf8proc": "utf8proc",
         "libwebsockets": "libwebsockets", "libcurl": "curl", "libcrypto": "openssl@3", "libedit": "libedit", "zlib": "zlib"}

pytestmark = [pytest.mark.release, pytest.mark.skipif(not shutil.which("ruby"), reason="there is no ruby here")]


def stand_in(what, *args, folder):
    p = subprocess.run(["ruby", FOLDER / "stand_in.rb", what, *map(str, args)], env=clean_env(folder),
                       capture_output=True, text=True, timeout=120)
    assert p.returncode == 0, p.stdout + p.stderr
    return p.stdout


def described(folder):
    return json.loads(stand_in("describe", FORMULA, PREFIX, folder=folder))


def test_dependencies_are_those_of_the_build(tmp_path):
    facts = described(tmp_path)
    wanted = set(re.findall(r"dependency\('([^']+)'", (ROOT / "meson.build").read_text())) - {"threads", "cmocka"}
    plain = [d for d in facts["dependencies"] if isinstance(d, str)]
    system = [d if isinstance(d, str) else next(iter(d)) for d in facts["uses_from_macos"]]
    assert {NAMES[w] for w in wanted} == set(plain) | (set(system) - {"python"})
    assert plain == sorted(plain)
    assert [next(iter(d)) for d in facts["dependencies"] if not isinstance(d, str)] == ["meson", "ninja", "pkgconf"]


def test_it_says_where_it_comes_from_and_no_more(tmp_path):
    facts, text = described(tmp_path), FORMULA.read_text()
    assert facts["license"] == re.search(r"license: '([^']+)'", (ROOT / "meson.build").read_text())[1]
    assert facts["head"] == {"url": "file://%s" % ROOT, "using": "git", "branch": "main"}
    assert "http" not in text.replace("http://127.0.0.1", "") or "url" in facts  # no address but a release's
    assert ("url" in facts) == ("sha256" in facts)
    port = re.search(r"^  #port: (\d+)", (ROOT / "etc/ingot.yaml").read_text(), re.M)
    assert facts["homepage"] == "http://127.0.0.1:%s/" % port[1]
    assert not re.match(r"(?i)(an?|the) |.*ingot|.*\.$", facts["desc"]) and len(facts["desc"]) < 80
    assert len(facts["caveats"].splitlines()) == 4


def test_the_services_are_as_homebrew_writes_them(tmp_path):
    """The goldens are Homebrew's own (tests/formula/README.md)."""
    made = json.loads(stand_in("service", FORMULA, PREFIX, folder=tmp_path))
    plist = (FOLDER / "homebrew.mxcl.ingot.plist").read_text()
    assert made == {"plist": plist, "unit": (FOLDER / "homebrew.ingot.service").read_text()}
    job = plistlib.loads(plist.encode())
    assert job["ProgramArguments"] == [PREFIX + "/opt/ingot/bin/ingotd", "--config", PREFIX + "/etc/ingot/ingot.yaml"]
    assert job["KeepAlive"] is True and job["ProcessType"] == "Interactive" and job["RunAtLoad"] is True
    drain = re.search(r"#drain_timeout: (\d+)s", (ROOT / "etc/ingot.yaml").read_text())
    assert job["ExitTimeOut"] > int(drain[1])
    assert job["StandardErrorPath"] == job["StandardOutPath"] == PREFIX + "/var/log/ingot.log"


@pytest.fixture
def source(tmp_path):
    """What install reads and changes."""
    for name in ("etc/ingot.yaml", "tests/tiny_model.py"):
        (tmp_path / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / "source" / name)
    return tmp_path / "source"


def test_it_installs_and_its_own_test_passes(tmp_path, source):
    home = tmp_path / "brew"
    home.mkdir()
    stand_in("install", FORMULA, home, BUILD, source, folder=tmp_path)
    config = home / "etc/ingot/ingot.yaml"
    assert '  path: ["%s/opt/ingot/lib/ingot/modules"]\n' % home in config.read_text()
    assert sorted(p.name for p in (home / "opt/ingot/lib/ingot/modules").iterdir()) == [
        "attention.so", "kvcache.so", "moe.so", "recurrent.so", *(p.name for p in BUILD.glob("modules/transport-*/*.so"))]
    p = subprocess.run([home / "opt/ingot/bin/ingotd", "--config", config, "--check-config"], env=clean_env(tmp_path),
                       capture_output=True, text=True)
    assert p.returncode == 0, p.stderr
    assert stand_in("test", FORMULA, home, folder=tmp_path).endswith("passed\n")


def test_from_the_installation_to_a_chat(tmp_path, source, hub):  # noqa: F811
    """brew install, brew services start, ingot pull NAME, ingot chat: nothing is edited in between."""
    home = tmp_path / "brew"
    home.mkdir()
    stand_in("install", FORMULA, home, BUILD, source, folder=tmp_path)
    installed = (home / "etc/ingot/ingot.yaml").read_text()
    unit = json.loads(stand_in("service", FORMULA, home, folder=tmp_path))["unit"]
    command = shlex.split(re.search(r"^ExecStart=(.*)", unit, re.M)[1])
    config = command[command.index("--config") + 1]
    # Homebrew's build looks for this configuration by itself: its --sysconfdir says so
    d = Bare(home / "opt/ingot/bin", tmp_path / "home", command, INGOT_CONFIG=config)
    assert config == str(home / "etc/ingot/ingot.yaml") and d.models() == []
    assert d.http("GET", "/healthz").status == 200
    assert "ingot pull" in d.http("GET", "/").body.decode()
    p = d.ingot("doctor")
    assert p.returncode == 0 and "download one: `ingot pull" in p.stdout and config in p.stdout, p.stdout
    p = d.ingot("run", "Hello")
    assert p.returncode == 1 and "`ingot pull NAME` downloads one" in p.stderr
    p = d.ingot("pull", "qwen3-4b", HF_ENDPOINT=hub.url)
    assert p.returncode == 0 and "ingotd serves it: ingot chat qwen3-4b" in p.stderr, p.stderr
    t = Terminal([str(d.bin / "ingot"), "chat"], dict(d.env, INGOT_URL=d.url, TERM="xterm"))
    t.until("> ")
    t.say("Hello")
    t.until(SCRIPT)
    t.type("\x04")
    t.close()
    d.stop()
    assert (home / "etc/ingot/ingot.yaml").read_text() == installed


def test_an_upgrade_keeps_the_configuration(tmp_path, source):
    home = tmp_path / "brew"
    home.mkdir()
    stand_in("install", FORMULA, home, BUILD, source, folder=tmp_path)
    config = home / "etc/ingot/ingot.yaml"
    config.write_text("server:\n  port: 1234\n")
    shutil.rmtree(home / "Cellar")
    shutil.copy(ROOT / "etc/ingot.yaml", source / "etc/ingot.yaml")
    stand_in("install", FORMULA, home, BUILD, source, folder=tmp_path)
    assert config.read_text() == "server:\n  port: 1234\n"
    assert "opt/ingot/lib/ingot/modules" in (home / "etc/ingot/ingot.yaml.default").read_text()


# ---- tools/release ------------------------------------------------------------------------------

ENTRY = """ingot (%s) unstable; urgency=medium

  * What changed.

 -- Some One <some.one@example.org>  Mon, 23 Nov 2026 09:00:00 +0000
"""


@pytest.fixture
def project(tmp_path):
    """A small project with the formula, whose check looks at the tarball's files."""
    root = tmp_path / "project"
    for name in ("tools/release", "Formula/ingot.rb"):
        (root / name).parent.mkdir(parents=True)
        shutil.copy(ROOT / name, root / name)
    (root / "meson.build").write_text("project('ingot', version: '1.2.3')\n")
    (root / "meson_options.txt").write_text("option('tests', type: 'boolean')\noption('ptx', type: 'array')\n")
    (root / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.3\n")
    (root / "debian").mkdir()
    (root / "debian/changelog").write_text(ENTRY % "1.2.3")
    (root / ".gitignore").write_text("/build-release/\n")
    (root / "check").write_text('#!/bin/sh\ntest "$1" = --fast && test -f Formula/ingot.rb && test ! -e .git && test ! -e bad\n')
    (root / "check").chmod(0o755)
    git(root, "init", "-q")
    commit(root)
    return root


def git(root, *args):
    subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@localhost", *args], cwd=root, check=True,
                   stdout=subprocess.DEVNULL)


def commit(root):
    git(root, "add", "-A")
    git(root, "commit", "-qm", "all")


def release(root, version="1.2.3", url="https://example.org/ingot-1.2.3.tar.xz"):
    return subprocess.run([root / "tools/release", version, "--url", url], cwd=root, capture_output=True, text=True,
                          timeout=120)


def test_a_release(project, tmp_path):
    for url in ("https://example.org/ingot-1.2.3.tar.xz", "https://example.com/a/ingot-1.2.3.tar.xz"):
        p = release(project, url=url)
        assert p.returncode == 0, p.stdout + p.stderr
        digest = hashlib.sha256((project / "build-release/ingot-1.2.3.tar.xz").read_bytes()).hexdigest()
        text = (project / "Formula/ingot.rb").read_text()
        assert text.count('\n  url "') == 1 and '  url "%s"\n  sha256 "%s"\n' % (url, digest) in text
        facts = json.loads(stand_in("describe", project / "Formula/ingot.rb", PREFIX, folder=tmp_path))
        assert (facts["url"], facts["sha256"]) == (url, digest)
        # `brew style` refuses another order
        names = ("desc", "homepage", "url", "sha256", "license", "head")
        assert [w for w in re.findall(r"^  (\w+) ", text, re.M) if w in names] == list(names)
        commit(project)


def test_debians_changelog(project):
    """Its first entry has the version in the tarball: else it is written, to be committed first."""
    before = ENTRY % "1.2.2" + "\n" + (ENTRY % "1.2.1").replace("Some One", "Another")
    (project / "debian/changelog").write_text(before)
    assert "not everything is committed" in release(project).stderr  # and nothing is written
    assert (project / "debian/changelog").read_text() == before
    commit(project)
    p = release(project)
    assert p.returncode == 1 and "began with 1.2.2 and has an entry for 1.2.3 now; commit it" in p.stderr
    assert not (project / "build-release").exists()
    text = (project / "debian/changelog").read_text()
    assert text.startswith("ingot (1.2.3) unstable; urgency=medium\n") and text.endswith("\n\n" + before)
    assert text.count("\n -- Some One <some.one@example.org>  ") == 2 and text.count("Another") == 1
    if shutil.which("dpkg-parsechangelog"):
        p = subprocess.run(["dpkg-parsechangelog", "-l", "debian/changelog"], cwd=project, capture_output=True, text=True)
        assert p.returncode == 0 and "\nVersion: 1.2.3\n" in p.stdout and not p.stderr, p.stdout + p.stderr
    commit(project)
    assert release(project).returncode == 0
    (project / "debian/changelog").write_text("nothing\n")
    commit(project)
    assert "debian/changelog has no entry to continue" in release(project).stderr


def test_what_is_no_release(project):
    assert "meson.build has version 1.2.3" in release(project, "1.2.4", "https://example.org/ingot-1.2.4.tar.xz").stderr
    for url in ("http://example.org/ingot-1.2.3.tar.xz", 'https://x/"/ingot-1.2.3.tar.xz', "https://x/#{x}/ingot-1.2.3.tar.xz"):
        assert "must be an https address" in release(project, url=url).stderr
    assert "must end with /ingot-1.2.3.tar.xz" in release(project, url="https://example.org/v1.2.3.tar.gz").stderr
    (project / "bad").write_text("")
    assert "not everything is committed" in release(project).stderr
    commit(project)
    before = (project / "Formula/ingot.rb").read_text()
    assert "./check --fast failed" in release(project).stderr
    assert (project / "Formula/ingot.rb").read_text() == before
    (project / "CHANGELOG.md").write_text("# Changelog\n")
    assert "CHANGELOG.md has no entry '## 1.2.3'" in release(project).stderr
