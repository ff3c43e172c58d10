"""Objects linked on the device, memory from malloc in kernels, recursion and virtual functions."""

from __future__ import annotations

import subprocess
from ctypes import c_void_p
from pathlib import Path

import numpy as np
import pytest

from device.toolchain import find_toolchain

from .cuda_runtime import Args, Runtime
from .kernels import Kernels, kinds
from .ptx_kernels import refusal

FOLDER = Path(__file__).parent


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two objects, linked on the device by a step of its own (nvcc -dlink) and then on the host."""
    folder, toolchain = tmp_path_factory.mktemp("rdc"), find_toolchain()
    (folder / "libcudart.so").symlink_to(toolchain.cudart_library)
    objects = [folder / "rdc_main.o", folder / "rdc_part.o"]
    flags = ["-rdc=true", "-Xcompiler", "-fPIC", "-cudart", "shared", "-lineinfo", "-gencode", "arch=compute_90a,code=compute_90a"]
    linking = ["-cudadevrt", "none", f"-L{folder}"]
    compiling = [[*flags, "-c", str(FOLDER / f"{each.stem}.cu"), "-o", str(each)] for each in objects]
    steps = [[*flags, *linking, "-dlink", *map(str, objects), "-o", str(folder / "linked.o")]]
    steps += [["-shared", "-cudart", "shared", *linking, *map(str, objects), str(folder / "linked.o"), "-o", str(folder / "rdc.so")]]
    for arguments in compiling + steps:
        done = subprocess.run([str(toolchain.nvcc), *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return folder / "rdc.so"


@pytest.fixture
def kernels(emulator: Runtime, library: Path) -> Kernels:
    return Kernels(emulator, library)


def test_functions_and_variables_of_another_object(kernels: Kernels) -> None:
    arrays, reports = kernels.run("across", np.zeros(32, np.int32))
    i = np.arange(32)
    wanted = 2 * (203 * i) + np.array([10, 20, 30, 40])[i & 3] + 2 * i + 3 * i + 1000
    assert reports == [] and np.array_equal(arrays[0], wanted)


def test_strings_of_two_objects_stay_apart(kernels: Kernels) -> None:
    arrays, reports = kernels.run("texts", np.zeros(32, np.int32))
    wanted = [(ord(a) * 256 + ord(b)) * 256 + ord(c) for a, b, c in zip("main", "text", "part", strict=True)]
    assert reports == [] and arrays[0].tolist() == wanted * 8


def test_the_host_names_variables_of_either_object(kernels: Kernels) -> None:
    arrays, reports = kernels.run("tables", np.zeros(32, np.int32), 7)
    assert reports == [] and arrays[0][:4].tolist() == [21, 24, 90, 120]


def test_virtual_functions_and_recursion(kernels: Kernels) -> None:
    arrays, reports = kernels.run("shapes", np.zeros(32, np.int32))
    fibonacci = np.array([0, 1, 1, 2, 3, 5, 8, 13])
    assert reports == [] and np.array_equal(arrays[0], np.arange(32) % 2 * 25 + np.tile(fibonacci, 4))


def test_malloc_in_kernels(kernels: Kernels) -> None:
    arrays, reports = kernels.run("lists", np.zeros(32, np.int32), 0)
    assert reports == [] and np.array_equal(arrays[0], 6 + 4 * np.arange(32))


@pytest.mark.parametrize(
    ("fault", "kind"), [(1, "uninitialized_read"), (2, "out_of_bounds_read"), (3, "double_free"), (4, "use_after_free")]
)
def test_faults_with_malloc_in_kernels(kernels: Kernels, fault: int, kind: str) -> None:
    reports = kernels.run("lists", np.zeros(32, np.int32), fault)[1]
    assert kind in kinds(reports)
    assert any("rdc_main.cu" in str(report["source"]) for report in reports if report["kind"] == kind)


def test_the_heap_has_a_limit(kernels: Kernels) -> None:
    arrays, _ = kernels.run("exhaust", np.zeros(2, np.int32))
    assert arrays[0].tolist() == [1, 0]


def test_launches_from_kernels_are_refused_by_name(emulator: Runtime) -> None:
    text = """.version 8.7
.target sm_90a
.address_size 64
.extern .func (.param .b64 r) cudaGetParameterBufferV2(.param .b64 f, .param .align 4 .b8 g[12], .param .align 4 .b8 b[12], .param .b32 s);
.visible .entry parent()
{
    .param .b64 r; .param .b64 f; .param .align 4 .b8 g[12]; .param .align 4 .b8 b[12]; .param .b32 s;
    call.uni (r), cudaGetParameterBufferV2, (f, g, b, s);
    ret;
}
"""
    said = refusal(emulator, text)
    assert "dynamic parallelism" in said and "cudaGetParameterBufferV2" in said


CALLS_WHAT_IS_NOT_THERE = """.version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b32 result) of_a_system();
.visible .func (.param .b32 out) wrapper()
{
    .reg .b32 %r1;
    .param .b32 got;
    call.uni (got), of_a_system, ();
    ld.param.b32 %r1, [got];
    st.param.b32 [out], %r1;
    ret;
}
.visible .entry plain(.param .u64 out)
{
    .reg .b64 %rd1;
    ld.param.u64 %rd1, [out];
    st.global.u32 [%rd1], 7;
    ret;
}
"""
CALLING_ENTRY = """.visible .entry calling(.param .u64 out)
{
    .param .b32 got;
    call.uni (got), wrapper, ();
    ret;
}
"""


def test_a_function_that_calls_what_is_not_there_matters_where_it_is_called(emulator: Runtime) -> None:
    """nvcc links such functions, of its library for dynamic parallelism, into every program with -rdc=true."""
    kernel = emulator.kernel(emulator.load(CALLS_WHAT_IS_NOT_THERE), "plain")
    out = emulator.alloc(np.zeros(1, np.uint32))
    assert emulator.launch(kernel, Args(c_void_p(out))) == 0
    assert emulator.read(out, 1, np.uint32).tolist() == [7]
    assert "of_a_system" in refusal(emulator, CALLS_WHAT_IS_NOT_THERE + CALLING_ENTRY)
