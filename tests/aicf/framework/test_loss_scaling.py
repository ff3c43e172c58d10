"""Steps in float16: the loss is scaled, a step whose gradients overflow is left out whole, and the scale follows, all within the plan."""

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
from aicf.data import DataLoader
from aicf.opset import Type
from aicf.optim.scaling import Scaled
from aicf.rewrite import RewriteError, Run
from aicf.rewrite.log import Observation, Statistics
from aicf.train import Step, fit
from aicf.train.recipe import Options
from aicf.train.step_recipe import StepRecipe
from tests.aicf.optimizers import make_shared_adamw
from tests.aicf.planning import without_kernels

RNG = np.random.default_rng(0)
Batch = tuple[np.ndarray, np.ndarray]
BATCHES: list[Batch] = [(RNG.normal(size=(8, 16)).astype(np.float32), RNG.integers(0, 4, size=8)) for _ in range(12)]
BAD: Batch = (BATCHES[0][0] * np.float32(1e6), BATCHES[0][1])  # beyond what fp16 holds
Build = Callable[[nn.Module], optim.Optimizer]
BUILDS: dict[str, Build] = {
    "AdamW": lambda m: optim.AdamW(m.parameters(), lr=optim.linear(1e-2, total=40, warmup=3)),
    "SGD": lambda m: optim.SGD(m.parameters(), lr=5e-2, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "plain SGD": lambda m: optim.SGD(m.parameters(), lr=5e-2),
    "Lion": lambda m: optim.Lion(m.parameters(), lr=1e-3, weight_decay=0.1),
}
# On a device nvcc takes three quarters of a minute for a step's kernels.
BACKENDS = ["numpy", pytest.param("cuda", marks=pytest.mark.slow)]
# Whose numbers are part of the kernel that moves the scale: tests on a device that have these share it.
INTERVAL = 3


def compute(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y)


def make_model() -> nn.Module:
    aicf.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))


def compile_it(build: str | Build = "AdamW", backend: str = "numpy", amp: str | None = "float16", **options: Any) -> Step:
    model = make_model()
    optimizer = (BUILDS[build] if isinstance(build, str) else build)(model)
    batch = [Tensor(a) for a in BATCHES[0]]
    return aicf.compile_step(model, compute, optimizer, batch, backend=backend, amp=amp, **options)


def constant() -> optim.LossScale:
    return optim.LossScale(2.0**12, growth=1.0, backoff=1.0)


class NeverSkips(optim.LossScale):
    """A liar: it goes on with what overflowed."""

    def apply(self, total: Tensor, scale: Tensor, streak: Tensor, clip_norm: float | None) -> Scaled:
        return replace(super().apply(total, scale, streak, clip_norm), factor=1.0 / scale)


class NeverBacksOff(optim.LossScale):
    """A liar: its scale stays where it overflowed."""

    def apply(self, total: Tensor, scale: Tensor, streak: Tensor, clip_norm: float | None) -> Scaled:
        made = super().apply(total, scale, streak, clip_norm)
        return replace(made, scale=F.maximum(made.scale, scale))


def check_that_a_step_is_left_out(build: str, backend: str, scale: Callable[[], optim.LossScale], planted: Batch = BAD) -> None:
    """Assert that a run with a batch that overflows has, bit for bit, the states and losses of one that never had it."""
    step, never = (compile_it(build, backend, loss_scale=scale(), clip_norm=1.0) for _ in range(2))
    losses = [step(*b).item() for b in (*BATCHES[:3], planted, *BATCHES[3:6])]
    expected = [never(*b).item() for b in BATCHES[:6]]
    assert losses[:3] + losses[4:] == expected
    states, wanted = step.state_dict(), never.state_dict()
    assert states.keys() == wanted.keys()
    different = [k for k in wanted if not np.array_equal(states[k], wanted[k]) and k != "control:loss_scale_streak"]
    assert not different
    assert states["control:step"] == 6 and states["control:loss_scale_streak"] == 3
    assert all(np.isfinite(a).all() for a in states.values())


