"""Kernels of shaders/ on an NVIDIA GPU, for the benches beside this file: their PTX, and launching them with PyTorch's memory."""
import ctypes as C
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


def build(folder, shaders):
    """PTX of shaders (core/linear, say) in a folder, each under its own name."""
    os.makedirs(folder, exist_ok=True)
    for shader in shaders:
        subprocess.run([sys.executable, os.path.join(ROOT, "tools/msl/msl"), "ptx", "--sm", "90a",
                        os.path.join(ROOT, "shaders", shader + ".metal"),
                        os.path.join(folder, os.path.basename(shader) + ".ptx")], check=True)


class Config(C.Structure):      # of cuLaunchKernelEx
    _fields_ = [("sizes", C.c_uint * 7), ("stream", C.c_void_p), ("attributes", C.c_void_p),
                ("n", C.c_uint)]


class Attribute(C.Structure):
    _fields_ = [("id", C.c_int), ("pad", C.c_int), ("value", C.c_uint * 16)]


class Kernels:
    """The kernels of a folder that build() made."""

    def __init__(self, folder):
        import torch
        self.torch, self.folder = torch, folder
        self.cu = C.CDLL("libcuda.so.1")
        torch.zeros(1, device="cuda")   # makes the context
        self.modules, self.functions = {}, {}
        print(torch.cuda.get_device_name(), "torch", torch.__version__)

    def ok(self, result, what):
        if result:
            sys.exit("CUDA error %d: %s" % (result, what))

    def function(self, shader, name):
        if shader not in self.modules:
            self.modules[shader] = C.c_void_p()
            with open(os.path.join(self.folder, shader + ".ptx"), "rb") as f:
                self.ok(self.cu.cuModuleLoadData(C.byref(self.modules[shader]), f.read() + b"\0"), shader)
        if name not in self.functions:
            f = self.functions[name] = C.c_void_p()
            self.ok(self.cu.cuModuleGetFunction(C.byref(f), self.modules[shader], name.encode()), name)
            self.ok(self.cu.cuFuncSetAttribute(f, 8, 227 * 1024), name)
        return self.functions[name]

    def prepare(self, shader, name, args, params, grid, threads, shared, cluster=1):
        """A function that launches a kernel, once or often.  args: bytes, the first parameter; params: tensors (their
        addresses; they must live as long) and arrays of ctypes."""
        function, cu, stream = self.function(shader, name), self.cu, self.torch.cuda.current_stream()
        keep = [C.create_string_buffer(args, len(args))]
        keep += [p if isinstance(p, C.Array) else C.c_uint64(p.data_ptr()) for p in params]
        pointers = (C.c_void_p * len(keep))(*[C.cast(C.pointer(p), C.c_void_p) for p in keep])
        together = Attribute(4, 0, (C.c_uint * 16)(cluster, 1, 1))
        config = Config((C.c_uint * 7)(grid, 1, 1, threads, 1, 1, shared), stream.cuda_stream,
                        C.addressof(together), 1)

        def launch():
            self.ok(cu.cuLaunchKernelEx(C.byref(config), function, pointers, None), name)
        launch.keep = keep, together
        return launch


def main(doc, make, run):
    """The commands of a bench: build DIR, run DIR."""
    if len(sys.argv) != 3 or sys.argv[1] not in ("build", "run"):
        sys.exit(doc)
    sys.exit((make if sys.argv[1] == "build" else run)(sys.argv[2]))
