"""The newest figures of each variant over all runs of an op's records."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from harness.records.tables import Result


def select_latest(results: Sequence[Result], variants: Collection[str], kinds: Collection[str]) -> list[Result]:
    """Return the newest result of each variant on each problem, in the order in which they were recorded.

    ``results`` are in that order. The newest of ``kinds`` says what counts: results of the same environment and the same description of
    the op, of the ``variants`` that it lists, of peers, and of whatever that newest run has.
    """
    shown = [r for r in results if r.kind in kinds]
    if not shown:
        return []
    last = shown[-1]
    kernels = {name.partition("/")[0] for name in variants}
    newest: dict[tuple[str, str, str, str], Result] = {}
    for r in shown:
        is_stale = r.run.environment.digest != last.run.environment.digest or r.spec_hash != last.spec_hash
        is_unlisted = r.variant.partition("/")[0] in kernels and r.variant not in variants
        if is_stale or (is_unlisted and r.run_id != last.run_id):
            continue
        newest[r.kind, r.variant, r.problem, str(r.figures.get("mode", ""))] = r
    return sorted(newest.values(), key=lambda r: r.id)


def list_missing(results: Sequence[Result], variants: Sequence[str]) -> list[str]:
    """Return the listed variants that have no figures among the results."""
    known = {r.variant for r in results if r.kind != "verify"}
    return [name for name in variants if name not in known]
