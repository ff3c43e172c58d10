"""Dispatchers of libraries whose kernels do nothing, compiled as CMake compiles them."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from pathlib import Path

import deploy
from contract.decision import SOURCE
from deploy.__main__ import write
from deploy.selection import DeployedOp
from device.toolchain import find_toolchain

DEPLOY = Path(deploy.__file__).parent


class Choice(ctypes.Structure):
    _fields_ = [
        ("kernel", ctypes.c_char_p),
        ("predicted_us", ctypes.c_double),
        ("workspace_bytes", ctypes.c_size_t),
        ("how", ctypes.c_int32),
        ("deterministic", ctypes.c_int32),
        ("capture_safe", ctypes.c_int32),
    ]


class Preferences(ctypes.Structure):
    _fields_ = [("deterministic", ctypes.c_int32), ("max_workspace_bytes", ctypes.c_int64)]


def build_dispatcher(folder: Path, ops: Sequence[DeployedOp]) -> ctypes.CDLL:
    """Return the dispatcher of ops with entry points that say yes to everything, in place of kernels."""
    write(folder, ops)
    stubs = ['#include <string.h>\n#include "aicf_kernels.h"\n']
    for op in ops:
        struct = op.interface["struct"]
        for kernel in op.kernels:
            for call, more in (("supports", ""), ("workspace_bytes", ", size_t* b"), ("launch", ", void* w, struct CUstream_st* s")):
                symbol = kernel.manifest["entry_points"][call]
                stubs.append(f"AicfStatus {symbol}(const {struct}* p{more}) {{ AicfStatus s_; memset(&s_, 0, sizeof s_); return s_; }}\n")
    (folder / "stubs.c").write_text("".join(stubs))
    includes = [f"-I{path}" for path in (folder, DEPLOY, SOURCE.parent, find_toolchain().cuda_include)]
    flags = ["-std=gnu11", "-O1", "-ffp-contract=off", "-shared", "-fPIC", *includes]
    objects = []
    for source, strict in ((folder / "aicf_dispatch.c", ["-Wall", "-Wextra", "-Werror"]), (folder / "stubs.c", [])):
        objects.append(str(folder / f"{source.stem}.o"))
        subprocess.run(["gcc", *flags, *strict, "-c", str(source), "-o", objects[-1]], check=True)
    target = folder / "libdispatch.so"
    # The functions of the CUDA runtime stay unresolved: a choice for a named architecture asks no device.
    subprocess.run(["gcc", "-shared", "-o", str(target), *objects, "-lm"], check=True)
    return ctypes.CDLL(str(target), mode=1)  # RTLD_LAZY
