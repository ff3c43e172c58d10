"""Reading the index of an op: rows that its schema allows, and findings about all others."""

from __future__ import annotations

from pathlib import Path

from contract.documents import read_plain_file
from contract.errors import FrozenError
from contract.index import Index, Row, parse_index, render_index
from contract.layout import INDEX, is_op_name
from harness.freezing.store.findings import Finding


def list_frozen_ops(frozen_dir: Path) -> list[str]:
    """Return the ops that have a folder, whatever is in it: one without an index is an op that something happened to."""
    folders = frozen_dir.iterdir() if frozen_dir.is_dir() else ()
    return sorted(path.name for path in folders if is_op_name(path.name) and path.is_dir())


def read_frozen_op(frozen_dir: Path, op: str) -> Index:
    """Return an op's index, each line validated; raises :class:`FrozenError` that names file, line and fault."""
    if not is_op_name(op):
        raise FrozenError(f"{op!r} is not an op's name: use lower-case letters, digits and underscores, starting with a letter")
    folder = frozen_dir / op
    rows, findings = check_index(folder)
    if findings:
        raise FrozenError(f"{findings[0].describe()}; `python -m harness frozen verify {op}` says more")
    return Index(op, folder, tuple(rows))


def check_index(folder: Path) -> tuple[list[Row], list[Finding]]:
    """Return the lines of an op's index, and what is wrong with them; an op that has no folder has none."""
    if not folder.is_dir():
        return [], []
    try:
        content = read_plain_file(folder / INDEX)
    except FileNotFoundError:
        return [], [Finding(folder.name, INDEX, "missing", f"the op's folder is there without it: `git checkout {folder}` restores it")]
    except OSError as error:
        return [], [Finding(folder.name, INDEX, "unreadable", str(error))]
    rows, faults = parse_index(content)
    findings = [Finding(folder.name, INDEX, fault.kind, str(fault)) for fault in faults]
    if not findings:
        try:
            if render_index(rows).encode() != content:
                findings.append(Finding(folder.name, INDEX, "changed", "its lines are not as promote writes them: sorted, canonical JSON"))
        except FrozenError as error:
            findings.append(Finding(folder.name, INDEX, "changed", str(error)))
    return rows, findings
