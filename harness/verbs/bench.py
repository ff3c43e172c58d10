"""``bench``: variants built, verified, and timed against their peers on a GPU, or counted on the emulated device."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.benchmark.first_look import select_first_look
from harness.benchmark.pipeline import build_and_judge
from harness.benchmark.rows import BenchRow
from harness.benchmark.run import count_on_emulator, find_note, open_peers, time_on_gpu
from harness.benchmark.session import Judged, Session
from harness.build.builder import BuildResult
from harness.discover import LoadedOp, load_peers
from harness.spec import Problem, Variant
from harness.terminal.console import open_stages
from harness.verbs.naming import Names, OpLike, list_names, take_op
from harness.verify.findings import Fault


@dataclass(frozen=True)
class Benched:
    """A row per variant (or peer) and problem, the verdicts, what is wrong with the op itself, and where it was measured.

    ``left_out`` are the names of listed variants that a first look does without.
    """

    loaded: LoadedOp
    rows: list[BenchRow]
    judged: list[Judged]
    op_faults: tuple[Fault, ...]
    left_out: tuple[str, ...]
    problems: tuple[Problem, ...]
    device_kind: str
    device_name: str
    target: str
    run: int | None
    where: str

    @property
    def note(self) -> str:
        """How far modelled times can be trusted, "" where there are none."""
        return find_note(self.rows)

    @property
    def ok(self) -> bool:
        """Whether all that was measured is right."""
        return not self.op_faults and all(j.ok for j in self.judged) and not any(r.verified == "failed" for r in self.rows)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "op": self.loaded.op.name,
            "device": self.device_kind,
            "device_name": self.device_name,
            "target": self.target,
            "run": self.run,
            "note": self.note,
            "op_faults": [f.describe() for f in self.op_faults],
            "left_out": list(self.left_out),
            "rows": [r.to_json() for r in self.rows],
        }


def bench(
    op: OpLike,
    variant: Names = None,
    problem: Names = None,
    device: str | None = None,
    target: str | None = None,
    jobs: int | None = None,
    *,
    first_look: bool = False,
    quiet: bool = False,
) -> Benched:
    """Build and verify variants, and measure those that are right; every figure is recorded at once.

    A ``first_look`` at an op with many variants, none of which is named, takes some of each kernel on the emulated device
    (:mod:`harness.benchmark.first_look`).

    Raises SpecError for names that there are not.
    """
    loaded = take_op(op)
    names = list_names(variant)
    variants = loaded.op.select_variants(names)
    with Session.start(loaded, f"bench {loaded.op.name}", device=device, target=target, jobs=jobs) as session:
        problems = loaded.op.select_problems("emulated" if session.device.is_emulated else "bench", list_names(problem))
        if first_look and not names and session.device.is_emulated:
            variants = select_first_look(loaded.op, problems)
        left_out = () if names else tuple(v.name for v in loaded.op.variants if v not in variants)
        judged, rows = _work(session, variants, problems, quiet=quiet)
        faults, device_name = session.check_op(), session.device.properties.name
        where, run = session.describe_run(), session.recorded_run
        return Benched(loaded, rows, judged, faults, left_out, problems, session.device_kind, device_name, session.target.name, run, where)


def _work(
    session: Session, variants: Sequence[Variant], problems: Sequence[Problem], *, quiet: bool
) -> tuple[list[Judged], list[BenchRow]]:
    """Build, verify, and count or time, with the progress of all of it in one line."""
    emulated = session.device.is_emulated
    peers = () if emulated else load_peers(session.loaded.folder)
    last, num_last = ("count", len(variants)) if emulated else ("time", (len(variants) + len(peers)) * len(problems))
    totals = {"build": len(variants), "verify": len(variants), last: num_last}
    with open_stages(f"bench {session.loaded.op.name}", totals, quiet=quiet) as stages:

        def count(build: BuildResult) -> None:
            stages.advance("build", build.variant.name, known=build.cached)

        def say(judged: Judged) -> None:
            stages.advance("verify", judged.variant.name, known=judged.earlier is not None)
            if not judged.ok:
                stages.say(f"{judged.variant.name} failed: {judged.reason}")

        judged, binding = build_and_judge(session, variants, on_built=count, on_judged=say, reuse=True)
        passed = sum(j.ok for j in judged)
        if emulated:
            stages.set_total("count", passed)
            return judged, count_on_emulator(session, judged, binding, problems, lambda v, known: stages.advance("count", v, known=known))
        opened = open_peers(peers, stages.say)
        stages.set_total("time", (passed + len(opened)) * len(problems))
        timed = time_on_gpu(session, judged, binding, problems, opened, functools.partial(stages.advance, "time"))
        return judged, [row for group in timed for row in group]