@pytest.mark.parametrize("build", BUILDS)
def test_a_step_that_overflows_is_as_if_it_had_never_been(build: str) -> None:
    check_that_a_step_is_left_out(build, "numpy", constant)


@pytest.mark.slow
@pytest.mark.parametrize("build", ["AdamW", "SGD", "Lion"])
def test_a_step_that_overflows_on_a_device_is_as_if_it_had_never_been(device: object, build: str) -> None:
    check_that_a_step_is_left_out(build, "cuda", constant)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_step_that_is_not_left_out_is_found(device: object, backend: str) -> None:
    with pytest.raises(AssertionError):
        check_that_a_step_is_left_out("AdamW", backend, lambda: NeverSkips(2.0**12, growth=1.0, backoff=1.0))


def follow(overflows: list[bool], scale: float, interval: int) -> list[tuple[float, int]]:
    """Return scale and streak behind each step, by the rule as the literature has it."""
    found, streak = [], 0
    for overflow in overflows:
        streak = 0 if overflow else streak + 1
        if overflow:
            scale *= 0.5
        elif streak == interval:
            scale, streak = scale * 2.0, 0
        found.append((scale, streak))
    return found


def test_the_rule_is_that_of_pytorchs_scaler() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed here: pip install torch")
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3)
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    plant, found = [bool(x) for x in np.random.default_rng(4).random(40) < 0.2], []
    for is_bad in plant:
        optimizer.zero_grad()
        scaler.scale((weight * (float("inf") if is_bad else 1.0)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        found.append(scaler.get_scale())
    assert found == [scale for scale, _ in follow(plant, 2.0**10, 3)]


def check_that_the_scale_follows(backend: str, scale: type[optim.LossScale]) -> None:
    """Assert that scale, streak and steps are what the rule makes of overflows that are planted."""
    step = compile_it(backend=backend, loss_scale=scale(2.0**10, interval=INTERVAL))
    plant = [False, False, True, False, False, False, False, True, True, False]
    seen = []
    for i, is_bad in enumerate(plant):
        step(*(BAD if is_bad else BATCHES[i]))
        states = step.state_dict()
        seen.append((float(states["control:loss_scale"]), int(states["control:loss_scale_streak"])))
    assert seen == follow(plant, 2.0**10, INTERVAL)
    assert states["control:step"] == plant.count(False)
    assert step.verify_replay(4)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_scale_backs_off_and_grows_within_the_captured_graph(device: object, backend: str) -> None:
    check_that_the_scale_follows(backend, optim.LossScale)


def test_a_scale_that_does_not_back_off_is_found() -> None:
    with pytest.raises(AssertionError):
        check_that_the_scale_follows("numpy", NeverBacksOff)


def test_the_scale_stays_within_its_bounds() -> None:
    low = compile_it(loss_scale=optim.LossScale(1.0, floor=0.5))
    for _ in range(3):
        low(*BAD)
    assert low.state_dict()["control:loss_scale"] == 0.5
    high = compile_it(loss_scale=optim.LossScale(4.0, ceiling=8.0, interval=1))
    for batch in BATCHES[:3]:
        high(*batch)
    assert high.state_dict()["control:loss_scale"] == 8.0


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_scale_that_is_too_large_comes_down_until_steps_are_taken(device: object, backend: str) -> None:
    step = compile_it(backend=backend, loss_scale=optim.LossScale(2.0**24, interval=INTERVAL))  # gradients of 0.1 overflow by it
    before = {k: v for k, v in step.state_dict().items() if k.startswith("parameter:")}
    step(*BATCHES[0])
    after = step.state_dict()
    assert after["control:step"] == 0 and after["control:loss_scale"] == 2.0**23
    assert all(np.array_equal(after[k], v) for k, v in before.items())
    for _ in range(20):
        step(*BATCHES[0])
    assert step.state_dict()["control:step"] > 5


@pytest.mark.parametrize(("build", "bound"), [("AdamW", 4e-3), ("SGD", 2e-2), ("Lion", 2e-2)])
@pytest.mark.parametrize("clip_norm", [None, 0.5])
def test_losses_are_those_of_fp32(build: str, bound: float, clip_norm: float | None) -> None:
    wide, narrow = (compile_it(build, amp=amp, clip_norm=clip_norm) for amp in (None, "float16"))
    expected = [wide(*b).item() for b in BATCHES]
    losses = [narrow(*b).item() for b in BATCHES]
    # Products of operands that are rounded to 2**-11, for a dozen steps.
    np.testing.assert_allclose(losses, expected, rtol=bound)
    assert losses != expected and narrow.state_dict()["control:step"] == 12


def test_gradients_that_fp16_would_lose_train_by_their_scale() -> None:
    def tiny(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return compute(model, x, y) * 1e-7

    found = {}
    for name, scale in (("scaled", optim.LossScale(2.0**16)), ("not", optim.LossScale(1.0, growth=1.0))):
        model = make_model()
        optimizer = optim.SGD(model.parameters(), lr=1e6)
        step = aicf.compile_step(model, tiny, optimizer, [Tensor(a) for a in BATCHES[0]], amp="float16", loss_scale=scale)
        before = step.state_dict()["parameter:0.weight"]
        for _ in range(3):
            step(*BATCHES[0])
        found[name] = float(np.abs(step.state_dict()["parameter:0.weight"] - before).max())
    assert found["not"] == 0.0 and found["scaled"] > 1e-3


def test_bfloat16_has_no_scale_and_refuses_one() -> None:
    step = compile_it(amp="bfloat16")
    assert not any("loss_scale" in key for key in step.state_dict())
    with pytest.raises(ValueError, match="a loss is scaled with amp='float16' alone, and amp is 'bfloat16'"):
        compile_it(amp="bfloat16", loss_scale=optim.LossScale())


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"initial": 0.0}, "floor="),
        ({"initial": 2.0**30}, "ceiling="),
        ({"growth": 0.5}, "growth=0.5: must be at least 1"),
        ({"growth": float("inf")}, "growth=inf"),
        ({"backoff": 0.0}, "backoff=0.0: must be above 0"),
        ({"backoff": float("nan")}, "backoff=nan"),
        ({"interval": 0}, "interval=0: must be at least 1 step"),
    ],
)
def test_a_scale_of_numbers_that_make_no_sense_is_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        optim.LossScale(**options)


