#!/usr/bin/env python3
"""metal_declarations.py METAL_CPP [SDK]: prints a stand-in for Apple's <Metal/Metal.h> of the SDK
of that macOS version (default 26.0).

METAL_CPP is the folder of Apple's own C++ headers for Metal (metal-cpp, Apache-2.0).  Each of
their inline functions names the Objective-C message that it sends.  The declarations of classes,
protocols, methods and enumerations are made from these names and the functions' types, so a
compiler checks Objective-C against Apple's real interface on any system: a message that does not
exist, an argument of another type or a value of another enumeration is an error.

Omitted are nullability and functions on types of other frameworks.  The headers do not say in
which version an API appeared, so AVAILABLE lists all that are newer than macOS 14: their use
without a version check is an error too, and what is newer than SDK is omitted.
"""
import pathlib
import re
import sys

# The version of names newer than macOS 14: the first pattern that matches "Class selector",
# "Class" or an enumeration's value decides.  All of MTL4 is new in 26.
AVAILABLE = [
    (r"MTL4|MTLTensor|MTLTextureViewPool|MTLResourceViewPool|MTLFunctionReflection", "26.0"),
    (r"MTLGPUFamily(Metal4|Apple10)$|MTLLanguageVersion4_", "26.0"),
    (r"MTLDevice (newTensor|tensorSize|supportsPlacementSparse|maximumConcurrentCompilation"
     r"|queryTimestampFrequency|sizeOfCounterHeapEntry|functionHandleWith)", "26.0"),
    (r"MTLCompileOptions (setR|r)equiredThreadsPerThreadgroup", "26.0"),
    (r"MTLComputePipelineDescriptor (setR|r)equiredThreadsPerThreadgroup", "26.0"),
    (r"MTLComputePipelineState (requiredThreadsPerThreadgroup|reflection)$", "26.0"),
    (r"MTLResidencySet|MTLLogState|MTLCommandQueueDescriptor", "15.0"),
    (r"MTLDevice (newResidencySet|newLogState|newCommandQueueWithDescriptor)", "15.0"),
    (r"MTL(CommandQueue|CommandBuffer) \w*[rR]esidencySet", "15.0"),
    (r"MTLCommandBufferDescriptor (setL|l)ogState", "15.0"),
    (r"MTLCompileOptions (setM|m)ath|MTLCompileOptions (setE|e)nableLogging", "15.0"),
    (r"MTLComputePipelineDescriptor (setS|s)haderValidation", "15.0"),
    (r"MTLLanguageVersion3_2$|MTLMathMode|MTLMathFloatingPointFunctions", "15.0"),
]

FOUNDATION = {
    "UInteger": "NSUInteger", "Integer": "NSInteger", "Range": "NSRange",
    "TimeInterval": "NSTimeInterval", "ErrorDomain": "NSErrorDomain",
    "ErrorUserInfoKey": "NSErrorUserInfoKey",
}
FOUNDATION_CLASSES = {"String", "Array", "Error", "Dictionary", "URL", "Bundle", "Data", "Date",
                      "Set", "Number"}
SCALARS = {"void": "void", "bool": "BOOL", "float": "float", "double": "double", "int": "int",
           "char": "char", "uint8_t": "uint8_t", "uint16_t": "uint16_t", "uint32_t": "uint32_t",
           "uint64_t": "uint64_t", "int32_t": "int32_t", "int64_t": "int64_t",
           "std::uint64_t": "uint64_t", "std::uint32_t": "uint32_t", "size_t": "size_t",
           "CFTimeInterval": "double", "dispatch_data_t": "dispatch_data_t",
           "dispatch_queue_t": "dispatch_queue_t"}

TAIL = """
static inline MTLSize MTLSizeMake(NSUInteger width, NSUInteger height, NSUInteger depth)
{
	MTLSize size = { width, height, depth };
	return size;
}

static inline MTLOrigin MTLOriginMake(NSUInteger x, NSUInteger y, NSUInteger z)
{
	MTLOrigin origin = { x, y, z };
	return origin;
}

FOUNDATION_EXPORT NSErrorDomain const MTLCommandBufferErrorDomain;
FOUNDATION_EXPORT NSErrorDomain const MTLLibraryErrorDomain;
FOUNDATION_EXPORT id<MTLDevice> MTLCreateSystemDefaultDevice(void);
FOUNDATION_EXPORT NSArray *MTLCopyAllDevices(void);
#endif
"""


