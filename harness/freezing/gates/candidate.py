"""A variant on its way into the frozen set, and the answers of the gates."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.build.builder import BuildResult

# A reason given with --force-reason opens these; what says that a kernel is right cannot be forced.
FORCIBLE = frozenset({"clean tree", "no spills", "no warnings", "faster"})


@dataclass(frozen=True)
class Gate:
    """One gate's answer."""

    name: str
    passed: bool
    detail: str

    def describe(self) -> str:
        """Return one line."""
        return f"{'pass   ' if self.passed else 'REFUSED'}  {self.name}: {self.detail}"

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"name": self.name, "passed": self.passed, "detail": self.detail}


@dataclass
class Candidate:
    """A variant that is to be promoted, and what its gates found."""

    build: BuildResult
    binding: Path
    gates: list[Gate] = field(default_factory=list)
    sources: dict[str, bytes] = field(default_factory=dict)
    manifest: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The variant's name."""
        return self.build.variant.name

    def find_refusals(self, *, forced: bool) -> list[Gate]:
        """Return the gates that stay shut."""
        return [g for g in self.gates if not g.passed and not (forced and g.name in FORCIBLE)]
