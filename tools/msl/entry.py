#!/usr/bin/env python3
"""Find a shader's kernels, and write the entry points by which a host calls them.

    entry.py soft|nv|list FILE.metal

soft and nv print a translation unit that includes the shader unchanged and ends with one
entry point for each kernel and each instantiate_kernel("name", function, arguments...);
list prints names.  Kernels are searched in the preprocessed file (clang -E), so instances may
come from macros and from included files.

Each argument must have the attribute of its source: [[buffer(n)]], [[threadgroup(0)]] or one
of the positions below.  On the software device an entry point takes them from struct
soft_launch and soft_thread (msl_soft.h), and a constructor tells the device the kernel's
signature.  In PTX a kernel's parameters are its buffers in ascending order of their
index: `constant T &` by value, everything else as an address; threadgroup memory is the
launch's dynamic shared memory.  For sm_90 an entry point begins with the wait for the kernels before
it, and lets the next one begin; a function of which begins_early(function) is written does both itself.
"""
import re
import sys

import common
from common import Failed

POSITIONS = (
    "thread_position_in_grid", "thread_position_in_threadgroup", "threadgroup_position_in_grid",
    "threads_per_threadgroup", "threadgroups_per_grid", "threads_per_grid",
    "thread_index_in_threadgroup", "thread_index_in_simdgroup", "simdgroup_index_in_threadgroup",
    "simdgroups_per_threadgroup", "threads_per_simdgroup")

LIMIT = "msl_limit"      # in PTX, before limited()

# enum soft_kind and soft_access of tests/metal/soft/soft.h
CONSTANTS, BUFFER, THREADGROUP = 1, 2, 3
READ, WRITE = 1, 2


def preprocess(path, defines, text=None):
    command = [common.find_clang(), *common.LANGUAGE, "-E", "-P", "-DMSL_SCAN", *defines,
               *common.includes(path), "-" if text is not None else path]
    return common.run(command, input=text)


def closing(text, at):
    """The index of the bracket that closes the one at `at`; strings are skipped."""
    pairs, open_ones, i = {")": "(", "]": "[", "}": "{"}, [], at
    while i < len(text):
        c = text[i]
        if c == '"':
            i = text.index('"', i + 1)
        elif c in "([{":
            open_ones.append(c)
        elif c in pairs:
            if not open_ones or open_ones.pop() != pairs[c]:
                break
            if not open_ones:
                return i
        i += 1
    raise Failed("unbalanced brackets: " + " ".join(text[at:at + 60].split()))


def split(text):
    """Split at the commas outside of brackets, including angle brackets."""
    parts, depth, current = [], 0, ""
    for c in text:
        depth += (c in "([{<") - (c in ")]}>")
        if c == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += c
    return [" ".join(p.split()) for p in parts + [current] if p.strip()]


class Parameter:
    """One parameter of a kernel: its declaration and its source."""

    def __init__(self, text):
        m = re.fullmatch(r"(.*?)(\w+)\s*\[\[\s*(\w+)\s*(?:\(\s*(\w+)\s*\))?\s*\]\]", text, re.S)
        if not m:
            raise Failed("parameter without an attribute: " + text)
        self.kind, self.name, self.attribute, index = m.groups()
        self.kind = " ".join(self.kind.split())
        self.index = None
        if self.attribute in ("buffer", "threadgroup"):
            if index is None or not index.isdigit():
                raise Failed("%s of '%s' needs a number" % (self.attribute, self.name))
            self.index = int(index)
            if self.attribute == "buffer" and self.index > 30:
                raise Failed("'%s': buffer(%d), Metal has 0 to 30" % (self.name, self.index))
            if self.attribute == "threadgroup" and self.index != 0:
                raise Failed("'%s': our kernels have one piece of threadgroup memory, "
                             "threadgroup(0)" % self.name)
        elif self.attribute not in POSITIONS:
            raise Failed("'%s': attribute %s is not supported" % (self.name, self.attribute))
        words = re.findall(r"\w+|[*&]", self.kind)
        self.reference = words[-1] == "&"
        self.constant = "constant" in words
        self.read_only = self.constant or "const" in words[:words.index("*") if "*" in words else None]
        self.pointee = self.kind.rstrip("&* ")
        # `constant T &`: an argument struct, passed by value
        self.constants = self.attribute == "buffer" and self.reference and self.constant
        # tile_map (tile.h): NVIDIA's tensor map, passed by value and used by its address
        self.map = self.attribute == "buffer" and self.kind == "tile_map"
        if self.constants:
            self.struct = " ".join(w for w in self.pointee.split() if w not in ("constant", "const"))


class Kernel:
    def __init__(self, name, template, parameters, limit):
        self.name, self.limit = name, limit
        self.begins_early = False
        self.parameters = [Parameter(p) for p in parameters]
        self.template = template       # [(is a type, name, default or None)]
        at = [(p.attribute, p.index) for p in self.parameters if p.index is not None]
        for a in at:
            if at.count(a) > 1:
                raise Failed("kernel %s: %s(%d) twice" % (name, *a))


