#!/usr/bin/env python3
"""Finds what Apple's compiler would refuse in a shader, as far as clang can tell.

    strict.py FILE.metal...        exit status 1 if anything was found
    strict.py --tap FILE.metal...  as TAP, a test a file
    strict.py --tensor FILE...     as a GPU with tensor units compiles them (TILE_TENSOR)

1. clang's front end in its OpenCL C++ mode, whose address spaces are Metal's, without 64-bit
   floats, mutable globals and pipes; a warning counts as an error.
2. The syntax tree, for what OpenCL allows and Metal does not: a pointer or reference
   without an address space, a method called on an object in another one, recursion, lambdas,
   names that only our own header has.
3. The kernels' signatures, and templates without an instance.
4. House rules, which keep one source valid for three machines: tools/msl/README.md.

strict_cases.py is its test.
"""
import os
import re
import sys

import clang.cindex as ci
from clang.cindex import CursorKind as K
from clang.cindex import TypeKind as T

sys.dont_write_bytecode = True
import common
import entry
from common import Failed

WARNINGS = ["-Wpre-c++17-compat", "-Wfloat-conversion", "-Wliteral-conversion", "-Wshadow",
            "-Wdouble-promotion", "-Wno-c++20-designator"]
FLAGS = [f for f in common.LANGUAGE if f != "-Werror"] + common.WITHOUT_GLOBALS + [
    "-target", "spir64", "-DMSL_STRICT"] + WARNINGS

# libclang's numbers for the address spaces.
DEVICE, THREADGROUP, CONSTANT, THREAD, GENERIC = 1, 2, 3, 4, 5
SPACES = {DEVICE: "device", THREADGROUP: "threadgroup", CONSTANT: "constant"}
NONE = (0, GENERIC)                    # 0: unspecified, in a template
ARRAYS = (T.CONSTANTARRAY, T.INCOMPLETEARRAY, T.DEPENDENTSIZEDARRAY)
POINTERS = (T.POINTER, T.LVALUEREFERENCE, T.RVALUEREFERENCE)
CASTS = (K.CSTYLE_CAST_EXPR, K.CXX_REINTERPRET_CAST_EXPR, K.CXX_STATIC_CAST_EXPR,
         K.CXX_CONST_CAST_EXPR)
CLASSES = (K.STRUCT_DECL, K.CLASS_DECL, K.UNION_DECL, K.CLASS_TEMPLATE,
           K.CLASS_TEMPLATE_PARTIAL_SPECIALIZATION)
FUNCTIONS = (K.FUNCTION_DECL, K.FUNCTION_TEMPLATE, K.CXX_METHOD, K.CONSTRUCTOR,
             K.CONVERSION_FUNCTION)
ABSENT = {K.LAMBDA_EXPR: "lambdas", K.GOTO_STMT: "goto", K.CXX_TRY_STMT: "exceptions",
          K.CXX_THROW_EXPR: "exceptions", K.CXX_NEW_EXPR: "new", K.CXX_DELETE_EXPR: "delete",
          K.CXX_DYNAMIC_CAST_EXPR: "dynamic_cast", K.CXX_TYPEID_EXPR: "typeid", K.ASM_STMT: "asm",
          K.ADDR_LABEL_EXPR: "addresses of labels", K.INDIRECT_GOTO_STMT: "goto",
          K.StmtExpr: "statement expressions"}
OPENCL_WORDS = {"__global", "__local", "__private", "__constant", "__generic", "__kernel", "global",
                "local", "generic", "pipe", "read_only", "write_only", "read_write", "event_t"}
INDEX_ATTRIBUTES = {"thread_index_in_threadgroup", "thread_index_in_simdgroup",
                    "simdgroup_index_in_threadgroup", "simdgroups_per_threadgroup",
                    "threads_per_simdgroup"}
MAX_SET_BYTES = 4096                   # of setBytes, which passes argument structs
MAX_THREADGROUP_BYTES = 32 * 1024


def unspaced(t, parameter=False):
    """Whether this type contains a pointer without an address space."""
    if parameter and t.kind in ARRAYS:             # decays to a pointer
        return t.element_type.get_address_space() in NONE + (THREAD,)
    while t.kind in ARRAYS:
        t = t.element_type
    if t.kind not in POINTERS:
        return False
    to = t.get_pointee()
    if to.kind == T.FUNCTIONPROTO:
        return False
    return to.get_address_space() in NONE or unspaced(to)


