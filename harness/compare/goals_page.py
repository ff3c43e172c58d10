"""Goals as tables, for the terminal and for ``profiles/``."""

from __future__ import annotations

from collections.abc import Sequence

from harness.compare.goals import Ratio, Row


def list_cells(row: Row) -> tuple[str, ...]:
    """Return a goal as cells: problems, peers, geometric mean, worst with its problem, aim, the least, verdict."""
    worst = row.measured[0] if row.measured else None
    return (
        row.goal.title,
        " or ".join(row.goal.peers),
        "" if row.geomean is None else f"{row.geomean:.4f}",  # 1.0997 is not 1.1
        "" if worst is None else f"{worst[0]:.3f} ({worst[1].problem})",
        f"{row.goal.aim:g}",
        f"{row.goal.least:g}" + (f", none under {row.goal.worst:g}" if row.goal.worst else ""),
        row.verdict,
    )


HEADINGS = ("problems", "peer", "geomean", "worst", "aim", "least", "verdict")


def make_page(op: str, rows: Sequence[Row], where: str, left_out: Sequence[str], lead: Sequence[str] = ()) -> str:
    """Return the goals and every problem's ratio as Markdown, behind the lines ``lead``.

    ``where`` says on what and when, ``left_out`` which peers were not there.
    """
    lines = [
        f"# Goals of {op}",
        "",
        *lead,
        *(["## Listed problems", ""] if lead else []),
        f"{where}. Ratio: time of the fastest peer over the own, cold medians of one run.",
        "",
    ]
    lines += [*(f"Not there: {text}." for text in left_out), *([""] if left_out else [])]
    lines += ["In brackets: the largest error of the output, as a share of the op's bound.", ""]
    lines += [f"| {' | '.join(HEADINGS)} |", "|---|---|--:|---|--:|--:|---|"]
    lines += [f"| {' | '.join(list_cells(r))} |" for r in rows]
    for row in rows:
        lines += [
            "",
            f"## {row.goal.title}",
            "",
            "| problem | own, us (error) | peer, us (error) | ratio | peer | variant | regret |",
            "|---|--:|--:|--:|---|---|---|",
        ]
        lines += [_make_line(r) for r in row.ratios]
    return "\n".join([*lines, ""])


def _make_line(r: Ratio) -> str:
    own, peer = (say_time(us, error) for us, error in ((r.own_us, r.own_error), (r.peer_us, r.peer_error)))
    ratio = "" if r.ratio is None else f"{r.ratio:.3f}"
    return f"| {r.problem} | {own} | {peer} | {ratio} | {r.peer}{f' ({r.reason})' if r.reason else ''} | {r.variant} | {_say_regret(r)} |"


def say_time(us: float | None, error: float | None) -> str:
    """Return a time in microseconds, with the error as a share of the op's bound where it is known; "" without a time."""
    return "" if us is None else f"{us:.2f}" + ("" if error is None else f" ({error:.2g})")


def _say_regret(r: Ratio) -> str:
    if r.regret is None:
        return ""
    return "none" if r.best == r.variant else f"{100 * r.regret:.1f} % behind {r.best}"