def parse_template(text):
    out = []
    for p in split(text):
        head, _, default = p.partition("=")
        words = head.replace("...", " ").split()
        if "..." in head:
            raise Failed("a kernel with a pack of template parameters: " + p)
        out.append((words[0] in ("typename", "class"), words[-1], default.strip() or None))
    return out


ATTRIBUTES = r"(?:\[\[(?:[^\[\]]|\[[^\[\]]*\])*\]\]\s*)"
KERNEL = re.compile(r"(%s*)(?:\bkernel\b|\[\[\s*kernel\s*\]\])\s*(%s*)(\w+)\s+(\w+)\s*\("
                    % (ATTRIBUTES, ATTRIBUTES))


def template_before(text, at):
    """The parameter list of a `template <...>` that ends just before `at`, or None."""
    head = text[:at].rstrip()
    if not head.endswith(">"):
        return None
    depth = 0
    for i in range(len(head) - 1, -1, -1):
        depth += (head[i] == ">") - (head[i] == "<")
        if depth == 0:
            return head[i + 1:-1] if re.search(r"\btemplate\s*$", head[:i]) else None
    return None


def kernels_of(text):
    """{name: Kernel} and [(name for the host, function, arguments)] of preprocessed text."""
    if re.search(r"\[\[\s*host_name", text):
        raise Failed("write instantiate_kernel(name, function, ...) instead of [[host_name]]")
    kernels = {}
    for m in KERNEL.finditer(text):
        if m.group(3) != "void":
            raise Failed("kernel %s: returns %s" % (m.group(4), m.group(3)))
        limit = re.search(r"max_total_threads_per_threadgroup\s*\(", m.group(1) + m.group(2))
        if limit:
            both = m.group(1) + m.group(2)
            limit = both[limit.end():closing(both, limit.end() - 1)]
        end = closing(text, m.end() - 1)
        template = template_before(text, m.start())
        try:
            kernel = Kernel(m.group(4), parse_template(template or ""), split(text[m.end():end]),
                            limit)
        except Failed as e:
            raise Failed("kernel %s: %s" % (m.group(4), e)) from None
        if kernel.name in kernels:
            raise Failed("kernel %s: defined twice" % kernel.name)
        kernels[kernel.name] = kernel
    for m in re.finditer(r"\bbegins_early\s*\(\s*(\w+)\s*\)", text):
        if m.group(1) not in kernels:
            raise Failed("begins_early(%s): no such kernel" % m.group(1))
        kernels[m.group(1)].begins_early = True
    instances = [(k.name, k, []) for k in kernels.values() if not k.template]
    for m in re.finditer(r"\binstantiate_kernel\s*\(", text):
        parts = split(text[m.end():closing(text, m.end() - 1)])
        name = "".join(re.findall(r'"(\w*)"', parts[0]))
        if not name or re.sub(r'"\w*"|\s', "", parts[0]):
            raise Failed("instantiate_kernel: not a name: " + parts[0])
        if len(parts) < 2 or parts[1] not in kernels:
            raise Failed('instantiate_kernel("%s"): no kernel %s' % (name, " ".join(parts[1:2])))
        instances.append((name, kernels[parts[1]], parts[2:]))
    names = [i[0] for i in instances]
    for name in names:
        if names.count(name) > 1:
            raise Failed('two kernels have the name "%s"' % name)
    used = {i[1].name for i in instances}
    for k in kernels.values():
        if k.name not in used:
            raise Failed("kernel template %s is never instantiated" % k.name)
    return kernels, instances


def bindings(kernel, arguments):
    """Declarations that bind a signature's template parameters to the arguments."""
    out = []
    for i, (is_type, name, default) in enumerate(kernel.template):
        value = arguments[i] if i < len(arguments) else default
        if value is None:
            raise Failed("kernel %s: %d template arguments, %s is missing"
                         % (kernel.name, len(arguments), name))
        out.append(("using %s = %s;" if is_type else "constexpr auto %s = %s;") % (name, value))
    if len(arguments) > len(kernel.template):
        raise Failed("kernel %s: too many template arguments" % kernel.name)
    return " ".join(out)


def call(kernel, arguments, buffer, threadgroup):
    out = []
    for p in kernel.parameters:
        if p.attribute == "threadgroup":
            out.append("(%s)%s" % (p.kind, threadgroup))
        elif p.attribute != "buffer":
            out.append("metal::msl_place<%s>(MSL_IN_%s)" % (p.kind.replace("const ", ""), p.attribute))
        else:
            out.append(buffer(p))
    function = kernel.name + ("<%s>" % ", ".join(arguments) if kernel.template else "")
    return "%s(%s);" % (function, ", ".join(out))


def dereferenced(p, address):
    return "*(%s *)%s" % (p.pointee, address) if p.reference else "(%s)%s" % (p.kind, address)


