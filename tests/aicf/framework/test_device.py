"""Plans and eager calls on a device, real or emulated: frozen kernels alone, stepwise and captured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import aicf
from aicf import Tensor, nn
from aicf import functional as F
from aicf.backends import find_backend
from aicf.errors import SelectionError, UnsupportedError
from aicf.opset import Attr, find_dtype, find_op
from aicf.plan import make_plan, verify
from aicf.plan.data import OUTPUT
from aicf.registry import list_ops as list_frozen_ops
from aicf.runtime.chooser import FrozenChooser
from aicf.runtime.device import DeviceExecutor
from aicf.tensor import apply
from device import Device

X = np.random.default_rng(0).normal(size=(32, 64)).astype(np.float32)


@pytest.fixture(autouse=True)
def opened(device: Device) -> Device:
    return device


def make_mlp() -> nn.Module:
    aicf.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10), nn.Softmax())


@pytest.fixture(scope="module")
def expected() -> np.ndarray:
    return make_mlp()(Tensor(X)).numpy()


@pytest.fixture
def program(expected: np.ndarray) -> aicf.train.Program:
    return aicf.compile(make_mlp(), (Tensor(X),), backend="cuda")


def test_a_network_runs_on_frozen_kernels(program: aicf.train.Program, expected: np.ndarray) -> None:
    for _ in range(3):
        # Sums of 64 and 128 products in fp32, in another order, and softmax's roundings.
        np.testing.assert_allclose(program(X).numpy(), expected, rtol=1e-4, atol=1e-6)
    assert [step.op for step in program.plan.steps] == ["gemm_bias_act", "gemm_bias_act", "softmax"]
    assert all(len(step.seal) == 64 for step in program.plan.steps)


def test_later_runs_replay_one_graph(program: aicf.train.Program) -> None:
    executor = program.executor
    assert isinstance(executor, DeviceExecutor)
    program(X)
    assert executor.graph is None
    program(X)
    assert executor.graph is not None
    assert executor.graph.num_nodes == 3
    other = np.flip(X, 0).copy()
    np.testing.assert_array_equal(program(other).numpy(), np.flip(program(X).numpy(), 0))


def test_a_replay_has_the_bits_of_single_launches(program: aicf.train.Program) -> None:
    program(X)
    assert program.verify_replay(3)


def test_the_log_says_what_decided(program: aicf.train.Program) -> None:
    (entry,) = [e for e in program.log if e.rule == "fuse"]
    assert any("Linear + relu" in note and "us" in note and note.endswith("fused") for note in entry.notes), entry.notes
    (entry,) = [e for e in program.log if e.rule == "select"]
    assert len(entry.notes) == 3


def test_each_step_is_near_the_truth(program: aicf.train.Program) -> None:
    before = program(X).numpy().copy()
    errors = program.check([X])
    assert [(e.op, e.owner) for e in errors] == [("gemm_bias_act", "0"), ("gemm_bias_act", "2"), ("softmax", "3")]
    assert all(0.0 < e.relative <= 1e-6 for e in errors)  # a few roundings of fp32
    np.testing.assert_array_equal(program(X).numpy(), before)


def test_runs_are_ranges_by_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[str] = []

    class Again:
        """A range that may be entered again, as NVTX's may."""

        def __init__(self, name: str) -> None:
            self._name = name

        def __enter__(self) -> None:
            entered.append(self._name)

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr("aicf.runtime.device.mark", Again)
    program = aicf.compile(make_mlp(), (Tensor(X),), backend="cuda")
    program(X)
    assert entered == ["Sequential/0/0:gemm_bias_act", "Sequential/2/1:gemm_bias_act", "Sequential/3/2:softmax"]
    program(X)  # captured
    del entered[:]
    program(X)
    assert entered == ["Sequential"]


def test_the_weights_are_shared(program: aicf.train.Program, expected: np.ndarray) -> None:
    before = program(X).numpy().copy()
    with aicf.no_grad():
        program.tensors["2.bias", "parameter"].copy_(Tensor(np.arange(10, dtype=np.float32), backend="cuda"))
    assert np.abs(program(X).numpy() - before).max() > 0.1


