"""Show, check or undo what `promote` wrote.

`verify` checks every hash, rebuilds each kernel from its sealed sources alone, compares the machine code with the manifest's, and
verifies the kernel against the sealed reference. Exits with 1 if anything disagrees.

`prune` removes kernels that no entry names any more, and the sources that only they used. It is recorded; history and evidence stay.

\b
Examples:
  python -m harness frozen list
  python -m harness frozen verify softmax
  python -m harness frozen demote softmax -m "races on short rows" \\
    --bucket sm_90a/any/any/any/middle_rows
  python -m harness frozen history softmax
  python -m harness frozen rollback softmax --to 20251121T0745
  python -m harness frozen prune gemm_backward --dry-run
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from contract.axes import name_bucket
from contract.index import Index
from contract.layout import KERNELS, find_frozen_dir, is_op_name
from contract.libraries.adapters import describe_version
from device import choose_device
from device.settings import find_project_root, read_settings, suggest
from device.toolchain import find_toolchain
from harness.commands.options import AsJson, DeviceName, Jobs
from harness.errors import ExitCode, FrozenError, FrozenUseError
from harness.freezing.seal.rebuild import RebuildSetup, check_frozen
from harness.freezing.store.changes import demote, list_prunable, prune, roll_back
from harness.freezing.store.history import read_history
from harness.freezing.store.index import list_frozen_ops, read_frozen_op
from harness.freezing.store.transaction import clear_up
from harness.freezing.store.verify import require_sound
from harness.spec import SpecError
from harness.terminal.console import print_json
from harness.terminal.figures import count_things


class Action(StrEnum):
    """What ``frozen`` does."""

    LIST = "list"
    VERIFY = "verify"
    HISTORY = "history"
    DEMOTE = "demote"
    ROLLBACK = "rollback"
    RECOVER = "recover"
    PRUNE = "prune"


# What each action obeys; any other option is refused.
_OPTIONS: dict[Action, tuple[str, ...]] = {
    Action.LIST: ("--json",),
    Action.VERIFY: ("--kernel", "--quick", "--device", "--jobs", "--json"),
    Action.HISTORY: ("--json",),
    Action.DEMOTE: ("--bucket", "--kernel", "--all", "--message"),
    Action.ROLLBACK: ("--to", "--message"),
    Action.RECOVER: (),
    Action.PRUNE: ("--dry-run", "--message"),
}

Op = Annotated[str | None, typer.Argument(metavar="[OP]", help="an op of the frozen set; all by default", show_default=False)]
Buckets = Annotated[list[str] | None, typer.Option("--bucket", metavar="NAME", help="demote: the bucket to empty; repeatable")]
Kernels = Annotated[list[str] | None, typer.Option("--kernel", metavar="NAME", help="verify, demote: only this kernel; repeatable")]
AllBuckets = Annotated[bool, typer.Option("--all", help="demote: every bucket of the op")]
To = Annotated[
    str | None, typer.Option("--to", metavar="EVENT", help="rollback: the event to return to, or the start of its name; 0: before any")
]
Message = Annotated[str, typer.Option("--message", "-m", metavar="TEXT", help="demote, rollback, prune: why; recorded")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="prune: say what would be removed, and change nothing")]
Quick = Annotated[bool, typer.Option("--quick", help="verify: only hashes, schemas and history; nothing is compiled")]


def run(
    action: Annotated[Action, typer.Argument(help="list, verify, history, demote, rollback, recover or prune", show_default=False)],
    op: Op = None,
    bucket: Buckets = None,
    kernel: Kernels = None,
    every: AllBuckets = False,
    to: To = None,
    message: Message = "",
    quick: Quick = False,
    dry_run: DryRun = False,
    device: DeviceName = None,
    jobs: Jobs = None,
    json: AsJson = False,
) -> ExitCode:
    """Run the verb."""
    given: dict[str, object] = {"--bucket": bucket, "--kernel": kernel, "--all": every, "--to": to is not None, "--message": message}
    given |= {"--quick": quick, "--device": device, "--jobs": jobs, "--json": json, "--dry-run": dry_run}
    if stray := [name for name, value in given.items() if value and name not in _OPTIONS[action]]:
        its = ", ".join(_OPTIONS[action]) or "none"
        raise SpecError(f"{stray[0]} is not an option of frozen {action} (its options: {its})")
    if action not in (Action.LIST, Action.VERIFY, Action.HISTORY):
        find_project_root()  # outside of a project there is only the installed set, which nobody changes
    frozen_dir = find_frozen_dir()
    if op is not None and not is_op_name(op):
        raise SpecError(f"{op!r} is not an op's name, which has lower-case letters, digits and underscores, and begins with a letter")
    if action in (Action.DEMOTE, Action.ROLLBACK, Action.HISTORY, Action.PRUNE) and op is None:
        raise SpecError(f"frozen {action} needs an op: one of {', '.join(list_frozen_ops(frozen_dir)) or '(none is frozen)'}")
    ops = [op] if op else list_frozen_ops(frozen_dir)
    if op and not (frozen_dir / op).is_dir():
        raise SpecError(f"no kernel of {op} is frozen; there are: {', '.join(list_frozen_ops(frozen_dir)) or 'none'}")
    if action is Action.VERIFY:
        return _verify(frozen_dir, ops, kernel or [], quick, device, jobs, json)
    if action is Action.LIST:
        return _list(frozen_dir, ops, json)
    if action is Action.HISTORY:
        return _show_history(frozen_dir, ops[0], json)
    if action is Action.RECOVER:
        return _recover(frozen_dir, ops)
    if action is Action.PRUNE:
        return _prune(frozen_dir, ops[0], message, dry_run=dry_run)
    return _take_back(frozen_dir, ops[0], action, bucket or [], kernel or [], every, to, message)


def _list(frozen_dir: Path, ops: list[str], json: bool) -> ExitCode:
    frozen = [read_frozen_op(frozen_dir, op) for op in ops]
    if json:
        print_json({f.op: f.entries for f in frozen})
        return ExitCode.DONE
    for each in frozen:
        print(f"{each.op}: {len(each.entries)} entries, {len(each.kernels)} kernels, {len(each.medians)} medians")
        for entry in each.entries:
            forced = f", forced: {entry['forced']}" if "forced" in entry else ""
            print(f"  {name_bucket(entry['bucket'])}: {entry['kernel']} ({entry['role']}, {entry['status']}{forced})")
        for row in each.libraries:
            print(f"  {_describe_entry(row)}")
    return ExitCode.DONE


def _verify(
    frozen_dir: Path, ops: list[str], kernels: list[str], quick: bool, device: str | None, jobs: int | None, json: bool
) -> ExitCode:
    _require_kernels(frozen_dir, ops, kernels)
    settings = read_settings()
    setup = None if quick else RebuildSetup(find_toolchain(), choose_device(device).name, settings.target, jobs or settings.jobs)
    findings, num_rebuilt = check_frozen(frozen_dir, ops, setup, kernels, (lambda _: None) if json else print)
    if json:
        print_json({"ops": ops, "rebuilt": num_rebuilt, "findings": [vars(f) for f in findings]})
    else:
        for finding in findings:
            print(finding.describe())
        print(
            ", ".join(
                (count_things(len(ops), "op"), f"{count_things(num_rebuilt, 'kernel')} rebuilt", count_things(len(findings), "finding"))
            )
        )
    return ExitCode.CHECK_FAILED if findings else ExitCode.DONE


def _require_kernels(frozen_dir: Path, ops: list[str], names: list[str]) -> None:
    """Raise for a kernel that none of the ops has a manifest of; an index may be what is broken, so it is not asked."""
    known = sorted({path.stem for op in ops for path in (frozen_dir / op / KERNELS).glob("*.json")})
    if unknown := [name for name in names if name not in known]:
        raise FrozenUseError(
            f"--kernel {unknown[0]}: no kernel of {', '.join(ops)} is frozen under that name{suggest(unknown[0], known)}; "
            f"there are: {', '.join(known) or 'none'}"
        )


def _show_history(frozen_dir: Path, op: str, json: bool) -> ExitCode:
    events, findings = read_history(frozen_dir / op)
    if findings:
        raise FrozenError(findings[0].describe())
    if json:
        print_json([{"name": name} | event for name, event in events])
    for name, event in [] if json else events:
        print(f"{name}\n  commit {event['commit'][:12] or 'unknown'}: {event['message'] or '(no message)'}")
        for sign, rows in (("-", event["removed"]), ("+", event["added"])):
            for row in rows:
                if row["kind"] in ("entry", "library"):
                    print(f"  {sign} {_describe_entry(row)}")
        for note in event.get("pruned", ()):
            print(f"  pruned {note['kernel']}, of commit {note['commit'][:12] or 'unknown'}")
    return ExitCode.DONE


def _describe_entry(row: dict[str, Any]) -> str:
    if row["kind"] == "library":
        return f"{row['arch']}: {row['library']} {describe_version(row['version'])} (library, {len(row['points'])} problems)"
    return f"{name_bucket(row['bucket'])}: {row['kernel']} ({row['role']}, {row['status']})"


def _recover(frozen_dir: Path, ops: list[str]) -> ExitCode:
    for op in ops:
        found = clear_up(frozen_dir, op)
        print(f"{op}: {'cleared up after a change that was cut short' if found else 'nothing is left of a change that was cut short'}")
    return ExitCode.DONE


def _prune(frozen_dir: Path, op: str, message: str, *, dry_run: bool) -> ExitCode:
    pruned, removed = list_prunable(require_sound(frozen_dir, op))
    for note in pruned:
        print(f"- {note['kernel']}")
    if not pruned:
        print(f"{op}: every kernel is named by an entry")
    elif dry_run:
        print(f"{op}: {len(pruned)} kernels would go, {len(removed)} files")
    else:
        prune(frozen_dir, op, message)
        require_sound(frozen_dir, op)
        print(f"{op}: {len(pruned)} kernels are gone, {len(removed)} files")
    return ExitCode.DONE


def _take_back(
    frozen_dir: Path, op: str, action: Action, buckets: list[str], kernels: list[str], every: bool, to: str | None, message: str
) -> ExitCode:
    require_sound(frozen_dir, op)
    if action is Action.DEMOTE:
        if bool(buckets) == every:
            raise SpecError("frozen demote needs --bucket NAME, or --all")
        event = demote(frozen_dir, op, buckets, message, kernels)
    else:
        if to is None:
            raise SpecError(
                f"frozen rollback needs --to EVENT: `python -m harness frozen history {op}` lists them; --to 0 is before the first"
            )
        event = roll_back(frozen_dir, op, "" if to == "0" else to, message)
    for sign, rows in (("-", event["removed"]), ("+", event["added"])):
        for row in rows:
            if row["kind"] in ("entry", "library"):
                print(f"{sign} {_describe_entry(row)}")
    after: Index = require_sound(frozen_dir, op)
    print(f"{op}: {len(after.entries)} entries now")
    return ExitCode.DONE
