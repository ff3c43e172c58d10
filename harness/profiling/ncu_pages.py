"""The pages that Nsight Compute prints as CSV: metrics of each kernel (``--page raw``), and stalls by source line (``--page source``).

A page that is not whole is an error and never a zero: a metric that the tool did not measure is absent from what is returned.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.errors import ToolError

# The columns of the raw page that are no metrics.
_PLACE = frozenset(
    {"ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size", "Device", "CC"}
)
_NUMBER = re.compile(r"[+-]?[\d,]*\.?\d+(?:[eE][+-]?\d+)?\Z")
_STALL = re.compile(r"stall_(\w+)\Z")


@dataclass(frozen=True)
class KernelMetrics:
    """One launch: its kernel, geometry, and metrics by name in base units (ns, bytes, %, cycles, counts)."""

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    metrics: Mapping[str, float]
    units: Mapping[str, str]


@dataclass(frozen=True)
class LineStalls:
    """A source line: samples of warps that were found there, and of these the stalled ones by reason."""

    file: str
    line: int
    text: str
    samples: int
    stalls: Mapping[str, int]


def read_raw_page(text: str) -> list[KernelMetrics]:
    """Return the launches of a page, in order. Raises :class:`ToolError` where it is cut off or holds no launch."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        raise ToolError(f"ncu's raw page has no table: {_quote(text)}")
    if not text.rstrip().endswith('"'):
        raise ToolError(f"ncu's raw page is cut off within a value: {text.rstrip()[-40:]}")
    rows = list(csv.reader(io.StringIO("\n".join(lines[start:]) + "\n")))
    names = rows[0]
    if missing := sorted({"ID", "Kernel Name", "Grid Size", "Block Size"} - set(names)):
        raise ToolError(f"ncu's raw page has no column {', '.join(missing)}: is this another version of ncu?")
    for i, row in enumerate(rows):
        if len(row) != len(names):
            raise ToolError(f"ncu's raw page is cut off: row {i} has {len(row)} of {len(names)} columns")
    if len(rows) < 3:
        raise ToolError("ncu's raw page is cut off: it has names and no launch")
    units = dict(zip(names, rows[1], strict=True))
    return [_make_kernel(dict(zip(names, row, strict=True)), units) for row in rows[2:]]


def _make_kernel(row: Mapping[str, str], units: Mapping[str, str]) -> KernelMetrics:
    metrics = {}
    for name, text in row.items():
        value = None if name in _PLACE or ":" in name else read_number(text)
        if value is not None:
            metrics[name] = value
    return KernelMetrics(
        row["Kernel Name"], _read_size(row["Grid Size"]), _read_size(row["Block Size"]), metrics, {n: units[n] for n in metrics if units[n]}
    )


def read_number(text: str) -> float | None:
    """Return a number as ncu writes it (``1,234.5``), or None for anything else: "", ``no data``, ``n/a``, ``nan``."""
    if not _NUMBER.match(text.strip()):
        return None
    value = float(text.replace(",", ""))
    return value if math.isfinite(value) else None


def _read_size(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", text))


def read_source_page(text: str) -> list[LineStalls]:
    """Return the source lines of a page of ``--print-source cuda,sass``. Raises :class:`ToolError` where it is cut off.

    Source text stands in the table with its own quotes, unescaped; the columns behind it are counted from the end.
    """
    found: dict[tuple[str, int], LineStalls] = {}
    file, names = "", list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith('"'):
            if names and line.strip():
                raise ToolError(f"line {number} of ncu's source page is not a row: {line[:80]}")
            continue
        if not line.endswith('"') or len(line) < 2:
            raise ToolError(f"ncu's source page is cut off in line {number}")
        parts = line[1:-1].split('","')
        if parts[0] == "File Path":
            file = '","'.join(parts[1:])
        elif parts[0] == "Line No":
            names = parts
        elif names and parts[0] != "Function Name":
            row = _read_row(parts, names, number)
            # Rows of instructions have no line of their own, and are counted in their line's.
            if parts[0].isdigit() and row.samples:
                key = (file, int(parts[0]))
                known = found.get(key)
                found[key] = _add_lines(known, row, *key)
    if not names:
        raise ToolError(f"ncu's source page has no table: {_quote(text)}")
    return sorted(found.values(), key=lambda each: -each.samples)


def _read_row(parts: Sequence[str], names: Sequence[str], number: int) -> LineStalls:
    extra = len(parts) - len(names)
    if extra < 0:
        raise ToolError(f"ncu's source page is cut off: line {number} has {len(parts)} of {len(names)} columns")
    source = '","'.join(parts[1 : 2 + extra])
    values = dict(zip(names[2:], parts[2 + extra :], strict=True))
    if "# Samples" not in values:
        raise ToolError("ncu's source page has no column '# Samples': was the report made without source counters?")
    stalls = {m[1]: int(read_number(v) or 0) for name, v in values.items() if (m := _STALL.match(name))}
    stalls = {name: count for name, count in stalls.items() if count and name != "selected"}
    return LineStalls("", 0, source.strip(), int(read_number(values["# Samples"]) or 0), stalls)


def _add_lines(known: LineStalls | None, row: LineStalls, file: str, line: int) -> LineStalls:
    if known is None:
        return LineStalls(file, line, row.text, row.samples, row.stalls)
    both = {k: known.stalls.get(k, 0) + row.stalls.get(k, 0) for k in dict.fromkeys((*known.stalls, *row.stalls))}
    return LineStalls(file, line, row.text, known.samples + row.samples, both)


def list_warnings(text: str) -> Iterator[str]:
    """Yield what ncu complains of in its own output, without its marks."""
    for line in text.splitlines():
        if line.startswith(("==ERROR==", "==WARNING==")):
            yield line.split("== ", 1)[-1].strip()


def _quote(text: str) -> str:
    return " / ".join(line.strip() for line in text.strip().splitlines()[:4])[:400] or "nothing was printed"
