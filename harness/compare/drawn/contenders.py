"""Building and opening the contenders on drawn problems: frozen kernels from sealed sources, variants of the op, libraries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.benchmark.session import Session
from harness.build.binding import open_variant
from harness.build.builder import BuildResult, open_store
from harness.build.sealed import SealedKernels, open_sealed
from harness.compare.drawn.frozen_choice import FrozenChoice
from harness.compare.drawn.problems import DrawnProblem
from harness.compare.drawn.timing import Match, line_up
from harness.errors import BuildError
from harness.spec import Launchable, Problem


@dataclass(frozen=True)
class Plan:
    """What is known of drawn problems before anything is built: the framework's decisions and the op's own choices ("" for none)."""

    drawn: Sequence[DrawnProblem]
    choices: Sequence[FrozenChoice]
    owns: Sequence[str]

    @property
    def problems(self) -> list[Problem]:
        """The problems."""
        return [d.problem for d in self.drawn]

    def list_kernels(self, *, with_all: bool) -> list[str]:
        """Return the frozen kernels that are to be built: those that are chosen, or all that serve."""
        names = {k for c in self.choices if c.kernel for k in (c.legal if with_all else (c.kernel,))}
        return sorted(names)

    def list_variants(self, listed: Sequence[str], *, with_all: bool) -> list[str]:
        """Return the variants that are to be built: the op's choices, whose code may have changed since; all where nothing is chosen."""
        owns = dict.fromkeys(own for own in self.owns if own)
        if with_all or any(not c.kernel and not own for c, own in zip(self.choices, self.owns, strict=True)):
            return list(dict.fromkeys([*listed, *owns]))
        return sorted(owns)


@dataclass(frozen=True)
class Contenders:
    """Those who are there: builds and opened kernels by name. ``sealed_as`` are the variants of the op that frozen kernels still are."""

    builds: Mapping[str, BuildResult]
    sealed: Mapping[str, Launchable]
    sealed_as: Mapping[str, str]
    variants: Mapping[str, Launchable]

    @property
    def code_hashes(self) -> dict[str, str]:
        """Hashes of the machine code of the variants."""
        return {name: self.builds[name].code_hash for name in self.variants}

    def match(self, plan: Plan, peers: Mapping[str, Launchable], *, with_all: bool) -> list[Match]:
        """Return who is timed on each problem."""
        rows = zip(plan.drawn, plan.choices, plan.owns, strict=True)
        return [line_up(d, c, own, self.sealed, self.sealed_as, self.variants, peers, with_all=with_all) for d, c, own in rows]


def build_contenders(session: Session, kernels: Sequence[str], variants: Sequence[str], say: Callable[[str], None]) -> Contenders:
    """Build frozen kernels and variants of the op, and open them; raises :class:`BuildError` where one does not compile."""
    loaded, jobs = session.loaded, session.settings.jobs
    made: dict[str, Any] = {}
    if kernels:
        made = SealedKernels(loaded, session.toolchain, open_store()).build(kernels, jobs, say)
    sealed = {name: open_sealed(loaded.op, op, binding, build) for name, (build, binding, op) in made.items()}
    opened: dict[str, Launchable] = {}
    builds = {name: build for name, (build, _, _) in made.items()}
    if variants:
        results, binding = session.build(loaded.op.select_variants(variants), lambda b: say(b.variant.name))
        if failed := [b for b in results if b.library is None]:
            raise BuildError(f"{failed[0].variant.name} does not compile:\n{failed[0].error}")
        for build in results:
            assert build.library is not None
            builds[build.variant.name] = build
            opened[build.variant.name] = open_variant(loaded.op, binding, build.library, build.variant)
    same = {name: build.variant.name for name, (build, _, _) in made.items() if _is_still(build, builds.get(build.variant.name))}
    return Contenders(builds, sealed, same, opened)


def _is_still(frozen: BuildResult, present: BuildResult | None) -> bool:
    """Return whether a frozen kernel does what the variant of its name does now; one that is not built is taken for the same."""
    return present is None or frozen.launch_hash == present.launch_hash
