"""Frozen ops on PyTorch's tensors: eager, under torch.compile, and where a gradient is asked for."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import aicf.ops
from aicf.building.native import load_extension
from aicf.ops import gradients
from device import Device, UnavailableError

torch = pytest.importorskip("torch", reason="PyTorch is not installed here: pip install torch")

from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

# Newer releases of PyTorch import parts of their own that they call deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")


@pytest.fixture
def place(device: Device) -> str:
    return "cpu" if device.is_emulated else "cuda"


def draw(*shape: int, place: str, dtype: Any = torch.float32) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1)).to(dtype).to(place)


def options_of(function: Any) -> dict[str, Any]:
    return {p.name: p.default for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY}


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


def test_tensors_on_the_host_have_no_plan_though_their_type_is_known(device: Device) -> None:
    """Those on a GPU make it known; a launch with the host's addresses would read what is not there."""
    load_extension().register_type(torch.Tensor, is_tracked="requires_grad", is_tracking=torch.is_grad_enabled)
    x = draw(6, 33, place="cpu")
    for _ in range(2):
        assert torch.allclose(aicf.ops.softmax(x), torch.softmax(x, 1), rtol=1e-5, atol=1e-7)


def test_modes_see_the_op(place: str) -> None:
    """Under a mode that makes stand-ins the output is one, in another mode the result is the same."""
    a, b = draw(12, 16, place=place), draw(16, 20, place=place)
    aicf.ops.gemm_bias_act(a, b)
    with FakeTensorMode(allow_non_fake_inputs=True):
        made = aicf.ops.gemm_bias_act(a, b)
    assert type(made) is FakeTensor and made.shape == (12, 20)
    with FlopCounterMode(display=False):
        assert torch.allclose(aicf.ops.gemm_bias_act(a, b), a @ b, rtol=1e-4, atol=1e-5)
    with torch.inference_mode():
        assert aicf.ops.gemm_bias_act(a, b).is_inference()
    with pytest.raises(RuntimeError, match=r"Batching rule not implemented for aicf::gemm_bias_act"):
        torch.vmap(lambda each: aicf.ops.gemm_bias_act(each, b))(draw(2, 12, 16, place=place))


def test_only_what_a_tensor_asks_for_is_recorded(place: str) -> None:
    x = draw(4, 8, place=place)
    assert aicf.ops.softmax(x).grad_fn is None
    (made,) = torch.ops.aicf.softmax(x, *options_of(aicf.ops.softmax).values())
    assert made.grad_fn is None
    (made,) = torch.ops.aicf.softmax(x.requires_grad_(), *options_of(aicf.ops.softmax).values())
    assert made.grad_fn is not None


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
    options = options_of(aicf.ops.gemm_bias_act)
    torch.library.opcheck(torch.ops.aicf.gemm_bias_act, (a, b, bias, *(options | {"act": "silu"}).values()))
    y, z = torch.ops.aicf.gemm_bias_act(a, b, None, **(options | {"save_z": True}))
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


ACTS = {
    "none": lambda z: z,
    "relu": torch.relu,
    "silu": torch.nn.functional.silu,
    "gelu_tanh": lambda z: torch.nn.functional.gelu(z, approximate="tanh"),
    "gelu_erf": torch.nn.functional.gelu,
}


def backward_on_the_host(dy: Any, w: Any = None, x: Any = None, *, w_layout: str, with_dbias: bool) -> Any:
    """What ``gemm_backward`` does where it is asked for one of dX and dW alone."""
    assert not with_dbias and (w is None) != (x is None)
    if x is None:
        return dy @ w if w_layout == "nk" else dy @ w.T
    return dy.T @ x if w_layout == "nk" else x.T @ dy


@pytest.mark.parametrize("layout", ["kn", "nk"])
@pytest.mark.parametrize("act", list(ACTS))
def test_gradients_are_those_of_the_formula(place: str, act: str, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradients, "find_function", lambda op, backward: backward_on_the_host)
    kind = torch.float32 if layout == "kn" else torch.bfloat16
    a, bias = draw(8, 16, place=place, dtype=kind), draw(24, place=place, dtype=kind)
    b = draw(16, 24, place=place, dtype=kind) if layout == "kn" else draw(24, 16, place=place, dtype=kind)
    ours = [t.clone().requires_grad_() for t in (a, b, bias)]
    theirs = [t.double().requires_grad_() for t in (a, b, bias)]
    weights = draw(8, 24, place=place, dtype=kind)
    for save_z in (False, True):
        for t in (*ours, *theirs):
            t.grad = None
        made = aicf.ops.gemm_bias_act(*ours, act=act, b_layout=layout, save_z=save_z)
        z = theirs[0] @ (theirs[1] if layout == "kn" else theirs[1].T) + theirs[2]
        y = ACTS[act](z)
        if save_z:
            ((made[0] * weights).sum() + made[1].sum()).backward()
            ((y * weights.double()).sum() + z.sum()).backward()
        else:
            (made * weights).sum().backward()
            (y * weights.double()).sum().backward()
        bound = 1e-4 if layout == "kn" else 2**-4
        for mine, other in zip(ours, theirs, strict=True):
            assert torch.allclose(mine.grad.double(), other.grad, rtol=bound, atol=8 * bound)


def test_only_gradients_that_are_needed_are_made(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def count(dy: Any, w: Any = None, x: Any = None, **options: Any) -> Any:
        asked.append("a" if x is None else "b")
        return backward_on_the_host(dy, w, x, **options)

    monkeypatch.setattr(gradients, "find_function", lambda op, backward: count)
    a, b = draw(8, 16, place=place), draw(16, 24, place=place).requires_grad_()
    aicf.ops.gemm_bias_act(a, b).sum().backward()
    assert asked == ["b"] and a.grad is None and b.grad.shape == b.shape


def test_a_backward_op_that_is_not_frozen_is_named_with_the_remedy(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradients, "list_ops", lambda: ["gemm_bias_act"])
    a, b = draw(8, 16, place=place).requires_grad_(), draw(16, 24, place=place)
    y = aicf.ops.gemm_bias_act(a, b)
    with pytest.raises(UnavailableError, match=r"needs op gemm_backward, which is not frozen: `make op=gemm_backward promote`"):
        y.sum().backward()


def test_arguments_are_checked_in_torchs_words_too(place: str) -> None:
    a = draw(4, 8, place=place)
    with pytest.raises(TypeError, match=r"b: expected a dtype of float32, got int64"):
        aicf.ops.gemm_bias_act(a, torch.ones(8, 4, dtype=torch.int64, device=place))
    with pytest.raises(ValueError, match=r"b: expected shape \(K=8, N\), got \(4, 8\)"):
        aicf.ops.gemm_bias_act(a, a)
    with pytest.raises(TypeError, match=r"a: expected a tensor on cuda or cpu, got one on meta"):
        aicf.ops.gemm_bias_act(torch.ones(4, 8, device="meta"), a)
