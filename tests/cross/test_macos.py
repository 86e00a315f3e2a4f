"""What was built for aarch64 Macs: all of the project, as the loader of a Mac wants it."""
import struct

import pytest

from conftest import folder

MAGIC_64, ARM64 = 0xFEEDFACF, 0x0100000C
EXECUTE, DYLIB = 2, 6
LC_SYMTAB, LC_LOAD_DYLIB, LC_BUILD_VERSION, LC_CODE_SIGNATURE = 0x2, 0xC, 0x32, 0x1D
PLATFORM_MACOS = 1

PROGRAMS = ["daemon/ingotd", "cli/ingot"]
MODULES = ["modules/attention/attention.dylib", "modules/kvcache/kvcache.dylib",
           "modules/moe/moe.dylib", "modules/recurrent/recurrent.dylib"]


class MachO:
    def __init__(self, path):
        self.data = data = path.read_bytes()
        magic, cpu, _, self.kind, n_commands = struct.unpack_from("<IIIII", data)
        assert (magic, cpu) == (MAGIC_64, ARM64)
        self.commands, at = [], 32
        for _ in range(n_commands):
            command, size = struct.unpack_from("<II", data, at)
            self.commands.append((command & 0x7FFFFFFF, at))
            at += size

    def each(self, wanted):
        return [at for command, at in self.commands if command == wanted]

    def minimum(self):
        (at,) = self.each(LC_BUILD_VERSION)
        platform, minimum = struct.unpack_from("<II", self.data, at + 8)
        assert platform == PLATFORM_MACOS
        return minimum >> 16, minimum >> 8 & 255

    def libraries(self):
        names = []
        for at in self.each(LC_LOAD_DYLIB):
            (offset,) = struct.unpack_from("<I", self.data, at + 8)
            names.append(self.string(at + offset))
        return names

    def string(self, at):
        return self.data[at:self.data.index(b"\0", at)].decode()

    def defines(self, name):
        """Whether an external symbol of that name is defined here."""
        (at,) = self.each(LC_SYMTAB)
        symbols, n, strings, _ = struct.unpack_from("<IIII", self.data, at + 8)
        for i in range(n):
            offset, kind, section = struct.unpack_from("<IBB", self.data, symbols + i * 16)
            if kind & 1 and section and self.string(strings + offset) == name:
                return True
        return False


@pytest.mark.parametrize("path", PROGRAMS)
def test_programs(path):
    program = MachO(folder("build-macos/" + path))
    assert program.kind == EXECUTE
    assert program.minimum() == (14, 0)
    assert program.each(LC_CODE_SIGNATURE), "Apple's processors run only what is signed"
    assert "/usr/lib/libSystem.B.dylib" in program.libraries()
    assert any(name.endswith("libwebsockets.dylib") for name in program.libraries())


@pytest.mark.parametrize("path", MODULES)
def test_modules(path):
    """A module exports its table and links no library but the system's."""
    module = MachO(folder("build-macos/" + path))
    assert module.kind == DYLIB
    assert module.minimum() == (14, 0)
    assert module.defines("_ingot_module")
    assert not module.defines("_ig_attention_neon"), "a kernel is visible outside its module"
    assert module.libraries() == ["/usr/lib/libSystem.B.dylib"]


# The stand-ins say no: to a function of Linux, to one that a library lacks.
@pytest.mark.parametrize("line, words", [
    ("#include <sys/epoll.h>\nint main(void) { return epoll_create1(0); }", "sys/epoll.h"),
    ("#include <string.h>\nint main(int n, char **v) { return mempcpy(v[0], v[1], n) != 0; }", "mempcpy"),
    ("#include <pthread.h>\nint main(void) { pthread_barrier_t b; return 0; }", "pthread_barrier_t"),
    ("extern int yaml_emit_everything(void);\nint main(void) { return yaml_emit_everything(); }",
     "undefined symbol: _yaml_emit_everything"),
])
def test_what_a_mac_lacks_is_seen(tmp_path, newest, line, words):
    source = tmp_path / "probe.c"
    source.write_text(line + "\n")
    said = newest(source, "-o", tmp_path / "probe", "-L%s" % (newest.stand_in / "lib"), "-lyaml")
    assert said is not None and "error: " in said and words in said, said


def test_what_a_mac_has_passes(tmp_path, newest):
    source = tmp_path / "probe.c"
    source.write_text("#include <yaml.h>\n#include <sys/sysctl.h>\n"
                      "int main(void) { size_t n = 8; long v = 0; yaml_parser_t p;\n"
                      "return yaml_parser_initialize(&p) + sysctlbyname(\"hw.memsize\", &v, &n, NULL, 0); }\n")
    assert newest(source, "-o", tmp_path / "probe", "-I%s" % (newest.stand_in / "include"),
                  "-L%s" % (newest.stand_in / "lib"), "-lyaml") is None
