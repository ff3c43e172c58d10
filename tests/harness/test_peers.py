"""What peers ask of their libraries, held against stand-ins: no library is needed."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from harness.discover import _run_module, find_op, find_ops, load_peers
from harness.peers.libraries import compile_for_shapes
from harness.peers.torch_peers import make_torch_peers


class Cublas:
    """cuBLAS's sgemm on host memory, column-major as the library is."""

    CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_POINTER_MODE_HOST, CUBLAS_PEDANTIC_MATH = 0, 1, 0, 2

    def __getattr__(self, name: str) -> Any:
        return lambda *_: 0

    def sgemm(self, handle: Any, op_a: int, op_b: int, m: int, n: int, k: int, alpha: int, *rest: int) -> None:
        a, lda, b, ldb, _, c, ldc = rest
        left = _view(a, (k, m) if op_a else (m, k), lda)
        right = _view(b, (n, k) if op_b else (k, n), ldb)
        out = _view(c, (m, n), ldc)
        out[...] = (left.T if op_a else left) @ (right.T if op_b else right)


def _view(address: int, shape: tuple[int, int], stride: int) -> NDArray[np.float32]:
    """Return a column-major matrix on memory at an address."""
    span = (shape[1] - 1) * stride + shape[0]
    flat = np.frombuffer((ctypes.c_float * span).from_address(address), np.float32)
    return np.lib.stride_tricks.as_strided(flat, shape, (4, 4 * stride))


def _on_device(array: NDArray[np.float32]) -> Any:
    return SimpleNamespace(shape=array.shape, strides=array.strides, data=SimpleNamespace(ptr=array.ctypes.data), array=array)


@pytest.mark.parametrize("is_nk", [False, True])
def test_cublas_multiplies_b_in_either_layout(is_nk: bool) -> None:
    sgemm_type = _run_module(find_ops()["gemm_bias_act"], "peers")._Sgemm
    cupy = SimpleNamespace(cuda=SimpleNamespace(cublas=Cublas(), device=SimpleNamespace(get_cublas_handle=lambda: 0)))
    rng = np.random.default_rng(1)
    m, n, k = 3, 5, 7
    a, b = rng.standard_normal((m, k + 2), np.float32)[:, :k], rng.standard_normal((k, n), np.float32)
    kept = np.ascontiguousarray(b.T) if is_nk else b
    out = np.zeros((m, n + 1), np.float32)[:, :n]
    sgemm_type(cupy).multiply(_on_device(a), _on_device(kept), _on_device(out), is_nk=is_nk)
    np.testing.assert_allclose(out, a @ b, rtol=1e-5)


def test_what_is_compiled_is_compiled_for_every_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    dynamo, inductor = ModuleType("torch._dynamo.config"), ModuleType("torch._inductor.config")
    vars(dynamo).update(recompile_limit=8, accumulated_recompile_limit=256)
    vars(inductor).update(autotune_local_cache=True)
    for name, module in {"torch._dynamo.config": dynamo, "torch._inductor.config": inductor}.items():
        monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
        monkeypatch.setitem(sys.modules, name.rpartition(".")[0], ModuleType("package"))
        monkeypatch.setitem(sys.modules, name, module)
    torch = SimpleNamespace(compile=lambda function, **options: (function, options))
    assert compile_for_shapes(torch, abs, mode="default") == (abs, {"dynamic": False, "mode": "default"})
    found = vars(dynamo)
    assert found["recompile_limit"] > 10_000 and found["accumulated_recompile_limit"] > 10_000 and "cache_size_limit" not in found
    assert vars(inductor)["autotune_local_cache"] is False


@pytest.mark.parametrize("name", find_ops())
def test_a_populations_libraries_are_peers_of_the_op(name: str) -> None:
    loaded = find_op(name)
    population = loaded.op.population
    assert population is not None
    known = {p.name: p for p in load_peers(loaded.folder)}
    assert {n for g in population.groups for n in g.peers} <= set(known)
    assert all(p.compiles for n, p in known.items() if n in ("torch_compile", "torch_max_autotune"))


@pytest.mark.parametrize("is_compiled", [False, True])
def test_a_peer_on_pytorch_runs_its_function_on_the_given_stream(monkeypatch: pytest.MonkeyPatch, is_compiled: bool) -> None:
    told: list[Any] = []
    torch: Any = ModuleType("torch")
    torch.cuda = SimpleNamespace(ExternalStream=lambda stream: told.append(stream), stream=lambda _: contextlib.nullcontext())
    torch.as_tensor = lambda array, device: (device, array)
    torch.compile = lambda function, **options: told.append(options) or function
    monkeypatch.setitem(sys.modules, "torch", torch)
    for name in ("_dynamo", "_inductor"):
        monkeypatch.setitem(sys.modules, f"torch.{name}.config", ModuleType(f"torch.{name}.config"))
    x, y, other = (np.zeros(2, np.float32) for _ in range(3))

    def make_run(given: Any) -> Any:
        assert given is torch
        return lambda *views: told.append(views)

    eager, compiled = make_torch_peers(("x", "y"), eager=make_run, compiled=make_run)
    assert (eager.name, eager.compiles, compiled.name, compiled.compiles) == ("torch_eager", False, "torch_compile", True)
    (compiled if is_compiled else eager).open().launch(workspace=0, stream=7, x=x, y=y, other=other)
    assert told == [*([{"dynamic": False}] if is_compiled else []), 7, (("cuda", x), ("cuda", y))]


@pytest.mark.parametrize(
    ("given", "why"), [({}, ""), ({"step": None}, "told the step"), ({"factor": object()}, "divides gradients by a scale")]
)
def test_the_optimizers_peer_says_what_it_does_not_do(monkeypatch: pytest.MonkeyPatch, given: dict[str, object], why: str) -> None:
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    peer = _run_module(find_ops()["optimizer"], "peers")._TorchFused()
    said = peer.supports(**{"step": object(), "factor": None} | given)
    assert why in said and bool(said) == bool(why)
