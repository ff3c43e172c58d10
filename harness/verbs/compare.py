"""``compare``: an op against libraries on its goals, variants or records against each other, and what users get on drawn problems."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from device.settings import read_settings
from harness.compare.drawn.cliff_run import CliffsFound, run_cliffs
from harness.compare.drawn.page import summarize
from harness.compare.drawn.record import FILE, GroupResult, find_record, read_runs
from harness.compare.drawn.run import DrawnDone, Request, run_drawn
from harness.compare.goals import Row
from harness.compare.goals_run import GoalsMeasured, GoalsRequest, run_goals
from harness.compare.variants import Compared, compare_records
from harness.compare.variants_run import VariantsRequest, run_variants
from harness.discover import LoadedOp
from harness.errors import RecordUseError
from harness.records.published import open_records
from harness.spec import Op, SpecError
from harness.terminal.console import claim_output, print_warning
from harness.timing.verdicts import Criteria
from harness.verbs.naming import Names, OpLike, list_names, take_op


@dataclass(frozen=True)
class VariantsCompared:
    """A row per candidate and problem, and where it was measured.

    ``is_gate`` is False where nothing was asked for in particular: the ladder is compared with its first rung, and that one being faster
    is no failure. With ``keeps_problems`` a variant has to serve what it served before: other variants may serve other problems.
    """

    op: str
    rows: list[Compared]
    where: str
    criteria: Criteria
    is_gate: bool
    keeps_problems: bool

    @property
    def is_failed(self) -> bool:
        """Whether something became slower, a run is void, or a problem is served no more."""
        stops = (r.is_regression and (self.is_gate or r.is_void) for r in self.rows)
        return any(stops) or any(r.is_given_up and self.keeps_problems for r in self.rows)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"op": self.op, "where": self.where, "criteria": vars(self.criteria), "rows": [r.to_json() for r in self.rows]}


Comparison = VariantsCompared | GoalsMeasured | DrawnDone | CliffsFound


def compare(
    op: OpLike,
    base: str | None = None,
    variant: Names = None,
    against: str | None = None,
    record: Sequence[int] | None = None,
    problem: Names = None,
    goal: Names = None,
    publish: Path | None = None,
    drawn: int | None = None,
    seed: int | None = None,
    seconds: float = 600.0,
    regret: bool = False,
    cliffs: bool = False,
    peer: Names = None,
    group: Names = None,
    use: str = "",
    mode: str = "cold",
    margin: float = 0.5,
    confidence: float = 99.0,
    device: str | None = None,
    target: str | None = None,
    jobs: int | None = None,
    published: bool = False,
    *,
    quiet: bool = False,
) -> Comparison:
    """Compare what the options name; without any, the op's goals, or its ladder where it has none.

    Raises SpecError for options that do not go together, UnavailableError where a GPU is needed, BuildError where a side is wrong.
    """
    loaded = take_op(op)
    name, folder = loaded.op.name, Path(publish) if publish is not None else None
    variants, problems, goals, peers = list_names(variant), list_names(problem), list_names(goal), list_names(peer)
    groups = list_names(group)
    given = sum(x is not None for x in (base, against, record))
    if drawn is not None:
        _check_drawn(bool(given or goals or problems or published), bool(variants) and (cliffs or not regret), mode)
        seed = secrets.randbelow(1_000_000) if seed is None else seed
        command = _name_drawn(name, drawn, seed, regret, cliffs, {"peer": peers, "group": groups, "variant": variants})
        names = (tuple(peers), tuple(variants), tuple(groups))
        request = Request(loaded, drawn, seed, command, seconds, regret, *names, use, folder, device, target, jobs, quiet)
        return run_cliffs(request) if cliffs else run_drawn(request, _draw)
    _refuse_drawn_options(seed, seconds, regret or cliffs, peers + groups, use)
    if not given and (goals or folder or (base := _find_first_variant(loaded.op)) is None):
        _check_goals(folder, published, problems, mode)
        wanted = GoalsRequest(loaded, goals, variants, folder, device, target, jobs, quiet, lead_goals(loaded.op, folder))
        return run_goals(wanted, _draw_goals)
    _check_sides(given, goals, folder, published and record is None, mode)
    criteria = Criteria(margin=margin / 100, error=1 - confidence / 100)
    sides = VariantsRequest(loaded, base, against, variants, problems, mode, criteria, device, target, jobs, quiet)
    rows, where = run_variants(sides) if record is None else _compare_records(loaded, list(record), criteria, published)
    return VariantsCompared(name, rows, where, criteria, is_gate=given > 0, keeps_problems=against is not None)


def _check_drawn(has_others: bool, has_idle_variants: bool, mode: str) -> None:
    """Raise SpecError for options that drawn problems do not take."""
    if has_others or mode != "cold":
        raise SpecError("--drawn goes only with --seed, --seconds, --regret, --cliffs, --peer, --group, --variant, --use and --publish")
    if has_idle_variants:
        raise SpecError("--variant says which variants --drawn times beside what users get: it goes with --regret, and without --cliffs")


def _refuse_drawn_options(seed: int | None, seconds: float, is_for_drawn: bool, names: list[str], use: str) -> None:
    """Raise SpecError for options that only drawn problems take."""
    if seed is not None or seconds != 600.0 or is_for_drawn or names or use:
        raise SpecError("--seed, --seconds, --regret, --cliffs, --peer, --group and --use are for drawn problems: with --drawn N")


def _name_drawn(op: str, count: int, seed: int, regret: bool, cliffs: bool, names: Mapping[str, list[str]]) -> str:
    """Return the command, as the run is recorded."""
    words = [f"compare {op} --drawn {count} --seed {seed}", *(["--regret"] if regret else []), *(["--cliffs"] if cliffs else [])]
    return " ".join([*words, *(f"--{option} {name}" for option, given in names.items() for name in given)])


def _find_first_variant(op: Op) -> str | None:
    """Return the variant that an op without goals is compared with, None for an op that has goals."""
    if op.goals:
        return None
    first = op.variants[0].name
    print_warning(f"{op.name} has no goals: its variants are compared with the first, {first}; --base NAME chooses another")
    return first


def _check_goals(publish: Path | None, published: bool, problems: list[str], mode: str) -> None:
    """Raise SpecError for options that the goals do not take, or where nothing can be published."""
    if published:
        raise SpecError("--published goes with --record: the goals are always measured")
    if problems or mode != "cold":
        raise SpecError("the goals fix problems and the cold mode: --problem and --mode go with --base or --against")
    if publish is not None:
        claim_output(publish, "--publish", is_folder=True)


def _check_sides(num_given: int, goals: list[str], publish: Path | None, measures_published: bool, mode: str) -> None:
    """Raise SpecError for options that do not go together where two sides are compared."""
    if goals or publish:
        raise SpecError("--goal and --publish are for the goals: without --base, --against and --record")
    if num_given > 1:
        raise SpecError("compare needs one of --base NAME, --against REV, and --record ID twice")
    if measures_published:
        raise SpecError("--published goes with --record: variants are always measured")
    if mode not in ("cold", "hot"):
        raise SpecError(f"--mode {mode}: must be cold or hot")


def lead_goals(op: Op, publish: Path | None) -> list[str]:
    """Return what the page of goals begins with: drawn problems, where the folder or the project has a record of them."""
    beside = publish / FILE if publish is not None else None
    return summarize(op, read_runs(beside if beside is not None and beside.is_file() else find_record(op.name)))


def _draw_goals(rows: list[Row], heading: str) -> str:
    from harness.report.pictures.forest import draw_goals  # matplotlib takes a second to import

    return draw_goals(rows, heading)


def _draw(results: Sequence[GroupResult], heading: str) -> str:
    from harness.report.pictures.drawn import draw_results  # matplotlib takes a second to import

    return draw_results(results, heading)


def _compare_records(loaded: LoadedOp, ids: list[int], criteria: Criteria, published: bool) -> tuple[list[Compared], str]:
    name = loaded.op.name
    if len(ids) != 2:
        raise SpecError(f"--record was given {len(ids)} times: give the incumbent's record, then the candidate's")
    records, where = open_records(name, read_settings().records_url, published=published)
    try:
        found = {r.id: r for r in records.list_results(op=name)}
    finally:
        records.close()
    if missing := [i for i in ids if i not in found]:
        raise RecordUseError(f"no record {missing[0]} of op {name} in {where}; python -m harness report {name} lists them")
    return [compare_records(found[ids[0]], found[ids[1]], criteria)], where
