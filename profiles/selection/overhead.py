"""What selection and calls from Python cost on the host, beside PyTorch's own calls."""

from __future__ import annotations

import ctypes
import inspect
import itertools
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import aicf.ops
from aicf.registry import HwCaps, Problem, Registry
from device import Device

# A launch function called from C: what a call costs before anything of ours.
_LOOP = """
typedef struct { int code, cuda_code; char reason[248]; } Status;
typedef Status (*Launch)(const void*, void*, void*);
int loop(Launch launch, const void* params, void* stream, int count) {
    int failed = 0;
    for (int i = 0; i < count; ++i) failed |= launch(params, 0, stream).code;
    return failed;
}
"""
_NUM_CALLS, _NUM_BATCHES = 200, 60
_SIZE = 128


def measure_selection(device: Device) -> dict[str, float]:
    """Return the median microseconds of a selection for gemm_bias_act that was asked before, and of one that was not."""
    op, attributes = "gemm_bias_act", {"dtype": "bfloat16", "b_layout": "nk", "act": "silu", "with_bias": True}
    registry, caps = Registry(), HwCaps.of(device)
    sizes = itertools.count(1000)
    fresh = [Problem({"M": next(sizes), "N": 4096, "K": 4096}, attributes) for _ in range(3000)]
    registry.select(op, fresh[0], caps)
    new, again = [], []
    for problem in fresh[1:]:
        started = time.perf_counter()
        registry.select(op, problem, caps)
        new.append(time.perf_counter() - started)
    for problem in fresh[1:]:
        started = time.perf_counter()
        registry.select(op, problem, caps)
        again.append(time.perf_counter() - started)
    return {"new_us": 1e6 * float(np.median(new)), "repeat_us": 1e6 * float(np.median(again))}


def time_calls(call: Callable[[], Any], synchronize: Callable[[], Any]) -> dict[str, float]:
    """Return microseconds a call on the host: batches of calls that the queue holds, the GPU idle before each."""
    samples = []
    for _ in range(_NUM_BATCHES):
        synchronize()
        started = time.perf_counter()
        for _ in range(_NUM_CALLS):
            call()
        samples.append(1e6 * (time.perf_counter() - started) / _NUM_CALLS)
        synchronize()
    return {"median_us": float(np.median(samples)), "least_us": float(np.min(samples)), "q3_us": float(np.percentile(samples, 75))}


def measure_calls(device: Device) -> dict[str, Any]:
    """Return the host's time of a small bf16 gemm with bias and SiLU: bare launches from C, our calls, PyTorch's own."""
    import cupy
    import torch

    rows: dict[str, Any] = {}
    a, w, bias = (torch.randn(*s, device="cuda").bfloat16() for s in ((_SIZE, _SIZE), (_SIZE, _SIZE), (_SIZE,)))
    act, gemm = torch.nn.functional.silu, aicf.ops.gemm_bias_act
    found = gemm(a, w, bias, act="silu", b_layout="nk")
    expected = act(a.double() @ w.double().T + bias.double())
    assert torch.allclose(found.double(), expected, rtol=2**-6, atol=2**-4)

    sizes = {"M": _SIZE, "N": _SIZE, "K": _SIZE}
    attributes = {"dtype": "bfloat16", "b_layout": "nk", "act": "silu", "with_bias": True}
    handle = Registry().select("gemm_bias_act", Problem(sizes, attributes), HwCaps.of(device))
    params = handle.make_params({"a": a.data_ptr(), "b": w.data_ptr(), "bias": bias.data_ptr(), "y": found.data_ptr()})
    launch = handle.load().launch_address
    rows["kernel"] = handle.kernel
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "loop.c"
        source.write_text(_LOOP)
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", str(source), "-o", f"{folder}/loop.so"], check=True)
        loop = ctypes.CDLL(f"{folder}/loop.so").loop
        loop.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]

        def launch_all() -> None:
            assert loop(launch, ctypes.byref(params), None, _NUM_CALLS) == 0

        whole = time_calls_once(launch_all, torch.cuda.synchronize)
    rows["launch"] = whole
    with torch.no_grad():
        rows["aicf_torch"] = time_calls(lambda: gemm(a, w, bias, act="silu", b_layout="nk"), torch.cuda.synchronize)
        options = [p.default for p in inspect.signature(gemm).parameters.values() if p.kind is p.KEYWORD_ONLY]
        options[:2] = ["silu", "nk"]
        rows["aicf_custom_op"] = time_calls(lambda: torch.ops.aicf.gemm_bias_act(a, w, bias, *options), torch.cuda.synchronize)
        wt = w.t()
        rows["torch_addmm_silu"] = time_calls(lambda: act(torch.addmm(bias, a, wt)), torch.cuda.synchronize)
        rows["torch_linear_silu"] = time_calls(lambda: act(torch.nn.functional.linear(a, w, bias)), torch.cuda.synchronize)
        rows["torch_empty"] = time_calls(lambda: a.new_empty_strided((_SIZE, _SIZE), (_SIZE, 1)), torch.cuda.synchronize)
    x = cupy.random.standard_normal((_SIZE, _SIZE), dtype=cupy.float32)
    softmax = aicf.ops.softmax
    rows["aicf_cupy_softmax"] = time_calls(lambda: softmax(x), cupy.cuda.Device().synchronize)
    rows["cupy_empty"] = time_calls(lambda: cupy.empty((_SIZE, _SIZE), cupy.float32), cupy.cuda.Device().synchronize)
    t = torch.randn(_SIZE, _SIZE, device="cuda")
    rows["aicf_torch_softmax"] = time_calls(lambda: softmax(t), torch.cuda.synchronize)
    rows["torch_softmax"] = time_calls(lambda: torch.softmax(t, 1), torch.cuda.synchronize)
    rows["over_the_launch_us"] = rows["aicf_torch"]["median_us"] - rows["launch"]["median_us"]
    return rows


def time_calls_once(call: Callable[[], Any], synchronize: Callable[[], Any]) -> dict[str, float]:
    """Return microseconds a launch of a function that makes a batch of them itself."""
    samples = []
    for _ in range(_NUM_BATCHES):
        synchronize()
        started = time.perf_counter()
        call()
        samples.append(1e6 * (time.perf_counter() - started) / _NUM_CALLS)
        synchronize()
    return {"median_us": float(np.median(samples)), "least_us": float(np.min(samples)), "q3_us": float(np.percentile(samples, 75))}
