"""Saved plans and checkpoints: what is read back goes on with the same bits, and what is damaged is refused by name."""

from __future__ import annotations

import errno
import gc
import os
from pathlib import Path

import numpy as np
import pytest

import aicf
from aicf import Tensor, nn, optim
from aicf import functional as F
from aicf.data import DataLoader
from aicf.errors import PlanError, StateError, UnsupportedError

RNG = np.random.default_rng(2)
X, Y = RNG.normal(size=(40, 6)).astype(np.float32), RNG.integers(0, 3, size=40)


def make() -> tuple[nn.Module, optim.Optimizer, aicf.Generator, DataLoader]:
    aicf.manual_seed(1)
    generator = aicf.Generator(5)
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Dropout(0.3, generator), nn.Linear(8, 3))
    return model, optim.AdamW(model.parameters(), optim.cosine(1e-2, total=20)), generator, DataLoader((X, Y), batch=8, seed=7)


def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y)


def compile_one(model: nn.Module, optimizer: optim.Optimizer) -> aicf.train.Step:
    return aicf.compile_step(model, loss, optimizer, (Tensor(X[:8]), Tensor(Y[:8])))


def test_a_run_that_is_taken_up_has_the_bits_of_one_that_went_on(tmp_path: Path) -> None:
    model, optimizer, generator, loader = make()
    step, losses = compile_one(model, optimizer), []
    for i, batch in enumerate(loader.epochs(4)):
        if i == 7:  # in the middle of an epoch
            aicf.save_state(tmp_path / "state", model=model, optimizer=optimizer, generator=generator, loader=loader)
        losses.append(step(*batch).item())
    other, resumed, counter, rest = make()
    again = compile_one(other, resumed)
    aicf.load_state(tmp_path / "state", model=other, optimizer=resumed, generator=counter, loader=rest)
    # The state is of the moment before the eighth step, whose batch the loader had handed out.
    rest.position -= 1
    assert [again(*batch).item() for batch in rest.epochs(4)] == losses[7:]


def test_a_saved_step_goes_on_without_its_model(tmp_path: Path) -> None:
    model, optimizer, _, loader = make()
    step, batches = compile_one(model, optimizer), list(loader)
    for batch in batches[:2]:
        step(*batch)
    step.save(tmp_path / "step")
    loaded = aicf.load(tmp_path / "step")
    assert isinstance(loaded, aicf.train.Step)
    assert loaded.plan == step.plan
    for batch in batches[2:]:
        assert loaded(*batch).item() == step(*batch).item()


def test_a_saved_program_runs(tmp_path: Path) -> None:
    model = nn.Linear(6, 3)
    program = aicf.compile(model, (Tensor(X),))
    expected = program(X).numpy().copy()
    program.save(tmp_path)
    np.testing.assert_array_equal(aicf.load(tmp_path)(X).numpy(), expected)  # type: ignore[union-attr]


def test_a_replay_is_verified_and_leaves_states_as_they_were() -> None:
    model, optimizer, _, loader = make()
    step = compile_one(model, optimizer)
    step(*next(iter(loader)))
    before = model.state_dict()
    report = step.verify_replay(10)
    assert report and report.runs == 10
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(value, before[name])


def test_a_replay_that_differs_is_found() -> None:
    model, optimizer, _, loader = make()
    step = compile_one(model, optimizer)
    step(*next(iter(loader)))
    run, calls = step.executor.run_steps, []

    def run_and_disturb() -> None:
        calls.append(None)
        run()
        if len(calls) == 4:
            step.executor.view(step.plan.outputs[0])[...] = 7.0

    step.executor.run = run_and_disturb  # type: ignore[method-assign]
    report = step.verify_replay(6)
    assert not report
    assert report.first_difference == 3


def test_a_file_that_is_cut_short_is_refused_by_name(tmp_path: Path) -> None:
    model, optimizer, _, _ = make()
    aicf.save_state(tmp_path / "state", model=model, optimizer=optimizer)
    whole = (tmp_path / "state").read_bytes()
    (tmp_path / "state").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StateError, match=r"state: cannot be read: .*; use an older checkpoint"):
        aicf.load_state(tmp_path / "state", model=model)


def test_a_full_disk_leaves_the_older_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, *_ = make()
    aicf.save_state(tmp_path / "state", model=model)
    before = (tmp_path / "state").read_bytes()

    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StateError, match="No space left on device; what was there before is untouched"):
        aicf.save_state(tmp_path / "state", model=model)
    assert (tmp_path / "state").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["state"]


def test_what_a_file_does_not_hold_is_named(tmp_path: Path) -> None:
    model, optimizer, generator, _ = make()
    aicf.save_state(tmp_path / "state", model=model)
    with pytest.raises(StateError, match="holds no optimizer state"):
        aicf.load_state(tmp_path / "state", optimizer=optimizer)
    with pytest.raises(StateError, match="holds no generator state"):
        aicf.load_state(tmp_path / "state", generator=generator)
    with pytest.raises(PlanError, match="kind ''"):
        (tmp_path / "folder").mkdir()
        (tmp_path / "state").rename(tmp_path / "folder" / "states.safetensors")
        aicf.load(tmp_path / "folder")


def test_a_loader_goes_on_where_it_was_left() -> None:
    loader = DataLoader((X, Y), batch=8, seed=3)
    batches = [batch[1].tolist() for batch in loader.epochs(3)]
    other = DataLoader((X, Y), batch=8, seed=3)
    stream = other.epochs(3)
    first = [next(stream)[1].tolist() for _ in range(6)]
    resumed = DataLoader((X, Y), batch=8, seed=3)
    resumed.load_state_dict(other.state_dict())
    assert first + [batch[1].tolist() for batch in resumed.epochs(3)] == batches
    assert batches[:5] != batches[5:10]
    with pytest.raises(ValueError, match="seed 3, but this loader has seed 4"):
        DataLoader((X, Y), batch=8, seed=4).load_state_dict(other.state_dict())
    with pytest.raises(ValueError, match="batch=41"):
        DataLoader((X, Y), batch=41)
    with pytest.raises(ValueError, match="one length, got 39, 40"):
        DataLoader((X, Y[1:]), batch=4)


def test_a_plan_saves_and_checks_the_program_that_runs_it(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    x = np.ones((4, 3), np.float32)
    program = aicf.compile(model, (Tensor(x),))
    expected = program(x).numpy().copy()
    plan = program.plan
    assert plan is program.plan
    plan.save(tmp_path)
    assert np.array_equal(aicf.load(tmp_path)(x).numpy(), expected)
    assert [each.op for each in plan.check((x,))] == [each.op for each in program.check((x,))]
    with pytest.raises(UnsupportedError, match="has no time"):
        plan.profile()
    assert plan.diff(program.executor.plan) == [] and plan == program.executor.plan
    del program, model
    gc.collect()
    with pytest.raises(PlanError, match=r"plan Linear: check\(\) needs the memory of the program that runs it, and none does"):
        plan.check((x,))
