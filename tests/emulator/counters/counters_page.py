"""The page that ``compare_counters.py report`` writes: the emulated device's counters beside Nsight Compute's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from compare_counters import COMPARED, INFORMATIVE, Row, compare

_INTRODUCTION = """# Counters: the emulated device against Nsight Compute on an H200

{num_launches} launches of `tests/emulator/counters/corpus.cu`: probes of one warp and one access each ({num_probes} patterns over
{num_kernels} kinds of access), and {num_programs} small programs. The emulated device counts PTX; Nsight Compute counts what the hardware
did with ptxas' machine code (NVIDIA H200, driver 580.159.04, `--clock-control none --cache-control none`, one launch of each). Made by
`python tests/emulator/counters/compare_counters.py report`; a test recomputes the emulated side and compares it with the same measurement.

| figure | Nsight Compute (`.sum`) | launches with any | equal | different |
|---|---|--:|--:|--:|
"""

_PROGRAMS = """
## The programs

Each cell is the emulated count, and after a slash Nsight Compute's where it differs. The last column says where ptxas changed the widths
of loads and stores: wavefronts differ for that reason.

"""
_COLUMNS = (
    ("load sectors", ("global load sectors",)),
    ("store sectors", ("global store sectors",)),
    ("load requests", ("global load requests",)),
    ("shared load wavefronts, conflicts", ("shared load wavefronts", "shared load conflicts")),
    ("shared store wavefronts, conflicts", ("shared store wavefronts", "shared store conflicts")),
    ("warp instructions", ("warp instructions",)),
)

Widths = Mapping[str, tuple[Counter[str], Counter[str]]]


def explain(case: str, widths: Widths) -> str:
    """Say where a launch's kernel has other widths of loads and stores in machine code than in PTX, "" where it has the same."""
    stem = case.split("/")[0]
    matching = [k for k in widths if stem in k] or [k for k in widths if stem.rstrip("0123456789") in k]
    said = []
    for kernel in matching:
        ptx, sass = widths[kernel]
        for access in sorted({name.rpartition(".")[0] for name in ptx | sass}):
            of_ptx, of_sass = (sorted(int(n.rpartition(".")[2]) for n in side if n.startswith(access)) for side in (ptx, sass))
            if of_ptx != of_sass:
                said.append(f"{access} of {_join(of_ptx)} bits becomes {_join(of_sass)}")
    return "; ".join(dict.fromkeys(said))


def _join(widths: Sequence[int]) -> str:
    return " and ".join(map(str, widths)) or "no"


def summarise(rows: Sequence[Row]) -> list[str]:
    """Return one table row per figure."""
    lines = []
    for figure, (metrics, _) in COMPARED.items():
        own = [row for row in rows if row.figure == figure and (row.emulated or row.measured)]
        equal = sum(row.emulated == row.measured for row in own)
        names = " + ".join(f"`{metric}`" for metric in metrics)
        note = " (of machine code: no agreement to expect)" if figure in INFORMATIVE else ""
        lines.append(f"| {figure}{note} | {names} | {len(own)} | {equal} | {len(own) - equal} |")
    return lines


def describe_programs(rows: Sequence[Row], widths: Widths) -> list[str]:
    """Return one table row per program."""
    table: dict[str, dict[str, Row]] = {}
    for row in rows:
        if "/" not in row.case:
            table.setdefault(row.case, {})[row.figure] = row

    def cell(row: Row) -> str:
        return str(row.emulated) if row.emulated == row.measured else f"{row.emulated} / {row.measured}"

    header = ["program", *(name for name, _ in _COLUMNS), "widths changed by ptxas"]
    lines = [f"| {' | '.join(header)} |", "|---|" + "--:|" * len(_COLUMNS) + "---|"]
    for case, found in table.items():
        cells = [", ".join(cell(found[figure]) for figure in column) for _, column in _COLUMNS]
        lines.append(f"| {case} | {' | '.join(cells)} | {explain(case, widths)} |")
    return lines


def write_page(
    page: Path,
    emulated: Mapping[str, Mapping[str, int]],
    measured: Mapping[str, Mapping[str, int]],
    widths: Widths,
) -> None:
    """Write the comparison as Markdown."""
    rows = compare(emulated, measured)
    probes = [case for case in measured if "/" in case]
    text = _INTRODUCTION.format(
        num_launches=len(measured),
        num_probes=len(probes),
        num_kernels=len({case.split("/")[0] for case in probes}),
        num_programs=len(measured) - len(probes),
    )
    text += "\n".join(summarise(rows)) + "\n"
    different = [row for row in rows if row.emulated != row.measured and row.figure not in INFORMATIVE]
    text += "\n## Differences\n\n"
    if different:
        text += "| launch | figure | emulated | Nsight Compute | widths changed by ptxas |\n|---|---|--:|--:|---|\n"
        for row in different:
            text += f"| {row.case} | {row.figure} | {row.emulated} | {row.measured} | {explain(row.case, widths)} |\n"
    else:
        text += "None.\n"
    text += _PROGRAMS + "\n".join(describe_programs(rows, widths)) + "\n"
    page.write_text(text)
