"""Getting variants ready to be timed: built and verified, with progress; used by every command that times named variants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.benchmark.session import Judged, Session
from harness.build.builder import BuildResult
from harness.errors import BuildError
from harness.spec import Variant
from harness.terminal.console import open_progress
from harness.verify.plan import Effort


@dataclass(frozen=True)
class Ready:
    """Variants in the order in which they were named, with the binding that opens them and their verdicts."""

    builds: list[BuildResult]
    binding: Path
    judged: list[Judged]

    def require_right(self) -> None:
        """Raise :class:`BuildError` where one does not compile or is not right."""
        if failed := [j for j in self.judged if not j.ok]:
            raise BuildError("only correct variants are timed: " + "; ".join(f"{j.variant.name}: {j.reason}" for j in failed))


def make_ready(
    session: Session, variants: Sequence[Variant], *, quiet: bool, effort: Effort | None = None, committed_only: bool = False
) -> Ready:
    """Build and verify variants; ``effort`` and ``committed_only`` are those of :meth:`Session.judge`, ``quiet`` shows no progress."""
    op = session.loaded.op.name
    with open_progress(f"build {op}", len(variants), quiet=quiet) as progress:
        builds, binding = session.build(variants, lambda b: progress.advance(b.variant.name))

    def say(judged: Judged) -> None:
        progress.advance(f"{judged.variant.name}: {'passed' if judged.ok else f'failed: {judged.reason}'}")

    with open_progress(f"verify {op}", len(variants), quiet=quiet) as progress:
        judged = session.judge(builds, binding, reuse=True, on_judged=say, effort=effort, committed_only=committed_only)
    return Ready(builds, binding, judged)