def test_a_saved_plan_runs_with_its_kernels_by_seal(program: aicf.train.Program, tmp_path: Path) -> None:
    program.save(tmp_path)
    loaded = aicf.load(tmp_path)
    assert isinstance(loaded, aicf.train.Program)
    np.testing.assert_array_equal(loaded(X).numpy(), program(X).numpy())
    text = (tmp_path / "plan.json").read_text()
    (tmp_path / "plan.json").write_text(text.replace(program.plan.steps[0].seal, "0" * 64))
    with pytest.raises(SelectionError, match="seal 0000000000000000, which the frozen set does not have"):
        aicf.load(tmp_path)


def test_all_that_no_kernel_serves_is_listed_at_once() -> None:
    class Wide(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.exp(x.cast("float64")) + (x.cast("int64") + 1).cast("float64").sum()

    model = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), Wide())
    with pytest.raises(UnsupportedError) as caught:
        aicf.compile(model, (Tensor(X),), backend="cuda")
    text = str(caught.value)
    assert "7 calls have no frozen kernel" in text
    assert "LayerNorm" not in text
    assert "Cast of 2" in text
    assert "Reduce of 2" in text
    assert "(int64[32,64], int64[]) function='add'" in text
    assert f"{Path(__file__).name}:" in text


def need_frozen(op: str) -> None:
    if op not in list_frozen_ops():
        pytest.skip(f"op {op} is not frozen: `make op={op} promote` freezes it")


def call_on_both(op: str, arrays: Sequence[np.ndarray | None], **attrs: Attr) -> list[list[np.ndarray]]:
    """Return an op's outputs as the truth has them and as the device does, after which the inputs are as they were."""
    found = []
    for backend in ("numpy", "cuda"):
        inputs = [None if array is None else Tensor(array, backend=backend) for array in arrays]
        found.append([y.numpy() for y in apply(op, inputs, **attrs)])
        for tensor, array in zip(inputs, arrays, strict=True):
            assert tensor is None or np.array_equal(tensor.numpy(), array)
    return found