def test_a_device_takes_a_step_in_few_launches_and_casts_no_weight(device: object) -> None:
    model = make_model()
    recipe = StepRecipe(model, compute, BUILDS["AdamW"](model), 0.5, Options("cuda", "float16"))
    with without_kernels():
        plan = recipe.make(recipe.record([Type("float32", (8, 16)), Type("int64", (8,))])).plan
    launches = [f"flat {s.attrs['op']}" if s.op == "flat" else s.op for s in plan.steps]
    # The loss in fp32; its gradient scaled; the norm; what becomes of the step with the rate; all updates with the step's count.
    assert launches.count("flat reduce") == launches.count("flat optimizer") == 1
    assert len([name for name in launches if name == "elementwise"]) == 3 and len(launches) <= 13
    assert {s.type.dtype for each in plan.steps for s in each.writes if s.region == "gradient"} == {"float16"}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_saved_step_goes_on_with_its_scale(device: object, backend: str, tmp_path: Path) -> None:
    step = compile_it(backend=backend, loss_scale=optim.LossScale(2.0**10, interval=INTERVAL))
    for batch in (*BATCHES[:3], BAD):
        step(*batch)
    step.save(tmp_path)
    loaded = aicf.load(tmp_path)
    assert isinstance(loaded, Step)
    more = [*BATCHES[3:8], BAD, BATCHES[8]]
    assert [loaded(*b).item() for b in more] == pytest.approx([step(*b).item() for b in more], abs=0.0, nan_ok=True)
    assert loaded.state_dict()["control:loss_scale"] == step.state_dict()["control:loss_scale"] == 2.0**10


