"""Widening: the function and the trajectory of training stay as they were, and each part of the transport is needed for that."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import aicf
from aicf import Tensor, nn, optim
from aicf import functional as F
from aicf.errors import StateError
from aicf.nn import Parameter
from aicf.rewrite import Regroup, RewriteError, RewriteRecord, Run
from aicf.rewrite.copying import copy_model

Build = Callable[[nn.Module], optim.Optimizer]
RNG = np.random.default_rng(0)
BATCHES = [(RNG.normal(size=(16, 5)), RNG.normal(size=(16, 3))) for _ in range(20)]


def to_float64(model: nn.Module) -> nn.Module:
    return copy_model(model, lambda t: Parameter(t.numpy().astype(np.float64)))[0]


def make_mlp() -> nn.Module:
    aicf.manual_seed(3)
    return to_float64(nn.Sequential(nn.Linear(5, 8), nn.GELU(), nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 3)))


def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.mse_loss(model(x), y)


def adam(model: nn.Module) -> optim.Optimizer:
    return optim.AdamW(model.parameters(), lr=optim.cosine(1e-2, total=200, warmup=5), weight_decay=0.1)


def start(build: Build, clip: float | None = 0.5, model: nn.Module | None = None) -> Run:
    model = model or make_mlp()
    run = Run(aicf.compile_step(model, loss, build(model), [Tensor(a) for a in BATCHES[0]], clip_norm=clip))
    run.fit(BATCHES, 10)
    return run


def compare_runs(build: Build, clip: float | None, change: Callable[[Run], None], steps: int = 50) -> float:
    """Return the largest relative difference of losses and final outputs between a run that is changed and one that is not."""
    plain, other = start(build, clip), start(build, clip)
    change(other)
    one, two = np.array(plain.fit(BATCHES, steps)), np.array(other.fit(BATCHES, steps))
    x = Tensor(BATCHES[3][0])
    outputs = [run.model(x).numpy() for run in (plain, other)]
    return max(float(np.abs(one / two - 1.0).max()), float(np.abs(outputs[0] - outputs[1]).max() / np.abs(outputs[0]).max()))


BUILDS: dict[str, Build] = {
    "AdamW": adam,
    "Adam with coupled decay": lambda m: optim.Adam(m.parameters(), 1e-2, weight_decay=0.05),
    "SGD with momentum": lambda m: optim.SGD(m.parameters(), 0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
    "SGD": lambda m: optim.SGD(m.parameters(), 0.05, weight_decay=0.01),
    "Lion": lambda m: optim.Lion(m.parameters(), 1e-3, weight_decay=0.1),
}


def widen_twice(run: Run) -> None:
    run.widen("0", 13, seed=5)
    run.widen("2", 15, seed=6)


@pytest.mark.parametrize(("name", "clip"), [("AdamW", None), *((name, 0.05) for name in BUILDS)])
def test_training_goes_on_as_it_would_have(name: str, clip: float | None) -> None:
    assert compare_runs(BUILDS[name], clip, widen_twice, 50 if name == "AdamW" else 20) < 1e-11


def permute(run: Run) -> None:
    for owner, units in (("0", 8), ("2", 6)):
        record = run.apply(Regroup(owner, tuple(np.random.default_rng(4).permutation(units).tolist()), (1.0,) * units))
        assert record.delta <= 1e-12


def deepen(run: Run) -> None:
    """Insert blocks, whose own parameters are frozen: until they are thawed, training goes on as it would have."""
    for owner, block in (("1", "1_1"), ("2", "2_1")):
        assert run.deepen(owner, hidden=7, activation="gelu").delta == 0.0
        run.freeze(block)


@pytest.mark.parametrize("change", [permute, deepen, lambda run: (widen_twice(run), deepen(run), run.widen("2_1.up", 9))])
def test_units_in_another_order_and_blocks_that_do_not_learn_yet_change_no_step(change: Callable[[Run], None]) -> None:
    def build(model: nn.Module) -> optim.Optimizer:
        return optim.AdamW(model.parameters(), lr=1e-2, eps=1e-8, weight_decay=0.1)

    assert compare_runs(build, 0.05, change, 50) < 1e-10


def test_parameters_of_copies_and_their_state_are_scaled_by_the_rule() -> None:
    run = start(adam)
    before = {key: np.array(t.numpy()) for key, t in run.step.tensors.items()}
    record = run.widen("0", 13, seed=5)
    after = {key: t.numpy() for key, t in run.step.tensors.items()}
    maps = {(m.owner, m.dim): m for m in record.maps}
    assert set(maps) == {("0.weight", 0), ("0.bias", 0), ("2.weight", 1)}
    index = np.array(maps["0.weight", 0].index)
    assert sorted(set(index.tolist())) == list(range(8)) and list(index[:8]) == list(range(8))
    share = 1.0 / np.bincount(index)[index]
    assert set(share) == {0.5, 1.0}
    for owner, column in (("0.weight", share[:, None]), ("0.bias", share)):
        np.testing.assert_array_equal(after[owner, "parameter"], before[owner, "parameter"][index])
        np.testing.assert_array_equal(after[owner, "exp_avg"], before[owner, "exp_avg"][index] * column)
        np.testing.assert_array_equal(after[owner, "exp_avg_sq"], before[owner, "exp_avg_sq"][index] * column**2)
        np.testing.assert_array_equal(after[owner, "g_scale"], column)
        assert (owner, "p_scale") not in after
    np.testing.assert_array_equal(after["2.weight", "parameter"], before["2.weight", "parameter"][:, index] * share)
    for role in ("exp_avg", "exp_avg_sq"):
        np.testing.assert_array_equal(after["2.weight", role], before["2.weight", role][:, index])
    np.testing.assert_array_equal(after["2.weight", "p_scale"], share[None, :])
    np.testing.assert_array_equal(after["4.weight", "exp_avg"], before["4.weight", "exp_avg"])
    assert after["step", "control"] == before["step", "control"] == 10
    assert maps["2.weight", 1].lr_scale == maps["2.weight", 1].scale_p == tuple(share)
    assert maps["0.weight", 0].scale_v == tuple(share**2) and maps["0.weight", 0].lr_scale is None
    assert RewriteRecord.from_json(record.to_json()) == record


def test_a_widening_that_is_taken_back_leaves_no_trace() -> None:
    run = start(adam)
    before = run.step.state_dict()
    record = run.widen("0", 16, seed=1)
    assert record.preserves and record.delta <= 1e-12 and run.model(Tensor(BATCHES[0][0])).shape == (16, 3)
    run.undo(record)
    after = run.step.state_dict()
    assert before.keys() == after.keys()
    for key, values in before.items():
        np.testing.assert_array_equal(after[key], values, err_msg=key)


def test_the_step_before_raises_and_its_values_stay_readable() -> None:
    model = make_mlp()
    run = start(adam, model=model)
    step, optimizer = run.step, run.optimizer
    weights = np.array(model[0].weight.numpy())
    run.widen("0", 9)
    for use in (lambda: step(*BATCHES[0]), lambda: step.verify_replay(1), lambda: model(Tensor(BATCHES[0][0])), optimizer.step):
        with pytest.raises((RewriteError, StateError), match=r"run\.step and run\.model"):
            use()
    np.testing.assert_array_equal(model[0].weight.numpy(), weights)
    assert run.model is not model and run.model[0].out_features == 9 and run.step.verify_replay(3)


def test_copies_stay_copies_until_they_are_separated() -> None:
    run = start(adam)
    run.widen("0", 16, seed=1)
    index = np.array(run.records[-1].maps[0].index)
    run.fit(BATCHES, 5)
    np.testing.assert_allclose(run.model[0].weight.numpy(), run.model[0].weight.numpy()[:8][index], rtol=1e-9)
    with pytest.raises(RewriteError, match=r"2: none of its 6 units is a copy"):
        run.separate("2")
    record = run.separate("0", 0.1, seed=2)
    assert record.delta < 1e-12
    run.fit(BATCHES, 5)
    assert np.abs(run.model[0].weight.numpy()[8:] - run.model[0].weight.numpy()[:8][index[8:]]).min() > 1e-6


def tamper(role: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Run], None]:
    def widen(run: Run) -> None:
        widen_twice(run)
        for (_, found), tensor in run.step.tensors.items():
            if found == role:
                tensor.data[...] = change(tensor.data)

    return widen


@pytest.mark.parametrize(
    ("role", "change", "clip", "least"),
    [
        ("p_scale", np.ones_like, None, 1e-3),  # the rate
        ("g_scale", np.ones_like, None, 1e-9),  # eps
        ("g_scale", np.ones_like, 0.05, 1e-3),  # the clipping norm, too
        ("exp_avg", np.zeros_like, None, 1e-3),
        ("exp_avg_sq", lambda v: v * 2.0, None, 1e-3),
    ],
)
def test_each_part_of_the_transport_is_needed(
    role: str, change: Callable[[np.ndarray], np.ndarray], clip: float | None, least: float
) -> None:
    assert compare_runs(adam, clip, tamper(role, change), 20) > least
