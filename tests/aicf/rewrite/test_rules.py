"""Rules for depth, activations, rank and training: what each preserves, that it is taken back, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import aicf
from aicf import Tensor, nn, optim
from aicf import functional as F
from aicf.data import DataLoader
from aicf.rewrite import RewriteError, RewriteRecord, Run, ScaleRate

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(64, 12)).astype(np.float32), RNG.integers(0, 4, size=64)


def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y)


class Wrapped(nn.Module):
    """A network whose parts are attributes, not members of a Sequential."""

    def __init__(self) -> None:
        self.up, self.act, self.down, self.head = nn.Linear(12, 10), nn.ReLU(), nn.Linear(10, 12), nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x + self.down(self.act(self.up(x))))


def start(model: nn.Module | None = None, every: int | None = None) -> Run:
    aicf.manual_seed(0)
    model = model or nn.Sequential(nn.Linear(12, 10), nn.ReLU(), nn.Linear(10, 8), nn.Tanh(), nn.Linear(8, 4))
    optimizer = optim.AdamW(model.parameters(), lr=optim.cosine(1e-2, total=200, warmup=5))
    run = Run(aicf.compile_step(model, loss, optimizer, (Tensor(X[:16]), Tensor(Y[:16])), clip_norm=1.0), every=every)
    run.fit(DataLoader((X, Y), batch=16, seed=1), 5)
    return run


def outputs(run: Run) -> np.ndarray:
    return np.array(run.model(Tensor(X)).numpy())


def check_states(run: Run) -> None:
    """Assert that no moment is without a trained parameter, and no trained parameter without moments."""
    paths = {id(p): path for path, p in run.model.named_parameters()}
    trained = {paths[id(p)] for p in run.optimizer.params}
    held: dict[str, set[str]] = {}
    for state in run.step.plan.states:
        held.setdefault(state.role, set()).add(state.owner)
    assert held["parameter"] == set(paths.values())
    for role in ("exp_avg", "exp_avg_sq"):
        assert held[role] == trained
    for owner in (*held.get("p_scale", ()), *held.get("g_scale", ())):
        assert owner in trained


Change = Callable[[Run], RewriteRecord]
PRESERVING: dict[str, Change] = {
    "deepen behind a layer": lambda r: r.deepen("2", hidden=6, activation="gelu"),
    "an identity behind relu": lambda r: r.deepen("1", "identity"),
    "a norm behind an activation": lambda r: r.insert_norm("1"),
    "a norm behind a layer": lambda r: r.insert_norm("2", "rms"),
    "freeze": lambda r: r.freeze("0"),
    "batch": lambda r: r.set_batch(8),
    "rate": lambda r: r.apply(ScaleRate(0.5)),
}


@pytest.mark.parametrize("name", PRESERVING)
def test_what_preserves_the_function_is_taken_back_without_a_trace(name: str) -> None:
    run = start()
    before, y = run.step.state_dict(), outputs(run)
    record = PRESERVING[name](run)
    check_states(run)
    assert record.preserves and record.delta <= 1e-6 and RewriteRecord.from_json(record.to_json()) == record
    np.testing.assert_allclose(outputs(run), y, atol=1e-6)
    run.undo(record)
    after = run.step.state_dict()
    assert before.keys() == after.keys() and all(np.array_equal(before[k], after[k]) for k in before)


def test_training_goes_on_behind_all_of_them() -> None:
    run = start()
    for change in PRESERVING.values():
        change(run)
    before = run.step.state_dict()
    losses = run.fit(DataLoader((X, Y), batch=8, seed=1), 5)
    after = run.step.state_dict()
    assert np.isfinite(losses).all() and run.step.verify_replay(2)
    same = {name for name in before if name.startswith("parameter:") and np.array_equal(before[name], after[name])}
    assert same == {"parameter:0.weight", "parameter:0.bias"}  # what is frozen


def test_a_deeper_network_goes_on_as_before_until_its_block_learns() -> None:
    plain, deep = start(), start()
    record = deep.deepen("2", hidden=6)
    assert [m.owner for m in record.maps] == [f"2_1.{n}" for n in ("up.weight", "up.bias", "down.weight", "down.bias")]
    deep.freeze("2_1")
    assert deep.fit(deep._loader, 6) == pytest.approx(plain.fit(plain._loader, 6), rel=1e-5)
    deep.thaw("2_1")
    deep.fit(deep._loader, 4)
    assert np.abs(dict(deep.model.named_parameters())["2_1.down.weight"].numpy()).max() > 1e-4


def test_parts_of_any_module_are_deepened_replaced_and_removed() -> None:
    run = start(Wrapped(), every=3)
    run.deepen("up", activation="tanh")
    assert "up.0.weight" in dict(run.model.named_parameters()) and run.records[-1].nodes["up.weight"] == "up.0.weight"
    check_states(run)
    changed = run.replace_activation("act", "silu")
    assert not changed.preserves and changed.delta > 1e-4
    run.undo(changed)
    removed = run.remove("up.1")
    assert removed.delta <= 1e-6  # it had not learned anything
    assert "up.1.up.weight" in removed.nodes and removed.nodes["up.1.up.weight"] is None
    run.fit(run._loader, 7)
    check_states(run)


def test_units_that_are_released_are_trained_at_the_full_rate_and_can_be_split() -> None:
    run = start()
    run.widen("0", 20)
    run.separate("0", 0.5)
    held = {key: a for key, a in run.step.state_dict().items() if "_scale:" not in key}
    assert any("_scale:" in key for key in run.step.state_dict())
    y, record = outputs(run), run.release("0")
    after = run.step.state_dict()
    assert record.delta == 0.0 and np.array_equal(outputs(run), y)
    assert after.keys() == held.keys() and all(np.array_equal(after[k], held[k]) for k in held)
    with pytest.raises(RewriteError, match="at the full rate already"):
        run.release("0")
    assert run.split("2", 4).delta > 0.0


def test_a_layer_of_full_rank_is_split_and_merged_and_low_rank_says_what_it_changes() -> None:
    run = start()
    before, y = run.step.state_dict(), outputs(run)
    record = run.split("2", 8)
    check_states(run)
    assert record.delta <= 1e-5 and run.records[-1].nodes["2.bias"] == "2.1.bias" and record.nodes["2.weight"] is None
    a, b = (run.step.tensors[f"2.{i}.weight", "parameter"].numpy().astype(np.float64) for i in (0, 1))
    moment = before["exp_avg:2.weight"].astype(np.float64)
    np.testing.assert_allclose(run.step.tensors["2.0.weight", "exp_avg"].numpy(), b.T @ moment, atol=1e-6)
    np.testing.assert_allclose(run.step.tensors["2.1.weight", "exp_avg"].numpy(), moment @ a.T, atol=1e-6)
    np.testing.assert_array_equal(run.step.tensors["2.1.bias", "exp_avg_sq"].numpy(), before["exp_avg_sq:2.bias"])
    merged = run.undo(record)
    assert merged.preserves and merged.delta <= 1e-5
    np.testing.assert_allclose(outputs(run), y, atol=1e-5)
    assert run.split("2", 2).delta > 1e-3
    run.fit(run._loader, 3)
    check_states(run)


def test_a_norm_comes_in_as_its_gate_opens_and_is_removed() -> None:
    run = start()
    run.insert_norm("2", "layer")
    path = "2_1"
    assert not run.model.state_dict()[f"{path}.gate"].any()
    run.fit(DataLoader((X, Y), batch=16, seed=1), 5)
    gate = run.model.state_dict()[f"{path}.gate"]
    assert gate.any() and run.step.verify_replay(1)
    run.widen("2", 16)  # the norm takes a mean over its features: all of them twice
    np.testing.assert_array_equal(run.model.state_dict()[f"{path}.gate"][:8], gate)
    removed = run.remove(path)
    assert not removed.preserves and removed.delta > 1e-4 and not any(name.startswith(path) for name in run.model.state_dict())
    assert np.isfinite(run.fit(DataLoader((X, Y), batch=16, seed=1), 2)).all()
    check_states(run)
    plain = start(nn.Sequential(nn.Linear(12, 8), nn.LayerNorm(8), nn.Linear(8, 4)))
    assert plain.remove("1").delta > 1e-4 and "1.weight" not in plain.model.state_dict()


def test_another_precision_keeps_masters_and_moments_bit_for_bit() -> None:
    run = start()
    before, snapshot = run.step.state_dict(), run.snapshot()
    expected = run.fit(DataLoader((X, Y), batch=16, seed=1), 4)
    run.rollback(snapshot)
    record = run.set_precision("bfloat16")
    after = run.step.state_dict()
    assert not record.preserves and 1e-6 < record.delta < 0.1
    assert before.keys() == after.keys() and all(np.array_equal(before[k], after[k]) for k in before)
    assert any(slot.type.dtype == "bfloat16" for step in run.step.plan.steps for slot in step.writes)
    losses = run.fit(DataLoader((X, Y), batch=16, seed=1), 4)
    assert losses != expected and np.allclose(losses, expected, rtol=0.05) and run.step.verify_replay(1)
    run.widen("0", 20)  # a rule for units works in either precision, and is checked without its rounding
    assert run.records[-1].delta < 1e-6
    run.undo(record)
    assert not any(slot.type.dtype == "bfloat16" for step in run.step.plan.steps for slot in step.writes)
    run.rollback(snapshot)
    assert run.fit(DataLoader((X, Y), batch=16, seed=1), 4) == expected


def test_a_loader_gives_the_batches_that_the_run_was_set_to_and_a_rollback_sets_them_back() -> None:
    run = start(every=2)
    loader, snapshot = run._loader, run.snapshot()
    expected = run.fit(loader, 5)
    run.rollback(snapshot)
    run.set_batch(32)
    run.fit(loader, 3)
    assert loader.batch == 32 and run.step.plan.inputs[0][1].type.shape == (32, 12)
    run.rollback(snapshot)
    assert loader.batch == 16 and run.fit(loader, 5) == expected


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda r: r.deepen("2", "identity"), "changes the results by"),
        (lambda r: r.deepen("2", "square"), "a block is residual or identity"),
        (lambda r: r.remove("0"), "cannot be evaluated"),
        (lambda r: r.remove(""), "whole model"),
        (lambda r: r.replace_activation("0", "relu"), "is Linear; only an activation"),
        (lambda r: r.replace_activation("1", "cube"), "another one of relu"),
        (lambda r: r.thaw("0"), "is not frozen"),
        (lambda r: r.freeze(""), "nothing would be trained"),
        (lambda r: r.freeze("9"), "no such module or parameter"),
        (lambda r: r.set_batch(16), "another number than the present 16"),
        (lambda r: r.split("2", 9), "rank=9 must be from 1 to 8"),
        (lambda r: r.merge("2"), "only a Sequential of two Linear"),
        (lambda r: [r.widen("0", 12), r.split("2", 2)], "scales of copied units"),
        (lambda r: [r.freeze("2"), r.split("2", 2)], "thaw it first"),
        (lambda r: r.insert_norm("2", "batch"), "a norm is one of layer, rms"),
        (lambda r: r.insert_norm("7"), "there is no module '7'"),
        (lambda r: r.set_precision("float32"), "computes in float32, to be replaced by another one"),
        (lambda r: r.set_precision("int8"), "another one of float32, bfloat16"),
    ],
)
def test_a_refusal_says_why_and_changes_nothing(change: Callable[[Run], object], why: str) -> None:
    run = start()
    with pytest.raises(RewriteError, match=why):
        change(run)
    count, step = len(run.records), run.step
    assert step.verify_replay(1) and count == len(run.log.entries[1:]) // 2
