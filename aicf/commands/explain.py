"""Print an op's kernels, what is known about their time for a call, and why each was chosen or dropped; or how a network was compiled.

A network is FILE.py:NAME, where NAME is a function without arguments that returns what aicf.compile or aicf.compile_step returned, or the
folder of a saved one. What each pass did is printed, with the numbers that decided, then the plan; --draw FOLDER adds pictures.

Where problems like it are published beside libraries (profiles/OP/drawn.json), the fastest library's time is printed too. A library
that the frozen set names may stand for a kernel (cuBLASLt); whether it does, and why not, is printed below the kernels.

\b
Examples:
  python -m aicf explain softmax rows=4096 columns=1000 --arch sm_90a
  # what a layer of bf16 gets that reads its weights as [N, K]
  python -m aicf explain gemm_bias_act M=128 N=4096 K=4096 \\
    dtype=bfloat16 b_layout=nk act=silu with_bias=true
  # among kernels with the same bits on every run, without a workspace
  python -m aicf explain gemm_bias_act M=64 N=512 K=4096 \\
    --deterministic --max-workspace 0
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aicf.registry import HwCaps, Preferences, Problem, explain, open_registry
from aicf.train.explaining import explain_network, find_network, is_network
from contract.calls import Interface
from device import open_device

if TYPE_CHECKING:
    from aicf.registry import Explanation


_PLAIN_WIDTH = 240  # columns where nobody looks: one line per kernel


class Prefer(StrEnum):
    """What a choice is made by."""

    SPEED = "speed"
    MEMORY = "memory"
    OWN = "own"


Op = Annotated[str, typer.Argument(metavar="OP|NETWORK", help="a frozen op; FILE.py:NAME or a saved folder", show_default=False)]
Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="NAME=VALUE...", help="sizes (M=4096), attributes (act=silu), row strides (lda=4104), addresses (a@=4)", show_default=False
    ),
]
Arch = Annotated[str | None, typer.Option("--arch", metavar="sm_90a", help="the architecture; by default that of the open device")]
Deterministic = Annotated[bool, typer.Option("--deterministic", help="only kernels with the same bits on every run")]
MaxWorkspace = Annotated[int | None, typer.Option("--max-workspace", metavar="BYTES", help="only kernels that need no more than this")]
Accumulate = Annotated[str | None, typer.Option("--accumulate", metavar="DTYPE", help="only kernels that are known to sum in this dtype")]
Draw = Annotated[Path | None, typer.Option("--draw", metavar="FOLDER", help="of a network: write pictures of graphs and memory there")]
PreferBy = Annotated[Prefer, typer.Option("--prefer", help="speed; memory: only the least workspace; own: no library of others")]


def run(
    op: Op,
    words: Words = None,
    arch: Arch = None,
    deterministic: Deterministic = False,
    max_workspace: MaxWorkspace = None,
    accumulate: Accumulate = None,
    prefer: PreferBy = Prefer.SPEED,
    draw: Draw = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document instead of a table")] = False,
) -> int:
    """Run the verb."""
    if is_network(op):
        print("\n".join(explain_network(find_network(op), draw)))
        return 0
    interface = Interface(op, open_registry().read(op).frozen.interface)
    problem = parse_problem(interface, words or ())
    prefs = Preferences(deterministic, max_workspace, accumulate, prefer.value)
    explanation = explain(op, problem, HwCaps.parse(arch) if arch else _ask_device(), prefs)
    if as_json:
        print(json.dumps(explanation.to_json(), indent=2))
    else:
        _print(explanation)
    return 0 if explanation.chosen else 1


def _ask_device() -> HwCaps:
    return HwCaps.of(open_device())


def parse_problem(interface: Interface, words: Sequence[str]) -> Problem:
    """Return the problem that words name; raises ValueError for a word that is no size, attribute, row stride or address of the op."""
    sizes: dict[str, int] = {}
    attributes: dict[str, Any] = {}
    strides: dict[str, int] = {}
    addresses: dict[str, int] = {}
    choices = {a["name"]: a["choices"] for a in interface.attributes}
    with_stride = {t["stride"]: t["name"] for t in interface.tensors if t["stride"]}
    for word in words:
        name, mark, value = word.partition("=")
        if not mark:
            raise ValueError(f"{word!r}: must be NAME=VALUE")
        if name in interface.size_names:
            sizes[name] = _parse_number(word, value)
        elif name in choices:
            attributes[name] = _parse_choice(word, value, choices[name])
        elif name in with_stride:
            strides[with_stride[name]] = _parse_number(word, value)
        elif name.endswith("@") and name[:-1] in interface.tensor_names:
            addresses[name[:-1]] = _parse_number(word, value)
        else:
            known = [*interface.size_names, *choices, *with_stride, *(f"{t}@" for t in sorted(interface.tensor_names))]
            raise ValueError(f"{word!r}: {interface.op} has no {name!r}; there are: {', '.join(known)}")
    return Problem(sizes, attributes, strides, addresses)


def _parse_number(word: str, value: str) -> int:
    if not value.isdecimal():
        raise ValueError(f"{word!r}: must be a whole number")
    return int(value)


def _parse_choice(word: str, value: str, choices: Sequence[Any]) -> Any:
    names: Mapping[str, Any] = {str(c).lower() if isinstance(c, bool) else str(c): c for c in choices}
    if value not in names:
        raise ValueError(f"{word!r}: must be one of {', '.join(names)}")
    return names[value]


def _print(explanation: Explanation) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in ("kernel", "role", "measured us", "survey us", "near us", "estimate us", "why"):
        table.add_column(name, overflow="fold")
    for c in sorted(explanation.candidates, key=lambda c: (c.dropped != "", c.kernel)):
        times = [f"{t:.4g}" if t is not None else "-" for t in (c.measured_us, c.survey_us, c.near_us, c.estimate_us)]
        role = "/".join(c.roles) + (" (provisional)" if c.statuses == ("provisional",) else "")
        chosen = explanation.chosen == c.kernel
        style = "bold" if chosen else None
        table.add_row(c.kernel, role, *times, f"chosen: {explanation.reason}" if chosen else c.dropped, style=style)
    console = Console()
    if not console.is_terminal:
        console = Console(width=_PLAIN_WIDTH)
    console.print(f"{explanation.op} in bucket {explanation.bucket}", highlight=False)
    if explanation.nearest:
        console.print(f"nearest measured problem: {explanation.nearest}", highlight=False)
    console.print(table)
    for each in explanation.libraries:
        why = each.dropped or f"chosen: {explanation.reason}"
        console.print(f"{each.library}: {why}", highlight=False, style=None if each.dropped else "bold")
    if explanation.library:
        style = "bold" if explanation.library.is_frozen and explanation.library.speedup < 1 else None
        console.print(f"library: {explanation.library.describe()}", highlight=False, style=style)
    if explanation.chosen is None:
        console.print(explanation.reason)
