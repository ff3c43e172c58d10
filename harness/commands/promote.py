"""Seal the variant that is faster than each bucket's frozen kernel. Gates print pass or why they refuse; exits with 1 if all refuse.

On the emulated device, which has no times, the first variant that serves a bucket becomes its provisional entry: any measured one
replaces it.

Without --variant a bucket's candidates are those that the op itself chooses for its problems. With --recorded, times of a GPU that is
not here now fill buckets that hold no measured entry, where the machine code is still the same.

\b
Examples:
  python -m harness promote gemm_bias_act --dry-run
  python -m harness promote gemm_bias_act \\
    --recorded profiles/gemm_bias_act/goals.json
  python -m harness promote softmax --bucket sm_90a/any/any/any/middle_rows \\
    --variant row_in_registers/threads32_rows4_vectors8
  python -m harness promote gemm_bias_act --fallback \\
    --variant mma/bm64_bn64_wm32_wn32_stages4_group8
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from contract.index import Index
from contract.layout import find_frozen_dir
from harness.benchmark.ready import Ready, make_ready
from harness.benchmark.session import Session
from harness.build.revision import find_op_at
from harness.commands.options import AsJson, DeviceName, Jobs, OpName, TargetName, VariantNames
from harness.discover import LoadedOp, find_op
from harness.errors import ExitCode
from harness.freezing.decide.contests import ContestRunner
from harness.freezing.decide.promote import Decision, Request, group_problems, list_choices, promote
from harness.freezing.decide.promote_recorded import promote_recorded
from harness.freezing.decide.recorded_times import Recording, find_untimed_code, list_variants, read_recording
from harness.freezing.gates.candidate import Candidate, Gate
from harness.freezing.gates.checks import pass_gates, seal_candidates
from harness.freezing.store.verify import require_sound
from harness.spec import SpecError
from harness.terminal.console import print_json
from harness.timing.timer import Timer
from harness.timing.verdicts import Criteria
from harness.verify.plan import THOROUGH

BucketNames = Annotated[
    list[str] | None,
    typer.Option("--bucket", metavar="NAME", help="only this bucket, e.g. sm_90a/bfloat16/nk_whole/smooth/outputs_beyond; repeatable"),
]
IsFallback = Annotated[bool, typer.Option("--fallback", help="freeze it as a fallback, which serves what no measured kernel does")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="pass the gates, measure and say what would be done; write nothing")]
ForceReason = Annotated[str, typer.Option("--force-reason", metavar="TEXT", help="promote though it is not faster; TEXT is recorded")]
Margin = Annotated[float, typer.Option("--margin", min=0.01, max=50.0, metavar="PERCENT", help="less than this is the same")]
Confidence = Annotated[float, typer.Option("--confidence", min=50.0, max=99.999, metavar="PERCENT", help="of a bucket's decision")]
RecordedFile = Annotated[
    Path | None,
    typer.Option("--recorded", metavar="FILE", help="fill buckets without a measured entry from times in FILE: records, or goals"),
]
Revision = Annotated[str | None, typer.Option("--at", metavar="REV", help="with --recorded: promote the op as it was at this revision")]
Budget = Annotated[float, typer.Option("--budget", min=0.1, metavar="SECONDS", help="longest contest on one problem")]


def run(
    op: OpName,
    variant: VariantNames = None,
    bucket: BucketNames = None,
    fallback: IsFallback = False,
    dry_run: DryRun = False,
    force_reason: ForceReason = "",
    margin: Margin = 1.0,
    confidence: Confidence = 99.0,
    budget: Budget = 20.0,
    recorded: RecordedFile = None,
    at: Revision = None,
    device: DeviceName = None,
    target: TargetName = None,
    jobs: Jobs = None,
    json: AsJson = False,
) -> ExitCode:
    """Run the verb."""
    if at and not recorded:
        raise SpecError("--at goes with --recorded: what is measured now is the op as it is now")
    loaded, commit = _find_op(op, at)
    recording = read_recording(recorded) if recorded else None
    if recording and commit:
        recording = replace(recording, conditions=dict(recording.conditions) | {"sources_at": commit})
    names = variant or (list_variants(loaded.op, recording) if recording else list_choices(loaded.op, loaded.op.select_problems("bench")))
    variants = loaded.op.select_variants(names)
    criteria = Criteria(margin=margin / 100, error=1 - confidence / 100)
    words = " ".join([f"promote {op}", *(f"--variant {v}" for v in variant or []), *(f"--bucket {b}" for b in bucket or [])])
    command = words + (" --fallback" if fallback else "") + (f" --recorded {recorded}" if recorded else "") + (f" --at {at}" if at else "")
    request = Request(tuple(bucket or ()), fallback, dry_run, force_reason, criteria, command, own_choices=not variant)
    frozen = require_sound(find_frozen_dir(), op)
    say: Callable[[str], None] = (lambda text: None) if json else print
    with Session.start(loaded, command, device=device, target=target, jobs=jobs) as session:
        group_problems(session, request)  # a bucket that there is not is said before anything is built
        ready = make_ready(session, variants, quiet=json, effort=THOROUGH, committed_only=True)
        candidates = _judge_candidates(session, frozen, ready, recording, commit, say)
        decisions = _decide(session, frozen, candidates, request, recording, budget, say)
    if json:
        gates = {c.name: [g.to_json() for g in c.gates] for c in candidates}
        print_json({"op": op, "dry_run": dry_run, "gates": gates, "decisions": [d.to_json() for d in decisions]})
    done = [d for d in decisions if d.outcome in ("promoted", "provisional")]
    say(f"{len(done)} of {len(decisions)} buckets {'would change' if dry_run else 'changed'}")
    return ExitCode.DONE if done else ExitCode.CHECK_FAILED


def _find_op(name: str, revision: str | None) -> tuple[LoadedOp, str]:
    """Return an op and "", or the op as it was at a revision, with today's buckets, and that revision's commit."""
    loaded = find_op(name)
    if not revision:
        return loaded, ""
    earlier, commit = find_op_at(name, revision)
    return replace(earlier, op=replace(earlier.op, axes=loaded.op.axes)), commit


def _judge_candidates(
    session: Session, frozen: Index, ready: Ready, recording: Recording | None, commit: str, say: Callable[[str], None]
) -> list[Candidate]:
    """Take every variant through the gates, and say what each came to."""
    candidates = [Candidate(b, ready.binding) for b in ready.builds]
    for candidate, verdict in zip(candidates, ready.judged, strict=True):
        say(f"{candidate.name}")
        pass_gates(session, frozen, candidate, verdict, lambda gate: say(f"  {gate.describe()}"), sources_at=commit)
    seal_candidates(session, candidates, lambda c, gate: say(f"{c.name}\n  {gate.describe()}"))
    if recording:
        for candidate, fault in zip(candidates, find_untimed_code(session, recording, ready.builds).values(), strict=True):
            candidate.gates.append(Gate("recorded", not fault, fault or "the machine code that was timed"))
            say(f"{candidate.name}\n  {candidate.gates[-1].describe()}")
    return candidates


def _decide(
    session: Session,
    frozen: Index,
    candidates: list[Candidate],
    request: Request,
    recording: Recording | None,
    budget_s: float,
    say: Callable[[str], None],
) -> list[Decision]:
    """Decide by recorded times, by contests on a GPU, or on the emulated device without any time."""
    if recording:
        return promote_recorded(session, frozen, candidates, request, recording, say)
    if session.device.is_emulated:
        return promote(session, frozen, candidates, request, None, say)
    timer = Timer(session.device)
    try:
        with ContestRunner(session, frozen, timer, request.criteria, budget_s=budget_s) as runner:
            return promote(session, frozen, candidates, request, runner.hold, say)
    finally:
        timer.close()
