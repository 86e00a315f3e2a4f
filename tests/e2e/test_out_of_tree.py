"""The module ABI for other projects: the example needs nothing but the files of `meson install`,
pkg-config and a C compiler; then the same file loads in daemons whose headers
have other comments or more fields, and modules of older headers load in this one."""
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

from daemon import BUILD, in_pieces
from tiny_model import SCRIPT

ROOT = pathlib.Path(__file__).resolve().parents[2]
SUFFIX = ".dylib" if os.uname().sysname == "Darwin" else ".so"
EXAMPLE = "examples/module/pebble.c"
sys.path.insert(0, str(ROOT / "tools"))
import build_id  # noqa: E402

# A build of its own compiler flags would have to link its sanitizer into each piece.
pytestmark = pytest.mark.release


def run(*command, cwd=None, env=None):
    r = subprocess.run([str(c) for c in command], cwd=cwd, env=env, capture_output=True, text=True)
    assert r.returncode == 0, "%s\n%s%s" % (shlex.join(map(str, command)), r.stdout, r.stderr)
    return r.stdout


class Staging:
    """An installation below a folder of its own."""

    def __init__(self, folder):
        self.folder = folder
        run("meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", folder)
        self.env = {**os.environ, "PKG_CONFIG_SYSROOT_DIR": str(folder),
                    "PKG_CONFIG_LIBDIR": str(next(folder.rglob("ingot.pc")).parent)}
        self.program = next(folder.rglob("bin/ingotd"))
        self.modules = self.path("moduledir")
        self.example = self.path("examplesdir") / "module" / "pebble.c"

    def pkg_config(self, *args):
        return run("pkg-config", *args, "ingot", env=self.env).split()

    def path(self, variable):
        [path] = self.pkg_config("--variable=" + variable)
        return pathlib.Path(path if path.startswith(str(self.folder)) else
                            str(self.folder) + path)


@pytest.fixture(scope="module")
def staging(tmp_path_factory):
    return Staging(tmp_path_factory.mktemp("staging"))


def compile_module(folder, source, flags):
    """A module from one file, as an author would build it; a warning is an error."""
    folder.mkdir(parents=True)
    run(*shlex.split(os.environ.get("CC", "cc")), "-std=c11", "-O2", "-Wall", "-Wextra",
        "-Wpedantic", "-Werror", "-shared", "-fPIC", source, "-o", folder / ("pebble" + SUFFIX),
        *flags)
    return str(folder)


@pytest.fixture(scope="module")
def pebble(staging, tmp_path_factory):
    """The example, built out of tree; its folder."""
    return compile_module(tmp_path_factory.mktemp("author") / "modules", staging.example,
                          staging.pkg_config("--cflags", "--libs"))


def streams(start, models, modules, **options):
    """A daemon with these folders of modules, after it has streamed the example's answer."""
    d = start(models(kind="script", arch="pebble"), {"modules": {"path": modules}}, **options)

    def ask():
        r = d.chat(stream=True)
        assert r.status == 200, r
        chunks = [json.loads(e) for e in r.events() if e != "[DONE]"]
        pieces = [c["delta"].get("content") for e in chunks for c in e["choices"]]
        return [p for p in pieces if p],
    [pieces] = in_pieces(ask)
    assert "".join(pieces) == SCRIPT
    return d


def test_installed(staging):
    """Every public header, the example, and variables that say where modules go and which ABI
    this is."""
    installed = next(staging.folder.rglob("include/ingot"))
    ours = {p.name for p in (ROOT / "include" / "ingot").glob("*.h")}
    assert {p.name for p in installed.iterdir()} == ours | {"build_id.h"}
    assert staging.example.read_text() == (ROOT / EXAMPLE).read_text()
    assert sorted(p.stem for p in staging.modules.iterdir()) == [
        "attention", "kvcache", "moe", "recurrent", *(p.stem for p in BUILD.glob("modules/transport-*/*.so"))]
    header = (installed / "module.h").read_text()
    version = ".".join(re.findall(r"IG_ABI_M(?:AJOR|INOR) (\d+)u", header))
    assert staging.pkg_config("--variable=abi_version") == [version]
    assert build_id.build_id(ROOT / "include" / "ingot") in (installed / "build_id.h").read_text()