def since(name, types=()):
    """The macOS version of a name, or that of the newest type in its declaration."""
    for pattern, version in AVAILABLE:
        if re.match(pattern, name):
            return float(version)
    return max((since(t) for t in types), default=0.0)


def mark(version):
    return " API_AVAILABLE(macos(%s))" % version if version else ""


def split(arguments):
    """A list of C++ arguments, split at the commas outside of brackets."""
    parts, depth = [""], 0
    for c in arguments:
        depth += (c in "(<") - (c in ")>")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return [p.strip() for p in parts if p.strip()]


class Headers:
    """The declarations of the C++ headers, by Objective-C names (MTLDevice, MTL4CommandQueue)."""

    def __init__(self, root):
        files = sorted((root / "Metal").glob("*.hpp"))
        if not files:
            sys.exit("metal_declarations: no headers in %s" % (root / "Metal"))
        bridge = (root / "Metal" / "MTLHeaderBridge.hpp").read_text()
        self.selectors = dict(re.findall(r'_MTL_PRIVATE_DEF_SEL\(\s*(\w+),\s*"([^"]+)"\)', bridge))
        self.is_class = set(re.findall(r"_MTL_PRIVATE_DEF_CLS\((\w+)\)", bridge))
        self.parents, self.aliases, self.enums, self.structs = {}, {}, {}, {}
        self.functions, self.constants = [], []
        for f in files:
            if f.name not in ("MTLHeaderBridge.hpp", "MTLPrivate.hpp", "MTLDefines.hpp"):
                self.read(f.read_text())

    def read(self, text):
        for space, body in re.findall(r"^namespace (MTL4?)\n\{\n(.*?)^\}\n", text, re.M | re.S):
            self.read_namespace(space, body)
        for m in re.finditer(r"^_MTL_INLINE ([\w:\s*]+?) ?(MTL4?)::(\w+)::\w+\((.*?)\)(?: const)?\n"
                             r"\{\n(.*?)^\}", text, re.M | re.S):
            self.functions.append(m.groups())

    def read_namespace(self, space, body):
        for kind, base, name, values in re.findall(
                r"^_MTL_(ENUM|OPTIONS)\(([\w:]+), (\w+)\) \{(.*?)^\};", body, re.M | re.S):
            self.enums[space + name] = (kind, base, space, re.findall(
                r"^\s*(\w+)(?: = ([^,\n]+))?,", values, re.M))
        for name, parents in re.findall(r"^class (\w+) : public NS::\w+<([\w:, ]+)>", body, re.M):
            parts = parents.replace(" ", "").split(",")
            parent = parts[1] if len(parts) > 1 else None
            self.parents[space + name] = self.qualified(space, parent) if parent else None
        for name, fields in re.findall(r"^struct (\w+)\n\{\n(.*?)^\}", body, re.M | re.S):
            self.structs[space + name] = (space, re.findall(
                r"^\s+([\w:]+(?:\s*\*)?)\s+(\w+(?:\[\d+\])*);", fields, re.M))
        for name, meaning in re.findall(r"^ *using (\w+) ?= ?([^;]+);", body, re.M):
            self.aliases[space + name] = (space, meaning)
        for kind, name in re.findall(r"^_MTL_CONST\(([\w:]+), (\w+)\);", body, re.M):
            self.constants.append((self.type_of(space, kind), space + name))

    def qualified(self, space, name):
        """The Objective-C name of a type that is written inside a namespace."""
        if "::" in name:
            outer, inner = name.split("::", 1)
            return outer + inner
        return space + name

    def reference(self, name):
        return name + " *" if name in self.is_class else "id<%s>" % name

    def block_of(self, space, text):
        """A block's type: "void (^name)(arguments)"."""
        m = re.fullmatch(r"\s*(.*?)\s*\(\^\w*\)\s*\((.*)\)\s*", text, re.S)
        if not m:
            return None
        result = self.type_of(space, m.group(1))
        types = [self.type_of(space, re.sub(r"(?<=[\s*])\w+$", "", a.strip()) if " " in a.strip()
                              else a) for a in split(m.group(2))]
        if result is None or None in types:
            return None
        return "%s (^)(%s)" % (result, ", ".join(types))

    def type_of(self, space, text):
        """A C++ type in Objective-C, or None if it is not supported."""
        if "^" in text:
            return self.block_of(space, text)
        text = re.sub(r"\b(class|struct|enum)\b", "", text).strip()
        is_array = text.endswith("[]")
        text = text[:-2].strip() if is_array else text
        is_const = bool(re.match(r"const\b", text))
        text = re.sub(r"\bconst\b", "", text)
        text = re.sub(r"\s+", "", text)
        n_stars = len(text) - len(text.rstrip("*")) + is_array
        return self.pointed(space, text.rstrip("*"), n_stars, is_const)

    def pointed(self, space, base, n_stars, is_const):
        if base in SCALARS:
            name = SCALARS[base]
        elif base.startswith("NS::"):
            inner = base[4:]
            if inner in FOUNDATION:
                name = FOUNDATION[inner]
            elif inner == "Object" and n_stars:
                name, n_stars = "id", n_stars - 1
            elif inner in FOUNDATION_CLASSES and n_stars:
                name, n_stars, is_const = "NS%s *" % inner, n_stars - 1, False
            else:
                return None
        else:
            name = self.qualified(space, base)
            if name in self.aliases:
                outer, meaning = self.aliases[name]
                if "function" in meaning:
                    return None
                known = self.type_of(outer, meaning)
                return known and known + "*" * n_stars
            if name in self.parents:
                if not n_stars:
                    return None
                name, n_stars = self.reference(name), n_stars - 1
            elif name not in self.enums and name not in self.structs:
                return None
        if not n_stars:
            return name
        const = "const " if is_const and name != "id" else ""
        return const + name + ("" if name.endswith("*") else " ") + "*" * n_stars

    def method(self, returned, space, name, arguments, body):
        """(selector, declaration) of the message that a function sends, or None."""
        m = re.search(r"sendMessage(?:Safe)?<.*?>\((this|_MTL_PRIVATE_CLS\(\w+\)), "
                      r"_MTL_PRIVATE_SEL\((\w+)\)((?:, [^,;]+)*)\);", body)
        if not m or m.group(2) not in self.selectors:
            return None
        selector = self.selectors[m.group(2)]
        types = {}
        for argument in split(arguments):
            a = re.search(r"\(\^(\w+)\)", argument)
            if a:
                types[a.group(1)] = self.block_of(space, argument)
                continue
            a = re.fullmatch(r"(.*?)(\w+)(\[\])?", argument, re.S)
            types[a.group(2)] = self.type_of(space, a.group(1) + (a.group(3) or ""))
        sent = [types.get(a.strip()) for a in m.group(3).split(",")[1:]]
        result = self.type_of(space, returned)
        if result is None or None in sent or selector.count(":") != len(sent):
            return selector, None
        if re.match(r"(init|new)([A-Z]|$)", selector) and space + name in self.is_class:
            result = "instancetype"
        head = "%s (%s)" % ("-" if m.group(1) == "this" else "+", result)
        if not sent:
            return selector, head + selector
        parts = selector.split(":")
        return selector, head + " ".join("%s:(%s)a%d" % (p, t, i)
                                         for i, (p, t) in enumerate(zip(parts, sent)))


