"""Prove every variant against the float64 reference; on the emulated device with the sanitizer on. Exits with 1 if one fails.

\b
Examples:
  python -m harness verify gemm_bias_act
  python -m harness verify gemm_bias_act --variant naive --json
  python -m harness verify softmax --device emulated --schedules 6
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from device import UnavailableError
from harness.benchmark.session import Judged, Session
from harness.commands.options import AsJson, DeviceName, Jobs, OpName, ProblemNames, TargetName, VariantNames
from harness.discover import find_op
from harness.errors import ExitCode
from harness.terminal.console import open_progress, print_json
from harness.terminal.tables import print_tables
from harness.verify.plan import THOROUGH, describe_plan, make_plan
from harness.verify.tables import list_fault_lines, make_verify_table


def run(
    op: OpName,
    variant: VariantNames = None,
    problem: ProblemNames = None,
    device: DeviceName = None,
    target: TargetName = None,
    jobs: Jobs = None,
    schedules: Annotated[
        int, typer.Option(min=0, metavar="N", help="run under N orders of blocks and warps (emulated device), and compare the bits")
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="draw other problems; the same number draws the same ones")] = 0,
    json: AsJson = False,
) -> ExitCode:
    """Run the verb."""
    loaded = find_op(op)
    variants = loaded.op.select_variants(variant or [])
    effort = replace(THOROUGH, schedules=schedules, seed=seed)
    steps = make_plan(loaded.op, effort, problem or [])
    with Session.start(loaded, f"verify {op}", device=device, target=target, jobs=jobs) as session:
        if schedules and session.device.observer is None:
            raise UnavailableError("--schedules needs the emulated device, which can choose the order of blocks: --device emulated")
        with open_progress(f"build {op}", len(variants), quiet=json) as progress:
            builds, binding = session.build(variants, lambda b: progress.advance(b.variant.name))

        def say(judged: Judged) -> None:
            progress.advance(f"{judged.variant.name}: {'passed' if judged.ok else f'failed: {judged.reason}'}")

        with open_progress(f"verify {op}", len(variants), quiet=json) as progress:
            judged = session.judge(builds, binding, problem_names=problem or [], reuse=False, on_judged=say, effort=effort)
        results = [j.result for j in judged if j.result is not None]
        faults = session.check_op(problem or [])
        plan = describe_plan(loaded.op, steps, effort)
        if json:
            print_json(
                {
                    "op": op,
                    "device": session.device_kind,
                    "run": session.recorded_run,
                    "plan": plan,
                    "op_faults": [f.describe() for f in faults],
                    "variants": [r.to_json() for r in results],
                }
            )
        else:
            print_tables([make_verify_table(op, results, session.device.properties.name)])
            print(f"{plan}. {session.describe_run()}")
            for line in [f"op {op}: {f.describe()}" for f in faults] + [line for r in results for line in list_fault_lines(r)]:
                print(line)
    return ExitCode.DONE if all(j.ok for j in judged) and not faults else ExitCode.CHECK_FAILED
