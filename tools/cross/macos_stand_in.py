#!/usr/bin/env python3
"""macos_stand_in.py DIR ZIG METAL_CPP: makes on Linux what a compiler and a linker for aarch64
Macs need.

DIR/include gets the headers of this system's -dev packages, DIR/lib a text stub (.tbd) for
each library, with the symbols that its .so exports here, DIR/pkgconfig the files for pkg-config:
a call to a function that a library lacks is then a linker error, as on a Mac.  DIR/Frameworks
gets Foundation, from our own header, and Metal, from Apple's metal-cpp headers in the folder
METAL_CPP; DIR/Frameworks-14 gets the same as in the SDK of macOS 14.  DIR/aarch64-macos.ini is
the cross file for meson, with the compiler of ZIG (PyPI's ziglang), which without -fno-sanitize
checks for undefined behaviour wherever it does not optimize.
Nothing that is linked with these can run.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent

# pkg-config's name: (the library, its headers below /usr/include or its multiarch folder)
LIBRARIES = {
    "libedit": ("edit", ["histedit.h"]),
    "yaml-0.1": ("yaml", ["yaml.h"]),
    "jansson": ("jansson", ["jansson.h", "jansson_config.h"]),
    "sqlite3": ("sqlite3", ["sqlite3.h", "sqlite3ext.h"]),
    "libpcre2-8": ("pcre2-8", ["pcre2.h"]),
    "libutf8proc": ("utf8proc", ["utf8proc.h"]),
    "libcurl": ("curl", ["curl"]),
    "libcrypto": ("crypto", ["openssl"]),
    "libssl": ("ssl", ["openssl"]),
    "libwebsockets": ("websockets", ["libwebsockets.h", "libwebsockets", "lws_config.h"]),
    "cmocka": ("cmocka", ["cmocka.h"]),
}
# Features of Debian's libwebsockets that a Mac does not have.
NOT_ON_A_MAC = ("CAPABILITY_H", "LIBCAP", "HAVE_MALLOC_H", "HAVE_PRCTL", "HAVE_EVENTFD")

# The functions of the Objective-C runtime that compilers and runtime/metal may call.
OBJC = """objc_alloc objc_alloc_init objc_autorelease objc_autoreleasePoolPop
    objc_autoreleasePoolPush objc_autoreleaseReturnValue objc_enumerationMutation objc_getClass
    objc_lookUpClass objc_msgSend objc_msgSendSuper2 objc_opt_class objc_opt_isKindOfClass
    objc_opt_new objc_opt_respondsToSelector objc_opt_self objc_release objc_retain
    objc_retainAutoreleasedReturnValue objc_unsafeClaimAutoreleasedReturnValue sel_registerName
    _objc_empty_cache __objc_personality_v0 objc_exception_throw objc_begin_catch
    objc_end_catch""".split()

CROSS_FILE = """[binaries]
c = ['{here}/cc-macos', '{zig}']
objc = ['{here}/cc-macos', '{zig}']
ar = ['{zig}', 'ar']
ranlib = ['{zig}', 'ranlib']
strip = 'true'
pkgconfig = 'pkg-config'
exe_wrapper = '{here}/cannot-run'

[built-in options]
c_args = ['-F{root}/Frameworks', '-fno-sanitize=undefined']
c_link_args = ['-F{root}/Frameworks', '-L{root}/lib']
objc_args = ['-F{root}/Frameworks', '-fno-objc-arc', '-fno-sanitize=undefined']
objc_link_args = ['-F{root}/Frameworks', '-L{root}/lib']

[properties]
pkg_config_libdir = '{root}/pkgconfig'

