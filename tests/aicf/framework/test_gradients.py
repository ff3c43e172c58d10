"""Every gradient rule of the opset against finite differences in float64, and its own derivative against those of the rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from aicf.autograd import grad
from aicf.errors import GradientError
from aicf.gradient_check import BOUND, find_slope, gradcheck
from aicf.opset import find_op, list_ops
from aicf.tensor import Tensor, apply
from tests.aicf.framework.calls import CALLS, Call

NO_GRADIENT = {
    "Full",
    "Statistic",
    "CountStep",
    "Detach",
    "Adam",
    "SGD",
    "Lion",
    "Advance",
    "elementwise",
    "flat",
    "move",
    "optimizer",
    "product_of_batch",
    "reduce",
    "strided_copy",
} | {f"{op}{way}" for op in ("embedding", "layernorm", "rmsnorm") for way in ("", "_backward")}
NO_SECOND = {"CrossEntropy", "cross_entropy"}  # its gradient is an output of the call
DIFFERENTIABLE = [c for c in CALLS if find_op(c.op).gradient is not None and find_op(c.op).has_gradient(find_op(c.op).fill(c.attrs))]


def find_places(call: Call) -> list[int]:
    return [i for i, x in enumerate(call.inputs) if x is not None and np.asarray(x).dtype == np.float64]


def run(call: Call, replaced: dict[int, Tensor]) -> tuple[Tensor, ...]:
    inputs = [replaced.get(i, None if x is None else Tensor(x)) for i, x in enumerate(call.inputs)]
    return apply(call.op, inputs, **call.attrs)


def weigh(outputs: Sequence[Tensor], weights: Sequence[Any]) -> Tensor:
    """Return a scalar of all floating outputs, weighted so that no two elements count alike."""
    total: Tensor | None = None
    for output, weight in zip(outputs, weights, strict=True):
        if output.type.is_float:
            part = (output * Tensor(weight)).sum()
            total = part if total is None else total + part
    assert total is not None
    return total


def make_weights(call: Call) -> list[Any]:
    rng = np.random.default_rng(11)
    return [rng.uniform(0.5, 1.5, size=t.shape).astype(t.dtype if t.type.is_float else "float64") for t in run(call, {})]


def check_slope(function: Callable[[Any], float], x: Any, found: Any, bound: float, every: bool, place: int) -> None:
    """Hold a gradient against differences: along one direction that no element is left out of, or at every element."""
    if every:
        expected = find_slope(function, x)
        assert np.abs(found - expected).max() <= bound * (1.0 + np.abs(expected).max()), f"input {place}"
    else:
        direction = np.random.default_rng(13).choice((-1.0, 1.0), np.shape(x)) * np.random.default_rng(17).uniform(0.25, 1.0, np.shape(x))
        along = float(find_slope(lambda t: function(x + t[0] * direction), np.zeros(1))[0])
        assert abs(float((found * direction).sum()) - along) <= bound * (1.0 + float(np.abs(found * direction).sum())), f"input {place}"


def count_outputs(call: Call) -> int:
    return 1 if call.op in NO_SECOND else len(run(call, {}))


@pytest.mark.parametrize("call", DIFFERENTIABLE, ids=str)
def test_a_gradient_is_what_finite_differences_say(call: Call, by_tier: Callable[[int, int], int]) -> None:
    weights, places = make_weights(call), find_places(call)

    def value(replaced: dict[int, Tensor]) -> Tensor:
        count = count_outputs(call)
        return weigh(run(call, replaced)[:count], weights[:count])

    for place in places:
        leaf = Tensor(call.inputs[place], requires_grad=True)
        value({place: leaf}).backward()
        found = np.zeros(leaf.shape) if leaf.grad is None else leaf.grad.numpy()
        at_place = lambda x, at=place: value({at: Tensor(x)}).item()  # noqa: E731
        check_slope(at_place, call.inputs[place], found, BOUND, bool(by_tier(0, 1)), place)


@pytest.mark.parametrize("call", [c for c in DIFFERENTIABLE if c.op not in NO_SECOND], ids=str)
def test_a_second_derivative_is_that_of_the_gradient(call: Call, by_tier: Callable[[int, int], int]) -> None:
    weights, places = make_weights(call), find_places(call)
    shift = {i: np.cos(np.arange(np.size(call.inputs[i]), dtype=np.float64)).reshape(np.shape(call.inputs[i])) for i in places}

    def slope(values: Sequence[Tensor]) -> Tensor:
        """Return the directional derivative along fixed directions: a scalar function of the inputs."""
        function = grad(lambda *xs: weigh(run(call, dict(zip(places, xs, strict=True))), weights), tuple(range(len(places))))
        return weigh([g * Tensor(shift[i]) for g, i in zip(function(*values), places, strict=True)], [np.ones(g.shape) for g in values])

    leaves = [Tensor(call.inputs[i]) for i in places]
    found = grad(lambda *xs: slope(xs), tuple(range(len(places))))
    # A linear op's gradient does not depend on its inputs: there is nothing to differentiate, and the differences must be zero.
    curved = slope([Tensor(t.numpy(), requires_grad=True) for t in leaves]).requires_grad
    seconds = found(*leaves) if curved else tuple(Tensor(np.zeros(x.shape)) for x in leaves)
    for k in range(len(places)):
        at_place = lambda x, k=k: slope([Tensor(x) if i == k else leaf for i, leaf in enumerate(leaves)]).item()  # noqa: E731
        check_slope(at_place, leaves[k].numpy(), seconds[k].numpy(), 1e-6, bool(by_tier(0, 1)), places[k])


def test_no_op_is_left_out() -> None:
    assert {c.op for c in CALLS} | NO_GRADIENT == set(list_ops())


def test_ops_without_a_rule_are_known() -> None:
    assert {name for name in list_ops() if find_op(name).gradient is None} == NO_GRADIENT


@pytest.mark.parametrize("call", DIFFERENTIABLE, ids=str)
def test_a_rule_reads_only_what_it_saves(call: Call) -> None:
    """A write in place to an input raises exactly where the rule reads that input."""
    op = find_op(call.op)
    for place in find_places(call):
        inputs = [None if x is None else Tensor(x) for x in call.inputs]
        name = op.input_names(len(inputs))[place]
        inputs[place].require_grad()
        outputs = apply(call.op, inputs, **call.attrs)
        saved = op.saves(op.fill(call.attrs), {name})
        for other, tensor in zip(op.input_names(len(inputs)), inputs, strict=True):
            if tensor is not None and other != name and tensor.type.is_float:
                again = apply(call.op, inputs, **call.attrs)
                tensor.copy_(tensor)
                total = weigh(again[:1], [np.ones(again[0].shape)])
                if other in saved:
                    with pytest.raises(GradientError, match="changed in place"):
                        total.backward()
                elif not op.moves:
                    total.backward()
        assert outputs[0].creator is not None


def test_gradcheck_says_where_a_gradient_is_wrong() -> None:
    x = Tensor(np.array([[0.5, -1.25], [2.0, 3.0]]))
    gradcheck(lambda x, y: x * y + x.sum(0), [x, x + 1.0])
    with pytest.raises(GradientError, match=r"input 0 at \(1, 1\): the gradient is 0, and differences say \d\.\d+"):
        gradcheck(lambda x: (x * 2.0)[:, :1] + x.detach()[:, 1:] * Tensor([[0.0], [2.0]], dtype="float64"), [x])
    with pytest.raises(TypeError, match=r"input 0 is float32; differences need float64"):
        gradcheck(lambda x: x, [x.cast("float32")])
