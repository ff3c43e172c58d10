"""``verify``: every variant against the float64 reference."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from device import UnavailableError
from harness.benchmark.pipeline import build_and_judge
from harness.benchmark.session import Judged, Session
from harness.build.builder import BuildResult
from harness.terminal.console import open_stages
from harness.verbs.naming import Names, OpLike, list_names, take_op
from harness.verify.findings import Fault, VerifyResult
from harness.verify.plan import THOROUGH, describe_plan, make_plan


@dataclass(frozen=True)
class Verified:
    """The verdict on each variant, what is wrong with the op itself, and what was run, where."""

    op: str
    judged: list[Judged]
    op_faults: tuple[Fault, ...]
    plan: str
    device_kind: str
    device_name: str
    run: int | None
    where: str

    @property
    def results(self) -> list[VerifyResult]:
        """The verdicts in full."""
        return [j.result for j in self.judged if j.result is not None]

    @property
    def ok(self) -> bool:
        """Whether all is right."""
        return all(j.ok for j in self.judged) and not self.op_faults

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        faults = [f.describe() for f in self.op_faults]
        known = {"op": self.op, "device": self.device_kind, "run": self.run, "plan": self.plan, "op_faults": faults}
        return known | {"variants": [r.to_json() for r in self.results]}


def verify(
    op: OpLike,
    variant: Names = None,
    problem: Names = None,
    device: str | None = None,
    target: str | None = None,
    jobs: int | None = None,
    schedules: int = 0,
    seed: int = 0,
    *,
    quiet: bool = False,
) -> Verified:
    """Prove variants on what the op lists and on what nobody listed; each verdict is recorded at once.

    Raises SpecError for names that there are not, UnavailableError for ``schedules`` on a GPU.
    """
    loaded, names = take_op(op), list_names(problem)
    name = loaded.op.name
    variants = loaded.op.select_variants(list_names(variant))
    effort = replace(THOROUGH, schedules=schedules, seed=seed)
    steps = make_plan(loaded.op, effort, names)
    with Session.start(loaded, f"verify {name}", device=device, target=target, jobs=jobs) as session:
        if schedules and session.device.observer is None:
            raise UnavailableError("--schedules needs the emulated device, which can choose the order of blocks: --device emulated")
        with open_stages(f"verify {name}", {"build": len(variants), "verify": len(variants)}, quiet=quiet) as stages:

            def count(build: BuildResult) -> None:
                stages.advance("build", build.variant.name, known=build.cached)

            def say(judged: Judged) -> None:
                stages.advance("verify", judged.variant.name)
                if not judged.ok:
                    stages.say(f"{judged.variant.name} failed: {judged.reason}")

            judged, _ = build_and_judge(session, variants, on_built=count, on_judged=say, reuse=False, problem_names=names, effort=effort)
        faults, plan = session.check_op(names), describe_plan(loaded.op, steps, effort)
        device_name, where = session.device.properties.name, session.describe_run()
        return Verified(name, judged, faults, plan, session.device_kind, device_name, session.recorded_run, where)