def write_enums(h, out, sdk):
    for name, (kind, base, space, values) in h.enums.items():
        base = h.type_of(space, base)
        tag = name + " : " + base
        values = [v for v in values if since(space + v[0]) <= sdk]
        if not values:
            continue
        out.append("typedef enum %s %s;" % (tag, name) if kind == "ENUM" else
                   "typedef %s %s;" % (base, name))
        out.append("enum %s {" % (tag if kind == "ENUM" else ": " + base))
        for value, number in values:
            if not number:
                out.append("\t%s%s%s," % (space, value, mark(since(space + value))))
                continue
            number = number.replace("NS::UIntegerMax", "NSUIntegerMax")
            number = re.sub(r"\b(?:MTL4?::)?(?!0x)([A-Z]\w+)\b",
                            lambda m: m.group(0) if m.group(0).startswith("NSU") else space + m.group(1),
                            number)
            out.append("\t%s%s%s = %s," % (space, value, mark(since(space + value)), number))
        out.append("};")


def write_structs(h, out, sdk):
    written = set()

    def write(name):
        if name in written:
            return
        written.add(name)
        space, fields = h.structs[name]
        types = [(h.type_of(space, t), f) for t, f in fields]
        if not types or any(t is None for t, _ in types) or since(name) > sdk:
            del h.structs[name]
            return
        for t, _ in types:
            if t in h.structs:
                write(t)
        out.append("typedef struct { %s } %s;" % (" ".join("%s %s;" % f for f in types), name))

    for name in list(h.structs):
        write(name)


