"""``bench``: build, verify and compare an op's variants."""

from __future__ import annotations

import sys

from harness.commands.options import AsJson, DeviceName, Jobs, OpName, ProblemNames, TargetName, VariantNames
from harness.errors import ExitCode


def run(
    op: OpName,
    variant: VariantNames = None,
    problem: ProblemNames = None,
    device: DeviceName = None,
    target: TargetName = None,
    jobs: Jobs = None,
    json: AsJson = False,
) -> ExitCode:
    """Build and verify an op's variants, then time them beside their peers on a GPU, or count what they do on the emulated device.

    What was verified before, unchanged, is not verified again. Only variants that are right are measured; exits with 1 if one is not.

    \b
    Examples:
      python -m harness bench gemm_bias_act
      python -m harness bench gemm_bias_act --variant pipelined --device cuda
      python -m harness bench softmax --json
    """
    from harness.bench import count_on_emulator, fill_counts, find_note, make_rows, time_on_gpu
    from harness.console import open_progress, print_json
    from harness.discover import find_op, load_peers
    from harness.report.printing import print_tables
    from harness.report.terminal import BenchRow, list_fault_lines, make_bench_tables
    from harness.session import Judged, Session

    loaded = find_op(op)
    variants = loaded.op.select_variants(variant or [])
    with Session.start(loaded, f"bench {op}", device=device, target=target, jobs=jobs) as session:
        emulated = session.device.is_emulated
        problems = loaded.op.select_problems("emulated" if emulated else "bench", problem or [])
        with open_progress(f"build {op}", len(variants), quiet=json) as progress:
            builds, binding = session.build(variants, lambda b: progress.advance(b.variant.name))

        def say(judged: Judged) -> None:
            verdict = "passed" if judged.ok else f"failed: {judged.reason}"
            before = f"verified before, record {judged.record_id}" if judged.earlier else verdict
            progress.advance(f"{judged.variant.name}: {before}")

        with open_progress(f"verify {op}", len(variants), quiet=json) as progress:
            judged = session.judge(builds, binding, reuse=True, on_judged=say)
        faults = session.check_op()
        passed = sum(j.ok for j in judged)
        rows: list[BenchRow] = []
        if emulated:
            with open_progress(f"count {op}", passed, quiet=json) as progress:
                facts = count_on_emulator(session, judged, binding, problems, progress.advance)
            for p in problems:
                made = make_rows(session, judged, p)
                for j in judged:
                    found = facts.get((j.variant.name, p.name))
                    rows.append(fill_counts(made[j.variant.name], j.build, found, session.target) if found else made[j.variant.name])
        else:
            peers = load_peers(loaded.folder)
            with open_progress(f"time {op}", (passed + len(peers)) * len(problems), quiet=json) as progress:
                for group in time_on_gpu(session, judged, binding, problems, peers, progress.advance):
                    rows += group
        wrong = [r for r in rows if r.verified == "failed"]
        if json:
            print_json(
                {
                    "op": op,
                    "device": session.device_kind,
                    "device_name": session.device.properties.name,
                    "target": session.target.name,
                    "run": session.recorded_run,
                    "note": find_note(rows),
                    "op_faults": [f.describe() for f in faults],
                    "rows": [r.to_json() for r in rows],
                }
            )
        else:
            print_tables(make_bench_tables(rows, target=session.target.name))
            if emulated:
                print(f"emulated: no GPU was used and no time was measured. {find_note(rows)}")
            print(f"{passed} of {len(judged)} variants verified. {session.describe_run()}")
            for line in [f"op {op}: {f.describe()}" for f in faults] + [x for j in judged if j.result for x in list_fault_lines(j.result)]:
                print(line, file=sys.stderr)
            for row in wrong:
                if row.reason and not any(j.variant.name == row.variant and not j.ok for j in judged):
                    print(f"{row.variant} on {row.problem}: {row.reason}", file=sys.stderr)
    return ExitCode.CHECK_FAILED if wrong or faults or passed < len(judged) else ExitCode.DONE
