"""What the peers of several ops share: cuBLASLt plans, made and tuned on first use, and device arrays as PyTorch tensors.

Imported on a real device only, by an op's ``peers.py``.
"""

from __future__ import annotations

import itertools
from importlib import import_module
from typing import Any

import numpy as np

from contract.libraries.binding import Binding, open_cublaslt
from contract.libraries.binding import Product as Call
from device.interface import UnavailableError
from harness.peers.cublaslt import WORKSPACE_BYTES, CublasLt, Plan, Product, make_call

_MAX_SHAPES = 1 << 16


class TunedCublasLt:
    """cuBLASLt with the heuristic's first choice, or the fastest of its first ``num_algorithms``: timed hot, five launches each.

    The first choice is launched through the project's own binding, where that serves the product: what calls of the framework may get.
    """

    def __init__(self, num_algorithms: int) -> None:
        import cupy

        self._cupy = cupy
        self._num_algorithms = num_algorithms
        self._workspace = cupy.cuda.alloc(WORKSPACE_BYTES)
        self._library = CublasLt(int(self._workspace.ptr))
        self._plans: dict[Product, Plan] = {}
        self._calls: dict[Product, Call] = {}
        self._binding = open_binding() if num_algorithms == 1 else None

    def try_plan(self, product: Product) -> str:
        """Return why the library does not serve a product, or "" once it has a plan."""
        if (bound := self._find_call(product)) is not None:
            binding, call = bound
            return binding.find_fault(call)
        try:
            self._find_plan(product)
        except RuntimeError as error:
            return str(error)
        return ""

    def find_workspace(self, product: Product) -> int:
        """Return the workspace in bytes that :meth:`run` is to be given: 0 where the library's own is used."""
        bound = self._find_call(product)
        return 0 if bound is None else bound[0].ask_workspace(bound[1])

    def run(self, product: Product, stream: int, workspace: int = 0) -> None:
        """Queue a product on a stream, with a workspace of the caller's or with the library's own."""
        bound = self._find_call(product)
        if bound is None:
            self._library.run(self._find_plan(product), stream)
        else:
            binding, call = bound
            binding.launch(call, workspace or int(self._workspace.ptr), stream)

    def _find_call(self, product: Product) -> tuple[Binding, Call] | None:
        """Return the binding and a product as it takes it, None where it is not for the product."""
        if self._binding is None:
            return None
        call = self._calls.get(product) or make_call(product)
        if call is None:
            return None
        self._calls[product] = call
        return self._binding, call

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


def open_binding() -> Binding:
    """Return the project's binding of cuBLASLt, its handle created on the current device; raises ImportError where there is none."""
    try:
        binding = open_cublaslt()
        binding.create()
    except (UnavailableError, RuntimeError) as error:
        raise ImportError(str(error)) from error
    return binding


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
