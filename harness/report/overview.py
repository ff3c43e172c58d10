"""All ops on drawn problems as one page: each problem with its floor, its share of the roof and every library, worst first. No device."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.compare.drawn.page import describe_run, find_titles
from harness.compare.drawn.record import PEER, DrawnRow, DrawnRun, GroupResult, group_rows, merge_runs
from harness.model.roofline import find_floor
from harness.spec import Cost, Op, Problem
from harness.targets import Target
from harness.timing.copies import Copies, find_copy_us

# A launch of less is over before memory is busy: the shares of the roof are summed up for problems that move more.
LARGE_BYTES = 32e6


@dataclass(frozen=True)
class Standing:
    """One drawn problem of an op: what was timed, what it costs, and the times of the roofline and of a copy of as many bytes, in us.

    ``copy_us`` is None of what arithmetic bounds or moves little, and where no copies were timed.
    """

    op: str
    row: DrawnRow
    cost: Cost
    floor_us: float
    copy_us: float | None = None

    @property
    def moved_bytes(self) -> float:
        """The bytes that any kernel has to read and write."""
        return self.cost.bytes_read + self.cost.bytes_written

    @property
    def share(self) -> float | None:
        """The roofline's time over that of what users get; None where this was not timed."""
        mine = self.row.mine
        return None if mine is None or mine.us is None else self.floor_us / mine.us

    @property
    def copy_share(self) -> float | None:
        """The rate at which the compulsory bytes moved over that of a copy of as many; None where one of the two was not timed."""
        mine = self.row.mine
        return None if mine is None or mine.us is None or self.copy_us is None else self.copy_us / mine.us


@dataclass(frozen=True)
class OpStanding:
    """An op's newest runs that stand together."""

    op: Op
    runs: tuple[DrawnRun, ...]
    standings: tuple[Standing, ...]

    @property
    def result(self) -> GroupResult:
        """All its problems together."""
        return group_rows([s.row for s in self.standings], find_titles(self.op))[-1]

    def list_shares(self, least_bytes: float = 0.0) -> list[float]:
        """Return the shares of the roof, smallest first, of problems that move so many bytes."""
        return sorted(s.share for s in self.standings if s.share is not None and s.moved_bytes >= least_bytes)

    def list_copy_shares(self) -> list[float]:
        """Return the rates beside a copy's, smallest first, of problems that move :data:`LARGE_BYTES` or more."""
        large = [s.copy_share for s in self.standings if s.moved_bytes >= LARGE_BYTES]
        return sorted(share for share in large if share is not None)


def find_standing(op: Op, runs: Sequence[DrawnRun], target: Target, copies: Copies = ()) -> OpStanding:
    """Return how an op stands by its record. A problem of an earlier population is costed as the op costs it now.

    ``copies`` stand for those of a run that timed none.
    """
    alike, rows = merge_runs(runs)
    own = next((r.copies for r in reversed(alike) if r.copies), copies)
    return OpStanding(op, tuple(alike), tuple(_find_one(op, row, target, own) for row in rows))


def _find_one(op: Op, row: DrawnRow, target: Target, copies: Copies) -> Standing:
    problem = Problem(row.sizes, row.attributes, _read_layout(row.padding), scalars=row.scalars, orders=_read_orders(row.orders))
    cost = op.cost(op.complete(problem))
    floor = find_floor(cost, target)
    copy_us = find_copy_us(copies, cost.bytes_moved) if floor.bound == "memory" else None
    return Standing(op.name, row, cost, floor.total_us, copy_us)


def _read_layout(padding: Mapping[str, int | Sequence[int]]) -> dict[str, int | tuple[int, ...]]:
    return {name: pad if isinstance(pad, int) else tuple(pad) for name, pad in padding.items()}


def _read_orders(orders: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(order) for name, order in orders.items()}


def make_overview(found: Sequence[OpStanding], picture: str, command: str) -> str:
    """Return the page in Markdown; ``picture`` is a file beside it, ``command`` what made both."""
    lines = [
        "# All ops on drawn problems",
        "",
        f"Made by `{command}` from the records `profiles/<op>/drawn.json`. Cold medians.",
        "Ratio: time of the fastest library over that of what users get; more than 1 is faster than all. Share of the roof: the larger of",
        "the times of the arithmetic and of the compulsory bytes at the GPU's peak rates, over the time of what users get. Of a copy:",
        "the rate at which those bytes moved beside that of a copy on the device that moves as many, of problems that memory bounds.",
        "",
        f"![share of the roof]({picture})",
        "",
        f"| op | problems | geomean | worst | at least level | {LARGE_BYTES / 1e6:.0f} MB or more: n, share of the roof, median and least "
        "| rate beside a copy's: n, median, least |",
        "|---|--:|--:|--:|--:|---|---|",
        *(_list_op(each) for each in found),
        "",
    ]
    lines += [f"- {each.op.name}: {describe_run(run)}" for each in found for run in each.runs]
    lines += ["", "## Every problem, worst first", "", *_list_problems([s for each in found for s in each.standings]), ""]
    return "\n".join(lines)


def _list_op(each: OpStanding) -> str:
    result, shares = each.result, each.list_shares(LARGE_BYTES)
    worst = f"{result.measured[0][0]:.3f}" if result.measured else ""
    level = "" if result.share_level is None else f"{100 * result.share_level:.0f} %"
    mean = "" if result.geomean is None else f"{result.geomean:.3f}"
    share, beside = (
        f"{len(found)}, {statistics.median(found):.2f}, {found[0]:.2f}" if found else "none" for found in (shares, each.list_copy_shares())
    )
    name = f"[{each.op.name}](../{each.op.name}/drawn.md)"
    return f"| {name} | {len(result.measured)} | {mean} | {worst} | {level} | {share} | {beside} |"


def _list_problems(standings: Sequence[Standing]) -> Iterator[str]:
    yield "| ratio | op | problem | MB | roof, us | share | of a copy | what users get | us | libraries, us |"
    yield "|--:|---|---|--:|--:|--:|--:|---|--:|---|"
    for each in sorted(standings, key=lambda s: (s.row.ratio is None, s.row.ratio or 0.0, s.op, s.row.problem)):
        row = each.row
        mine = row.find(row.judged)
        peers = ", ".join(
            f"{c.name} {c.us:.2f}" + ("" if c.counts else " refused") for c in row.contenders if c.role == PEER and c.us is not None
        )
        ratio = row.reason or "-" if row.ratio is None else f"{row.ratio:.3f}"
        share = "" if each.share is None else f"{each.share:.2f}"
        beside = "" if each.copy_share is None else f"{each.copy_share:.2f}"
        us = "" if mine is None or mine.us is None else f"{mine.us:.2f}"
        how = f" ({row.how})" if row.how else ""
        yield (
            f"| {ratio} | {each.op} | {row.problem} | {each.moved_bytes / 1e6:.2f} | {each.floor_us:.2f} | {share} | {beside} "
            f"| {row.judged}{how} | {us} | {peers} |"
        )
