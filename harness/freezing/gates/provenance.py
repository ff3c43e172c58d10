"""Whether a verdict applies to what is about to be sealed, and which commit holds that."""

from __future__ import annotations

from collections.abc import Mapping

from contract.layout import hash_bytes
from device.settings import find_project_root
from harness.benchmark.session import Session
from harness.build.builder import BuildResult
from harness.discover import hash_description
from harness.records.provenance import Commit, find_commit, is_ancestor
from harness.records.tables import Result


def find_move(session: Session) -> str:
    """Return "" where the checkout is at the commit at which the session began, else where it is."""
    now = find_commit(find_project_root()).sha
    then = session.commit.sha
    return "" if now == then else f"the checkout went from commit {then[:12]} to {now[:12]} meanwhile: promote again"


def find_wrong_origin(session: Session, build: BuildResult, record: Result, sources: Mapping[str, bytes]) -> str:
    """Return "" where a record verifies the build and the sources that are to be sealed, as its commit has them; else what is wrong.

    A run of this session is left to the gate of the tree: that one's checkout is the one that is sealed.
    """
    uid = record.uid[:12]
    if record.run.dirty and record.run_id != session.run_id:
        return f"record {uid} was made while files differed from its commit {record.run.commit[:12]}: verify again"
    if record.run_id != session.run_id and not is_ancestor(find_project_root(), record.run.commit):
        return f"record {uid} was made at commit {record.run.commit[:12]}, which this checkout does not follow: verify again"
    if (record.code_hash, record.source_hash) != (build.code_hash, build.source_hash):
        return f"record {uid} verifies another build than the one that is to be sealed: verify again"
    for name, digest in build.sources:
        if name not in sources or hash_bytes(sources[name]) != digest:
            return f"{name} is not what was built and verified: it changed meanwhile"
    folder = f"{session.loaded.op.name}/"
    description = {n.removeprefix(folder): c for n, c in sources.items() if n.startswith(folder) and n.endswith(".py")}
    if hash_description(description) != record.spec_hash:
        return f"record {uid} verifies against another description of the op than the one that is to be sealed: verify again"
    return ""


def name_commit(session: Session, record: Result, changes: str, sources_at: str) -> str:
    """Return the commit that holds what is sealed: ``sources_at`` where they were taken from there, else the record's.

    It ends with ``-dirty`` where no commit does: this session verified them in a tree with ``changes``.
    """
    if sources_at:
        return sources_at
    return Commit(record.run.commit, bool(changes) and record.run_id == session.run_id).name
