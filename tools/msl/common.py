"""Shared by the shader tools: paths, the clang to use and its options."""
import functools
import glob
import os
import platform
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
INCLUDE = os.path.join(HERE, "include")
SHADERS = os.path.join(ROOT, "shaders")


class Failed(Exception):
    """Its text is shown to the user unchanged."""


@functools.lru_cache(None)
def find_clang():
    """clang 19 or later: older versions lack what the PTX needs.  A program whose name says its version is
    not asked: that would be a tenth of the time of a small shader."""
    for name in (os.environ.get("MSL_CLANG"), "clang-19", "clang"):
        path = name and shutil.which(name)
        if not path:
            continue
        if name == "clang-19":
            return path
        said = subprocess.run([path, "--version"], capture_output=True, text=True).stdout
        m = re.search(r"clang version (\d+)", said)
        if m and int(m.group(1)) >= 19 and "Apple" not in said:
            return path
    raise Failed("clang 19 was not found (Debian: apt-get install clang-19)")


def clang_identity():
    """The compiler's file, for keys of a cache: another version is another file."""
    path = os.path.realpath(find_clang())
    s = os.stat(path)
    return "%s %d %d" % (path, s.st_size, s.st_mtime_ns)


def python_with_libclang():
    """A python that can import clang.cindex: Debian's package only works with Debian's python."""
    for python in (sys.executable, "/usr/bin/python3"):
        if os.path.exists(python) and subprocess.run(
                [python, "-c", "import clang.cindex"], capture_output=True).returncode == 0:
            return python
    raise Failed("python's clang.cindex was not found (Debian: apt-get install python3-clang-19)")


def libclang():
    """The library that this module loads, of the same version."""
    for pattern in ("/usr/lib/llvm-19/lib/libclang-19.so.1", "/usr/lib/llvm-19/lib/libclang.so*",
                    "/opt/homebrew/opt/llvm@19/lib/libclang.dylib"):
        for path in sorted(glob.glob(pattern)):
            return path
    raise Failed("libclang 19 was not found (Debian: apt-get install libclang1-19)")


LANGUAGE = ["-x", "cl", "-cl-std=clc++2021", "-cl-no-stdinc", "-Wall", "-Werror",
            "-Wno-unknown-attributes", "-Wno-user-defined-literals", "-Wno-unused",
            "-Wno-ignored-attributes", "-Wno-psabi"]
EXTENSIONS = ("+cl_khr_fp16,+__opencl_c_generic_address_space,-cl_khr_fp64,-__opencl_c_fp64,"
              "-__opencl_c_pipes,-__opencl_c_device_enqueue")
WITH_GLOBALS = ["-Xclang", "-cl-ext=" + EXTENSIONS + ",+__opencl_c_program_scope_global_variables"]
WITHOUT_GLOBALS = ["-Xclang", "-cl-ext=" + EXTENSIONS +
                   ",-__opencl_c_program_scope_global_variables"]


def includes(path):
    return ["-isystem", INCLUDE, "-I", SHADERS, "-iquote", os.path.dirname(path) or "."]


# Every load and store calls the checker (tests/metal/soft/check.c).  The pass of
# KernelAddressSanitizer inserts the calls; its runtime is not used.
CHECKED = ["-DSOFT_CHECKED", "-fsanitize=kernel-address", "-fno-vectorize", "-fno-slp-vectorize"]
for option in ("asan-memory-access-callback-prefix=soft_check_", "asan-kernel-mem-intrinsic-prefix=1",
               "asan-instrumentation-with-call-threshold=0", "asan-opt-same-temp=0", "asan-stack=0",
               "asan-globals=0", "asan-instrument-atomics=0", "asan-use-after-scope=0"):
    CHECKED += ["-mllvm", "-" + option]


def soft_flags(checked):
    machine = platform.machine()
    if machine in ("x86_64", "AMD64"):
        target = ["-target", "x86_64-linux-gnu", "-march=x86-64-v3"]
    elif machine in ("aarch64", "arm64"):
        target = ["-target", "aarch64-linux-gnu", "-march=armv8.2-a+fp16"]
    else:
        raise Failed("the software device has no fibers for " + machine)
    # Line numbers are for reports, which only checked code makes.
    return LANGUAGE + WITH_GLOBALS + target + [
        "-O2", "-g1" if checked else "-g0", "-fPIC", "-fno-optimize-sibling-calls",
        "-ffp-contract=off", "-DMSL_SOFT"] + (CHECKED if checked else [])


# sm_80 needs CUDA 11.5's PTX (the L2 hint of cp.async), sm_90a CUDA 12.0's (wgmma).
PTX_VERSION = {"80": "75", "90a": "80"}


def ptx_flags(sm, level):
    if sm not in PTX_VERSION:
        raise Failed("no target sm_%s: one of %s" % (sm, ", ".join(PTX_VERSION)))
    return LANGUAGE + WITH_GLOBALS + [
        "-target", "nvptx64-nvidia-cuda", "-Xclang", "-target-cpu", "-Xclang", "sm_" + sm,
        # -target-feature would not replace the version of an installed CUDA toolkit
        "--cuda-feature=+ptx" + PTX_VERSION[sm],
        "-O" + level, "-ffp-contract=fast", "-DMSL_NV"] + (["-DNV_WGMMA"] if sm == "90a" else [])


def run(command, **more):
    done = subprocess.run(command, capture_output=True, text=True, **more)
    if done.returncode != 0:
        raise Failed((done.stdout + done.stderr).strip() or "%s failed" % command[0])
    return done.stdout


def shader_name(path):
    """core/linear for shaders/core/linear.metal; for a file elsewhere its name alone."""
    relative = os.path.relpath(os.path.abspath(path), SHADERS)
    if relative.startswith(".."):
        relative = os.path.basename(path)
    return os.path.splitext(relative)[0]


def write(path, text):
    """Writes a temporary file and renames it: nobody reads a part of the text."""
    part = path + ".part"
    with open(part, "w", encoding="utf-8") as f:
        f.write(text)
    os.replace(part, path)
