"""What rewriting leaves as it was, and what a seed and a log tell: parts of ``measure.py`` beside its times."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from rewrite_runs import Figures, Sizes, make_batch, make_run, make_small

from aicf.rewrite import Judge, Regroup, RewriteRecord, Run, ScaleRate, policies, replay_decisions
from aicf.rewrite.induce import BASELINES, CORPUS, Corpus, compare_pairs, judge
from aicf.rewrite.induce.evaluation import PROPOSED

Change = Callable[[Run, int], RewriteRecord]


def _permute(run: Run, units: int) -> RewriteRecord:
    order = np.random.default_rng(1).permutation(units)
    return run.apply(Regroup("0", tuple(order.tolist()), (1.0,) * units))


def _deepen(run: Run, units: int) -> RewriteRecord:
    """Insert a block, and freeze it: until it is thawed, training goes on as it would have."""
    record = run.deepen("2", hidden=units)
    run.freeze("2_1")
    return record


FOLLOWED: dict[str, Change] = {
    "widen": lambda run, units: run.widen("0", units + units // 2, seed=1),
    "deepen": _deepen,
    "permute": _permute,
}
# One behind the other on the same run. All but the split say that they preserve the function; that one gives the merge its two layers.
PRESERVING: tuple[tuple[str, Change], ...] = (
    ("widen", lambda run, units: run.widen("0", 2 * units)),
    ("separate", lambda run, units: run.separate("0", 0.5)),
    ("release", lambda run, units: run.release("0")),
    ("deepen", lambda run, units: run.deepen("2", hidden=units)),
    ("deepen, identity", lambda run, units: run.deepen("1", "identity")),
    ("insert norm", lambda run, units: run.insert_norm("1")),
    ("split, full rank", lambda run, units: run.split("4", units)),
    ("merge", lambda run, units: run.merge("4")),
    ("freeze", lambda run, units: run.freeze("0")),
    ("thaw", lambda run, units: run.thaw("0")),
    ("set batch", lambda run, units: run.set_batch(units // 2)),
    ("scale rate", lambda run, units: run.apply(ScaleRate(0.5))),
)


def measure_exactness(sizes: Sizes) -> Figures:
    """Return differences in fp32: of the function by each rule that preserves it, over its magnitude where that is above 1, and of the
    losses of steps behind a rewrite from those of a run without it, relative.
    """  # noqa: D205
    batch, units = make_batch(sizes.units, sizes.units), sizes.units
    run = make_run(make_small(units), batch)
    run.fit([batch], 3)
    found: Figures = {"function, largest": 0.0}
    for name, change in PRESERVING:
        record = change(run, units)
        found[f"function, {name}"] = record.delta / max(record.scale, 1.0)
        if record.preserves:
            found["function, largest"] = max(found["function, largest"], found[f"function, {name}"])
    losses: dict[str, np.ndarray] = {}
    for name, change in {"": None, **FOLLOWED}.items():
        run = make_run(make_small(units), batch)
        run.fit([batch], 3)
        if change is not None:
            change(run, units)
        losses[name] = np.array(run.fit([batch], sizes.steps))
    found |= {f"trajectory, {name}": float(np.abs(losses[name] / losses[""] - 1.0).max()) for name in FOLLOWED}
    return found | {"trajectory, largest": max(value for key, value in found.items() if key.startswith("trajectory"))}


def measure_repeats(sizes: Sizes) -> Figures:
    """Return how many decisions, and bytes of state, of two runs of one seed differ, and how many decisions a log does not give again."""
    units, every = sizes.units, max(sizes.every // 10, 2)
    grow = policies.plateau(policies.double("0", 4 * units), steps=every, least=0.9, tries=1)
    rule, runs = Judge(steps=every, history=every, tolerance=1e6), []
    for _ in range(2):
        batches = [make_batch(units, units, seed) for seed in range(3)]
        run = make_run(make_small(units), batches[0], every, policy=grow, judge=rule)
        run.fit(batches, 8 * every)
        runs.append(run)
    decided = [[(d.step, d.action, d.rule) for d in run.log.decisions] for run in runs]
    again = replay_decisions(runs[0].log, grow, rule)
    states = [run.step.state_dict() for run in runs]
    same_states = states[0].keys() == states[1].keys()
    return {
        "decisions": len(decided[0]),
        "decisions that differ": sum(a != b for a, b in zip(*decided, strict=False)) + abs(len(decided[0]) - len(decided[1])),
        "decisions that the log does not give": sum(a != b for a, b in zip(again, runs[0].log.decisions, strict=False))
        + abs(len(again) - len(decided[0])),
        "states that differ": sum(states[0][k].tobytes() != states[1][k].tobytes() for k in states[0]) if same_states else len(states[0]),
    }


def measure_proposals(sizes: Sizes) -> Figures:
    """Return the mean regrets of proposals for families of problems that were left out, of the baselines, and p-values. It needs no GPU."""
    corpus = Corpus.read(CORPUS)
    judged = judge(corpus.select(corpus.families[: sizes.families]) if sizes.families else corpus)
    mine = [each.regrets[PROPOSED] for each in judged]
    found: Figures = {"held-out problems": len(judged), "regret": float(np.mean(mine))}
    for name in BASELINES:
        theirs = [each.regrets[name] for each in judged]
        found |= {f"regret, {name}": float(np.mean(theirs)), f"p below {name}": compare_pairs(mine, theirs)}
    return found
