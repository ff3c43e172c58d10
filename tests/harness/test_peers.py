"""What peers ask of their libraries, held against stand-ins: no library is needed."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from device import Device, UnavailableError
from harness import doctor
from harness.discover import _run_module, find_op, find_ops, load_peers
from harness.peers import libraries
from harness.peers.cublaslt import Product
from harness.peers.libraries import compile_for_shapes
from harness.peers.torch_peers import make_torch_peers
from tests.aicf.fake_libraries import open_fake


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


@pytest.mark.parametrize("is_kn", [False, True])
def test_cublaslts_first_choice_is_what_calls_of_the_framework_may_get(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_kn: bool
) -> None:
    """Through the project's binding, with the workspace that is given; what this is not for goes another way."""
    binding, others = open_fake(tmp_path), []
    binding.create()
    monkeypatch.setattr(libraries, "open_binding", lambda: binding)
    held = device.asarray(np.zeros(8192, np.uint8))
    cupy: Any = ModuleType("cupy")
    cupy.cuda = SimpleNamespace(alloc=lambda size: SimpleNamespace(ptr=held.address))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    other = SimpleNamespace(plan=lambda product, count: product, run=lambda product, stream: others.append(product.act))
    monkeypatch.setattr(libraries, "CublasLt", lambda workspace: other)
    peer = libraries.TunedCublasLt(1)
    m, n, k = 5, 16, 24
    rng = np.random.default_rng(2)
    x, w, bias = (rng.uniform(-1, 1, shape).astype(np.float16) for shape in ((m, k), (k, n) if is_kn else (n, k), (n,)))
    placed = [device.asarray(array) for array in (x, w, bias, np.zeros((m, n), np.float16))]
    addresses = [array.address for array in placed]
    product = Product(*addresses, 0, m, n, k, k, n if is_kn else k, n, 0, "float16", "relu", is_kn=is_kn)
    assert peer.try_plan(product) == "" and peer.find_workspace(product) == 4096
    for workspace in (0, held.address):
        peer.run(product, 0, workspace)
        expected = np.maximum(x.astype(np.float64) @ (w if is_kn else w.T).astype(np.float64) + bias, 0)
        np.testing.assert_allclose(placed[3].copy_to_host(), expected, rtol=2e-3, atol=1e-3)
    for different in (replace(product, z=addresses[3]), replace(product, is_gradient=True), replace(product, is_km=True)):
        assert peer.try_plan(different) == "" and peer.find_workspace(different) == 0
        peer.run(different, 0)
    assert others == ["relu"] * 3
    assert "knows no algorithm" in peer.try_plan(replace(product, k=8))


def test_doctor_says_which_cublaslt_calls_may_get(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise UnavailableError("libcublasLt.so.13 cannot be opened")

    monkeypatch.setattr(doctor, "find_cublaslt", lambda: "/here/libcublasLt.so.13")
    for opener, status, detail in (
        (lambda: SimpleNamespace(version=130100), "ok", "13.1.0 (/here/libcublasLt.so.13)"),
        (fail, "optional", "not there: calls get the project's own kernels alone"),
    ):
        monkeypatch.setattr(doctor, "open_cublaslt", opener)
        (found,) = doctor._look_at_cublaslt()
        assert (found.status, found.detail) == (status, detail)


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
