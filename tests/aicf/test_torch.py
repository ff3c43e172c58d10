"""Frozen ops on PyTorch's tensors: eager, under torch.compile, and where a gradient is asked for."""

from __future__ import annotations

from typing import Any

import pytest

import aicf.ops
from device import Device, UnavailableError

torch = pytest.importorskip("torch", reason="PyTorch is not installed here: pip install torch")


@pytest.fixture
def place(device: Device) -> str:
    return "cpu" if device.is_emulated else "cuda"


def draw(*shape: int, place: str, dtype: Any = torch.float32) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1)).to(dtype).to(place)


def silu(a: Any, b: Any, bias: Any) -> Any:
    return torch.nn.functional.silu(a.double() @ b.double() + bias.double())


def test_tensors_in_tensors_out(place: str) -> None:
    a, b, bias = draw(33, 48, place=place), draw(48, 40, place=place), draw(40, place=place)
    for _ in range(2):
        y = aicf.ops.gemm_bias_act(a, b, bias, act="silu")
        assert type(y) is torch.Tensor and y.device == a.device and y.dtype == torch.float32
        assert torch.allclose(y.double(), silu(a, b, bias), rtol=1e-4, atol=1e-5)
    half, weights = draw(16, 64, place=place, dtype=torch.bfloat16), draw(24, 64, place=place, dtype=torch.bfloat16)
    y, z = aicf.ops.gemm_bias_act(half, weights, act="relu", b_layout="nk", save_z=True)
    assert y.dtype == torch.bfloat16
    assert torch.allclose(z.double(), half.double() @ weights.double().T, rtol=2**-7, atol=2**-5)
    assert torch.equal(y, z.relu())


@pytest.mark.gpu
def test_work_is_queued_on_the_current_stream(cuda_device: Device) -> None:
    a, b = draw(4096, 4096, place="cuda"), draw(4096, 4096, place="cuda")
    aicf.ops.gemm_bias_act(a, b)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        a.add_(1)
        y = aicf.ops.gemm_bias_act(a, b)
    assert not stream.query()
    stream.synchronize()
    assert torch.allclose(y.double(), a.double() @ b.double(), rtol=1e-3, atol=1e-2)


@pytest.mark.gpu
def test_a_call_is_captured_into_a_graph(cuda_device: Device) -> None:
    x = draw(64, 512, place="cuda")
    aicf.ops.softmax(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = aicf.ops.softmax(x)
    x.copy_(torch.randn(64, 512))
    graph.replay()
    torch.cuda.synchronize()
    assert torch.allclose(y, torch.softmax(x, 1), rtol=1e-5, atol=1e-7)


def test_torch_compile_does_not_break_the_graph(place: str) -> None:
    a, b, bias = draw(12, 16, place=place), draw(16, 20, place=place), draw(20, place=place)

    def layer(a: Any, b: Any, bias: Any) -> Any:
        return aicf.ops.gemm_bias_act(a, b, bias, act="silu") * 2

    layer(a, b, bias)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True, dynamic=True)
    assert torch.allclose(compiled(a, b, bias), layer(a, b, bias))
    other = draw(13, 16, place=place)
    assert torch.allclose(compiled(other, b, bias), layer(other, b, bias))
    assert torch._dynamo.explain(layer)(a, b, bias).graph_break_count == 0


def test_the_custom_op_keeps_torchs_rules(place: str) -> None:
    a, b, bias = draw(12, 16, place=place), draw(16, 20, place=place), draw(20, place=place)
    aicf.ops.gemm_bias_act(a, b, bias)
    checks = ("test_schema", "test_faketensor")
    torch.library.opcheck(torch.ops.aicf.gemm_bias_act, (a, b, bias, "silu"), test_utils=checks)
    y, z = torch.ops.aicf.gemm_bias_act(a, b, save_z=True)
    assert torch.equal(y, z)


def test_an_op_without_a_backward_op_says_so_when_it_is_asked_for_a_gradient(place: str) -> None:
    x = draw(4, 8, place=place).requires_grad_()
    y = aicf.ops.softmax(x)
    assert y.requires_grad
    with pytest.raises(UnavailableError, match=r"softmax: no backward op is known; call it under torch.no_grad\(\)"):
        y.sum().backward()
    with torch.no_grad():
        assert not aicf.ops.softmax(x).requires_grad
    assert not aicf.ops.softmax(x.detach()).requires_grad


def test_arguments_are_checked_in_torchs_words_too(place: str) -> None:
    a = draw(4, 8, place=place)
    with pytest.raises(TypeError, match=r"b: expected a dtype of float32, got int64"):
        aicf.ops.gemm_bias_act(a, torch.ones(8, 4, dtype=torch.int64, device=place))
    with pytest.raises(ValueError, match=r"b: expected shape \(K=8, N\), got \(4, 8\)"):
        aicf.ops.gemm_bias_act(a, a)
    with pytest.raises(TypeError, match=r"a: expected a tensor on cuda or cpu, got one on meta"):
        aicf.ops.gemm_bias_act(torch.ones(4, 8, device="meta"), a)
