"""Build frozen kernels from their sealed sources, except those that are already in the cache.

\b
Examples:
  # all that is frozen, so that no first call waits for a compiler
  python -m aicf prebuild
  python -m aicf prebuild gemm_bias_act gemm_backward --jobs 8
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

import typer

from aicf.registry import list_ops
from contract.building import build_kernel
from contract.frozen_set import read_op
from device.settings import read_settings

Ops = Annotated[list[str] | None, typer.Argument(metavar="[OP...]", help="ops of the frozen set; all by default")]


def run(
    ops: Ops = None,
    jobs: Annotated[int | None, typer.Option("--jobs", "-j", min=1, metavar="N", help="compilers at once; overrides AICF_JOBS")] = None,
) -> int:
    """Run the verb."""
    kernels = [kernel for op in ops or list_ops() for kernel in read_op(op).kernels.values()]
    with ThreadPoolExecutor(jobs or read_settings().jobs) as pool:
        for kernel, path in zip(kernels, pool.map(build_kernel, kernels), strict=True):
            print(f"{kernel.manifest['op']}/{kernel.name}: {path}", flush=True)
    return 0