@pytest.mark.parametrize("header", sorted(p.name for p in (ROOT / "include/ingot").glob("*.h")))
def test_each_header_stands_alone(staging, tmp_path, header):
    source = tmp_path / "one.c"
    source.write_text("#include <ingot/%s>\nint one;\n" % header)
    run(*shlex.split(os.environ.get("CC", "cc")), "-std=c11", "-Wall", "-Wextra", "-Wpedantic",
        "-Werror", "-fsyntax-only", source, *staging.pkg_config("--cflags"))


def test_the_example_streams(start, models, staging, pebble):
    """From the installed daemon, with the installed modules beside it."""
    d = streams(start, models, [str(staging.modules), pebble], program=staging.program)
    assert "pebble" in json.dumps(d.http("GET", "/v1/ingot/status").json["modules"])


def test_the_option_of_the_example(start, models, pebble):
    """A token that sees less says something else."""
    model = models(kind="random", arch="pebble", n_context=2048)
    path = start.config()["modules"]["path"] + [pebble]
    said = {}
    for window in (0, 16):
        d = start(model, {"modules": {"path": path, "pebble": {"window": window}}})
        said[window] = d.chat_text("word " * 40, max_tokens=24)
        d.stop()
    assert said[0] != said[16]
    log = start.refused(model, {"modules": {"path": path, "pebble": {"window": 1 << 25}}})
    assert re.search(r":\d+:\d+: modules\.pebble\.window: expected a whole number of tokens", log)


# ---- other headers -----------------------------------------------------------------------------

def headers(folder, change):
    """A copy of the public headers, each as change(name, text) makes it, with its build id."""
    ingot = folder / "include" / "ingot"
    ingot.mkdir(parents=True)
    for p in (ROOT / "include" / "ingot").glob("*.h"):
        (ingot / p.name).write_text(change(p.name, p.read_text()))
    build_id.main(ingot, ingot / "build_id.h")
    return ingot.parent


def daemon_of(include, folder, sources):
    """The build's daemon, with these sources compiled against other headers."""
    objects = []
    for c in json.loads((BUILD / "compile_commands.json").read_text()):
        name = os.path.relpath(os.path.join(c["directory"], c["file"]), ROOT)
        if not any(re.fullmatch(s, name) for s in sources) or "tests/" in c["output"]:
            continue
        command = shlex.split(c["command"])
        objects.append(str(folder / (name.replace("/", "_") + ".o")))
        command[command.index("-o") + 1] = objects[-1]
        command[command.index("-MF") + 1] = objects[-1] + ".d"
        at = next(i for i, word in enumerate(command) if word.startswith("-I"))
        run(*command[:at], "-I%s" % include, *command[at:], cwd=c["directory"])
    assert len(objects) >= len(sources)
    link = shlex.split(run("ninja", "-C", BUILD, "-t", "commands", "-s", "daemon/ingotd")
                       .strip().split("\n")[-1])
    program = folder / "ingotd"
    at = link.index("-o") + 1
    # before the archives, so that these objects are taken for theirs
    run(*link[:at], program, *objects, *link[at + 1:], cwd=BUILD)
    return program


def other_comments(name, text):
    """The same declarations: no old comment, a new one in every gap, all on few lines."""
    text = re.sub(r"/\*.*?\*/", "/* another\n\n comment */", text, flags=re.S)
    return re.sub(r";\n+", ";  /* more */  // and more\n", text)


LOADER = [r"base/build_id\.c", r"runtime/modules/.*\.c"]


def test_other_comments(start, models, tmp_path, pebble):
    """The same file loads in a daemon of headers with other comments, and so do the modules
    that bring ops: the build id is the same."""
    include = headers(tmp_path, other_comments)
    assert (include / "ingot/op.h").read_text() != (ROOT / "include/ingot/op.h").read_text()
    program = daemon_of(include, tmp_path, LOADER)
    streams(start, models, start.config()["modules"]["path"] + [pebble], program=program)


def test_another_declaration(start, models, tmp_path, pebble):
    """Who brings ops is refused where tier 2 is another, with both ids; the rest is not."""
    include = headers(tmp_path, lambda name, text: text.replace(
        "IG_LAYOUT_REVISION = 3", "IG_LAYOUT_REVISION = 1003"))
    path = start.config()["modules"]["path"] + [pebble]
    log = start.refused(models(kind="script", arch="pebble"), {"modules": {"path": path}},
                        program=daemon_of(include, tmp_path, LOADER))
    ours, others = (build_id.build_id(f / "ingot") for f in (ROOT / "include", include))
    refused = re.findall(r'module \S*/(\w+)\.\w+: brings ops or a kvcache service, and its build id '
                         r'is "%s", expected "%s"' % (ours, others), log)
    assert ours != others and sorted(set(refused)) == ["attention", "kvcache", "moe", "recurrent"], log


