#!/usr/bin/env python3
"""macos_libraries.py DIR: the libraries that Ingot links, as an aarch64 Mac would have them,
as far as a compiler and a linker can tell.

DIR/include gets the headers of this system's -dev packages, DIR/lib a text stub (.tbd) for
each library that lists what its .so here exports, DIR/pkgconfig what meson asks for.  A call
to a function that a library does not have is then an error of the linker, as it would be on a
Mac.  Nothing that is linked with these can run.
"""
import os
import pathlib
import shutil
import subprocess
import sys

# pkg-config's name: (the library, its headers below /usr/include or its multiarch folder)
LIBRARIES = {
    "yaml-0.1": ("yaml", ["yaml.h"]),
    "jansson": ("jansson", ["jansson.h", "jansson_config.h"]),
    "sqlite3": ("sqlite3", ["sqlite3.h", "sqlite3ext.h"]),
    "libpcre2-8": ("pcre2-8", ["pcre2.h"]),
    "libutf8proc": ("utf8proc", ["utf8proc.h"]),
    "libcurl": ("curl", ["curl"]),
    "libcrypto": ("crypto", ["openssl"]),
    "libwebsockets": ("websockets", ["libwebsockets.h", "libwebsockets", "lws_config.h"]),
    "cmocka": ("cmocka", ["cmocka.h", "cmocka_pbc.h", "cmockery"]),
}
# What Debian's build of libwebsockets found and a Mac does not have.
NOT_ON_A_MAC = ("CAPABILITY_H", "LIBCAP", "HAVE_MALLOC_H", "HAVE_SYS_CAPABILITY", "LWS_HAVE_PRCTL",
                "LWS_HAVE_EVENTFD")


def output_of(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def copy_headers(names, folders, to):
    """Copy each header or folder of headers; a folder may be spread over several roots."""
    for name in names:
        found = False
        for folder in folders:
            source = folder / name
            if source.is_dir():
                shutil.copytree(source, to / name, dirs_exist_ok=True)
                found = True
            elif source.is_file():
                shutil.copy(source, to / name)
                found = True
        if not found and name not in ("cmockery", "cmocka_pbc.h"):
            sys.exit("macos_libraries: %s is in none of %s" % (name, ", ".join(map(str, folders))))


def symbols_of(library):
    """What the shared object defines, by the names that Mach-O gives them."""
    names = set()
    for line in output_of("nm", "-D", "--defined-only", str(library)).splitlines():
        fields = line.split()
        if len(fields) >= 3 and fields[-2] in "TDBRWVi":
            names.add("_" + fields[-1].split("@")[0])
    if not names:
        sys.exit("macos_libraries: %s exports nothing" % library)
    return sorted(names)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    root = pathlib.Path(sys.argv[1]).resolve()
    multiarch = output_of("gcc", "-print-multiarch").strip()
    folders = [pathlib.Path("/usr/include"), pathlib.Path("/usr/include") / multiarch]
    shutil.rmtree(root, ignore_errors=True)
    for folder in ("include", "lib", "pkgconfig"):
        os.makedirs(root / folder)
    for package, (library, headers) in LIBRARIES.items():
        copy_headers(headers, folders, root / "include")
        symbols = symbols_of("/usr/lib/%s/lib%s.so" % (multiarch, library))
        (root / "lib" / ("lib%s.tbd" % library)).write_text(
            "--- !tapi-tbd\n"
            "tbd-version: 4\n"
            "targets: [ arm64-macos ]\n"
            "install-name: '/opt/homebrew/lib/lib%s.dylib'\n"
            "exports:\n"
            "  - targets: [ arm64-macos ]\n"
            "    symbols: [ %s ]\n"
            "...\n" % (library, ", ".join(symbols)))
        version = output_of("pkg-config", "--modversion", package).strip()
        (root / "pkgconfig" / (package + ".pc")).write_text(
            "Name: %s\n"
            "Description: what a compiler and a linker see of it on a Mac\n"
            "Version: %s\n"
            "Cflags: -I%s/include\n"
            "Libs: -L%s/lib -l%s\n" % (package, version, root, root, library))
        print("%s %s: %d symbols" % (package, version, len(symbols)))
    config = root / "include" / "lws_config.h"
    lines = config.read_text().splitlines(keepends=True)
    config.write_text("".join(l for l in lines if not any(word in l for word in NOT_ON_A_MAC)))


main()