def write_classes(h, out, sdk):
    """All classes and protocols, parents first.  Returns (methods, methods left out)."""
    methods, n, left_out = {}, 0, 0
    for returned, space, name, arguments, body in h.functions:
        found = h.method(returned, space, name, arguments, body)
        if found and found[1]:
            methods.setdefault(space + name, {}).setdefault(*found)
        elif found:
            left_out += 1
    for name in sorted(n for n in h.parents if since(n) <= sdk):
        out.append(("@class %s;" if name in h.is_class else "@protocol %s;") % name)
    written = set()

    def write(name):
        if name in written or name not in h.parents or since(name) > sdk:
            return
        written.add(name)
        parent = h.parents[name]
        write(parent)
        version = mark(since(name)).strip()
        if name in h.is_class:
            super_class = parent if parent in h.is_class else "NSObject"
            protocols = "" if super_class != "NSObject" else " <NSCopying>"
            out.append("%s\n@interface %s : %s%s" % (version, name, super_class, protocols))
        else:
            out.append("%s\n@protocol %s <%s>" % (version, name,
                                                  parent if parent in h.parents else "NSObject"))
        own = methods.get(name, {})
        for selector, declaration in sorted(own.items()):
            version = since("%s %s" % (name, selector), re.findall(r"MTL\w+", declaration))
            if version > sdk or re.match(r"(alloc|init)$", selector):
                continue
            out.append("%s%s;" % (declaration, mark(version)))
            # A property whose getter is called isFoo is read as foo.
            m = re.fullmatch(r"is([A-Z]\w*)", selector)
            if m and declaration.startswith("- (BOOL)"):
                writable = "set%s:" % m.group(1) in own
                out.append("@property(nonatomic, %s, getter=%s) BOOL %s%s;" % (
                    "readwrite" if writable else "readonly", selector,
                    m.group(1)[0].lower() + m.group(1)[1:], mark(version)))
        out.append("@end")

    for name in sorted(h.parents):
        write(name)
    n = sum(len(m) for m in methods.values())
    return n, left_out


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    sdk = float(sys.argv[2]) if len(sys.argv) == 3 else 26.0
    h = Headers(pathlib.Path(sys.argv[1]))
    out = ["/* Made by tools/cross/metal_declarations.py from Apple's metal-cpp. */",
           "#ifndef METAL_METAL_H", "#define METAL_METAL_H",
           "#import <Foundation/Foundation.h>", "#include <dispatch/dispatch.h>",
           "#include <os/availability.h>"]
    write_enums(h, out, sdk)
    write_structs(h, out, sdk)
    n, left_out = write_classes(h, out, sdk)
    for kind, name in h.constants:
        if kind and since(name) <= sdk:
            out.append("FOUNDATION_EXPORT %s const %s%s;" % (kind, name, mark(since(name))))
    print("\n".join(out) + "\n" + TAIL)
    print("%d classes and protocols, %d methods (%d left out), %d enumerations" % (
        len(h.parents), n, left_out, len(h.enums)), file=sys.stderr)


main()