[host_machine]
system = 'darwin'
cpu_family = 'aarch64'
cpu = 'apple-m1'
endian = 'little'
"""


def output_of(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def copy_headers(names, folders, to):
    """Copy each header or folder of headers; a folder may be spread over several roots."""
    for name in names:
        found = [f / name for f in folders if (f / name).exists()]
        if not found:
            sys.exit("macos_stand_in: %s is in none of %s" % (name, ", ".join(map(str, folders))))
        for source in found:
            if source.is_dir():
                shutil.copytree(source, to / name, dirs_exist_ok=True)
            else:
                shutil.copy2(source, to / name)


def exported_by(library):
    """The symbols that the shared object defines."""
    names = set()
    for line in output_of("nm", "-D", "--defined-only", library).splitlines():
        fields = line.split()
        if len(fields) >= 3 and fields[-2] in "TDBRWVi":
            names.add(fields[-1].split("@")[0])
    if not names:
        sys.exit("macos_stand_in: %s exports nothing" % library)
    return names


def write_stub(path, install_name, symbols, classes=()):
    """A .tbd of C names and Objective-C classes."""
    text = ("--- !tapi-tbd\ntbd-version: 4\ntargets: [ arm64-macos ]\n"
            "install-name: '%s'\nexports:\n  - targets: [ arm64-macos ]\n" % install_name)
    if symbols:
        text += "    symbols: [ %s ]\n" % ", ".join("_" + s for s in sorted(symbols))
    if classes:
        text += "    objc-classes: [ %s ]\n" % ", ".join(sorted(classes))
    path.write_text(text + "...\n")


def write_libraries(root):
    multiarch = output_of("gcc", "-print-multiarch").strip()
    folders = [pathlib.Path("/usr/include"), pathlib.Path("/usr/include") / multiarch]
    for folder in ("include", "lib", "pkgconfig"):
        os.makedirs(root / folder)
    for package, (library, headers) in LIBRARIES.items():
        copy_headers(headers, folders, root / "include")
        symbols = exported_by("/usr/lib/%s/lib%s.so" % (multiarch, library))
        write_stub(root / "lib" / ("lib%s.tbd" % library),
                   "/opt/homebrew/lib/lib%s.dylib" % library, symbols)
        version = output_of("pkg-config", "--modversion", package).strip()
        (root / "pkgconfig" / (package + ".pc")).write_text(
            "Name: %s\n"
            "Description: stand-in for the library on a Mac\n"
            "Version: %s\n"
            "Cflags: -I%s/include\n"
            "Libs: -L%s/lib -l%s\n" % (package, version, root, root, library))
        print("%s %s: %d symbols" % (package, version, len(symbols)))
    config = root / "include" / "lws_config.h"
    lines = config.read_text().splitlines(keepends=True)
    config.write_text("".join(l for l in lines if not any(word in l for word in NOT_ON_A_MAC)))


def write_framework(frameworks, name, header, symbols=()):
    folder = frameworks / (name + ".framework")
    os.makedirs(folder / "Headers")
    if header:
        (folder / "Headers" / (name + ".h")).write_text(header)
    declared = re.findall(r"^FOUNDATION_EXPORT .*?(\w+)(?:\(.*)?(?: [A-Z_]+\(.*)?;", header, re.M)
    classes = re.findall(r"^@interface (\w+)", header, re.M)
    write_stub(folder / (name + ".tbd"),
               "/System/Library/Frameworks/%s.framework/Versions/A/%s" % (name, name),
               set(declared) | set(symbols), classes)
    print("%s: %d classes" % (name, len(classes)))


def write_frameworks(frameworks, metal_cpp, sdk):
    foundation = (HERE / "include" / "Foundation" / "Foundation.h").read_text()
    write_framework(frameworks, "Foundation", foundation, ["__CFConstantStringClassReference"])
    metal = output_of(sys.executable, str(HERE / "metal_declarations.py"), str(metal_cpp), sdk)
    write_framework(frameworks, "Metal", metal)
    # Apple's umbrella header includes one header for each part; sources test which ones exist.
    for part in (metal_cpp / "Metal").glob("MTL*.hpp"):
        if re.search(r"@(interface|protocol) %s\w* [:<]" % part.stem, metal):
            (frameworks / "Metal.framework" / "Headers" / (part.stem + ".h")).write_text(
                "#import <Metal/Metal.h>\n")
    write_framework(frameworks, "CoreGraphics", "")


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    root, zig = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    if not zig.is_file():
        sys.exit("macos_stand_in: there is no %s" % zig)
    shutil.rmtree(root, ignore_errors=True)
    write_libraries(root)
    write_stub(root / "lib" / "libobjc.tbd", "/usr/lib/libobjc.A.dylib", OBJC, ["NSObject"])
    write_frameworks(root / "Frameworks", pathlib.Path(sys.argv[3]), "26.0")
    write_frameworks(root / "Frameworks-14", pathlib.Path(sys.argv[3]), "14.0")
    (root / "aarch64-macos.ini").write_text(CROSS_FILE.format(here=HERE, zig=zig, root=root))


main()
