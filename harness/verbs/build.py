"""``build``: variants and the binding of an op, compiled or taken from the cache."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from device.settings import read_settings
from device.toolchain import find_toolchain
from harness.benchmark.first_look import select_first_look
from harness.build.binding import build_binding
from harness.build.builder import BuildResult, build_op, describe_result, open_store
from harness.targets import Target, find_target
from harness.terminal.console import open_progress
from harness.verbs.naming import Names, OpLike, list_names, take_op


@dataclass(frozen=True)
class Built:
    """What became of each variant, in their order; the binding; and the GPU that they are for."""

    op: str
    builds: list[BuildResult]
    binding: Path
    target: Target

    @property
    def failed(self) -> list[BuildResult]:
        """The variants that do not compile."""
        return [b for b in self.builds if b.error]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        variants = [describe_result(b) for b in self.builds]
        return {"op": self.op, "target": self.target.name, "binding": str(self.binding), "variants": variants}


def build(
    op: OpLike,
    variant: Names = None,
    target: str | None = None,
    jobs: int | None = None,
    *,
    first_look: bool = False,
    quiet: bool = False,
) -> Built:
    """Compile variants and the binding; a variant that does not compile is a result with the compiler's text.

    ``first_look`` takes those that :func:`harness.verbs.bench.bench` would take, of an op of which none is named.

    Raises SpecError for names that there are not, BuildError where the binding does not compile.
    """
    loaded = take_op(op)
    name = loaded.op.name
    names = list_names(variant)
    variants = loaded.op.select_variants(names)
    if first_look and not names:
        variants = select_first_look(loaded.op, loaded.op.select_problems("emulated"))
    chosen = find_target(target or read_settings().target)
    toolchain, store = find_toolchain(), open_store()
    with open_progress(f"build {name}", len(variants), quiet=quiet) as progress:

        def say(r: BuildResult) -> None:
            progress.advance(f"{r.variant.name}: {'failed' if r.error else 'cached' if r.cached else f'{r.seconds:.1f} s'}")

        builds = build_op(loaded, variants, toolchain=toolchain, target=chosen, jobs=jobs, store=store, on_result=say)
    return Built(name, builds, build_binding(loaded, toolchain, store=store), chosen)