def appended(name, text):
    """A later minor version: one more, and fields at the end of what a module describes itself
    in and of what it gets."""
    text = re.sub(r"(IG_ABI_MINOR) (\d+)u", lambda m: "%s %du" % (m[1], int(m[2]) + 1), text)
    for struct in ("ig_module", "ig_arch", "ig_host"):
        text = re.sub(r"(\nstruct %s \{\n.*?)(\n\};)" % struct, r"\1\n\tvoid *more[5];\2", text,
                      flags=re.S)
    return text


def test_a_later_minor_version(start, models, tmp_path, pebble):
    """A daemon with fields that no module of today knows takes the example, and its own."""
    include = headers(tmp_path, appended)
    assert (include / "ingot/module.h").read_text().count("more[5]") == 2
    program = daemon_of(include, tmp_path, LOADER + [r"runtime/plan\.c"])
    streams(start, models, start.config()["modules"]["path"] + [pebble], program=program).stop()
    later = compile_module(tmp_path / "later", ROOT / EXAMPLE, ["-I%s" % include])
    streams(start, models, start.config()["modules"]["path"] + [later], program=program).stop()
    log = start.refused(models.script(), {"modules": {
        "path": start.config()["modules"]["path"] + [later]}})
    ours, theirs = (re.findall(r"IG_ABI_MINOR (\d+)", (f / "ingot/module.h").read_text())[0]
                    for f in (ROOT / "include", include))
    assert "built for ABI 1.%s, this is 1.%s, which is older" % (theirs, ours) in log


@pytest.mark.parametrize("version", sorted(p.name for p in (ROOT / "tests/abi").iterdir()))
def test_an_earlier_minor_version(start, models, tmp_path, version):
    """A module of each version's own headers, as they were then."""
    old = ROOT / "tests" / "abi" / version
    assert "IG_ABI_MINOR %su" % version.split(".")[1] in (old / "ingot/module.h").read_text()
    folder = compile_module(tmp_path / "old", old / "pebble.c", ["-I%s" % old, "-lm"])
    streams(start, models, start.config()["modules"]["path"] + [folder])


# ---- the build id --------------------------------------------------------------------------------

CHANGES = {
    "a member's type": ("op.h", "int64_t n_rows, n_cols;", "int32_t n_rows, n_cols;"),
    "a member's name": ("gpu.h", "uint32_t max_partials;", "uint32_t max_parts;"),
    "a member's place": ("kvcache.h", "void *ctx;\n", ""),
    "a number": ("dtype.h", "IG_F16 = 1,", "IG_F16 = 2,"),
    "an op's parameter": ("params.h", "uint32_t gather;", "uint32_t gather, more;"),
    "a macro": ("op.h", "#define IG_BLOCK_TOKENS 16", "#define IG_BLOCK_TOKENS 32"),
}


@pytest.mark.parametrize("what", sorted(CHANGES))
def test_what_changes_the_build_id(tmp_path, what):
    header, old, new = CHANGES[what]
    assert (ROOT / "include/ingot" / header).read_text().count(old) >= 1
    changed = headers(tmp_path, lambda name, text: text.replace(old, new, 1)
                      if name == header else text)
    assert build_id.build_id(changed / "ingot") != build_id.build_id(ROOT / "include" / "ingot")


@pytest.mark.parametrize("change", [
    other_comments,
    lambda name, text: re.sub(r";\n\t", ";\n\n     ", text.replace("\t", "  ")),
    lambda name, text: text + "int tier_one;\n" if name in ("module.h", "record.h", "arch.h",
                                                            "hparams_keys.h", "hparams.h", "layers.h") else text,
], ids=["comments", "white space", "tier 1"])
def test_what_does_not_change_the_build_id(tmp_path, change):
    changed = headers(tmp_path, change)
    assert build_id.build_id(changed / "ingot") == build_id.build_id(ROOT / "include" / "ingot")


def test_the_status_has_the_build_id(scripted):
    status = scripted.http("GET", "/v1/ingot/status").json
    assert status["build_id"] == build_id.build_id(ROOT / "include" / "ingot")
