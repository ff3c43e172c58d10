"""Programmatic dependent launch: what a kernel may touch before it has waited for the kernel before it."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_uint, c_uint64

import numpy as np
import pytest

from .cuda_runtime import Args, Dim3, Runtime
from .kernels import kinds
from .ptx_kernels import text_of
from .test_runtime_launch import LaunchAttribute, LaunchConfig

PROGRAMMATIC_SERIALIZATION = 6
OWN = "mul.wide.u32 %rd1, %r0, 4; add.u64 %rd2, %rd0, %rd1;"
WRITE, READ = "st.global.u32 [%rd2], %r0;", "ld.global.u32 %r1, [%rd2]; st.global.u32 [%rd2+1024], %r1;"
TRIGGER, WAIT = "griddepcontrol.launch_dependents;", "griddepcontrol.wait;"
BY_ONE = "setp.ne.u32 %p0, %r0, 0; @%p0 bra PASS; griddepcontrol.wait; PASS: "


def launch(cuda: Runtime, body: str, address: int, *, early: bool) -> None:
    kernel = cuda.kernel(cuda.load(text_of(OWN + body)), "kernel")
    attribute = LaunchAttribute(PROGRAMMATIC_SERIALIZATION, 0, (c_uint * 16)(int(early)))
    config = LaunchConfig(Dim3(1, 1, 1), Dim3(64, 1, 1), 0, None, ctypes.pointer(attribute), 1)
    cuda.call("cudaLaunchKernelExC", byref(config), kernel, Args(c_uint64(address)).array)


CASES = {
    "waits": (WRITE + TRIGGER, WAIT + READ, True, set()),
    "does not wait": (WRITE + TRIGGER, READ, True, {"grid_dependency_missing"}),
    "waits too late": (WRITE + TRIGGER, READ + WAIT, True, {"grid_dependency_missing"}),
    "is launched as ever": (WRITE + TRIGGER, READ, False, set()),
    "follows a kernel that lets nobody start early": (WRITE, READ, True, set()),
    "one thread waits, and a barrier hands it on": (WRITE + TRIGGER, BY_ONE + "bar.sync 0;" + READ, True, set()),
    "one thread waits for itself": (WRITE + TRIGGER, BY_ONE + READ, True, {"grid_dependency_missing"}),
    "overwrites what is being read": (READ + TRIGGER, WRITE, True, {"grid_dependency_missing"}),
    "overwrites what is being written": (WRITE + TRIGGER, WRITE, True, {"grid_dependency_missing"}),
    "touches other memory first": (WRITE + TRIGGER, "st.global.u32 [%rd2+2048], %r0;" + WAIT + READ, True, set()),
    "reads what was only read": ("ld.global.u32 %r1, [%rd2];" + TRIGGER, "ld.global.u32 %r1, [%rd2];", True, set()),
}


@pytest.mark.parametrize("case", CASES)
def test_a_kernel_that_may_start_early(emulator: Runtime, case: str) -> None:
    first, second, early, expected = CASES[case]
    emulator.set_option("checks", "all")
    address = emulator.alloc(np.zeros(1024, np.uint32))
    launch(emulator, first, address, early=False)
    launch(emulator, second, address, early=early)
    emulator.call("cudaDeviceSynchronize")
    reports = emulator.reports()
    assert kinds(reports) == expected
    if expected:
        text = str(reports[0]["text"])
        assert text.count("kernel kernel") == 2 and "griddepcontrol.wait" in text and "of block (0,0,0)" in text


def test_work_between_the_two_kernels_makes_the_second_one_wait(emulator: Runtime) -> None:
    emulator.set_option("checks", "all")
    address = emulator.alloc(np.zeros(1024, np.uint32))
    launch(emulator, WRITE + TRIGGER, address, early=False)
    emulator.call("cudaMemsetAsync", c_uint64(address + 3072), 0, ctypes.c_size_t(64), None)
    launch(emulator, READ, address, early=True)
    emulator.call("cudaDeviceSynchronize")
    assert emulator.reports() == []
