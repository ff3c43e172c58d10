"""Random networks and random sequences of rewrites: what holds after each, whatever was done before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import aicf
from aicf import Tensor, nn, optim
from aicf import functional as F
from aicf.errors import RewriteError
from aicf.ir import check
from aicf.ir.graph import OWN_ROLES
from aicf.plan import Plan, verify
from aicf.rewrite import (
    Deepen,
    Freeze,
    InsertNorm,
    Merge,
    Prune,
    Remove,
    ReplaceActivation,
    Rule,
    Run,
    Separate,
    SetBatch,
    SetPrecision,
    Split,
    Thaw,
    Together,
    Widen,
)
from aicf.rewrite.observers import Watch
from aicf.train.step_recipe import StepRecipe
from device import Device
from tests.aicf.planning import without_kernels

RNG = np.random.default_rng(0)
X, T = RNG.normal(size=(32, 6)).astype(np.float32), RNG.normal(size=(32, 3)).astype(np.float32)


def loss(model: nn.Module, x: Tensor, t: Tensor) -> Tensor:
    return F.mse_loss(model(x), t)


@st.composite
def networks(draw: st.DrawFn) -> tuple[list[nn.Module], str]:
    """Return the members of a Sequential, and the optimizer's name."""
    aicf.manual_seed(draw(st.integers(0, 99)))
    members: list[nn.Module] = []
    width = 6
    for _ in range(draw(st.integers(1, 3))):
        units = draw(st.integers(3, 8))
        members += [nn.Linear(width, units, bias=draw(st.booleans())), draw(st.sampled_from([nn.ReLU, nn.GELU, nn.Tanh, nn.SiLU]))()]
        if draw(st.booleans()):
            members.append(draw(st.sampled_from([nn.LayerNorm, nn.RMSNorm]))(units))
        width = units
    members.append(nn.Linear(width, 3))
    return members, draw(st.sampled_from(["AdamW", "SGD", "Lion"]))


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    """Return a rule that may fit or not."""
    owner = draw(st.sampled_from(["0", "1", "2", "3", "4", "0.0", "1_1"]))
    n, seed = draw(st.integers(1, 12)), draw(st.integers(0, 9))
    makers = [
        lambda: Widen(owner, 2 * n, seed),
        lambda: Separate(owner, 0.3, seed),
        lambda: Prune(owner, (n % 5,)),
        lambda: Deepen(owner, hidden=n, seed=seed),
        lambda: Deepen(owner, "identity"),
        lambda: Remove(owner),
        lambda: ReplaceActivation(owner, "silu"),
        lambda: Split(owner, 1 + n % 4),
        lambda: Merge(owner),
        lambda: Freeze(owner),
        lambda: Thaw(owner),
        lambda: SetBatch(4 + n),
        lambda: InsertNorm(owner, "rms" if n % 2 else "layer"),
        lambda: SetPrecision(("float32", "bfloat16", "float16")[n % 3]),
        lambda: Together((Widen(owner, 2 * n, seed), Widen("2", 2 * n, seed))),
    ]
    made: Rule = draw(st.sampled_from(makers))()
    return made


def plan_for_device(run: Run) -> Plan:
    """Return the plan of a run's structure for the device, with all observers, and no kernel built: passes, selection and places."""
    recipe = run._structure.recipe
    watch = Watch(2)
    options = replace(recipe.options, backend="cuda", amp=recipe.options.amp)
    made = StepRecipe(recipe.model, recipe.loss, recipe.optimizer, recipe.clip_norm, options, watch.look_closely)
    with without_kernels():
        return made.make(recipe.record(run._structure.types)).plan


