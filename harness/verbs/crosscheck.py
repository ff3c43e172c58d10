"""``crosscheck``: two devices' outputs, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from device import open_device
from device.settings import read_settings
from device.toolchain import find_toolchain
from harness.build.binding import build_binding, open_variant
from harness.build.builder import build_op
from harness.errors import BuildError
from harness.spec import SpecError
from harness.targets import find_target
from harness.terminal.console import claim_output, open_progress
from harness.verbs.naming import Names, OpLike, list_names, take_op
from harness.verify.crosscheck import Agreement, compare_outputs, load_outputs, record_outputs, save_outputs


@dataclass(frozen=True)
class Crosschecked:
    """How many outputs there are, this device in words, the other one, and a row a variant; the latter two where there is another."""

    num_outputs: int
    left: str
    right: str = ""
    rows: Sequence[Agreement] = ()


def crosscheck(
    op: OpLike,
    save: Path | None = None,
    against: Path | None = None,
    variant: Names = None,
    device: str | None = None,
    target: str | None = None,
    *,
    quiet: bool = False,
) -> Crosschecked:
    """Run variants on seeded inputs, and keep the outputs in ``save``, or compare them with those of ``against``.

    Raises SpecError unless one of the two is given, BuildError where a variant does not compile.
    """
    if (save is None) == (against is None):
        raise SpecError("crosscheck needs one of --save FILE and --against FILE")
    loaded = take_op(op)
    name = loaded.op.name
    if save is not None:
        claim_output(Path(save), "--save")
    toolchain = find_toolchain()
    opened = open_device(device)
    variants = loaded.op.select_variants(list_names(variant))
    results = build_op(loaded, variants, toolchain=toolchain, target=find_target(target or read_settings().target))
    if failed := [r.variant.name for r in results if r.library is None]:
        raise BuildError(f"does not compile: {', '.join(failed)}; python -m harness build {name} shows why")
    binding = build_binding(loaded, toolchain)
    launchables = {r.variant: open_variant(loaded.op, binding, r.library, r.variant) for r in results if r.library is not None}
    problems = loaded.op.select_problems("verify")
    outputs: dict[str, Any] = {}
    with open_progress(f"crosscheck {name}", len(problems), quiet=quiet) as progress:
        for problem in problems:
            outputs.update(record_outputs(opened, loaded.op, launchables, [problem], ("normal",)))
            progress.advance(problem.name)
    p = opened.properties
    about = f"{p.name}, driver {p.driver_version}, runtime {p.runtime_version}, nvcc {toolchain.nvcc_version}"
    if against is None:
        assert save is not None
        save_outputs(Path(save), outputs, about)
        return Crosschecked(len(outputs), about)
    recorded, other = load_outputs(Path(against))
    rows = compare_outputs(loaded.op, outputs, {k: v for k, v in recorded.items() if k in outputs})
    return Crosschecked(len(outputs), about, other, rows)
