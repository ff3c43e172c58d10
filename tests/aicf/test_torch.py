"""Frozen ops on PyTorch's tensors: eager, under torch.compile, and where a gradient is asked for."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import pytest

import aicf.ops
from aicf.ops import gradients
from aicf.ops.extension import load_extension
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
    (made,) = torch.ops.aicf.softmax(x, None, None, None, *options_of(aicf.ops.softmax).values())
    assert made.grad_fn is None
    (made,) = torch.ops.aicf.softmax(x.requires_grad_(), None, None, None, *options_of(aicf.ops.softmax).values())
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
    missing = [None for _ in list(inspect.signature(aicf.ops.gemm_bias_act).parameters)[3 : -len(options)]]
    torch.library.opcheck(torch.ops.aicf.gemm_bias_act, (a, b, bias, *missing, *(options | {"act": "silu"}).values()))
    y, z = torch.ops.aicf.gemm_bias_act(a, b, None, *missing, **(options | {"save_z": True}))
    assert torch.equal(y, z)


def test_an_op_without_a_backward_op_says_so_when_it_is_asked_for_a_gradient(place: str) -> None:
    x = draw(4, 8, place=place).requires_grad_()
    total = aicf.ops.reduce(x, reduction="sum", over="columns")
    assert total.requires_grad
    with pytest.raises(UnavailableError, match=r"reduce: no backward op is known; call it under torch.no_grad\(\)"):
        total.sum().backward()
    with torch.no_grad():
        assert not aicf.ops.reduce(x, reduction="sum", over="columns").requires_grad
    assert not aicf.ops.reduce(x.detach(), reduction="sum", over="columns").requires_grad


@pytest.mark.slow
def test_an_activations_gradient_is_differentiated(place: str) -> None:
    dy, z = draw(4, 8, place=place, dtype=torch.bfloat16).requires_grad_(), draw(4, 8, place=place, dtype=torch.bfloat16)
    aicf.ops.gemm_backward(dy, z=z, act="silu", with_dbias=False).sum().backward()
    share = torch.sigmoid(z.double())
    slope = share * (1 + z.double() * (1 - share))
    assert (dy.grad.double() - slope).abs().max() < 2.0**-7


def test_a_total_is_changed_in_place_where_pytorch_need_not_know(place: str) -> None:
    dy, w, x, before = (draw(*shape, place=place) for shape in ((8, 4), (4, 6), (8, 6), (4, 6)))
    total = before.clone()
    assert aicf.ops.gemm_backward(dy, w, x, dw_total=total, with_dz=False, with_dbias=False) == ()
    assert torch.allclose(total, before + dy.T @ x, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match=r"dw_total: gemm_backward changes it in place, which PyTorch's autograd does not record"):
        aicf.ops.gemm_backward(dy.requires_grad_(), w, x, dw_total=total)
    dy.requires_grad_(False)
    with pytest.raises(Exception, match=r"changes it in place, which torch.compile does not see"):
        torch.compile(lambda *inputs: aicf.ops.gemm_backward(*inputs), backend="aot_eager")(dy, w, x, None, total)


def test_softmax_is_differentiated_by_the_opsets_rule(place: str) -> None:
    x, dy = draw(4, 8, place=place).requires_grad_(), draw(4, 8, place=place)
    aicf.ops.softmax(x).backward(dy)
    (expected,) = torch.autograd.grad(torch.softmax(x, 1), x, dy)
    assert torch.allclose(x.grad, expected, rtol=1e-5, atol=1e-6)


ACTS = {
    "none": lambda z: z,
    "relu": torch.relu,
    "silu": torch.nn.functional.silu,
    "gelu_tanh": lambda z: torch.nn.functional.gelu(z, approximate="tanh"),
    "gelu_erf": torch.nn.functional.gelu,
}


KINDS = {"fp32 kn": {}, "fp32 nk": {}, "tf32 nk": {"precision": "tf32"}, "bf16 kn": {}, "bf16 nk": {}, "fp16 nk": {}}
DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# Unit roundoff of what a product's operands are rounded to; for fp32 of a few of its sums and of a slope, whose roundings add up.
ROUNDOFF = {"fp32": 2.0**-22, "tf32": 2.0**-11, "bf16": 2.0**-8, "fp16": 2.0**-11}


def mark_kinds(kinds: Iterable[str]) -> list[Any]:
    """All but fp32 are slow: each has kernels of its own, which nvcc compiles."""
    return [pytest.param(kind, marks=[] if kind.startswith("fp32") else [pytest.mark.slow]) for kind in kinds]


def draw_layer(place: str, kind: str, *, m: int = 40, n: int = 48, k: int = 64) -> tuple[Any, ...]:
    """A, B, bias and dY of a linear layer, that ask for gradients but for dY."""
    name, layout = kind.split()
    shapes = (m, k), (k, n) if layout == "kn" else (n, k), (n,), (m, n)
    made = [draw(*shape, place=place, dtype=DTYPES[name]) for shape in shapes]
    return *(t.requires_grad_() for t in made[:3]), made[3]


def find_true_gradients(tensors: tuple[Any, ...], act: str, layout: str, dy: Any, dz: Any = None, *, y: Any = None) -> list[Any]:
    """The gradients of A, B and bias in float64; relu passes where ``y`` did, since a Z near 0 may be rounded to the other side."""
    a, b, bias = [t.detach().double().requires_grad_() for t in tensors]
    z = a @ (b if layout == "kn" else b.T) + bias
    passed = torch.where(y > 0, z, 0) if act == "relu" else ACTS[act](z)
    total = (passed * dy.double()).sum() + (0 if dz is None else (z * dz.double()).sum())
    return list(torch.autograd.grad(total, (a, b, bias)))


def assert_near(found: Any, expected: Any, kind: str) -> None:
    """By norms: what is rounded on the way (Z, dZ, the operands) is off by a few roundoffs of the norm at most."""
    error = (found.double() - expected).norm() / expected.norm()
    assert error <= 4 * ROUNDOFF[kind.split()[0]]


@pytest.mark.parametrize("act", list(ACTS))
@pytest.mark.parametrize("kind", mark_kinds(KINDS))
def test_gradients_are_those_of_the_formula(place: str, act: str, kind: str) -> None:
    *ours, dy = draw_layer(place, kind)
    y = aicf.ops.gemm_bias_act(*ours, act=act, b_layout=kind.split()[1], **KINDS[kind])
    y.backward(dy)
    for mine, true in zip(ours, find_true_gradients(tuple(ours), act, kind.split()[1], dy, y=y.detach()), strict=True):
        assert_near(mine.grad, true, kind)


@pytest.mark.parametrize("act", ["none", "relu", "silu"])
@pytest.mark.parametrize("kind", mark_kinds(["fp32 kn", "bf16 nk"]))
def test_gradients_of_both_outputs_are_added(place: str, act: str, kind: str) -> None:
    *ours, dy = draw_layer(place, kind)
    dz = draw(*dy.shape, place=place, dtype=dy.dtype) * 0.5
    y, z = aicf.ops.gemm_bias_act(*ours, act=act, b_layout=kind.split()[1], save_z=True)
    both = torch.autograd.grad((y, z), ours, (dy, dz), retain_graph=True)
    for mine, true in zip(both, find_true_gradients(tuple(ours), act, kind.split()[1], dy, dz, y=y.detach()), strict=True):
        assert_near(mine, true, kind)
    alone = torch.autograd.grad(z, ours, dz)
    for mine, true in zip(alone, find_true_gradients(tuple(ours), "none", kind.split()[1], dz), strict=True):
        assert_near(mine, true, kind)


def test_a_gradient_may_be_one_number_for_all(place: str) -> None:
    *ours, dy = draw_layer(place, "bf16 nk")
    aicf.ops.gemm_bias_act(*ours, act="silu", b_layout="nk").sum().backward()
    for mine, true in zip(ours, find_true_gradients(tuple(ours), "silu", "nk", torch.ones_like(dy)), strict=True):
        assert_near(mine.grad, true, "bf16 nk")


def record_launches(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """The ops that backward passes call from now on, with what was not None of their arguments."""
    asked: list[tuple[str, dict[str, Any]]] = []
    find = gradients.find_function

    def find_recorded(known: Any, op: str, wanted: str) -> Any:
        function = find(known, op, wanted)

        def call(*arguments: Any, **named: Any) -> Any:
            asked.append((wanted, {k: v for k, v in named.items() if v is not None}))
            return function(*arguments, **named)

        return call

    monkeypatch.setattr(gradients, "find_function", find_recorded)
    return asked


def test_a_backward_pass_in_16_bits_is_two_launches(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """dZ with dbias, then dA with dB: Z was kept, and no product is computed twice."""
    *ours, dy = draw_layer(place, "bf16 nk")
    y = aicf.ops.gemm_bias_act(*ours, act="gelu_tanh", b_layout="nk")
    asked = record_launches(monkeypatch)
    y.backward(dy)
    assert [(name, sorted(options)) for name, options in asked] == [
        ("gemm_backward", ["act", "dy", "with_dbias", "z"]),
        ("gemm_backward", ["dy", "w", "w_layout", "with_dbias", "with_dz", "x"]),
    ]
    assert asked[0][1]["with_dbias"] and asked[1][1]["with_dz"]


@pytest.mark.parametrize("kind", mark_kinds(["fp32 kn", "bf16 nk"]))
@pytest.mark.parametrize("needed", ["a", "b", "bias"])
def test_only_gradients_that_are_needed_are_made(place: str, needed: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    *ours, dy = draw_layer(place, kind)
    for name, tensor in zip(("a", "b", "bias"), ours, strict=True):
        tensor.requires_grad_(name == needed)
    y = aicf.ops.gemm_bias_act(*ours, act="relu", b_layout=kind.split()[1])
    asked = record_launches(monkeypatch)
    y.backward(dy)
    true = dict(zip(("a", "b", "bias"), find_true_gradients(tuple(ours), "relu", kind.split()[1], dy, y=y.detach()), strict=True))
    for name, tensor in zip(("a", "b", "bias"), ours, strict=True):
        if name == needed:
            assert_near(tensor.grad, true[name], kind)
        else:
            assert tensor.grad is None
    products = [options for _, options in asked if "act" not in options]
    assert len(products) == (needed != "bias")


def test_what_a_backward_pass_keeps_is_not_returned(place: str) -> None:
    *ours, _ = draw_layer(place, "bf16 nk")
    y = aicf.ops.gemm_bias_act(*ours, act="silu", b_layout="nk")
    assert isinstance(y, torch.Tensor) and y.requires_grad


def test_a_second_derivative_is_refused(place: str) -> None:
    *ours, dy = draw_layer(place, "fp32 kn")
    y = aicf.ops.gemm_bias_act(*ours, act="silu")
    (first,) = torch.autograd.grad(y, ours[0], dy.requires_grad_(), create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


def test_a_backward_op_that_is_not_frozen_is_named_with_the_remedy(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aicf.ops, "list_ops", lambda: ["gemm_bias_act"])
    monkeypatch.delattr(aicf.ops, "gemm_backward", raising=False)
    a, b, _, _ = draw_layer(place, "bf16 nk")
    y = aicf.ops.gemm_bias_act(a, b, b_layout="nk")
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