class Check:
    def __init__(self, path, text=None, defines=()):
        self.path, self.found, self.seen = path, [], set()
        self.defines = ["-D" + d for d in defines]
        self.calls, self.functions, self.kernels = {}, {}, {}
        if text is None:
            with open(path, encoding="utf-8") as f:
                text = f.read()
        self.text = text
        self.sources = {path: text.encode()}

    def say(self, where, message):
        location = getattr(where, "location", where)
        if location is None or location.file is None:
            place = (self.path, 1, 1)
        else:
            place = (location.file.name, location.line, location.column)
        if (place, message) not in self.seen:
            self.seen.add((place, message))
            self.found.append("%s:%d:%d: %s" % (*place, message))

    def ours(self, c):
        f = c.location.file
        return f is not None and not os.path.abspath(f.name).startswith(common.INCLUDE + os.sep)

    def source(self, c):
        name = c.location.file.name
        if name not in self.sources:
            with open(name, "rb") as f:
                self.sources[name] = f.read()
        return self.sources[name]

    def portable(self, c):
        return os.path.basename(c.location.file.name) == "portable.h"

    # -- 1. clang ---------------------------------------------------------------------

    def parse(self):
        unit = ci.Index.create().parse(self.path, args=FLAGS + self.defines + common.includes(self.path),
                                       unsaved_files=[(self.path, self.text)])
        bad = False
        for d in unit.diagnostics:
            if d.severity >= ci.Diagnostic.Warning:
                bad |= d.severity >= ci.Diagnostic.Error
                message = d.spelling
                if "declared in local address space" in message:
                    message += " (house rule: threadgroup memory is a kernel's argument)"
                self.say(d.location, message)
        return unit

    # -- 2. the syntax tree -------------------------------------------------------------

    def walk(self, c, parent, function):
        for child in c.get_children():
            if parent is None and not self.ours(child):
                continue
            inside = function
            if child.kind in FUNCTIONS and self.ours(child):
                inside = child.get_usr()
                self.functions[inside] = child
                self.function(child)
            self.visit(child, c, inside)
            self.walk(child, c, inside)

    def function(self, c):
        if c.kind != K.CONVERSION_FUNCTION and c.kind != K.CONSTRUCTOR and unspaced(c.result_type):
            self.say(c, "'%s' returns a pointer without an address space" % c.spelling)
        if not c.is_definition() or c.kind == K.CONSTRUCTOR:
            return
        # The words before the name are read from the file: the tree has no macros.
        before = self.source(c)[:c.location.offset].decode(errors="replace")
        words = set(re.findall(r"\w+", re.split(r"[;{}]", before)[-1]))
        if "kernel" in words:
            self.kernels.setdefault(c.spelling, c)
        elif not {"METAL_FUNC", "constexpr"} & words and not c.is_default_method():
            self.say(c, "'%s' lacks METAL_FUNC (house rule: every helper is inlined)" % c.spelling)

    def visit(self, c, parent, function):
        if not self.ours(c):
            return
        kind = c.kind
        if kind in (K.VAR_DECL, K.PARM_DECL, K.FIELD_DECL) and unspaced(c.type, kind == K.PARM_DECL):
            if not any(t.spelling == "auto" for t in c.get_tokens()):
                self.say(c, "'%s' points without an address space (%s)" % (c.spelling, c.type.spelling))
        if kind in (K.TYPEDEF_DECL, K.TYPE_ALIAS_DECL) and unspaced(c.underlying_typedef_type):
            self.say(c, "'%s' is a pointer without an address space" % c.spelling)
        if kind in CASTS and unspaced(c.type):
            self.say(c, "cast to a pointer without an address space (%s)" % c.type.spelling)
        if kind in ABSENT:
            self.say(c, "MSL 3.1 has no " + ABSENT[kind])
        if kind == K.FIELD_DECL and self.components(c.type) == 3:
            self.say(c, "'%s': a field of three components has the size of four; spell its parts "
                        "(house rule)" % c.spelling)
        if kind == K.VAR_DECL and c.storage_class == ci.StorageClass.STATIC:
            top = parent.kind in CLASSES + (K.TRANSLATION_UNIT, K.NAMESPACE)
            if not top and c.type.get_address_space() != CONSTANT:
                self.say(c, "static local '%s'" % c.spelling)
        if kind == K.CALL_EXPR and c.referenced is not None:
            self.calls.setdefault(function, set()).add(c.referenced.get_usr())
            if c.referenced.kind == K.CXX_METHOD:
                self.method_call(c)
        if kind in (K.DECL_REF_EXPR, K.CALL_EXPR, K.TYPE_REF, K.TEMPLATE_REF, K.OVERLOADED_DECL_REF,
                    K.MEMBER_REF_EXPR) and not self.portable(c):
            name = c.spelling.split("::")[-1]
            written = self.source(c)[c.location.offset:].startswith(name.encode())   # by no macro
            if written and re.match(r"(msl|nv|soft)_|__nvvm|__builtin_|__atomic_|__sync_", name):
                self.say(c, "'%s' is not Metal's" % name)

    @staticmethod
    def components(t):
        t = t.get_canonical()
        while t.kind in ARRAYS:
            t = t.element_type.get_canonical()
        m = re.search(r"ext_vector_type\((\d)\)", t.spelling)
        if m:
            return int(m.group(1))
        try:
            return t.element_count if "vector" in t.kind.name.lower() else 1
        except Exception:
            return 1

    def method_call(self, c):
        """In OpenCL `this` is generic; in Metal a plain method is for thread objects only."""
        children = list(c.get_children())
        if not children or children[0].kind != K.MEMBER_REF_EXPR:
            return
        base = next(iter(children[0].get_children()), None)
        while base is not None and base.kind == K.UNEXPOSED_EXPR:
            base = next(iter(base.get_children()), None)
        if base is None:
            return
        t = base.type.get_pointee() if base.type.kind == T.POINTER else base.type
        space = t.get_address_space()
        if space in SPACES and not re.search(r"__(global|local|constant)$", c.referenced.type.spelling):
            self.say(c, "'%s' is a method of thread objects, called on one in %s memory"
                     % (c.spelling, SPACES[space]))

    def recursion(self):
        for f, cursor in self.functions.items():
            reached, todo = set(), [f]
            while todo:
                for g in self.calls.get(todo.pop(), ()):
                    if g not in reached:
                        reached.add(g)
                        todo.append(g)
            if f in reached:
                self.say(cursor, "'%s' is recursive" % cursor.spelling)

    # -- tokens: what the tree does not have ----------------------------------------------

    def tokens(self, unit):
        files = {self.path}
        here = (common.ROOT + os.sep, os.path.dirname(os.path.abspath(self.path)) + os.sep)
        for i in unit.get_includes():
            name = os.path.abspath(i.include.name)
            if name.startswith(common.INCLUDE + os.sep):
                continue
            if name.startswith(here):
                files.add(i.include.name)
            else:
                self.say(i.location, "#include <%s>: of the system's headers only metal_stdlib"
                         % os.path.basename(name))
        for name in files:
            f = unit.get_file(name)
            size = len(self.text.encode()) if name == self.path else os.path.getsize(name)
            start = ci.SourceLocation.from_offset(unit, f, 0)
            end = ci.SourceLocation.from_offset(unit, f, size)
            all_tokens = [t for t in unit.get_tokens(extent=ci.SourceRange.from_locations(start, end))
                          if t.kind != ci.TokenKind.COMMENT]
            self.words(all_tokens)

    def words(self, tokens):
        words = [t.spelling for t in tokens]
        for i, w in enumerate(words):
            if w in OPENCL_WORDS and words[i - 1:i] not in (["."], ["->"]):
                self.say(tokens[i], "'%s' is a word of OpenCL" % w)
            if w == "long" and words[i + 1:i + 2] == ["long"]:
                self.say(tokens[i], "MSL has no long long")
            if w == "(" and re.fullmatch(r"(half|float|u?char|u?short|u?int|u?long)[234]",
                                         "".join(words[i + 1:i + 2])) and words[i + 2:i + 4] == [")", "("]:
                depth, j = 0, i + 3
                while j < len(words):
                    depth += (words[j] in "([{") - (words[j] in ")]}")
                    if depth == 0:
                        break
                    if words[j] == "," and depth == 1:
                        self.say(tokens[i], "a vector literal of OpenCL: write %s(...)" % words[i + 1])
                        break
                    j += 1
            if w == "[" and words[i + 1:i + 2] == ["["] and words[i + 2:i + 3] == ["function_constant"]:
                self.say(tokens[i], "function constants clash across files: use a template (house rule)")

    # -- 3. signatures ---------------------------------------------------------------------

    def signatures(self):
        try:
            text = entry.preprocess(self.path, ["-DMSL_STRICT", *self.defines], self.text)
            kernels, instances = entry.kernels_of(text)
        except Failed as e:
            name = re.search(r"kernel (?:template )?(\w+)", str(e))
            where = name and next((c for n, c in self.kernels.items() if n == name.group(1)), None)
            self.say(where, str(e).split("\n")[0])
            return
        for name, k in kernels.items():
            self.signature(self.kernels.get(name), k)

    def signature(self, cursor, kernel):
        def bad(message):
            self.say(cursor, "kernel %s: %s" % (kernel.name, message))
        places = set()
        for p in kernel.parameters:
            if p.attribute == "buffer":
                spaces = re.findall(r"\b(device|constant|threadgroup|thread)\b", p.kind)
                if spaces not in (["device"], ["constant"]):
                    bad("buffer '%s' is neither device nor constant" % p.name)
                elif "*" not in p.kind and not p.reference:
                    bad("buffer '%s' is neither a pointer nor a reference" % p.name)
            elif p.attribute == "threadgroup":
                if not re.search(r"\bthreadgroup\b", p.kind) or not p.kind.endswith("*"):
                    bad("'%s' is not a threadgroup pointer" % p.name)
            else:
                m = re.fullmatch(r"(?:const )?(uint|ushort)([23]?)(?: const)?", p.kind)
                if not m:
                    bad("%s '%s' is a %s, not uint or ushort" % (p.attribute, p.name, p.kind))
                elif p.attribute in INDEX_ATTRIBUTES:
                    if m.group(2):
                        bad("%s '%s' is a number, not a vector" % (p.attribute, p.name))
                else:
                    places.add(m.group(1) + m.group(2))
        if len(places) > 1:
            bad("positions and sizes of several types: " + ", ".join(sorted(places)))
        if kernel.limit and kernel.limit.strip().isdigit() and not 1 <= int(kernel.limit) <= 1024:
            bad("max_total_threads_per_threadgroup(%s)" % kernel.limit)
        if cursor is None:
            return
        for c in cursor.get_children():
            if c.kind == K.PARM_DECL and c.type.kind == T.LVALUEREFERENCE:
                size = c.type.get_pointee().get_size()
                space = c.type.get_pointee().get_address_space()
                if space == CONSTANT and size > MAX_SET_BYTES:
                    bad("'%s' has %d bytes, an argument struct at most %d" % (c.spelling, size, MAX_SET_BYTES))

    def run(self):
        unit = self.parse()
        self.walk(unit.cursor, None, "")
        self.recursion()
        self.tokens(unit)
        self.signatures()
        return self.found


def check(path, text=None, defines=()):
    return Check(path, text, defines).run()


def setup():
    if not ci.Config.loaded and ci.Config.library_file is None:
        ci.Config.set_library_file(os.environ.get("LIBCLANG") or common.libclang())


def main():
    paths = [a for a in sys.argv[1:] if a not in ("--tap", "--tensor")]
    tap, tensor = "--tap" in sys.argv[1:], "--tensor" in sys.argv[1:]
    if not paths:
        sys.exit(__doc__)
    try:
        setup()
        common.find_clang()
    except Failed as e:
        sys.exit(str(e))
    failed = 0
    if tap:
        print("1..%d" % len(paths))
    for number, path in enumerate(paths, 1):
        found = check(os.path.abspath(path), defines=["TILE_TENSOR"] if tensor else [])
        failed |= bool(found)
        if tap:
            print("%s %d - %s" % ("not ok" if found else "ok", number, common.shader_name(path)))
        for line in found:
            print(("# " if tap else "") + (os.path.relpath(line) if line.startswith("/") else line))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