def check_run(run: Run, x: np.ndarray = X, t: np.ndarray = T) -> None:
    """Assert that graphs are valid, states complete, a plan for the device can be made, and that a replay repeats a step."""
    verify(plan_for_device(run))
    step = run.step
    assert step.recorded is not None and step.graph is not None
    check(step.recorded)
    check(step.graph)
    paths = {id(p): path for path, p in run.model.named_parameters()}
    held = {(s.owner, s.role) for s in step.plan.states}
    assert {owner for owner, role in held if role == "parameter"} == set(paths.values())
    groups = [group for group in run.optimizer.groups for _ in group.params]
    wanted = {
        (paths[id(p)], role)
        for p, group in zip(run.optimizer.params, groups, strict=True)
        for role in run.optimizer.find_roles(group.options)
    }
    states = {key for key in held if key[1] not in (*OWN_ROLES, "p_scale", "g_scale")}
    assert states == wanted and {owner for owner, role in held if role.endswith("_scale")} <= {owner for owner, _ in wanted}
    rows = run._structure.batch
    assert np.isfinite(run.fit([(x[:rows], t[:rows])], 2)).all() and step.verify_replay(1)


def apply_all(run: Run, todo: Sequence[Rule], x: np.ndarray = X, t: np.ndarray = T) -> list[str]:
    """Apply rules, and assert what holds after each: of one that was refused, that nothing changed. Returns the names of those applied."""
    done = []
    for rule in todo:
        before, step, states = np.array(run.model(Tensor(x)).numpy()), run.step, run.step.state_dict()
        try:
            record = run.apply(rule)
        except RewriteError:
            assert run.step is step
            assert all(states[k].tobytes() == v.tobytes() for k, v in step.state_dict().items())  # what overflowed has noted NaN
            continue
        after = run.model(Tensor(x)).numpy()
        if record.preserves:
            np.testing.assert_allclose(after, before, atol=1e-4 * max(np.abs(before).max(), 1.0))
        check_run(run, x, t)
        done.append(record.rule["rule"])
    return done


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(networks(), st.lists(rules(), min_size=2, max_size=5))
def test_after_any_rewrite_the_network_is_whole_and_computes_what_was_promised(
    device: Device, network: tuple[list[nn.Module], str], todo: list[Rule]
) -> None:
    members, name = network
    model = nn.Sequential(*members)
    optimizer = getattr(optim, name)(model.parameters(), 1e-3, **({"momentum": 0.9} if name == "SGD" else {}))
    run = Run(aicf.compile_step(model, loss, optimizer, (Tensor(X[:8]), Tensor(T[:8])), clip_norm=1.0), every=2)
    run.fit([(X[:8], T[:8])], 2)
    apply_all(run, todo)


def test_a_step_in_float16_between_widened_layers_is_planned_for_the_device(device: Device) -> None:
    model = nn.Sequential(nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 3), nn.ReLU(), nn.Linear(3, 3))
    optimizer = optim.AdamW(model.parameters(), 1e-3)
    run = Run(aicf.compile_step(model, loss, optimizer, (Tensor(X[:8]), Tensor(T[:8])), clip_norm=1.0))
    run.fit([(X[:8], T[:8])], 2)
    apply_all(run, [SetPrecision("float16"), Together((Widen("0", 18, 1), Widen("2", 18, 1)))])
    assert run.model[2].weight.shape == (18, 18)


@pytest.mark.parametrize("in_groups", [False, True])
@pytest.mark.parametrize("widened", [("0",), ("2",), ("4",), ("0", "4"), ("0", "2", "4")])
def test_whatever_layers_are_widened_gradients_that_are_clipped_together_find_places_on_the_device(
    device: Device, widened: tuple[str, ...], in_groups: bool
) -> None:
    aicf.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3))
    named = list(model.named_parameters())
    apart = [[p for path, p in named if path.endswith(kind)] for kind in ("weight", "bias")]
    groups = [{"params": ps, "weight_decay": decay} for ps, decay in zip(apart, (0.1, 0.0), strict=True)]
    optimizer = optim.AdamW(groups if in_groups else [p for _, p in named], 1e-3)
    run = Run(aicf.compile_step(model, loss, optimizer, (Tensor(X[:8]), Tensor(T[:8])), clip_norm=1.0))
    for owner in widened:
        run.widen(owner, 12)
    plan = plan_for_device(run)
    verify(plan)
    sums = [step for step in plan.steps if step.op == "flat" and "reduce" in str(step.attrs)]
    assert sums, "one launch adds the squares of all gradients"
