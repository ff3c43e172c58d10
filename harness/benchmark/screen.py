"""What ``bench`` prints: per problem a header, one line for each of the fastest, and who is left out and why; finally one line per problem.

The lines are made to be read at 100 columns. A column that says the same of all rows is said once below them instead.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from rich.text import Text

from harness.benchmark.rows import BenchRow
from harness.benchmark.unserved import SHORT_DTYPES, count_reasons
from harness.spec import Op, Problem

# Columns where nobody looks: in a file or a pipe.
PLAIN_WIDTH = 100
NUM_SHOWN = 10
_GAP = "  "
_INDENT = "   "
_DEEPER = "     "
# Left for a variant's name, so that a narrow screen has the name on a line of its own.
_LEAST_NAME = 16
_MAX_NAMES = 3


@dataclass(frozen=True)
class _Column:
    """One figure of a row. Where ``constant`` is not empty, a column that is the same in all rows is left out and said so."""

    title: str
    format: Callable[[BenchRow], str]
    constant: str = ""


def _format_bytes(count: int | None) -> str:
    if count is None:
        return ""
    return str(count) if count < 1024 else f"{count / 1024:.3g}K"


def _format_interval(row: BenchRow) -> str:
    if row.interval_us is None:
        return ""
    return "-".join(_round(value, 2) for value in row.interval_us)


def _round(value: float, digits: int) -> str:
    """Return a positive number with so many significant digits, and no exponent."""
    rounded = float(f"{value:.{digits - 1}e}")
    places = digits - 1 - (math.floor(math.log10(rounded)) if rounded else 0)
    return f"{rounded:.{max(places, 0)}f}"


def _format_spread(row: BenchRow) -> str:
    """Return the distance of the quartiles in percent of the median."""
    if row.cold is None:
        return ""
    return f"{100 * (float(row.cold['q3_us']) - float(row.cold['q1_us'])) / row.order_us:.1f} %"


def _format_roof(row: BenchRow) -> str:
    return "" if row.floor_us is None else f"{100 * row.floor_us / row.order_us:.1f} %"


_STATICS = (
    _Column("regs", lambda r: str(r.statics.registers or ""), "registers"),
    _Column("smem", lambda r: _format_bytes(r.statics.shared_bytes), "shared memory"),
    _Column("spill", lambda r: _format_bytes(r.statics.spill_bytes), "spilled bytes"),
    _Column("occ", lambda r: "" if r.statics.occupancy is None else f"{100 * r.statics.occupancy:.0f} %", "occupancy"),
)


def _list_columns(rows: Sequence[BenchRow], best_us: float) -> list[_Column]:
    """Return the columns that tell rows apart; ``rows`` are on one device, and all have a time."""
    ratio = _Column("x best", lambda r: f"{r.order_us / best_us:.2f}")
    if rows[0].cold is None:
        times = [
            _Column("model us", lambda r: _round(r.order_us, 3)),
            _Column("80 % interval", _format_interval),
            ratio,
            _Column("bound", lambda r: r.model_pipe, "bound by"),
        ]
    else:
        times = [
            _Column("cold us", lambda r: _round(r.order_us, 4)),
            _Column("spread", _format_spread),
            ratio,
            _Column("of roof", _format_roof),
            _Column("hot us", lambda r: _round(float(r.hot["median_us"]), 4) if r.hot else ""),
        ]
    return [*times, *_STATICS]


def _split_constants(columns: Sequence[_Column], rows: Sequence[BenchRow]) -> tuple[list[_Column], list[str]]:
    """Return the columns that vary, and of the others what they say; one that is empty, or says that nothing spills, says nothing."""
    kept, said = [], []
    for column in columns:
        # A library has no registers that we know of.
        values = {column.format(r) for r in rows if not r.is_peer}
        if values <= {""}:
            continue
        if len(values) == 1 and len(rows) > 1 and column.constant:
            value = values.pop()
            said += [] if column.title == "spill" and value == "0" else [f"{column.constant} {value}"]
        else:
            kept.append(column)
    return kept, said


def make_bench_screen(
    op: Op, rows: Sequence[BenchRow], problems: Sequence[Problem], *, target: str, everything: bool = False, width: int = PLAIN_WIDTH
) -> list[Text]:
    """Return the lines of a bench: each problem's table, then one line per problem. ``everything`` shows all rows, not the fastest ten."""
    groups = {p.name: [r for r in rows if r.problem == p.name] for p in problems}
    labels = label_problems(op, problems)
    names = [v.name for v in op.variants]
    lines: list[Text] = []
    for problem in problems:
        group = groups[problem.name]
        if group:
            lines += _make_table(op, problem, labels[problem.name], group, names, target, everything=everything, width=width)
            lines.append(Text())
    return [*lines, *_make_summary(problems, labels, groups, names, width)]


