"""Mixed precision with a bound: calls whose error is over it stay in fp32, the others do not, and the log says which and why."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import aicf
from aicf import Tensor, nn, optim
from aicf import functional as F
from aicf.ir import Graph
from aicf.passes import guard_precision
from aicf.rewrite import Run
from aicf.train.explaining import explain_network

RNG = np.random.default_rng(0)
X = RNG.normal(size=(8, 16)).astype(np.float32)
Y = RNG.integers(0, 4, size=8)
BOUND = 0.05
COMPUTE = ["bfloat16", "float16"]


class Cancelling(nn.Module):
    """Its second layer takes differences of numbers near 1000: in 16 bits little is left of them."""

    def __init__(self) -> None:
        self.first, self.second, self.third = nn.Linear(16, 32), nn.Linear(32, 16, bias=False), nn.Linear(16, 4)
        with aicf.no_grad():
            weight = np.array(self.second.weight.numpy())
            weight[:, 1::2] = -weight[:, ::2]
            self.second.weight.copy_(Tensor(weight))

    def forward(self, x: Tensor) -> Tensor:
        h = F.sigmoid(self.first(x)) + 1000.0
        return self.third(self.second(h))


def make() -> Cancelling:
    aicf.manual_seed(0)
    return Cancelling()


def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y)


def list_dtypes(graph: Graph | None, op: str) -> list[str]:
    assert graph is not None
    return [node.outputs[0].type.dtype for node in graph.nodes if node.op == op]


def read_log(program: Any) -> Sequence[str]:
    return next(entry for entry in program.log if entry.rule == "guard precision").notes


def measure(program: Any) -> float:
    """Return how far a program's outputs are from those of the model in fp32, as a share of the largest."""
    expected = make()(Tensor(X)).numpy()
    return float(np.abs(program(X).numpy() - expected).max() / np.abs(expected).max())


@pytest.mark.parametrize("amp", COMPUTE)
def test_a_layer_that_loses_its_digits_stays_in_fp32_and_the_others_do_not(amp: str) -> None:
    free, guarded = (aicf.compile(make(), [Tensor(X)], amp=amp, amp_bound=bound) for bound in (None, BOUND))
    assert list_dtypes(free.graph, "Linear") == [amp] * 3
    assert list_dtypes(guarded.graph, "Linear") == [amp, "float32", amp]
    assert measure(free) > BOUND > 5 * measure(guarded)
    (first, *kept) = read_log(guarded)
    assert "nodes in" in first and "over the bound of 0.05, the worst of the others" in first
    layers = [note for note in kept if " Linear of second " in note.partition(" stays ")[0]]
    assert len(layers) == 1 and "stays in float32: an error of" in layers[0]
    assert not any(" Linear of first" in note or " Linear of third" in note for note in kept)
    # Numbers near 1000 are rounded to 4 or to 0.5: what makes them stays in fp32 with the layer that takes differences of them.
    assert any(note.partition(" stays ")[0].split()[1] == "Elementwise" and "has a part in an error" in note for note in kept)
    assert any("Linear of second" in line and "stays in float32" in line for line in explain_network(guarded))


@pytest.mark.parametrize("amp", COMPUTE)
def test_a_bound_that_nothing_meets_is_fp32_and_one_that_all_meet_changes_nothing(amp: str) -> None:
    batch = [Tensor(X), Tensor(Y)]

    def compile_it(amp: str | None, bound: float | None) -> aicf.train.Step:
        model = make()
        return aicf.compile_step(model, loss, optim.AdamW(model.parameters()), batch, amp=amp, amp_bound=bound)

    none = compile_it(amp, 0.0)
    dtypes = {v.type.dtype for node in none.graph.nodes for v in node.outputs} if none.graph else set()
    assert amp not in dtypes
    if amp == "bfloat16":
        wide = compile_it(None, None)
        assert [none(X, Y).item() for _ in range(3)] == [wide(X, Y).item() for _ in range(3)]
    free, loose = compile_it(amp, None), compile_it(amp, 1e6)
    assert loose.graph == free.graph
    assert [loose(X, Y).item() for _ in range(3)] == [free(X, Y).item() for _ in range(3)]


def test_calls_of_the_backward_pass_are_tried_too() -> None:
    model = make()
    step = aicf.compile_step(model, loss, optim.SGD(model.parameters()), [Tensor(X), Tensor(Y)], amp="bfloat16", amp_bound=0.004)
    kept = read_log(step)[1:]
    assert any("LinearGrad" in note for note in kept)
    assert {"bfloat16", "float32"} == set(list_dtypes(step.graph, "LinearGrad"))


