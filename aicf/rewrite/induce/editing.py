"""Proposals for a network that trains already: rules that would make of it what is expected to reach a smaller loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aicf.errors import RewriteError
from aicf.nn import Linear
from aicf.rewrite.blocks import ACTIVATIONS, name_activation
from aicf.rewrite.decisions import Policy, Proposal, strip_seed
from aicf.rewrite.induce.evaluation import BEST_SETTINGS
from aicf.rewrite.induce.features import find_features
from aicf.rewrite.induce.model import LossModel, Settings
from aicf.rewrite.induce.patterns import Patterns, find_patterns
from aicf.rewrite.induce.problems import Problem
from aicf.rewrite.induce.proposing import Evidence, find_evidence, open_corpus
from aicf.rewrite.induce.records import Corpus, Record
from aicf.rewrite.induce.training import WINDOWS, find_loss, find_scale
from aicf.rewrite.log import REWRITE, Log
from aicf.rewrite.policies import plateau
from aicf.rewrite.rules import Deepen, ReplaceActivation, Rule, Widen
from aicf.rewrite.run import Run


@dataclass(frozen=True)
class EditProposal:
    """A rule, and what is expected of the network that it makes and of the present one, trained from the start.

    Places are among structures of the corpus, 0 for the best one; losses are over that of the best constant.
    """

    rule: Rule
    place: float
    present_place: float
    expected_loss: float
    present_loss: float
    evidence: tuple[Evidence, ...]
    counter_evidence: tuple[Evidence, ...]

    def __str__(self) -> str:
        losses = f"loss {self.expected_loss:.3g} instead of {self.present_loss:.3g}"
        lines = [f"{self.rule}: place {self.place:.2f} instead of {self.present_place:.2f}, {losses}"]
        lines += [f"  for      {each}" for each in self.evidence]
        return "\n".join(lines + [f"  against  {each}" for each in self.counter_evidence])


def list_rules(run: Run) -> list[Rule]:
    """Return the rules that are tried: linear layers twice as wide, a residual block behind each activation, and each other activation."""
    made: list[Rule] = []
    for path, module in run.model.modules():
        if path and isinstance(module, Linear):
            made.append(Widen(path, 2 * module.out_features))
        elif path and (present := name_activation(module)):
            made.append(Deepen(path, activation=present))
            made += [ReplaceActivation(path, name) for name in ACTIVATIONS if name != present]
    return made


def propose_edits(
    run: Run,
    problem: Problem,
    corpus: Corpus | None = None,
    *,
    rules: Sequence[Rule] | None = None,
    runs: int = 3,
    settings: Settings = BEST_SETTINGS,
) -> list[EditProposal]:
    """Return the rules (:func:`list_rules` by default) of which a better place is expected than of the present network, the best one first.

    Rules that cannot be applied are left out. Nothing changes; ``run.apply(proposal.rule)`` makes the rewrite.
    """
    features, model = find_features(problem), LossModel(open_corpus() if corpus is None else corpus, settings)

    def predict(patterns: Patterns) -> tuple[float, float]:
        return float(model.predict_places(features, [patterns])[0]), float(10.0 ** model.predict(features, [patterns])[0])

    present_place, present_loss = predict(find_patterns(run.model, problem.inputs))
    made = []
    for rule in list_rules(run) if rules is None else rules:
        try:
            patterns = find_patterns(run.preview(rule), problem.inputs)
        except RewriteError:
            continue
        place, loss = predict(patterns)
        if place < present_place:
            made.append(EditProposal(rule, place, present_place, loss, present_loss, *find_evidence(model, features, patterns, runs)))
    return sorted(made, key=lambda each: each.place)


def follow(proposals: Sequence[EditProposal], *, steps: int = 200, least: float = 0.01) -> Policy:
    """Return a policy that makes the best of these rewrites on a plateau of the loss, and the next one where it was rolled back.

    What is kept is the end of it: the other proposals were made for the network before. ``steps`` and ``least`` are those of
    :func:`aicf.rewrite.policies.plateau`.
    """

    def find_next(log: Log) -> list[EditProposal]:
        tried = [strip_seed(d.rule) for d in log.decisions if d.action == REWRITE]
        kept = [strip_seed(d.rule) for d in log.decisions if d.action == "keep"]
        left = [p for p in proposals if strip_seed(p.rule.to_data()) not in tried]
        return [] if kept else left[:1]

    is_due = plateau(lambda log: [p.rule for p in find_next(log)], steps=steps, least=least)

    def policy(log: Log) -> list[Proposal]:
        due, chosen = is_due(log), find_next(log)
        if not due or not chosen:
            return []
        found = due[0]
        evidence = dict(found.evidence) if isinstance(found, Proposal) else {}
        evidence |= {"policy": "induction", "place": chosen[0].place, "present_place": chosen[0].present_place}
        evidence |= {"for": [e.run for e in chosen[0].evidence], "against": [e.run for e in chosen[0].counter_evidence]}
        return [Proposal(chosen[0].rule, evidence)]

    return policy


def record_run(run: Run, problem: Problem, held: Problem, *, name: str = "run", seed: int = 0) -> Record:
    """Return the record of a run: features of the problem, patterns of the present structure, and its loss on rows that were held out.

    ``held`` has inputs and targets as the network was trained on. Raises ValueError where the loss is not finite.
    """
    loss, losses = find_loss(run.model, held) / find_scale(held), [o.loss for o in run.log.losses]
    if not np.isfinite(loss):
        raise ValueError(f"{name} on {problem.name}: its loss is {loss}; a run that has diverged is not a record")
    curve = tuple(float(part.mean()) / find_scale(held) for part in np.array_split(np.array(losses), WINDOWS) if part.size)
    patterns = find_patterns(run.model, problem.inputs)
    return Record(problem.name, problem.family, find_features(problem), name, patterns, loss, curve, seed, is_text=False)