def _make_table(
    op: Op,
    problem: Problem,
    label: str,
    rows: Sequence[BenchRow],
    names: Sequence[str],
    target: str,
    *,
    everything: bool,
    width: int,
) -> Iterator[Text]:
    first = rows[0]
    where = f"emulated, model for {target}" if first.device == "emulated" else first.device
    floor = "" if first.floor_us is None else f" · floor {_round(first.floor_us, 2)} us ({first.floor_bound})"
    yield from _wrap(f"{op.name} {label} · {where}{floor}", width, _INDENT, "bold")
    timed = sorted((r for r in rows if r.order_us < math.inf), key=lambda r: r.order_us)
    own = [r for r in timed if not r.is_peer]
    shown = [r for r in timed if everything or r.is_peer or r in own[:NUM_SHOWN]]
    foot: list[str] = []
    if shown:
        best = (own or shown)[0]
        columns, foot = _split_constants(_list_columns(shown, best.order_us), shown)
        yield from _make_rows(shown, best, columns, names, width)
        foot = [f"all shown: {', '.join(foot)}"] if foot else []
    if len(timed) > len(shown):
        foot.insert(0, f"{len(timed) - len(shown)} slower (--all shows them)")
    foot += _describe_others(op, problem, rows)
    num_own = sum(not r.is_peer for r in rows)
    num_right = num_own - sum(r.verified == "failed" and not r.is_peer for r in rows)
    yield from _wrap(_INDENT + " · ".join([*foot, f"{num_right} of {num_own} verified"]), width, _INDENT)


def _make_rows(shown: Sequence[BenchRow], best: BenchRow, columns: Sequence[_Column], names: Sequence[str], width: int) -> Iterator[Text]:
    cells = [[c.format(r) for c in columns] for r in shown]
    sizes = [max(len(c.title), *(len(row[i]) for row in cells)) for i, c in enumerate(columns)]
    yield Text(_INDENT + _join([c.title for c in columns], sizes) + _GAP + "variant", style="dim")
    room = width - len(_INDENT) - sum(sizes) - len(_GAP) * len(sizes)
    for row, texts in zip(shown, cells, strict=True):
        mark = " * " if row is best else " ~ " if _overlaps(row, best) else "   "
        style = "bold" if row is best else "dim" if row.is_peer else ""
        name = f"{row.variant} (library)" if row.is_peer else shorten_variant(row.variant, names, room)
        if len(name) <= room:
            yield Text(mark + _join(texts, sizes) + _GAP + name, style=style)
        else:
            yield Text((mark + _join(texts, sizes)).rstrip(), style=style)
            below = row.variant if row.is_peer else shorten_variant(row.variant, names, max(width - len(_DEEPER), _LEAST_NAME))
            yield Text(_DEEPER + below, style=style)


def _join(texts: Sequence[str], sizes: Sequence[int]) -> str:
    return _GAP.join(text.rjust(size) for text, size in zip(texts, sizes, strict=True))


def _overlaps(row: BenchRow, best: BenchRow) -> bool:
    if row.interval_us is None or best.interval_us is None:
        return False
    return row.interval_us[0] <= best.interval_us[1] and best.interval_us[0] <= row.interval_us[1]


def _describe_others(op: Op, problem: Problem, rows: Sequence[BenchRow]) -> list[str]:
    """Say who has no time on a problem: variants that do not serve it by reason, libraries, and what failed by name."""
    said = []
    unserved = [r for r in rows if r.verified == "unsupported" and not r.is_peer]
    if unserved:
        needs, reasons = (", ".join(f"{r}: {n}" for r, n in counted.most_common()) for counted in count_reasons(op, problem, unserved))
        said.append(f"not served: {len(unserved)} ({'; '.join(filter(None, [needs and f'needs {needs}', reasons]))})")
    if libraries := [r.variant for r in rows if r.verified == "unsupported" and r.is_peer]:
        said.append(f"libraries that do not serve it: {', '.join(libraries)}")
    failed: dict[str, list[str]] = {}
    for row in rows:
        if row.verified == "failed":
            failed.setdefault(row.reason or "no reason given", []).append(row.variant)
    for reason, variants in failed.items():
        more = f" and {len(variants) - _MAX_NAMES} more" if len(variants) > _MAX_NAMES else ""
        said.append(f"failed: {len(variants)} ({reason}: {', '.join(variants[:_MAX_NAMES])}{more})")
    return said