def test_checkpoints_have_the_scale(tmp_path: Path) -> None:
    x, y = (np.concatenate([b[i] for b in BATCHES]) for i in (0, 1))

    def make() -> Step:
        return compile_it(loss_scale=optim.LossScale(2.0**10, interval=5))

    whole = make()
    fit(whole, DataLoader((x, y), batch=8, seed=3), epochs=2, checkpoints=tmp_path / "whole")
    first, second = make(), make()
    fit(first, DataLoader((x, y), batch=8, seed=3), epochs=1, checkpoints=tmp_path / "parts")
    fit(second, DataLoader((x, y), batch=8, seed=3), epochs=2, checkpoints=tmp_path / "parts")
    expected = whole.state_dict()
    assert expected["control:loss_scale"] == 2.0**14
    assert all(np.array_equal(second.state_dict()[k], v) for k, v in expected.items())


def test_a_batch_of_another_size_has_the_same_scale() -> None:
    step = compile_it(loss_scale=optim.LossScale(2.0**10, interval=2))
    step(*BATCHES[0])
    step(BAD[0][:4], BAD[1][:4])
    step(*BATCHES[1])
    assert step.state_dict()["control:loss_scale"] == 2.0**9 and step.state_dict()["control:step"] == 2


@pytest.mark.slow
def test_many_steps_at_once_leave_out_those_that_overflow(device: object) -> None:
    batches = [*BATCHES[:2], BAD, *BATCHES[2:5]]
    one, many = (compile_it(backend="cuda", loss_scale=optim.LossScale(2.0**10, interval=INTERVAL)) for _ in range(2))
    losses = [one(*b).item() for b in batches]
    found = many.scan(*(np.stack([b[i] for b in batches]) for i in (0, 1))).numpy()
    np.testing.assert_array_equal(np.array(losses, np.float32), found)
    assert all(np.array_equal(a, many.state_dict()[k]) for k, a in one.state_dict().items())


# ---- while the network is rewritten


def start(**options: Any) -> Run:
    scale = optim.LossScale(2.0**10, interval=3) if options.get("amp") == "float16" else None
    run = Run(compile_it(loss_scale=scale, clip_norm=1.0, **{"amp": None, **options}))
    run.fit(BATCHES[:4], 4)
    return run


def test_a_rewrite_carries_the_scale_and_a_rollback_takes_it_back() -> None:
    run = start(amp="float16")
    assert run.step.state_dict()["control:loss_scale"] == 2.0**11
    snapshot = run.snapshot()
    expected = run.fit(BATCHES[4:9], 5)
    run.rollback(snapshot)
    run.widen("0", 48)
    states = run.step.state_dict()
    assert (states["control:loss_scale"], states["control:loss_scale_streak"]) == (2.0**11, 1)
    run.fit([BAD], 1)
    assert run.step.state_dict()["control:loss_scale"] == 2.0**10 and run.step.verify_replay(2)
    run.rollback(snapshot)
    assert run.step.state_dict()["control:loss_scale"] == 2.0**11
    assert run.fit(BATCHES[4:9], 5) == expected
    twin = run.fork()
    twin.fit([BAD], 1)
    assert twin.step.state_dict()["control:loss_scale"] * 2.0 == run.step.state_dict()["control:loss_scale"]


@pytest.mark.slow
@pytest.mark.parametrize("build", ["AdamW", "SGD"])
def test_copied_units_on_a_device_are_left_out_too(device: object, build: str) -> None:
    found = {}
    for backend in ("numpy", "cuda"):
        run = Run(compile_it(build, backend, loss_scale=constant(), clip_norm=1.0))
        run.fit(BATCHES[:2], 2)
        run.widen("0", 48)  # some units are copied, others are not: updates have scales
        before = run.step.state_dict()
        assert any(key.startswith("p_scale:") for key in before)
        run.fit([BAD], 1)
        after = run.step.state_dict()
        assert all(np.array_equal(after[k], a) for k, a in before.items() if k != "control:loss_scale_streak")
        found[backend] = run.fit(BATCHES[2:6], 4)
        assert run.step.verify_replay(2)
    np.testing.assert_allclose(found["cuda"], found["numpy"], rtol=2e-2)


