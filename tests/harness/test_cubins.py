"""Cubins joined for the disassembler: its text of all of them says of each kernel what that of its own cubin says."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from device.toolchain import find_toolchain
from harness.build.cubins import join_cubins
from harness.build.disassemble import read_sass, read_sass_of
from harness.build.sass import SassKernel
from harness.errors import BuildError

# Loops, a jump table, a call that is not inlined, shared and constant memory: what has labels, relocations and attributes.
SOURCE = """
__constant__ float scales[8];
__device__ __noinline__ float twist(float x, int n) {
    for (int i = 0; i < n; ++i) x = x * x + 1.0f / x;
    return x;
}
extern "C" __global__ void both(float* p, int n) {
    __shared__ float tile[64];
    tile[threadIdx.x] = p[threadIdx.x] * scales[n & 7] + STEP;
    __syncthreads();
    switch (n) {
        case 0: p[0] = twist(tile[1], n); break;
        case 1: p[1] = sinf(tile[2]); break;
        case 2: p[2] = twist(tile[n], 3); break;
        case 3: p[3] = expf(tile[3]); break;
        case 4: p[4] = tile[4] / tile[5]; break;
        case 5: p[5] = sqrtf(tile[6]); break;
        default: for (int i = 0; i < n; ++i) p[i] += twist(tile[i & 63], i);
    }
}
extern "C" __global__ void OTHER(double* p) { p[threadIdx.x] = p[threadIdx.x] / 3.0; }
"""


def build(folder: Path, name: str, **defines: str) -> Path:
    toolchain = find_toolchain()
    source, library = folder / f"{name}.cu", folder / f"{name}.so"
    source.write_text(SOURCE)
    flags = ["-lineinfo", "--compress-mode=none", "-gencode", "arch=compute_90a,code=[sm_90a,compute_90a]", "-Xcompiler", "-fPIC"]
    flags += [f"-D{key}={value}" for key, value in defines.items()]
    done = subprocess.run(
        [str(toolchain.nvcc), "-ccbin", str(toolchain.cxx), *flags, "-c", str(source), "-o", str(folder / f"{name}.o")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    subprocess.run(
        [str(toolchain.cxx), "-shared", "-o", str(library), str(folder / f"{name}.o"), str(toolchain.cudart_library)], check=True
    )
    return library


def describe(kernel: SassKernel) -> dict[str, Any]:
    """What is known of a kernel, but for the numbers of labels, which count through the file."""
    rows = [(i.address, i.guard, i.opcode, re.sub(r"\.L_x_\d+|\s+", "", i.operands), i.source) for i in kernel.instructions]
    targets = [kernel.labels.get(i.target) for i in kernel.instructions]
    return {"name": kernel.name, "rows": rows, "labels": sorted(kernel.labels.values()), "targets": targets, "stalls": kernel.stalls}


@pytest.mark.slow
def test_kernels_of_joined_cubins_are_those_of_each(tmp_path: Path) -> None:
    toolchain = find_toolchain()
    libraries = [build(tmp_path, "one", STEP="1.0f", OTHER="left"), build(tmp_path, "two", STEP="p[7]", OTHER="right")]
    alone = [[describe(k) for k in read_sass(library, toolchain)] for library in libraries]
    joined = [sorted((describe(k) for k in found), key=lambda k: k["name"]) for found in read_sass_of(libraries, toolchain)]
    assert joined == [sorted(found, key=lambda k: k["name"]) for found in alone]
    assert [[k["name"] for k in found] for found in joined] == [["both", "left"], ["both", "right"]]
    assert all(any(t is not None for t in k["targets"]) and any(row[4] for row in k["rows"]) for found in joined for k in found)


def test_what_is_no_cubin_is_refused() -> None:
    with pytest.raises(BuildError, match="not an ELF file"):
        join_cubins([b"text"], ["a."])
