"""What the peers of several ops share: cuBLASLt plans, made and tuned on first use, and device arrays as PyTorch tensors.

Imported on a real device only, by an op's ``peers.py``.
"""

from __future__ import annotations

import itertools
from importlib import import_module
from typing import Any

import numpy as np

from harness.peers.cublaslt import WORKSPACE_BYTES, CublasLt, Plan, Product

_MAX_SHAPES = 1 << 16


class TunedCublasLt:
    """cuBLASLt with the heuristic's first choice, or the fastest of its first ``num_algorithms``: timed hot, five launches each."""

    def __init__(self, num_algorithms: int) -> None:
        import cupy

        self._cupy = cupy
        self._num_algorithms = num_algorithms
        self._workspace = cupy.cuda.alloc(WORKSPACE_BYTES)
        self._library = CublasLt(int(self._workspace.ptr))
        self._plans: dict[Product, Plan] = {}

    def try_plan(self, product: Product) -> str:
        """Return why the library does not serve a product, or "" once it has a plan."""
        try:
            self._find_plan(product)
        except RuntimeError as error:
            return str(error)
        return ""

    def run(self, product: Product, stream: int) -> None:
        """Queue a product on a stream."""
        self._library.run(self._find_plan(product), stream)

    def _find_plan(self, product: Product) -> Plan:
        if product not in self._plans:
            plan = self._library.plan(product, self._num_algorithms)
            if self._num_algorithms > 1:
                stream = self._cupy.cuda.Stream(non_blocking=True)
                self._library.choose_fastest(plan, lambda run: self._measure(run, stream), int(stream.ptr))
            self._plans[product] = plan
        return self._plans[product]

    def _measure(self, run: Any, stream: Any) -> float:
        """Return the median milliseconds of five launches behind a first one."""
        run()
        events = [self._cupy.cuda.Event() for _ in range(6)]
        for event in events[:-1]:
            event.record(stream)
            run()
        events[-1].record(stream)
        stream.synchronize()
        return float(np.median([self._cupy.cuda.get_elapsed_time(*pair) for pair in itertools.pairwise(events)]))


def find_stride(array: Any) -> int:
    """Return the row stride in elements of a two-dimensional device array, at least the row's length; 0 where there is none."""
    return 0 if array is None else max(int(array.strides_bytes[0]) // int(array.dtype.itemsize), int(array.shape[1]))


def compile_for_shapes(torch: Any, function: Any, **options: Any) -> Any:
    """Return a function under ``torch.compile`` that is compiled anew for every shape, however many there are.

    Left alone, PyTorch makes sizes dynamic from the second shape on, and runs what is given uncompiled from the ninth: neither is what a
    program with fixed shapes gets. What is tuned on the GPU is not kept on disk: processes that compile ahead would tune on a busy one.
    """
    limits = ("recompile_limit", "cache_size_limit", "accumulated_recompile_limit", "accumulated_cache_size_limit")
    wanted: dict[str, dict[str, Any]] = {"_dynamo": dict.fromkeys(limits, _MAX_SHAPES), "_inductor": {"autotune_local_cache": False}}
    for name, values in wanted.items():
        config = import_module(f"torch.{name}.config")
        for key, value in values.items():
            if hasattr(config, key):  # versions differ
                setattr(config, key, value)
    return torch.compile(function, dynamic=False, **options)


class _Int16View:
    """A device array of 16-bit floats as integers: PyTorch takes no bfloat16 from the array interface."""

    def __init__(self, array: Any) -> None:
        self.__cuda_array_interface__ = dict(array.__cuda_array_interface__) | {"typestr": "<i2"}


def view_in_torch(torch: Any, array: Any) -> Any:
    """Return a device array as a PyTorch tensor on the same memory, None for None."""
    if array is None:
        return None
    if array.dtype.name not in ("bfloat16", "float16"):
        return torch.as_tensor(array, device="cuda")
    return torch.as_tensor(_Int16View(array), device="cuda").view(getattr(torch, str(array.dtype.name)))