@pytest.mark.parametrize("factor", [None, 0.25, 0.0, -1.0])
@pytest.mark.parametrize("decoupled", [True, False])
def test_an_update_in_place_is_the_truths(decoupled: bool, factor: float | None) -> None:
    need_frozen("optimizer")
    rng = np.random.default_rng(5)
    p, g, m = (rng.normal(size=(5, 7)).astype(np.float32) for _ in range(3))
    v, step, lr = rng.uniform(0.1, 1.0, size=(5, 7)).astype(np.float32), np.asarray(np.int64(3)), np.asarray(np.float32(1e-2))
    times = None if factor is None else np.asarray(np.float32(factor))
    true, found = call_on_both("Adam", [p, g, m, v, step, lr, None, None, times], beta1=0.8, weight_decay=0.1, decoupled=decoupled)
    for x, y, before in zip(true, found, (p, m, v), strict=True):
        np.testing.assert_allclose(y, x, rtol=1e-5, atol=1e-6)  # a dozen roundings in fp32
        assert np.array_equal(y, before) is (factor is not None and not factor > 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("keep", ["none", "units", "rows"])
def test_statistics_are_in_fp32_of_values_as_they_are(keep: str, dtype: str) -> None:
    need_frozen("reduce")
    x = (np.random.default_rng(8).normal(size=(3, 5, 7)) + 2.0).astype(find_dtype(dtype))
    wide, axis = x.astype(np.float64), {"none": (0, 1, 2), "units": (0, 1), "rows": (2,)}[keep]
    functions = {"sum": wide.sum(axis), "min": wide.min(axis), "max": wide.max(axis), "sum_squares": np.square(wide).sum(axis)}
    for function, expected in functions.items():
        for (made,) in call_on_both("Statistic", [x], function=function, keep=keep):
            assert made.dtype == np.float32
            np.testing.assert_allclose(made, expected, rtol=1e-5)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_loss_and_its_gradient_are_the_truths(reduction: str) -> None:
    need_frozen("cross_entropy")
    logits, labels = np.random.default_rng(6).normal(size=(9, 5)).astype(np.float32), np.array([0, 4, -100, 2, 2, 1, 3, -100, 0])
    true, found = call_on_both("CrossEntropy", [logits, labels], reduction=reduction, label_smoothing=0.125)
    for x, y in zip(true, found, strict=True):
        np.testing.assert_allclose(y, x, rtol=1e-5, atol=1e-6)


def test_gradients_of_a_layer_in_fp32_go_through_a_transpose() -> None:
    need_frozen("transpose")
    rng = np.random.default_rng(7)
    dy, x, w = (rng.normal(size=s).astype(np.float32) for s in ((24, 16), (24, 40), (16, 40)))
    grads = []
    for backend in ("numpy", "cuda"):
        leaves = [Tensor(a, backend=backend, requires_grad=True) for a in (x, w)]
        F.linear(*leaves).backward(Tensor(dy, backend=backend))
        grads.append([leaf.grad.numpy() for leaf in leaves if leaf.grad is not None])
    for true, found in zip(*grads, strict=True):
        np.testing.assert_allclose(found, true, rtol=1e-4, atol=1e-5)


def test_eager_calls_run_on_frozen_kernels(expected: np.ndarray) -> None:
    model = make_mlp().to("cuda")
    first, second = (m for m in model if isinstance(m, nn.Linear))
    with aicf.no_grad():
        hidden = F.linear(Tensor(X, backend="cuda"), first.weight, first.bias, act="relu")
        found = F.softmax(F.linear(hidden, second.weight, second.bias))
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_products_of_rows_and_log_softmax_are_the_truths() -> None:
    class Classifier(nn.Module):
        def __init__(self) -> None:
            self.weight = nn.Parameter(np.random.default_rng(8).normal(size=(64, 10)).astype(np.float32))

        def forward(self, x: Tensor) -> Tensor:
            return F.log_softmax(x @ self.weight)

    rows = X.reshape(4, 8, 64)
    true, found = (aicf.compile(Classifier(), (Tensor(rows),), backend=backend)(rows).numpy() for backend in ("numpy", "cuda"))
    # Sums of 64 products of about 1 in fp32, in another order, and their differences.
    np.testing.assert_allclose(found, true, rtol=1e-5, atol=2e-5)


def test_too_many_products_of_batches_have_no_kernel() -> None:
    many = np.ones((65, 4, 4), np.float32)
    with pytest.raises(UnsupportedError, match=r"MatMul .*float32\[65,4,4\], float32\[65,4,4\]"):
        aicf.compile(Turned(), (Tensor(many), Tensor(many)), backend="cuda")


class Turned(nn.Module):
    """A product of batches on both sides."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x @ y


def test_a_call_without_a_kernel_names_op_and_problem() -> None:
    x = Tensor(X, backend="cuda")
    with pytest.raises(UnsupportedError, match=r"Cast\(float32\[32,64\], dtype='float64'\): no frozen kernel serves it"):
        x.cast("float64")
    with pytest.raises(TypeError, match="inputs are on cuda and numpy"):
        F.linear(x, Tensor(np.ones((3, 64), np.float32)))


@pytest.mark.parametrize("dtype", [*(pytest.param(each, marks=pytest.mark.slow) for each in ("bfloat16", "float16")), "float32"])
def test_gradients_of_a_layer(dtype: str) -> None:
    """dx and dw by one launch of gemm_backward, against the truth on the same rounded operands."""
    rng = np.random.default_rng(3)
    host = {n: Tensor(rng.normal(size=s), dtype=dtype) for n, s in (("x", (24, 40)), ("w", (16, 40)), ("dy", (24, 16)))}
    grads = []
    for backend in ("numpy", "cuda"):
        x, w = (Tensor(host[n], backend=backend, requires_grad=True) for n in ("x", "w"))
        F.linear(x, w).backward(Tensor(host["dy"], backend=backend))
        assert x.grad is not None and w.grad is not None
        grads.append([g.numpy().astype(np.float64) for g in (x.grad, w.grad)])
    # One rounding of the result on each side, of which sums in fp32 are far below 16 bits; of fp32 they have up to 24.
    unit = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 24 * 2.0**-24}[dtype]
    for true, found in zip(*grads, strict=True):
        assert np.abs(found - true).max() <= 2.5 * unit * np.abs(true).max()


def test_two_streams_have_the_bits_of_one() -> None:
    class Branches(nn.Module):
        def __init__(self) -> None:
            self.left, self.right, self.head = nn.Linear(64, 32), nn.Linear(32, 32), nn.Linear(64, 32)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.right(self.left(x)), self.head(x)

    program = aicf.compile(Branches(), (Tensor(X),), backend="cuda")
    assert program.graph is not None
    nodes = [n for n in program.graph.nodes if n.op == "gemm_bias_act"]
    chooser = FrozenChooser(deterministic=True)
    choices = {n.id: chooser.choose(n) for n in nodes}
    plan = make_plan(program.graph, "cuda", choices, streams={nodes[-1].id: 1, nodes[1].id: 1})
    verify(plan)
    assert plan.num_streams == 2
    assert any(step.waits for step in plan.steps)
    executor = DeviceExecutor(plan)
    executor.load_states({key: t.numpy() for key, t in program.tensors.items()})
    program(X)
    for _ in range(3):  # stepwise, captured, replayed
        executor.put([X])
        executor.run()
        one, two = program.executor.read_bytes(OUTPUT), executor.read_bytes(OUTPUT)
        np.testing.assert_array_equal(one, two)


@pytest.mark.slow
def test_a_call_that_was_made_before_is_made_again_of_other_arrays() -> None:
    """The kernel and its parameters are kept, for the attributes and shapes that they are of; addresses are not."""
    rng = np.random.default_rng(4)
    weight = Tensor(rng.normal(size=(8, 16)).astype(np.float32), backend="cuda")
    for layout, shape in (("nk", (3, 16)), ("kn", (3, 8)), ("nk", (3, 16))):
        for _ in range(3):
            x = rng.normal(size=shape).astype(np.float32)
            (y,) = F.apply("gemm_bias_act", (Tensor(x, backend="cuda"), weight, None), b_layout=layout)
            true = x.astype(np.float64) @ (weight.numpy().T if layout == "nk" else weight.numpy())
            np.testing.assert_allclose(y.numpy(), true, rtol=1e-5, atol=1e-5)
    values = rng.normal(size=65).astype(np.float32)
    whole = Tensor(values, backend="cuda").data
    for first in (0, 1, 0):  # 4 bytes behind where vectors begin
        x = Tensor.wrap(whole.buffer.view((8, 8), np.float32, 4 * first), weight.backend)
        np.testing.assert_array_equal(F.apply("transpose", (x,))[0].numpy(), values[first : first + 64].reshape(8, 8).T)


def test_an_array_with_gaps_between_its_rows_is_refused_by_name(program: aicf.train.Program, opened: Device) -> None:
    """A type says nothing of strides: its bytes would be taken as if they followed each other."""
    padded = opened.allocate(32 * 80 * 4).view((32, 64), np.float32, strides_bytes=(320, 4))
    padded.copy_from_host(X)
    whole = opened.asarray(X)
    program(whole)
    with pytest.raises(
        ValueError, match=r"0: an array of shape \(32, 64\) with strides of 320, 4 bytes is not contiguous; pass a contiguous copy"
    ):
        program(padded)
    backend = find_backend("cuda")
    weights = opened.asarray(np.ones((64, 8), np.float32))
    attrs = find_op("gemm_bias_act").fill({})
    (made,) = backend.op_call("gemm_bias_act", (whole, weights, None), attrs)[:1]
    np.testing.assert_allclose(made.copy_to_host(), X.sum(axis=1, keepdims=True).repeat(8, axis=1), rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match=r"gemm_bias_act: input 0: an array of shape \(32, 64\) with strides"):
        backend.op_call("gemm_bias_act", (padded, weights, None), attrs)


def test_a_state_that_was_exchanged_for_one_of_another_size_is_refused(program: aicf.train.Program) -> None:
    bias = program.tensors["2.bias", "parameter"]
    bias.data = Tensor(np.zeros(4, np.float32), backend="cuda").data
    with pytest.raises(ValueError, match=r"expected float32\[10\], got float32\[4\]"):
        program(X)
