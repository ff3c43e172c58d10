"""Kernels written as PTX text, run by one warp on one buffer: for instructions that need no compiler."""

from __future__ import annotations

from ctypes import c_uint64
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .cuda_runtime import Args, Runtime

HEADER = """.version {version}
.target {target}
.address_size 64
{module}
.visible .entry kernel(.param .u64 buffer)
{{
    .reg .pred %p<8>;
    .reg .b16 %h<16>;
    .reg .b32 %r<32>;
    .reg .f32 %f<32>;
    .reg .b64 %rd<32>;
    .reg .f64 %fd<8>;
    .reg .b128 %q<8>;
    ld.param.u64 %rd0, [buffer];
    cvta.to.global.u64 %rd0, %rd0;
    mov.u32 %r0, %tid.x;
{body}
    ret;
}}
"""


def text_of(body: str, module: str = "", version: str = "8.7", target: str = "sm_90a") -> str:
    """A module with one kernel: %rd0 is the buffer's address, %r0 the thread's number."""
    return HEADER.format(version=version, target=target, module=module, body=body)


def run_ptx(
    cuda: Runtime, text: str, values: NDArray[Any], threads: int = 32, blocks: int = 1, checks: str = "all"
) -> tuple[NDArray[Any], list[dict[str, Any]]]:
    """Run ``kernel`` of the module on a buffer of `values`; returns the buffer afterwards (empty when it failed) and the reports."""
    library = cuda.load(text)
    address = cuda.alloc(values)
    cuda.set_option("checks", checks)
    try:
        code = cuda.launch(cuda.kernel(library, "kernel"), Args(c_uint64(address)), grid=(blocks, 1, 1), block=(threads, 1, 1))
        code = code or cuda.code("cudaDeviceSynchronize")
        reports = cuda.reports()
        if code:
            cuda.recover(address)
            return np.zeros(0, values.dtype), reports
        return cuda.read(address, values.size, values.dtype.type).reshape(values.shape), reports
    finally:
        cuda.set_option("checks", "all")


def refusal(cuda: Runtime, text: str) -> str:
    """What is said of a module that cannot be loaded; "" when it can."""
    try:
        cuda.load(text)
    except AssertionError as error:
        cuda.reports()
        cuda.code("cudaGetLastError")
        return str(error)
    return ""
