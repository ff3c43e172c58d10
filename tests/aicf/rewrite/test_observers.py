"""What observers see, what policies make of it, and that both are told by seed and log alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aicf
from aicf import Tensor, nn, optim
from aicf import functional as F
from aicf.backends.frozen import FrozenCalls
from aicf.data import DataLoader
from aicf.opset import Type
from aicf.plan import Plan
from aicf.rewrite import Judge, Log, Policy, Proposal, Prune, Run, Widen, policies, replay_decisions
from aicf.rewrite.log import Decision, Observation, Refused, Rewritten, RolledBack, Shapes, Statistics
from aicf.rewrite.observers import Watch
from aicf.train import building
from aicf.train.program import Step
from aicf.train.recipe import Options
from aicf.train.step_recipe import StepRecipe
from contract.building import list_compiled
from device import Device
from device.memory import RuntimeArray
from device.runtime import RuntimeDevice
from tests.aicf.optimizers import make_shared_adamw
from tests.aicf.planning import without_kernels

RNG = np.random.default_rng(0)
X = RNG.normal(size=(64, 16)).astype(np.float32)
Y = RNG.integers(0, 4, size=64)
RATE = optim.cosine(1e-2, total=200, warmup=5)
Build = Callable[[nn.Module], optim.Optimizer]


def build(model: nn.Module) -> optim.Optimizer:
    return optim.AdamW(model.parameters(), lr=RATE)


def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y)


def make_step(backend: str = "numpy", bias: float = 0.0, build: Build = build) -> aicf.Step:
    aicf.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 4))
    if bias:
        dead = np.zeros(8, np.float32)
        dead[[2, 5]] = -bias
        model[0].bias.detach().add_(Tensor(dead))
    return aicf.compile_step(model, loss, build(model), (Tensor(X[:16]), Tensor(Y[:16])), clip_norm=1.0, backend=backend)


def load(seed: int = 3) -> DataLoader:
    return DataLoader((X, Y), batch=16, seed=seed)


def test_observers_see_what_eager_training_computes_and_change_nothing() -> None:
    plain, observed = Run(make_step()), Run(make_step(), every=4)
    expected = plain.fit(load(), 10)
    assert observed.fit(load(), 7) + observed.fit(observed._loader, 3) == expected
    mine = {k: v for k, v in observed.step.state_dict().items() if not k.startswith("observation:")}
    theirs = plain.step.state_dict()
    assert mine.keys() == theirs.keys() and all(np.array_equal(mine[k], theirs[k]) for k in mine)
    assert [o.loss for o in observed.log.losses] == expected and [o.step for o in observed.log.losses] == list(range(1, 11))
    assert [s.step for s in observed.log.find_all(Statistics)] == [4, 8]
    assert observed.step.verify_replay(3) and observed._structure.close_step.verify_replay(2)


def test_statistics_are_those_of_the_last_step_of_a_window() -> None:
    run, plain = Run(make_step(bias=100.0), every=3), Run(make_step(bias=100.0))
    batches = [(X[i : i + 16], Y[i : i + 16]) for i in (0, 16, 32)]
    run.fit(batches, 3)
    plain.fit(batches[:2], 2)
    (found,) = run.log.find_all(Statistics)
    before = {path: np.array(p.numpy()) for path, p in plain.model.named_parameters()}
    model, x = plain.model, Tensor(batches[2][0])
    hidden = model[1](model[0](x))
    value = loss(model, x, Tensor(batches[2][1]))
    value.backward()
    norm = np.sqrt(sum(np.square(p.grad.numpy()).sum() for p in model.parameters() if p.grad is not None))
    plain.fit([batches[2]], 1)
    np.testing.assert_allclose([found.gradient_norm, run.log.losses[-1].gradient_norm], norm, rtol=1e-5)
    for path, p in plain.model.named_parameters():
        ratio = np.linalg.norm(p.numpy() - before[path]) / np.linalg.norm(before[path])
        np.testing.assert_allclose(found.update_ratios[path], ratio, rtol=1e-3, err_msg=path)
    h = hidden.numpy()
    np.testing.assert_allclose([found.means["0"], found.variances["0"]], [h.mean(), h.var()], rtol=1e-4)
    assert found.dead["0"] == tuple(np.flatnonzero((h == 0.0).all(0))) and {2, 5} <= set(found.dead["0"])
    # The noise scale, by each row's own gradient of the three weights.
    squares, rows = 0.0, []
    for i in range(16):
        model_, row = Run(make_step(bias=100.0)), slice(i, i + 1)
        model_.fit(batches[:2], 2)
        loss(model_.model, Tensor(batches[2][0][row]), Tensor(batches[2][1][row])).backward()
        rows.append([np.array(model_.model[j].weight.grad.numpy(), np.float64) for j in (0, 2, 4)])
        squares += sum(float((g * g).sum()) for g in rows[-1])
    whole = sum(float((np.mean([r[j] for r in rows], 0) ** 2).sum()) for j in range(3))
    noise, signal = (squares / 16 - whole) * 16 / 15, (16 * whole - squares / 16) / 15
    np.testing.assert_allclose(found.noise_scale, noise / signal if signal > 0 else np.inf, rtol=1e-3)
    assert found.dead["2"] == () and set(found.means) == {"0", "2"} and found.saturated == {"0": (), "2": ()}


def test_a_plateau_grows_the_network_and_a_judge_keeps_or_rolls_back_the_same_each_time(tmp_path: Path) -> None:
    policy = policies.plateau(policies.double("0", 32), steps=8, least=0.5, tries=1)
    for tolerance, action in ((1e6, "keep"), (-1.0, "roll back")):
        judge, runs = Judge(steps=8, history=8, tolerance=tolerance), []
        for _ in range(2):
            run = Run(make_step(), policy, every=4, judge=judge)
            assert len(run.fit(load(), 40)) == 40
            runs.append(run)
        run, again = runs
        actions = [d.action for d in run.log.decisions]
        assert actions[:3] == ["rewrite", "rewrite", action] and len(run.log.find_all(RolledBack)) == actions.count("roll back")
        assert run.model[0].out_features == (8 if action == "roll back" else 32)
        verdict = run.log.decisions[2]
        assert set(verdict.evidence) >= {"observed", "predicted", "cost"} and [r["rule"] for r in verdict.evidence["rules"]] == [
            "Widen",
            "Separate",
        ]
        assert replay_decisions(run.log, policy, judge) == run.log.decisions
        run.log.write(tmp_path / "log.jsonl")
        read = Log.read(tmp_path / "log.jsonl")
        assert read == run.log and replay_decisions(read, policy, judge) == read.decisions
        assert [(d.step, d.action, d.rule) for d in again.log.decisions] == [(d.step, d.action, d.rule) for d in run.log.decisions]
        one, two = (each.step.state_dict() for each in runs)
        assert all(np.array_equal(one[k], two[k]) for k in one)
        if action == "roll back":
            plain = Run(make_step())
            assert plain.fit(load(), run.steps_done) == [o.loss for o in run.log.losses]
            assert all(np.array_equal(v, one[k]) for k, v in plain.step.state_dict().items())


def test_dead_units_are_removed_and_a_refusal_is_noted() -> None:
    wrong = policies.schedule({4: Widen("4", 8)})
    run = Run(make_step(bias=100.0), policies.first_of(wrong, policies.dead_units(windows=2, owners=["0"])), every=2)
    run.fit(load(), 10)
    assert run.model[0].out_features <= 6 and run.records[0].rule["rule"] == "Prune" and {2, 5} <= set(run.records[0].rule["units"])
    assert run.records[0].delta <= 1e-6 and run.records[0].evidence["policy"] == "dead units"
    (refused,) = run.log.find_all(Refused)
    assert "CrossEntropy" in refused.reason and len(run.log.find_all(Shapes)) == 1 + len(run.log.find_all(Rewritten))


def test_what_was_refused_is_not_decided_again_before_something_changes() -> None:
    policy = policies.all_of(lambda log: [Widen("4", 8, len(log))], policies.schedule({6: Widen("0", 9)}))
    run = Run(make_step(), policy, every=2)
    run.fit(load(), 10)
    assert [r.step for r in run.log.find_all(Refused)] == [2, 8] and len(run.log.find_all(Rewritten)) == 1


def make_log(losses: list[float], rewritten: int | None = None) -> Log:
    log = Log([Shapes(0, {"0.weight": (8, 16)}, 1000)])
    for i, value in enumerate(losses, 1):
        log.add(Observation(i, value))
        if i == rewritten:
            log.add(Rewritten(i, {"rule": "Widen"}, True, 0.0, 1.0, 0.1))
    return log


@pytest.mark.parametrize(
    ("policy", "losses", "proposes"),
    [
        (policies.plateau(Widen("0", 16), steps=5), [1.0] * 10, True),
        (policies.plateau(Widen("0", 16), steps=5), [1.0] * 9, False),
        (policies.plateau(Widen("0", 16), steps=5), [1.0 - 0.05 * i for i in range(10)], False),
        (policies.instability(Widen("0", 16), steps=2), [1.0, 1.0, 1.0, float("nan")], True),
        (policies.instability(Widen("0", 16), steps=2), [1.0, 1.0, 5.0, 4.0], True),
        (policies.instability(Widen("0", 16), steps=2), [1.0, 1.0, 1.5, 1.0], False),
        (policies.schedule({3: Widen("0", 16)}), [1.0, 1.0], False),
        (policies.schedule({3: Widen("0", 16)}), [1.0] * 4, True),
        (policies.budget(policies.schedule({3: Widen("0", 16)}), steps=4), [1.0] * 4, False),
        (policies.budget(policies.schedule({3: Widen("0", 16)}), num_bytes=1000), [1.0] * 4, False),
        (lambda log: [Prune("0", (1,))] if len(log) > 2 else [], [1.0] * 4, True),
    ],
)
def test_a_policy_proposes_by_the_log_alone(policy: Policy, losses: list[float], proposes: bool) -> None:
    log = make_log(losses)
    before = log.to_lines()
    assert bool(policy(log)) is proposes and bool(policy(log)) is proposes and log.to_lines() == before


def test_a_plateau_counts_steps_since_the_last_change_and_all_of_adds_up() -> None:
    flat = policies.plateau(Widen("0", 16), steps=3)
    assert not flat(make_log([1.0] * 8, rewritten=4)) and flat(make_log([1.0] * 10, rewritten=4))
    both = policies.all_of(flat, policies.schedule({1: Prune("0", (0,))}))
    assert [p.rule if isinstance(p, Proposal) else p for p in both(make_log([1.0] * 10))] == [Widen("0", 16), Prune("0", (0,))]


def test_the_old_curve_is_extrapolated_and_a_slower_step_can_be_refused() -> None:
    falling = [float(np.exp(-0.1 * t)) for t in range(1, 21)]
    judge = Judge(steps=10, history=10)
    for factor, is_kept in ((0.99, True), (1.02, False)):
        log = make_log([v if t < 10 else v * factor for t, v in enumerate(falling)], rewritten=10)
        verdict, evidence = judge(log, 10)
        assert verdict is is_kept
        assert evidence["predicted"] == pytest.approx(np.mean(falling[15:]), rel=1e-9)
    statistics = Statistics(10, 1.0, {}, {}, {}, {}, {}, 0.01)
    # A window that was rolled back does not count.
    slow = [Observation(11, 1.0), replace(statistics, step=12, seconds_per_step=9.0), RolledBack(12, 10, "x")]
    log = Log([*log.entries[:11], statistics, *slow, *log.entries[11:], replace(statistics, step=20, seconds_per_step=0.03)])
    assert Judge(steps=10, history=10, tolerance=1.0, cost=2.0)(log, 10)[0] is False
    assert Judge(steps=10, history=10, tolerance=1.0, cost=4.0)(log, 10)[0] is True
    assert not judge(make_log([1.0] * 10 + [float("inf")] * 10, rewritten=10), 10)[0]


@pytest.mark.slow  # chains of observers are compiled
def test_on_the_device_a_window_is_read_at_its_end_and_replay_goes_on(device: Device) -> None:
    runs = [Run(make_step(backend, build=make_shared_adamw), every=2) for backend in ("cuda", "numpy")]
    batches = [(X[i : i + 16], Y[i : i + 16]) for i in range(0, 64, 16)]
    mine, theirs = ([*run.fit(batches, 5), *(o.gradient_norm for o in run.log.losses)] for run in runs)
    np.testing.assert_allclose(mine, theirs, rtol=1e-4)
    seen, expected = (run.log.find_all(Statistics) for run in runs)
    for one, two in zip(seen, expected, strict=True):
        assert one.dead == two.dead and one.gradient_norm == pytest.approx(two.gradient_norm, rel=1e-3)
        np.testing.assert_allclose(list(one.update_ratios.values()), list(two.update_ratios.values()), rtol=2e-2)
        np.testing.assert_allclose(list(one.variances.values()), list(two.variances.values()), rtol=1e-3)
    assert runs[0].step.verify_replay(2)


@pytest.mark.parametrize("backend", ["numpy", pytest.param("cuda", marks=pytest.mark.slow)])  # chains of observers are compiled
def test_a_window_is_read_behind_the_next_step_where_nobody_decides(device: Device, monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    happened: list[str] = []
    run_step, read = Step.run, Log.add

    def note_step(step: Step, batch: Any) -> Any:
        happened.append("step")
        return run_step(step, batch)

    def note_entry(log: Log, entry: Any) -> None:
        happened.append(entry.kind)
        read(log, entry)

    batches, window = [(X[i : i + 16], Y[i : i + 16]) for i in range(0, 64, 16)], ["observation", "observation", "statistics"]
    logs = []
    for policy, expected in (
        (None, ["step", "step", "step", *window, "step", "step", *window, "observation"]),
        (lambda log: [], ["step", "step", *window, "step", "step", *window, "step", "observation"]),
    ):
        run = Run(make_step(backend, build=make_shared_adamw), policy, every=2)
        run.fit(batches, 2)
        with monkeypatch.context() as replaced:
            replaced.setattr(Step, "run", note_step)
            replaced.setattr(Log, "add", note_entry)
            happened.clear()
            assert len(run.fit(batches, 5)) == 5
            assert happened == expected
        assert all(s.seconds_per_step > 0.0 for s in run.log.find_all(Statistics))
        logs.append([replace(e, seconds_per_step=0.0) if isinstance(e, Statistics) else e for e in run.log])
    assert logs[0] == logs[1]


def test_a_rewrite_that_was_built_ahead_plans_nothing_nor_does_the_next_like_it(monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[str] = []
    make = building.make_plan

    def note(graph: Any, *args: Any) -> Plan:
        planned.append(graph.name)
        return make(graph, *args)

    monkeypatch.setattr(building, "make_plan", note)
    building.forget()
    run, batches = Run(make_step(), every=2), [(X[:16], Y[:16])]
    run.fit(batches, 3)
    snapshot, count = run.snapshot(), len(planned)
    run.prebuild(Widen("0", 12))
    assert len(planned) == count + 2  # the step, and the one that closes a window
    for _ in range(2):
        run.rollback(snapshot)
        run.widen("0", 12)
        assert len(run.fit(batches, 4)) == 4
    assert len(planned) == count + 2
    run.widen("0", 13)
    assert len(planned) == count + 3


@pytest.mark.slow
def test_a_snapshot_on_the_device_waits_for_nothing_and_its_memory_is_used_again(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(make_step("cuda", build=make_shared_adamw))
    run.step.run((X[:16], Y[:16]))

    def refuse(*args: Any) -> None:
        raise AssertionError("a snapshot waited for the device")

    with monkeypatch.context() as replaced:
        for owner, name in ((RuntimeArray, "copy_to_host"), (RuntimeDevice, "synchronize")):
            replaced.setattr(owner, name, refuse)
        snapshot = run.snapshot()
        place = snapshot.frame.state.queued_address
        del snapshot
        again = run.snapshot()
    assert again.frame.state.queued_address == place
    states = run.step.state_dict()
    run.step.run((X[:16], Y[:16]))
    run.rollback(again)
    assert all(np.array_equal(states[k], v) for k, v in run.step.state_dict().items())


@pytest.mark.slow  # kernels of a second width are compiled
def test_what_closes_a_window_behind_a_rewrite_is_compiled_ahead_too(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(make_step("cuda", build=make_shared_adamw), every=2)
    batches = [(X[i : i + 16], Y[i : i + 16]) for i in range(0, 64, 16)]
    run.fit(batches, 2)
    built: set[str] = set()
    build = FrozenCalls.build

    def watch(calls: FrozenCalls, wanted: Any) -> Any:
        each = list(wanted)
        built.update(call.seal for call in each)
        return build(calls, each)

    with monkeypatch.context() as patched:
        patched.setattr(FrozenCalls, "build", watch)
        run.prebuild(Widen("0", 12))
    before = list_compiled()
    assert run.widen("0", 12).compiled == ()
    run.fit(batches, 4)
    assert {step.seal for step in run._structure.close_step.plan.steps if step.seal} <= built
    assert [s.step for s in run.log.find_all(Statistics)] == [2, 4, 6] and list_compiled() == before


def test_what_closes_a_window_reads_values_as_they_are_and_other_steps_pay_three_launches(device: Device) -> None:
    def make(name: str) -> Plan:
        model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 16))
        watch = Watch(100)
        observe = {"plain": None, "noted": watch.note, "close": watch.look_closely}[name]
        options = Options("cuda", "bfloat16")
        recipe = StepRecipe(model, lambda m, x, y: F.mse_loss(m(x), y), optim.AdamW(model.parameters()), None, options, observe)
        with without_kernels():
            return recipe.make(recipe.record([Type("float32", (128, 64)), Type("float32", (128, 16))])).plan

    plain, noted, close = (make(name) for name in ("plain", "noted", "close"))
    assert len(noted.steps) - len(plain.steps) <= 3
    # Of an activation: sum, squares, minimum and maximum; of a layer: its gradient's square, and two of rows with their product; of a
    # parameter: a copy, a difference and two squares.
    assert len(close.steps) - len(plain.steps) <= 2 * 4 + 3 * 5 + 6 * 4 + 6 + 5

    def list_wide(plan: Plan) -> list[str]:
        """Return the fp32 arrays as large as an activation that elementwise launches make."""
        sizes = [(s.op, str(o.type)) for s in plan.steps for o in s.outputs if o.type.dtype == "float32" and o.type.num_elems == 128 * 256]
        return [kind for op, kind in sizes if op == "elementwise"]

    assert list_wide(close) == list_wide(plain)


def test_a_log_is_read_as_it_was_written_and_a_line_that_was_cut_is_named(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    Log([Observation(1, float("nan")), Decision(1, "rewrite", {"rule": "Prune", "units": (1, 2)}, {"x": [1.5]})]).write(path)
    assert Log.read(path).to_lines() == path.read_text().splitlines()
    path.write_text(path.read_text() + '{"kind": "observation"\n')
    with pytest.raises(ValueError, match=r"log\.jsonl:3: "):
        Log.read(path)