def test_a_network_goes_to_fp16_and_back_with_masters_and_moments_bit_for_bit() -> None:
    run = start()
    before, snapshot = run.step.state_dict(), run.snapshot()
    expected = run.fit(BATCHES[4:8], 4)
    run.rollback(snapshot)
    record = run.set_precision("float16")
    after = run.step.state_dict()
    assert not record.preserves and 1e-7 < record.delta < 1e-2
    assert after.keys() - before.keys() == {"control:loss_scale", "control:loss_scale_streak"}
    assert all(np.array_equal(after[k], a) for k, a in before.items())
    losses = run.fit(BATCHES[4:8], 4)
    assert losses != expected and np.allclose(losses, expected, rtol=5e-3) and run.step.verify_replay(2)
    run.fit([BAD], 1)
    run.set_precision("bfloat16")
    assert not any("loss_scale" in key for key in run.step.state_dict())
    run.set_precision("float16")  # the scale has waited
    assert run.step.state_dict()["control:loss_scale"] == 2.0**15
    run.undo(run.records[-1])
    run.rollback(snapshot)
    assert run.fit(BATCHES[4:8], 4) == expected


def test_fp16_is_refused_where_it_cannot_hold_the_results_and_nothing_changes() -> None:
    run = start()
    with aicf.no_grad():
        next(iter(run.model.parameters())).mul_(1e6)
    step, states = run.step, run.step.state_dict()
    with pytest.raises(RewriteError, match="results that were finite are infinite or NaN after it"):
        run.set_precision("float16")
    assert run.step is step and all(np.array_equal(step.state_dict()[k], a) for k, a in states.items())
    assert run.set_precision("bfloat16").delta > 0.0  # which has the range


def test_a_saved_run_resumes_in_fp16_with_its_scale(tmp_path: Path) -> None:
    run = start()
    run.set_precision("float16")
    run.fit([BATCHES[4], BAD, BATCHES[5]], 3)
    run.snapshot().save(tmp_path / "run.safetensors")
    expected = run.fit(BATCHES[6:9], 3)
    other = Run(compile_it(amp=None, clip_norm=1.0))
    other.resume(tmp_path / "run.safetensors")
    assert other.step.state_dict()["control:loss_scale"] == 2.0**15
    assert other.fit(BATCHES[6:9], 3) == expected


@pytest.mark.parametrize("backend", ["numpy", pytest.param("cuda", marks=pytest.mark.slow)])
def test_observers_see_norms_without_the_scale(device: object, backend: str) -> None:
    found = {}
    for amp in (None, "float16"):
        run = Run(compile_it(make_shared_adamw, backend, amp, clip_norm=1.0), every=2)
        run.fit(BATCHES[:5], 4)
        found[amp] = [entry for entry in run.log.entries if isinstance(entry, (Observation, Statistics))]
    narrow, wide = (found[amp] for amp in ("float16", None))
    assert len(narrow) == len(wide) == 6
    for a, b in zip(narrow, wide, strict=True):
        assert a.gradient_norm == pytest.approx(b.gradient_norm, rel=1e-2)
    assert isinstance(narrow[-1], Statistics) and isinstance(wide[-1], Statistics)
    assert wide[-1].noise_scale is not None
    # A ratio of differences of squares, ten rows' noise for a row's signal here: what 2**-11 of each operand makes of it.
    assert narrow[-1].noise_scale == pytest.approx(wide[-1].noise_scale, rel=0.2)
    for name, mean in wide[-1].means.items():
        assert narrow[-1].means[name] == pytest.approx(mean, rel=1e-2)