def _make_summary(
    problems: Sequence[Problem], labels: Mapping[str, str], groups: Mapping[str, Sequence[BenchRow]], names: Sequence[str], width: int
) -> Iterator[Text]:
    """Yield one line per problem: the fastest variant, how many cannot be told from it, and how it compares with floor and libraries."""
    titles = ("best us", "~", "served", "x floor", "x library")
    found = [(labels[p.name], *_summarize(groups[p.name])) for p in problems]
    told = [i for i in range(len(titles)) if any(cells[i] for _, cells, _ in found)]
    first = max(len("problem"), *(len(label) for label, _, _ in found))
    sizes = [max(len(titles[i]), *(len(cells[i]) for _, cells, _ in found)) for i in told]
    yield Text("problem".ljust(first) + _GAP + _join([titles[i] for i in told], sizes) + _GAP + "fastest", style="dim")
    room = max(width - first - sum(sizes) - len(_GAP) * (len(sizes) + 1), _LEAST_NAME)
    for label, cells, name in found:
        yield Text(label.ljust(first) + _GAP + _join([cells[i] for i in told], sizes) + _GAP + shorten_variant(name, names, room))


def _summarize(rows: Sequence[BenchRow]) -> tuple[tuple[str, ...], str]:
    """Return the figures of one problem's line, and the name of its fastest variant."""
    own = [r for r in rows if not r.is_peer]
    timed = [r for r in own if r.order_us < math.inf]
    served = f"{len(timed)}/{len(own)}"
    if not timed:
        return ("", "", served, "", ""), ""
    best = min(timed, key=lambda r: r.order_us)
    ties = sum(_overlaps(r, best) for r in timed if r is not best)
    over_floor = f"{best.order_us / best.floor_us:.3g}" if best.floor_us else ""
    library_us = min((r.order_us for r in rows if r.is_peer), default=math.inf)
    of_library = f"{best.order_us / library_us:.2f}" if library_us < math.inf else ""
    return (_round(best.order_us, 4 if best.cold else 3), str(ties), served, over_floor, of_library), best.variant


def label_problems(op: Op, problems: Sequence[Problem]) -> dict[str, str]:
    """Return by name what a problem is called: sizes, element types, attributes that are not the default; its name where two are alike."""
    labels = {p.name: _label(op, p) for p in problems}
    return {name: label if list(labels.values()).count(label) == 1 else name for name, label in labels.items()}


def _label(op: Op, problem: Problem) -> str:
    dtypes = dict.fromkeys(t.resolve_dtype(problem) for t in op.tensors if t.present(problem))
    parts = ["x".join(map(str, problem.sizes.values())), "/".join(SHORT_DTYPES.get(d, d) for d in dtypes)]
    defaults = {a.name: a.default for a in op.attributes}
    for name, value in problem.attributes.items():
        if value == defaults.get(name) or value in dtypes or value is False:
            continue
        parts.append(name.removeprefix("with_") if value is True else str(value) if isinstance(value, str) else f"{name}={value}")
    return " ".join([*parts, *(f"pad_{name}={count}" for name, count in problem.padding.items() if count)])


def shorten_variant(name: str, names: Sequence[str], room: int) -> str:
    """Return a variant's name, or where it is too long a pattern that no other of ``names`` matches, for ``--variant``.

    Tunables give way to ``*``, those first in which the kernel's variants differ the least. Where no such pattern is short enough the
    shortest is returned.
    """
    kernel, slash, bound = name.partition("/")
    if len(name) <= room or name not in names or not slash:
        return name
    tokens = bound.split("_")
    siblings = [n.partition("/")[2].split("_") for n in names if n.partition("/")[0] == kernel]
    spread = [len({s[i] for s in siblings if i < len(s)}) for i in range(len(tokens))]
    kept = set(range(len(tokens)))
    pattern = name
    for i in sorted(kept, key=lambda i: (spread[i], -i)):
        trial = _make_pattern(kernel, tokens, kept - {i})
        if [n for n in names if fnmatchcase(n, trial)] == [name]:
            kept.remove(i)
            pattern = trial
        if len(pattern) <= room:
            break
    return pattern


def _make_pattern(kernel: str, tokens: Sequence[str], kept: set[int]) -> str:
    parts = [token if i in kept else "*" for i, token in enumerate(tokens)]
    return f"{kernel}/" + "_".join(p for i, p in enumerate(parts) if p != "*" or i == 0 or parts[i - 1] != "*")


def _wrap(text: str, width: int, indent: str, style: str = "") -> list[Text]:
    """Return the lines of a text; those after the first are indented."""
    lines = textwrap.wrap(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return [Text(line, style=style) for line in lines]
