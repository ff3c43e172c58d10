"""Snapshots, rollbacks and forks; refusals that change nothing; coupled dimensions of other networks; the same on a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aicf
from aicf import Tensor, nn, optim
from aicf import functional as F
from aicf.data import DataLoader
from aicf.errors import StateError
from aicf.registry import KernelHandle
from aicf.rewrite import Freeze, Prune, RewriteError, Run, Together, Widen, read_rule
from aicf.train import building
from device import Device
from device.memory import RuntimeArray
from device.runtime import RuntimeDevice
from tests.aicf.optimizers import make_shared_adamw

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(64, 16)).astype(np.float32), RNG.integers(0, 4, size=64)


def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y)


def start(model: nn.Module | None = None, backend: str = "numpy") -> Run:
    aicf.manual_seed(0)
    model = model or nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.2, aicf.Generator(7)), nn.Linear(32, 4))
    optimizer: optim.Optimizer
    if backend == "numpy":
        optimizer = optim.AdamW(model.parameters(), lr=optim.cosine(1e-2, total=100, warmup=5))
    else:
        optimizer = make_shared_adamw(model)
    return Run(aicf.compile_step(model, loss, optimizer, (Tensor(X[:16]), Tensor(Y[:16])), clip_norm=1.0, backend=backend))


def test_a_rollback_across_a_rewrite_is_bit_exact() -> None:
    loader = DataLoader((X, Y), batch=16, seed=3)
    run = start()
    run.fit(loader, 3)
    before, snapshot = run.step.state_dict(), run.snapshot("narrow")
    expected = run.fit(loader, 6)
    for change in (lambda: None, lambda: run.widen("0", 40), lambda: run.prune("0", [1, 2])):
        change()
        run.fit(loader, 2)
        run.rollback(snapshot)
        after = run.step.state_dict()
        assert before.keys() == after.keys() and all(np.array_equal(before[k], after[k]) for k in before)
        assert run.steps_done == 3 and run.records == [] and run.fit(loader, 6) == expected


def test_a_fork_goes_its_own_way_with_the_same_state() -> None:
    loader, again = DataLoader((X, Y), batch=16, seed=3), DataLoader((X, Y), batch=16, seed=3)
    run = start()
    run.fit(loader, 3)
    again.load_state_dict(loader.state_dict())
    twin = run.fork()
    assert twin.fit(again, 5) == run.fit(loader, 5)
    twin.widen("0", 64)
    twin.fit(again, 3)
    twin.fit([(X[:8], Y[:8])], 2)  # of another shape, with dropout: the fork's own draws
    assert len(run.fit(loader, 3)) == 3 and run.model[0].out_features == 32 and twin.model[0].out_features == 64


@pytest.mark.parametrize(
    ("owner", "to", "why"),
    [("3", 8, "CrossEntropy"), ("0", 16, "has 32 units"), ("nothing", 64, "no such module")],
)
def test_a_refusal_says_why_and_changes_nothing(owner: str, to: int, why: str) -> None:
    run = start()
    step, before = run.step, run.step.state_dict()
    with pytest.raises(RewriteError, match=why):
        run.widen(owner, to)
    assert run.step is step and run.records == [] and all(np.array_equal(before[k], v) for k, v in step.state_dict().items())


class Residual(nn.Module):
    """A stream of eight features that an embedding, two residual layers and a norm share."""

    def __init__(self) -> None:
        self.table, self.up, self.down = nn.Embedding(10, 8), nn.Linear(8, 12), nn.Linear(12, 8)
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.table(x)
        return self.head(self.norm(h + self.down(F.silu(self.up(h)))))


def test_a_residual_stream_is_widened_as_a_whole_and_only_evenly() -> None:
    aicf.manual_seed(1)
    model, tokens = Residual(), RNG.integers(0, 10, size=16)
    run = Run(aicf.compile_step(model, loss, optim.Adam(model.parameters(), 1e-2), (Tensor(tokens), Tensor(Y[:16]))))
    with pytest.raises(RewriteError, match="copied equally often; widen to a multiple, such as 16"):
        run.widen("down", 12)
    record = run.widen("down", 16)
    axes = {(m.owner, m.dim): m.scale_p is not None for m in record.maps}
    made = [("table.weight", 1), ("down.weight", 0), ("down.bias", 0), ("norm.weight", 0), ("norm.bias", 0)]
    assert axes == {**dict.fromkeys(made, False), ("up.weight", 1): True, ("head.weight", 1): True}
    run.widen("up", 20)
    assert np.isfinite(run.fit([(tokens, Y[:16])], 3)).all() and run.step.verify_replay(2)


@pytest.mark.slow  # the kernels of two widths are compiled
def test_on_the_device_training_goes_on_as_it_would_have(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    for _ in range(2):
        aicf.manual_seed(0)
        runs.append(start(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)), backend="cuda"))
    batches = [(X[i : i + 16], Y[i : i + 16]) for i in range(0, 64, 16)]
    for run in runs:
        run.fit(batches, 4)
    first = runs[1].snapshot()
    address = first.frame.state.address
    snapshot, held = runs[1].snapshot(replaces=first), runs[1].snapshot(on_host=True)
    assert snapshot.frame.state.address == address
    for use in (lambda: runs[1].rollback(first), lambda: runs[1].snapshot(replaces=first), first.read_states):
        with pytest.raises(StateError, match="was replaced by a later one"):
            use()
    with monkeypatch.context() as patch:  # a snapshot is queued, and what trains on does not wait for it
        patch.setattr(RuntimeDevice, "synchronize", lambda device: pytest.fail("a snapshot waited for the device"))
        queued = runs[1].snapshot()
        runs[1].step.run(batches[0])
    runs[1].rollback(queued)
    states = runs[1].step.state_dict()
    np.testing.assert_array_equal(snapshot.frame.read_state(), held.frame.read_state())
    assert runs[1].widen("0", 64).delta < 1e-6
    np.testing.assert_allclose(runs[1].fit(batches, 8), runs[0].fit(batches, 8), rtol=1e-4)
    assert runs[1].step.verify_replay(2)
    for moment in (snapshot, held):
        runs[1].rollback(moment)
        assert runs[1].model[0].out_features == 32 and all(np.array_equal(states[k], v) for k, v in runs[1].step.state_dict().items())
        assert len(runs[1].fit(batches, 1)) == 1


def test_several_widenings_are_one_rewrite_and_are_taken_back_as_one() -> None:
    def make() -> nn.Module:
        aicf.manual_seed(0)
        return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 24), nn.Tanh(), nn.Linear(24, 4))

    one, other = start(make()), start(make())
    batches = [(X[:16], Y[:16])]
    one.fit(batches, 2), other.fit(batches, 2)
    before = one.step.state_dict()
    record = one.widen(["0", "2"], 48)
    other.widen("0", 48), other.widen("2", 48)
    assert record.preserves and len(one.records) == 1 and read_rule(record.rule) == Together((Widen("0", 48), Widen("2", 48)))
    states, wanted = one.step.state_dict(), other.step.state_dict()
    assert all(np.array_equal(states[k], wanted[k]) for k in wanted) and states.keys() == wanted.keys()
    one.undo(record)
    after = one.step.state_dict()
    assert before.keys() == after.keys() and all(np.array_equal(before[k], after[k]) for k in before)
    for rules, why in (
        ((Widen("0", 64), Widen("1", 64)), "shares its units along axis 0 of 0.bias"),
        ((Widen("0", 64), Prune("4", (0,))), "CrossEntropy"),
        ((Freeze("0"),), "takes Widen, Prune and Regroup"),
        ((), "at least one; got none"),
    ):
        step = one.step
        with pytest.raises(RewriteError, match=why):
            one.apply(Together(rules))
        assert one.step is step


@pytest.mark.slow  # kernels of several widths are compiled
def test_no_state_goes_through_the_host_and_kernels_are_compiled_ahead(
    device: Device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = start(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)), backend="cuda")
    batch = (X[:16], Y[:16])
    run.fit([batch], 2)
    run.prebuild(Widen("0", 40))
    moved: list[int] = []
    read = RuntimeArray.copy_to_host

    def watch(array: RuntimeArray) -> Any:
        moved.append(array.dtype.itemsize * int(np.prod(array.shape)))
        return read(array)

    with monkeypatch.context() as patch:
        patch.setattr(RuntimeArray, "copy_to_host", watch)
        assert run.widen("0", 40).compiled == ()
    assert moved and max(moved) <= 8 * 40 * 4  # eight rows of activations: the first layer's weight is larger
    # Where a kernel is not in the cache, nor what could take its place, it is refused, or compiled and said.
    step, asked = run.step, KernelHandle.is_built.fget
    assert asked is not None and run.prebuild(Widen("0", 48)) == ()
    monkeypatch.setattr(KernelHandle, "is_built", property(lambda handle: handle.chain is None and asked(handle)))
    monkeypatch.setattr(KernelHandle, "is_loaded", property(lambda handle: False))
    building.forget()
    run.compiles = False
    with pytest.raises(RewriteError, match=r"needs kernels that Run\.prebuild compiles ahead: .*elementwise/chain__"):
        run.widen("0", 48)
    assert run.step is step and run.model[0].out_features == 40
    run.compiles = True
    assert not run.widen("0", 48).unfused and "kernels are compiled now" in caplog.text
    assert "elementwise calls stay apart: elementwise/chain__" in caplog.text
