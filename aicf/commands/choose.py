"""Read calls from standard input, one JSON object per line, and print the decision for each in the same order.

A call has "sizes" and may have "attributes" and "strides" (in elements, by tensor: of its rows, or a list of each dimension's). A decision
has "kernel", "variant", "how", "reason" and "predicted_us", and "legal": all kernels that serve the call; or "error", where none does. The
project's own kernels alone are decided among: libraries of others, which calls may get, are what these are compared with.

\b
Examples:
  echo '{"sizes": {"rows": 4096, "columns": 1000}}' | python -m aicf choose softmax --arch sm_90a
  python -m aicf choose gemm_bias_act --arch sm_90a < calls.jsonl
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from aicf.errors import SelectionError
from aicf.registry import HwCaps, Preferences, Problem, Registry, open_registry

Op = Annotated[str, typer.Argument(metavar="OP", help="an op of the frozen set", show_default=False)]
Arch = Annotated[str, typer.Option("--arch", metavar="sm_90a", help="the architecture", show_default=False)]


def run(op: Op, arch: Arch) -> int:
    """Run the verb."""
    registry, caps = open_registry(), HwCaps.parse(arch)
    for line in sys.stdin:
        if line.strip():
            print(json.dumps(choose(registry, op, _parse(line), caps)))
    return 0


def _parse(line: str) -> Problem:
    call = json.loads(line)
    if not isinstance(call, Mapping) or "sizes" not in call:
        raise ValueError(f"{line.strip()[:80]!r}: a call is a JSON object with sizes, and perhaps attributes and strides")
    strides = {name: tuple(each) if isinstance(each, list) else each for name, each in (call.get("strides") or {}).items()}
    return Problem(call["sizes"], call.get("attributes"), strides)


def choose(registry: Registry, op: str, problem: Problem, caps: HwCaps) -> dict[str, Any]:
    """Return a decision as plain values."""
    try:
        handle = registry.select(op, problem, caps, Preferences(prefer="own"))
    except SelectionError as error:
        return {"error": str(error).splitlines()[0]}
    tables = registry.find_tables(op, caps)
    legal = tables.core.ask(handle.query).legal
    return {
        "kernel": handle.kernel,
        "variant": str(handle.frozen.manifest["variant"]),
        "how": str(handle.how),
        "reason": handle.reason,
        "predicted_us": handle.predicted_us,
        "legal": [k.name for i, k in enumerate(tables.kernels) if legal >> i & 1],
    }
