"""Why a kernel was chosen: all candidates, why each was dropped, and what is known of its time."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from aicf.registry.deciding import Decision, decide
from aicf.registry.libraries import LibraryTime, find_library_time
from aicf.registry.library_choice import LibraryVerdict
from aicf.registry.problems import HwCaps, Preferences
from aicf.registry.selection import BY_TIMES_ALONE, NO_PREFERENCES, Registry, choose_library, describe_broken, open_registry
from aicf.registry.tables import Tables
from contract.axes import name_bucket
from contract.calls import Problem, Query
from contract.decision import Asked, How


@dataclass(frozen=True)
class Candidate:
    """One kernel of the op for the device. ``dropped`` is "" for the chosen one; times in microseconds, None where not known."""

    kernel: str
    roles: tuple[str, ...]
    statuses: tuple[str, ...]
    dropped: str
    measured_us: float | None
    survey_us: float | None
    near_us: float | None
    estimate_us: float | None


@dataclass(frozen=True)
class LibraryCandidate:
    """A library of others that the frozen set names. ``dropped`` is "" for the chosen one; its time in microseconds, None if not known."""

    library: str
    dropped: str
    predicted_us: float | None


@dataclass(frozen=True)
class Explanation:
    """A decision with all that it looked at. ``chosen`` is None where no kernel can be had; then ``reason`` says so.

    ``library`` is what the fastest library took on the call's problem or one near it, None where nothing is published. ``libraries`` are
    those that may stand for a kernel; where one is chosen, ``chosen`` is its name, and the kernel that it stands for says so.
    """

    op: str
    arch: str
    bucket: str
    sizes: dict[str, int]
    attributes: dict[str, Any]
    nearest: str | None
    chosen: str | None
    how: str | None
    predicted_us: float | None
    reason: str
    candidates: tuple[Candidate, ...]
    library: LibraryTime | None = None
    libraries: tuple[LibraryCandidate, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def explain(
    op: str, problem: Problem, hw_caps: HwCaps, prefs: Preferences = NO_PREFERENCES, registry: Registry | None = None
) -> Explanation:
    """Return how the kernel for a call is chosen. Raises what :meth:`Registry.select` raises, but for a call that no kernel serves."""
    registry = registry or open_registry()
    prefs.check()
    tables = registry.find_tables(op, hw_caps)
    query = tables.interface.make_query(problem)
    asked, core = tables.core.ask(query), tables.core
    legal = registry.keep_usable(tables, asked.legal)
    kept = registry.find_preferred(tables, query, legal, prefs)
    decision = decide(tables, asked, kept)
    near = core.find_nearest(asked, kept or legal, in_bucket=True)
    near = core.find_nearest(asked, kept or legal, in_bucket=False) if near is None else near
    exact_times, near_times = core.list_exact_times(asked), {} if near is None else core.list_times(near)
    survey_times = core.predict_us(asked, kept) or {}
    in_bucket = core.find_bucket_winners(asked)
    verdicts = [] if decision is None else registry.judge_libraries(tables, query, asked, decision, prefs)
    external = choose_library(verdicts)
    candidates = []
    for i, kernel in enumerate(tables.kernels):
        estimate = core.estimate_us(asked, i) if asked.has_cost else None
        known = (exact_times.get(i), survey_times.get(i), near_times.get(i), estimate)
        dropped = _explain_drop(registry, tables, query, asked, prefs, kept, i)
        if not dropped and decision is not None and decision.kernel != i:
            dropped = _explain_rank(decision, known, _describe_prior(tables, (in_bucket, kept), i))
        if not dropped and external is not None:
            dropped = f"the fastest of the kernels ({decision.reason if decision else ''}), and the library is faster"
        candidates.append(Candidate(kernel.name, tuple(tables.roles[i]), tuple(tables.statuses[i]), dropped, *known))
    return Explanation(
        op=op,
        arch=tables.arch,
        bucket=name_bucket({"arch": tables.arch} | {axis: name or "none" for axis, name in core.find_classes(asked).items()}),
        sizes=dict(query.by_size),
        attributes=dict(query.attributes),
        nearest=None if near is None else core.table.problems[near],
        **_name_choice(tables, decision, external, legal),
        candidates=tuple(candidates),
        library=_find_library(registry, op, tables, query),
        libraries=tuple(LibraryCandidate(v.library, _explain_library(v, external), v.predicted_us) for v in verdicts),
    )


def _name_choice(tables: Tables, decision: Decision | None, external: LibraryVerdict | None, legal: int) -> dict[str, Any]:
    """Return what is chosen, how, its time and why, as an explanation has them."""
    if decision is None:
        return {"chosen": None, "how": None, "predicted_us": None, "reason": _explain_none(legal)}
    if external is None:
        name = tables.kernels[decision.kernel].name
        return {"chosen": name, "how": str(decision.how), "predicted_us": decision.predicted_us, "reason": decision.reason}
    assert external.kernel is not None
    name = str(external.kernel.row["library"])
    return {"chosen": name, "how": str(How.LIBRARY), "predicted_us": external.predicted_us, "reason": external.describe()}


def _explain_library(verdict: LibraryVerdict, chosen: LibraryVerdict | None) -> str:
    """Return why a library is not chosen, "" for the one that is."""
    return verdict.dropped or ("" if verdict is chosen else "another library is faster")


def _find_library(registry: Registry, op: str, tables: Tables, query: Query) -> LibraryTime | None:
    found = find_library_time(registry.read(op).frozen.folder.parent.parent / "profiles", tables.interface, tables.arch, query)
    return found and replace(found, is_frozen=found.kernel in {kernel.name for kernel in tables.kernels})


def _explain_drop(registry: Registry, tables: Tables, query: Query, asked: Asked, prefs: Preferences, kept: int, kernel: int) -> str:
    """Return why a kernel is no candidate at all, "" where it is one."""
    if not asked.legal >> kernel & 1:
        return describe_broken(tables, asked, kernel)
    if not kept >> kernel & 1:
        return registry.explain_dislike(tables, query, kernel, prefs) or "another kernel wants less workspace"
    return ""


def _explain_none(legal: int) -> str:
    """Return why there is no decision, from the kernels that serve the call (a bit each)."""
    return f"{legal.bit_count()} kernels serve this call, and none has what is preferred" if legal else "no kernel serves this call"


def _describe_prior(tables: Tables, masks: tuple[int, int], kernel: int) -> str:
    """Return why a candidate is not chosen by estimates; ``masks`` are the winners of the call's bucket, and who has what is preferred."""
    in_bucket, kept = masks
    if "winner" not in tables.roles[kernel]:
        is_fallback = "fallback" in tables.roles[kernel]
        return "a fallback, and a winner serves the call" if is_fallback else BY_TIMES_ALONE
    if in_bucket & kept and not in_bucket >> kernel & 1:
        return "it wins another bucket, and a winner of this one serves the call"
    return "its estimate is no better than the chosen one's"


def _explain_rank(decision: Decision, known: tuple[float | None, ...], by_prior: str) -> str:
    """Return why a candidate comes after the chosen one; ``known`` are its times as :class:`Candidate` has them."""
    if decision.how is How.SURVEYED:
        return "the survey does not know it" if known[1] is None else f"is predicted to take {known[1]:.4g} us"
    if decision.how in (How.MEASURED, How.NEAR):
        time_us = known[0] if decision.how is How.MEASURED else known[2]
        where = "here" if decision.how is How.MEASURED else "at the nearest problem"
        return f"not measured {where}" if time_us is None else f"takes {time_us:.4g} us {where}"
    return by_prior if decision.how is How.PRIOR else "a later fallback"