def soft(path, instances, source_hash, source_size, checked, variant=""):
    """`variant` is a part of names, so that a program may have the shader compiled in several ways."""
    out = ['#include "%s"' % path, "#pragma OPENCL EXTENSION __cl_clang_function_pointers : enable"]
    for name, kernel, arguments in instances:
        body = call(kernel, arguments, lambda p: dereferenced(p, "l->buffer[%d]" % p.index),
                    "l->threadgroup_memory")
        out.append('extern "C" void soft_kernel%s_%s(const metal::soft_launch *l, '
                   "const metal::soft_thread *t) { %s %s }" % (variant, name, bindings(kernel, arguments), body))
    out.append('extern "C" __attribute__((constructor)) void soft_shader%s_%s() {'
               % (variant, re.sub(r"\W", "_", common.shader_name(path))))
    out.append('const ulong s = metal::soft_add_shader("%s%s", 0x%xul, %d, %d);'
               % (common.shader_name(path), variant, source_hash, source_size, checked))
    for name, kernel, arguments in instances:
        out.append('{ %s metal::soft_add_kernel(s, "%s", (ulong)&soft_kernel%s_%s, %s);'
                   % (bindings(kernel, arguments), name, variant, name,
                      "(uint)(%s)" % kernel.limit if kernel.limit else "0"))
        for p in kernel.parameters:
            if p.index is None:
                continue
            kind = THREADGROUP if p.attribute == "threadgroup" else CONSTANTS if p.constants else BUFFER
            out.append("metal::soft_add_argument(s, %d, %d, %s, %d);"
                       % (kind, p.index, "sizeof(%s)" % p.struct if p.constants else 0,
                          READ if p.read_only else READ | WRITE))
        out.append("}")
    out.append("}")
    return "\n".join(out) + "\n"


def nv(path, instances):
    out = ['#include "%s"' % path, '__asm__(".extern .shared .align 1024 .b8 msl_shared[];");']
    for name, kernel, arguments in instances:
        buffers = sorted((p for p in kernel.parameters if p.attribute == "buffer"),
                         key=lambda p: p.index)
        bind = bindings(kernel, arguments)
        # The type of a parameter cannot use declarations of the body, so the body determines it.
        traits = "msl_args_%s" % name
        types = " ".join("using b%d = %s;" % (p.index, p.struct) for p in buffers if p.constants)
        bind_static = re.sub(r"\bconstexpr auto", "static constexpr constant auto", bind)
        out.append("struct %s { %s %s };" % (traits, bind_static, types))
        parameters = ", ".join("%s::b%d b%d" % (traits, p.index, p.index) if p.constants
                               else "metal::nv_map_bytes b%d" % p.index if p.map
                               else "device void *b%d" % p.index for p in buffers)
        # A parameter's address is taken by its PTX name: `&b0` would be the address of a copy.
        addresses = "".join(
            'device const void *m%d; __asm__("{ .reg .b64 p; mov.b64 p, %s_param_%d; cvta.param.u64 %%0, p; }"'
            ' : "=l"(m%d)); ' % (p.index, name, i, p.index) for i, p in enumerate(buffers) if p.map)
        body = call(kernel, arguments,
                    lambda p: "b%d" % p.index if p.constants else "tile_map{m%d}" % p.index if p.map
                    else dereferenced(p, "b%d" % p.index),
                    "metal::nv_shared()")
        limit = ""
        if kernel.limit:
            out[-1] = out[-1][:-2] + "static constexpr constant uint limit = (uint)(%s); };" % kernel.limit
            limit = '__asm__ volatile("// %s %%0" :: "n"(%s::limit)); ' % (LIMIT, traits)
        begin = "" if kernel.begins_early else "metal::nv_wait_for_previous(); metal::nv_begin_next(); "
        out.append("__kernel void %s(%s) { %s%s %s%s%s }"
                   % (name, parameters, limit, bind, addresses, begin, body))
    return "\n".join(out) + "\n"


def limited(ptx):
    """Adds to each entry point its limit of threads, which nv() wrote as a comment: ptxas makes the
    registers of that many threads fit."""
    return re.sub(r"^(\.visible \.entry [^{]*)(\{(?:(?!^\})[\s\S])*?// %s (\d+)$)" % LIMIT,
                  r"\1.maxntid \3, 1, 1\n\2", ptx, flags=re.M)


def find(path, target, more=()):
    defines = {"nv80": ["-DMSL_NV"], "nv90a": ["-DMSL_NV", "-DNV_WGMMA"], "soft": ["-DMSL_SOFT"],
               "strict": ["-DMSL_STRICT"]}[target]
    try:
        return kernels_of(preprocess(path, defines + ["-D" + d for d in more]))[1]
    except Failed as e:
        raise Failed("%s: %s" % (path, e)) from None


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in ("soft", "nv", "list"):
        sys.exit(__doc__)
    path = sys.argv[2]
    try:
        if sys.argv[1] == "soft":
            sys.stdout.write(soft(path, find(path, "soft"), 0, 0, 0))
        elif sys.argv[1] == "nv":
            sys.stdout.write(nv(path, find(path, "nv90a")))
        else:
            for name, kernel, arguments in find(path, "strict"):
                print(name, kernel.name + ("<%s>" % ", ".join(arguments) if arguments else ""))
    except Failed as e:
        sys.exit(str(e))


if __name__ == "__main__":
    main()
