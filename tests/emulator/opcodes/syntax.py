"""The emulator's own list of lane arithmetic: every spelling that the syntax table of ``arith/find.cpp`` admits.

A row of that table is a syntax line: ``{...}`` is optional, ``(a|b)`` a choice, ``<name>`` a choice that is defined above the table. The
corpus derives an instruction from each spelling, so a new row without a recording fails a test.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).resolve().parents[3] / "device/emulator/src/exec/arith/find.cpp"
_PACKED = {"f16x2": 32, "bf16x2": 32, "u16x2": 32, "s16x2": 32, "f32x2": 64, "e4m3x2": 16, "e5m2x2": 16, "tf32": 32}
_TYPE = re.compile(r"(?:[usbf]|bf|tf|e4m|e5m)\d+(?:x2)?")


@dataclass(frozen=True)
class Spelling:
    """``text`` such as ``add.sat.s32``; ``operands`` in the table's letters; ``widths`` in bits of the registers among them."""

    text: str
    operands: str
    widths: dict[str, int]


def find_spellings() -> Iterator[Spelling]:
    """Yield what the table admits, in its order; rows that only say why a form is refused are left out."""
    text = TABLE.read_text(encoding="utf-8")
    sets = dict(re.findall(r'^    \{"(\w+)", "([^"]+)"\},$', text, re.MULTILINE))
    for syntax, operands, kinds, pick in re.findall(r'^    \{"([^"]+)", "([^"]+)", "([^"]+)", (\w+)', text, re.MULTILINE):
        if pick == "nullptr":
            continue
        resolved = re.sub(r"<(\w+)>", lambda match: f"({sets[match[1]]})", re.sub(r"<(\w+)>", lambda match: f"({sets[match[1]]})", syntax))
        for spelling in expand(resolved):
            yield Spelling(spelling, operands, _find_widths(spelling, operands, kinds))


def expand(syntax: str) -> Iterator[str]:
    """Yield every string of a syntax line without names: ``{x}`` is x or nothing, ``(x|y)`` one of the two; they nest."""
    start = min((i for i in (syntax.find("{"), syntax.find("(")) if i >= 0), default=-1)
    if start < 0:
        yield syntax
        return
    opening, closing = syntax[start], "}" if syntax[start] == "{" else ")"
    depth, end = 0, start
    for end in range(start, len(syntax)):
        depth += (syntax[end] == opening) - (syntax[end] == closing)
        if depth == 0:
            break
    inner, rest = syntax[start + 1 : end], syntax[end + 1 :]
    for choice in ["", inner] if opening == "{" else _split_choices(inner):
        yield from (syntax[:start] + tail for tail in expand(choice + rest))


def _split_choices(text: str) -> list[str]:
    choices, depth = [""], 0
    for char in text:
        depth += (char in "({") - (char in ")}")
        if char == "|" and depth == 0:
            choices.append("")
        else:
            choices[-1] += char
    return choices


def _find_widths(spelling: str, operands: str, kinds: str) -> dict[str, int]:
    """Letters of ``kinds``: t u v the spelling's first, second, third type; w twice the first; 4 and i 32 bits; - no register."""
    types = [part for part in spelling.split(".")[1:] if _TYPE.fullmatch(part)]

    def width(kind: str) -> int:
        if kind in "4i":
            return 32
        name = types[min("tuv".index("t" if kind == "w" else kind), len(types) - 1)]
        bits = _PACKED.get(name) or int(re.sub(r"\D", "", name))
        if bits < 8:  # cvt.pack's results of 2 and 4 bits: its sources are words
            return 32
        return 2 * bits if kind == "w" else max(bits, 16)

    return {letter: width(kind) for letter, kind in zip(operands, kinds, strict=False) if kind != "-"}
