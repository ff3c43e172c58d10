"""``profile``: one launch of each variant under Nsight and compute-sanitizer, or under the emulated device's counters."""

from __future__ import annotations

from dataclasses import dataclass

from device.settings import find_project_root
from harness.benchmark.session import Session
from harness.profiling.run import Profile, Tool, profile_on_emulator, profile_variant
from harness.profiling.tools import Tools
from harness.spec import Op, Problem, SpecError, Variant
from harness.terminal.console import open_progress
from harness.verbs.naming import Names, OpLike, list_names, take_op


@dataclass(frozen=True)
class Profiled:
    """What was found of each variant on each problem, the tools without which one cannot say much, and where the results are."""

    profiles: list[Profile]
    needed: frozenset[Tool]
    where: str

    @property
    def skipped(self) -> dict[str, str]:
        """Why tools did not run, by their names."""
        return {name: reason for p in self.profiles for name, reason in p.skipped.items()}

    @property
    def is_failed(self) -> bool:
        """Whether a tool found an error, or something went wrong."""
        return any(p.num_errors or p.broken for p in self.profiles)

    @property
    def is_incomplete(self) -> bool:
        """Whether a tool that was needed did not run."""
        return bool(self.needed & {Tool(name) for name in self.skipped})


def profile(
    op: OpLike,
    variant: Names = None,
    problem: Names = None,
    tool: Names = None,
    timeout: float = 300.0,
    device: str | None = None,
    target: str | None = None,
    jobs: int | None = None,
    *,
    quiet: bool = False,
) -> Profiled:
    """Look at a launch of each variant with each tool; what each found is recorded at once.

    Raises SpecError for names that there are not.
    """
    tools, loaded = list_names(tool), take_op(op)
    if unknown := [t for t in tools if t not in list(Tool)]:
        raise SpecError(f"--tool {unknown[0]}: must be one of {', '.join(Tool)}")
    name = loaded.op.name
    wanted = [Tool(t) for t in dict.fromkeys(tools)] if tools else list(Tool)
    needed = frozenset(wanted) if tools else frozenset({Tool.NCU, Tool.SANITIZER})
    folder = find_project_root() / ".aicf" / "profiles"
    found: list[Profile] = []
    with Session.start(loaded, f"profile {name}", device=device, target=target, jobs=jobs) as session:
        emulated = session.device.is_emulated
        if emulated and tools:
            raise SpecError("--tool chooses among tools of a GPU; the emulated device counts by itself")
        pairs = _choose(loaded.op, list_names(variant), list_names(problem), "emulated" if emulated else "bench")
        variants = list(dict.fromkeys(v for v, _ in pairs))
        with open_progress(f"build {name}", len(variants), quiet=quiet) as progress:
            builds = {b.variant: b for b in session.build(variants, lambda b: progress.advance(b.variant.name))[0]}
        with_tools = Tools(timeout)
        with open_progress(f"profile {name}", len(pairs), quiet=quiet) as progress:
            for chosen, on in pairs:
                build = builds[chosen]
                if build.library is None:
                    found.append(Profile(chosen.name, on.name, broken={"build": build.error or "it does not compile"}))
                elif emulated:
                    found.append(profile_on_emulator(session, build, on))
                else:
                    found.append(profile_variant(session, with_tools, build, on, wanted, folder))
                progress.advance(f"{chosen.name} on {on.name}")
        return Profiled(found, needed, session.describe_run())


def _choose(op: Op, variants: list[str], problems: list[str], suite: str) -> list[tuple[Variant, Problem]]:
    """Return what to profile: the named variants on the named problems, else on the suite's first; without a name the op's own choice."""
    on = op.select_problems(suite, problems)
    on = on if problems else on[:1]
    if variants:
        return [(v, p) for p in on for v in op.select_variants(variants)]
    if op.choose is not None:
        return [(op.choose(p).variant, p) for p in on]
    return [(op.variants[-1], p) for p in on]