def test_what_float16_cannot_hold_stays_in_fp32() -> None:
    class Large(nn.Module):
        def __init__(self) -> None:
            aicf.manual_seed(0)
            self.first, self.second = nn.Linear(16, 8), nn.Linear(8, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.second(self.first(x * 1e5) * 1e-5)

    free, guarded = (aicf.compile(Large(), [Tensor(X)], amp="float16", amp_bound=bound) for bound in (None, BOUND))
    assert not np.isfinite(free(X * 1.0).numpy()).all()
    assert np.allclose(guarded(X).numpy(), Large()(Tensor(X)).numpy(), rtol=5e-3, atol=5e-3)
    assert any("float16 does not hold its results" in note for note in read_log(guarded))
    assert list_dtypes(guarded.graph, "Linear") == ["float32", "float16"]


def test_a_gradient_that_overflows_only_by_its_scale_is_no_reason_to_stay() -> None:
    aicf.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    scale = optim.LossScale(2.0**24)
    step = aicf.compile_step(
        model, loss, optim.AdamW(model.parameters()), [Tensor(X), Tensor(Y)], amp="float16", amp_bound=BOUND, loss_scale=scale
    )
    assert any("the loss scale is tried at" in note for note in read_log(step))
    assert list_dtypes(step.graph, "LinearGrad") == ["float16"] * 2


def test_other_shapes_and_later_structures_keep_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make()
    optimizer = optim.AdamW(model.parameters(), lr=1e-4)
    step = aicf.compile_step(model, loss, optimizer, [Tensor(X), Tensor(Y)], amp="bfloat16", amp_bound=BOUND)
    step(X[:4], Y[:4])
    assert step.variants is not None
    (other,) = step.variants._kept.values()  # type: ignore[attr-defined]
    assert list_dtypes(other.graph, "Linear") == ["bfloat16", "float32", "bfloat16"]
    step(X, Y)
    run = Run(step)
    run.widen("first", 64)
    assert list_dtypes(run.step.graph, "Linear") == ["bfloat16", "float32", "bfloat16"]
    assert "nodes in bfloat16 are over the bound" in read_log(run.step)[0]  # tried anew, on the last batch
    run.set_batch(4)
    assert list_dtypes(run.step.graph, "Linear") == ["bfloat16", "float32", "bfloat16"]
    assert not any("over the bound of" in note for note in read_log(run.step))  # another batch: what was found before
    snapshot = run.snapshot()
    run.fit([(X[:4], Y[:4])], 1)
    run.rollback(snapshot)
    assert run.step.verify_replay(2)


def test_a_network_of_many_branches_is_tried_in_little_time() -> None:
    class Deep(nn.Module):
        def __init__(self) -> None:
            aicf.manual_seed(0)
            for i in range(24):
                setattr(self, f"layer{i}", nn.Linear(16, 16))

        def forward(self, x: Tensor) -> Tensor:
            for _, layer in self.children():
                x = x + F.tanh(layer(x)) + F.sigmoid(x)
            return x

    begun = time.perf_counter()
    program = aicf.compile(Deep(), [Tensor(X)], amp="bfloat16", amp_bound=1e-4)
    assert time.perf_counter() - begun < 20.0  # paths through it are 3**24
    assert set(list_dtypes(program.graph, "Linear")) == {"float32"}


def test_a_guard_that_finds_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard_precision, "_measure", lambda made, truth: 0.0)  # a liar
    liar = aicf.compile(make(), [Tensor(X)], amp="bfloat16", amp_bound=BOUND)
    assert measure(liar) > BOUND


@pytest.mark.slow
def test_a_device_runs_what_is_kept_in_fp32(device: object) -> None:
    guarded = aicf.compile(make(), [Tensor(X)], backend="cuda", amp="bfloat16", amp_bound=BOUND)
    products = [s.outputs[0].type.dtype for s in guarded.plan.steps if s.op == "gemm_bias_act"]
    assert products == ["bfloat16", "float32", "bfloat16"]
    assert measure(guarded) < BOUND / 5


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"amp_bound": 0.1}, "amp_bound=0.1: bounds mixed precision, and amp is None"),
        ({"amp": "bfloat16", "amp_bound": -1.0}, "amp_bound=-1.0: must be at least 0"),
        ({"amp": "bfloat16", "amp_bound": float("nan")}, "amp_bound=nan: must be at least 0"),
        ({"amp": "int8", "amp_bound": 0.1}, "amp: expected one of bfloat16, float16"),
    ],
)
def test_a_bound_that_makes_no_sense_is_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        aicf.compile(make(), [Tensor(X)], **options)
    model = make()
    with pytest.raises(ValueError, match=why):
        aicf.compile_step(model, loss, optim.SGD(model.parameters()), [Tensor(X), Tensor(Y)], **options)
