"""One variant laid open: source, PTX and SASS line by line, joined by the source line, with what each line costs.

Costs are the emulated device's counters of one launch, exact, by line of PTX; a source line's are the sum of its PTX. A line is *hot* where
it has a large share of the launch's warp instructions, of its global sectors, or of its shared-memory wavefronts; it is *conflicted* where
its accesses to shared memory take more passes than their width asks for. SASS has no counters of its own: it stands beside the source line
that the compiler says it came from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from device.observer import KernelLines
from harness.build.sass import SassKernel

SHARES: Mapping[str, tuple[str, ...]] = {
    "instructions": ("warp_instructions",),
    "sectors": ("global_load_sectors", "global_store_sectors", "global_atomic_sectors", "bulk_load_sectors", "bulk_store_sectors"),
    "wavefronts": ("shared_load_wavefronts", "shared_store_wavefronts", "shared_atomic_wavefronts"),
}
CONFLICTS = ("shared_load_conflicts", "shared_store_conflicts", "shared_atomic_conflicts")
# A line with this share of anything is hot.
HOT_SHARE = 0.1

_LOC = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)\s+\d+")
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]+)"', re.MULTILINE)
_ENTRY = re.compile(r"^\s*(?:\.visible\s+|\.weak\s+)*\.(?:entry|func)\b(?:\s*\([^)]*\))?\s+([\w$]+)")


@dataclass(frozen=True)
class Cost:
    """What a line costs: its share of each of :data:`SHARES`, its passes through shared memory beyond the least, and all its counts."""

    shares: Mapping[str, float] = field(default_factory=dict)
    conflicts: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def hot(self) -> bool:
        """Whether any of the shares is large."""
        return any(share >= HOT_SHARE for share in self.shares.values())


@dataclass(frozen=True)
class SourceLine:
    """A line of a source file; ``key`` is ``kernels.cu:42``."""

    key: str
    number: int
    text: str
    cost: Cost


@dataclass(frozen=True)
class CodeLine:
    """A line of PTX (``number`` is its line) or of SASS (its address), with the source line that it came from ("" unknown)."""

    key: str
    number: int
    text: str
    cost: Cost = field(default_factory=Cost)


@dataclass(frozen=True)
class KernelInspection:
    """One kernel of the launch. ``files`` are the source lines that have code, with some around them, by file name."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    figures: Mapping[str, str]
    totals: Mapping[str, int]
    files: Mapping[str, tuple[SourceLine, ...]]
    ptx: tuple[CodeLine, ...]
    sass: tuple[CodeLine, ...]
    mix: Mapping[str, int]
    widths: Mapping[str, int]

    def rank_lines(self) -> list[SourceLine]:
        """Return the source lines that cost anything, by their largest share first."""
        costly = [line for lines in self.files.values() for line in lines if line.cost.counts]
        return sorted(costly, key=lambda line: -max(line.cost.shares.values(), default=0.0))


@dataclass(frozen=True)
class Inspection:
    """One variant on one problem; ``model`` says what the time model makes of it, or is empty."""

    op: str
    variant: str
    problem: str
    target: str
    kernels: tuple[KernelInspection, ...]
    model: Mapping[str, str] = field(default_factory=dict)


def add_counts(rows: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sum of counters."""
    total: dict[str, int] = {}
    for row in rows:
        for name, value in row.items():
            total[name] = total.get(name, 0) + value
    return total


def find_cost(counts: Mapping[str, int], totals: Mapping[str, int]) -> Cost:
    """Return what some counts are of a launch's totals."""
    shares = {}
    for name, parts in SHARES.items():
        whole = sum(totals.get(part, 0) for part in parts)
        if whole:
            shares[name] = sum(counts.get(part, 0) for part in parts) / whole
    return Cost(shares, sum(counts.get(name, 0) for name in CONFLICTS), dict(counts))


def read_ptx_lines(ptx: str, kernel: str) -> list[tuple[int, str, str]]:
    """Return (line number, text, source key) of a kernel's PTX, from its head to its last brace, directives of lines left out."""
    names = {number: Path(path).name for number, path in _FILE.findall(ptx)}
    found: list[tuple[int, str, str]] = []
    inside, depth, key = False, 0, ""
    for number, text in enumerate(ptx.splitlines(), 1):
        entry = _ENTRY.match(text)
        if not inside and entry is not None and entry[1] == kernel:
            inside, depth, key = True, 0, ""
        if not inside:
            continue
        if loc := _LOC.match(text):
            key = f"{names.get(loc[1], '?')}:{loc[2]}"
            continue
        if text.strip():
            is_code = text.strip()[0] not in ".{}()$" and depth > 0
            found.append((number, text.strip(), key if is_code else ""))
        depth += text.count("{") - text.count("}")
        if text.strip() == "}" and depth == 0:
            break
    return found


def make_kernel(
    sass: SassKernel,
    lines: KernelLines | None,
    ptx: str,
    sources: Mapping[str, Sequence[str]],
    *,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    figures: Mapping[str, str],
) -> KernelInspection:
    """Join one kernel's parts. ``sources`` are the lines of the files that are shown, by name."""
    counted = lines.lines if lines is not None else ()
    totals = add_counts(line.counts for line in counted)
    by_ptx = {line.ptx_line: line.counts for line in counted if line.function == sass.name}
    by_source: dict[str, dict[str, int]] = lines.by_source() if lines is not None else {}
    ptx_lines = tuple(
        CodeLine(key, number, text, find_cost(by_ptx[number], totals) if number in by_ptx else Cost())
        for number, text, key in read_ptx_lines(ptx, sass.name)
    )
    sass_lines = tuple(
        CodeLine(i.source, i.address, f"{i.guard + ' ' if i.guard else ''}{i.opcode} {i.operands}".strip()) for i in sass.instructions
    )
    keys = {line.key for line in (*ptx_lines, *sass_lines) if line.key} | set(by_source)
    files = {
        name: tuple(
            SourceLine(f"{name}:{n}", n, text, find_cost(by_source[f"{name}:{n}"], totals) if f"{name}:{n}" in by_source else Cost())
            for n, text in _take_around(text_lines, {int(k.rsplit(":", 1)[1]) for k in keys if k.rsplit(":", 1)[0] == name})
        )
        for name, text_lines in sources.items()
    }
    shown = {name: found for name, found in files.items() if found}
    return KernelInspection(sass.name, grid, block, figures, totals, shown, ptx_lines, sass_lines, sass.mix, sass.widths)


def _take_around(lines: Sequence[str], numbers: set[int], margin: int = 3) -> list[tuple[int, str]]:
    wanted = {n for number in numbers for n in range(number - margin, number + margin + 1)}
    return [(n, lines[n - 1]) for n in sorted(wanted) if 1 <= n <= len(lines)]


def read_sources(sass: Iterable[SassKernel], root: Path) -> dict[str, list[str]]:
    """Return the lines of every file below ``root`` that some instruction came from, by file name; the file with most code comes first."""
    counts: dict[str, int] = {}
    for kernel in sass:
        for inst in kernel.instructions:
            counts[inst.file] = counts.get(inst.file, 0) + 1
    found: dict[str, list[str]] = {}
    for file in sorted(counts, key=lambda f: -counts[f]):
        path = Path(file)
        if file and path.is_relative_to(root) and path.is_file():
            found.setdefault(path.name, path.read_text().splitlines())
    return found
