"""PTX for every architecture that nvcc knows runs, unless it uses what the emulated chip has not: then it is refused by name."""

from __future__ import annotations

import ctypes
import struct
import subprocess
from ctypes import c_char_p, c_int, c_size_t, c_uint64, c_void_p

import numpy as np
import pytest

from .cuda_runtime import Args, Runtime
from .kernels import find_nvcc
from .ptx_kernels import refusal, text_of

SOURCE = """
__constant__ float table[4] = {1, 2, 3, 4};
__device__ int arch;
extern "C" __global__ void sum(const float* x, float* out, int n) {
    __shared__ float part[32];
    float mine = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) mine += x[i] * table[i & 3];
    for (int step = 16; step > 0; step /= 2) mine += __shfl_xor_sync(~0u, mine, step);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = mine;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int i = 1; i < blockDim.x / 32; ++i) part[0] += part[i];
    atomicAdd(out, part[0]);
#ifdef __CUDA_ARCH__
    arch = __CUDA_ARCH__;
#endif
}
"""
OLD = ["75", "80", "86", "87", "88", "89", "90", "90a"]
NAMES = [*OLD, *(f"{arch}{suffix}" for arch in (100, 103, 110, 120, 121) for suffix in ("", "a", "f"))]
# Every target is a compilation: of each kind one, and all with the slow tests.
FAST = ("75", "90a", "100f", "121")
SUFFIXES = {0: "", 0x100000: "a", 0x200000: "f"}


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> dict[str, str]:
    """The PTX for each architecture, as one compilation puts them into a fat binary."""
    folder = tmp_path_factory.mktemp("targets")
    source, made = folder / "sum.cu", folder / "sum.fatbin"
    source.write_text(SOURCE)
    names = NAMES if pytestconfig.getoption("--slow") else FAST
    targets = [word for name in names for word in ("-gencode", f"arch=compute_{name},code=compute_{name}")]
    subprocess.run([find_nvcc(), "-fatbin", "--compress-mode=none", *targets, str(source), "-o", str(made)], check=True)
    image = made.read_bytes()
    found, at = {}, 16
    while at < len(image):
        header, size = struct.unpack_from("<IQ", image, at + 4)
        arch, flags = struct.unpack_from("<I", image, at + 28)[0], struct.unpack_from("<Q", image, at + 40)[0]
        found[f"{arch}{SUFFIXES[flags & 0x300000]}"] = image[at + header : at + header + size].rstrip(b"\0").decode()
        at += header + size
    return found


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in FAST)) for name in NAMES])
def test_ptx_of_every_architecture_runs(emulator: Runtime, modules: dict[str, str], name: str) -> None:
    assert f".target sm_{name}\n" in modules[name]
    library = emulator.load(modules[name])
    values = np.arange(1000, dtype=np.float32)
    x, out = emulator.alloc(values), emulator.alloc(np.zeros(1, np.float32))
    kernel = emulator.kernel(library, "sum")
    assert emulator.launch(kernel, Args(c_uint64(x), c_uint64(out), c_int(1000)), grid=(3, 1, 1), block=(128, 1, 1)) == 0
    assert emulator.read(out, 1, np.float32)[0] == (values * (np.arange(1000) % 4 + 1)).sum()
    symbol, size = c_void_p(), c_size_t()
    emulator.call("cudaLibraryGetGlobal", ctypes.byref(symbol), ctypes.byref(size), library, c_char_p(b"arch"))
    number = int(name.rstrip("af"))
    assert emulator.read(symbol.value or 0)[0] == 10 * number
    attributes = (c_int * 64)()  # ptxVersion is the ninth number of cudaFuncAttributes
    emulator.call("cudaFuncGetAttributes", attributes, kernel)
    assert attributes[8] == number
    found = [(r["kind"], r["severity"]) for r in emulator.reports()]
    assert found == ([("foreign_target", "note")] if number > 90 else [])


# What sm_100 and its successors have and sm_90 has not: (instruction, a word of the reason).
FOREIGN = [
    ("tcgen05.wait::ld.sync.aligned;", "sm_100"),
    ("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], 32;", "sm_100"),
    ("add.rn.f32x2 %rd1, %rd2, %rd3;", "sm_100"),
    ("ld.global.v8.f32 {%f0,%f1,%f2,%f3,%f4,%f5,%f6,%f7}, [%rd0];", "sm_100"),
    ("redux.sync.min.f32 %f1, %f2, 0xffffffff;", "sm_100"),
    ("min.f32 %f0, %f1, %f2, %f3;", "sm_100"),
    ("clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r1], [%r2];", "sm_100"),
    ("cvt.rn.satfinite.e2m1x2.f32 %h1, %f1, %f2;", "sm_100"),
    ("st.bulk.weak.shared::cta [%rd1], 64, 0;", "sm_100"),
    ("multimem.ld_reduce.global.add.u32 %r1, [%rd0];", "multicast"),
]


@pytest.mark.parametrize(("instruction", "reason"), FOREIGN, ids=[text.split()[0].rstrip(";") for text, _ in FOREIGN])
def test_instructions_of_newer_chips_are_refused_by_name(emulator: Runtime, instruction: str, reason: str) -> None:
    said = refusal(emulator, text_of(instruction, target="sm_100a", version="9.0"))
    assert f"unsupported instruction '{instruction.split()[0].rstrip(';')}'" in said
    assert reason in said
