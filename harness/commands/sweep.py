"""``sweep``: time a wide sample of an op's tunable space on a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.commands.options import DeviceName, Jobs, OpName, ProblemNames, TargetName
from harness.errors import ExitCode

PerKernel = Annotated[int, typer.Option("--per-kernel", min=1, metavar="N", help="variants of each kernel, the listed ones among them")]
Samples = Annotated[int, typer.Option("--samples", min=5, metavar="N", help="cold launches that are timed of each")]
SavePath = Annotated[
    Path | None, typer.Option("--save", metavar="FILE", help="write the points as JSON, for the time model", dir_okay=False)
]


def run(
    op: OpName,
    problem: ProblemNames = None,
    per_kernel: PerKernel = 24,
    samples: Samples = 20,
    save: SavePath = None,
    device: DeviceName = None,
    target: TargetName = None,
    jobs: Jobs = None,
) -> ExitCode:
    """Build a sample of an op's tunable space, prove each variant on the op's small problems, and time a few cold launches of it.

    \b
    Examples:
      python -m harness sweep transpose
      python -m harness sweep softmax --per-kernel 100 --save softmax.json
    """
    from datetime import UTC, datetime

    from device import UnavailableError, open_device
    from device.settings import find_project_root, read_settings
    from harness.build import build_binding, build_op
    from harness.console import open_progress
    from harness.discover import find_op
    from harness.provenance import find_commit
    from harness.space import sample_space, select_sweep_problems
    from harness.sweep import Sweep, run_sweep, save_sweep, time_sweep
    from harness.targets import find_target
    from harness.toolchain import find_toolchain

    loaded = find_op(op)
    settings = read_settings()
    chosen = find_target(target or settings.target)
    toolchain = find_toolchain()
    opened = open_device(device)
    if opened.is_emulated:
        raise UnavailableError(
            f"a sweep measures times, which need a GPU; `python -m harness model {op}` ranks the same variants without one"
        )
    problems = select_sweep_problems(loaded.op, problem or [])
    variants = sample_space(loaded.op, per_kernel)
    with open_progress(f"build {op}", len(variants)) as progress:
        builds = build_op(
            loaded,
            variants,
            toolchain=toolchain,
            target=chosen,
            jobs=jobs or settings.jobs,
            on_result=lambda b: progress.advance(b.variant.name if b.error is None else f"{b.variant.name}: does not compile"),
        )
    binding = build_binding(loaded, toolchain)
    with open_progress(f"time {op}", len(variants) * len(problems)) as progress:
        points = run_sweep(
            time_sweep(opened, loaded, builds, binding, problems, samples),
            lambda p: progress.advance(
                f"{p.variant} {p.problem}: {f'{p.median_us:.2f} us' if p.status == 'passed' else p.status + ' ' + p.reason}"
            ),
        )
    about = {
        "device": opened.properties.name,
        "target": chosen.name,
        "toolchain": toolchain.identity,
        "commit": find_commit(find_project_root()).sha,
        "date": datetime.now(UTC).date().isoformat(),
        "samples": str(samples),
    }
    if save is not None:
        save_sweep(save, Sweep(about, tuple(points)))
    timed = [p for p in points if p.status == "passed"]
    for name in (p.name for p in problems):
        best = sorted((p for p in timed if p.problem == name), key=lambda p: p.median_us)[:5]
        print(f"{name}: fastest of {sum(p.problem == name for p in timed)}")
        for p in best:
            print(f"  {p.median_us:10.2f} us  {p.variant}")
    failed = [p for p in points if p.status == "failed"]
    for p in failed:
        print(f"failed: {p.variant} on {p.problem}: {p.reason}")
    print(f"{len(timed)} points timed, {len(failed)} failed, {len(points) - len(timed) - len(failed)} not served")
    return ExitCode.DONE if timed else ExitCode.CHECK_FAILED
