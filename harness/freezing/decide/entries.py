"""What a promotion writes: the sealed kernel, the evidence, the entry and the medians of a bucket, in one step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from contract.axes import name_bucket
from contract.extension import extend_description, fill_attributes
from contract.index import Index, Row
from contract.kernels import read_kernel
from contract.layout import SCHEMA_VERSION, SOURCES, dump_document, hash_bytes, list_kernel_files, name_manifest, split
from contract.schemas import find_schema_fault
from harness.benchmark.session import Session
from harness.build.interface import describe_interface, read_api
from harness.errors import FrozenError
from harness.freezing.decide.buckets import describe_axes, find_axes
from harness.freezing.gates.candidate import FORCIBLE, Candidate
from harness.freezing.seal.cost import describe_cost
from harness.freezing.store.changes import change_index
from harness.freezing.store.history import name_evidence
from harness.freezing.store.index import read_frozen_op
from harness.records.database import Records
from harness.spec import Problem
from harness.timing.timer import Mode


class Measured(Protocol):
    """What evidence keeps of the times of several contenders on one problem, measured together."""

    @property
    def problem(self) -> Problem:
        """The problem."""
        ...

    @property
    def mode(self) -> Mode:
        """What was in the caches when a launch started."""
        ...

    def find_fault(self, name: str) -> str:
        """Return what is wrong with a contender's measurement, "" where nothing is."""
        ...

    def find_median_us(self, name: str) -> float | None:
        """Return a contender's median, None where it has none."""
        ...

    def find_record(self, name: str, records: Records) -> str:
        """Return the name of a contender's record."""
        ...

    def to_json(self, records: Records) -> dict[str, Any]:
        """Return plain values for the evidence."""
        ...


@dataclass(frozen=True)
class Placement:
    """Which bucket a kernel takes in which role, why, and from whom."""

    bucket: dict[str, str]
    role: str
    reason: str
    incumbent: Row | None = None
    force_reason: str = ""


@dataclass
class Writing:
    """What a bucket's promotion is going to write, applied in one step."""

    rows: list[Row] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)


def describe_conditions(session: Session, command: str) -> dict[str, str | float]:
    """Return what this session measures under."""
    environment = session.environment
    return {
        "device": environment.device_name,
        "driver": environment.driver_version,
        "toolchain": environment.toolchain,
        "commit": session.records.read_run(session.run_id).commit,
        "host": environment.host,
        "command": command,
    }


def apply_writing(session: Session, frozen: Index, writing: Writing, drop: Sequence[Row] = ()) -> Index:
    """Write one bucket's change, so that an interrupt keeps what was decided until then; returns the set as it is now."""
    loaded = session.loaded
    interface = describe_interface(loaded.op, read_api(loaded))
    extends = extend_description(frozen.description if frozen.entries else None, interface)
    description = {
        "kind": "op",
        "schema": SCHEMA_VERSION,
        "op": loaded.op.name,
        "interface": interface,
        "axes": describe_axes(loaded.op),
        "cost": describe_cost(loaded.op),
        "ties": [tie.to_json() for tie in loaded.op.ties],
        **({"extends": extends} if extends else {}),
    }
    # What was measured before an attribute was there was measured at its default.
    medians = [row | {"attributes": fill_attributes(row["attributes"], interface)} for row in frozen.medians] if extends else []
    rows = [description, *medians, *writing.rows]
    frozen_dir, message = frozen.folder.parent, "; ".join(writing.messages)
    change_index(frozen_dir, loaded.op.name, "promote", message, put=rows, drop=drop, files=writing.files, expect=frozen)
    return read_frozen_op(frozen_dir, loaded.op.name)


def gather(
    session: Session,
    frozen: Index,
    place: Placement,
    winner: Candidate,
    matches: Sequence[Measured],
    conditions: Mapping[str, str | float],
    writing: Writing,
) -> None:
    """Gather the rows and files by which a candidate takes a place."""
    manifest = _find_manifest(frozen, winner, writing)
    kernel = str(manifest["kernel"])
    status = "measured" if any(m.find_median_us(winner.name) is not None for m in matches) else "provisional"
    evidence: Row = {
        "schema": SCHEMA_VERSION,
        "op": session.loaded.op.name,
        "bucket": place.bucket,
        "kernel": kernel,
        "incumbent": place.incumbent["kernel"] if place.incumbent else None,
        "status": status,
        "reason": place.reason,
        "conditions": dict(conditions),
        "gates": [g.to_json() for g in winner.gates],
        "contests": [m.to_json(session.records) for m in matches],
    }
    if fault := find_schema_fault("evidence", evidence):
        raise FrozenError(f"the evidence for {name_bucket(place.bucket)} would not be valid: {fault}")
    content = dump_document(evidence).encode()
    writing.files[name_evidence(evidence)] = content
    forced = any(not g.passed and g.name in FORCIBLE for g in winner.gates) or place.reason.startswith("forced")
    entry: Row = {
        "kind": "entry",
        "bucket": place.bucket,
        "role": place.role,
        "kernel": kernel,
        "seal": manifest["seal"],
        "status": status,
        "evidence": {"file": name_evidence(evidence), "sha256": hash_bytes(content)},
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    writing.rows.append(entry | ({"forced": place.force_reason} if forced else {}))
    if place.role == "winner":  # beside it alone were all others of its bucket measured
        contenders = {winner.name: kernel} | ({place.incumbent["kernel"]: place.incumbent["kernel"]} if place.incumbent else {})
        writing.rows += list_medians(session, place.bucket, matches, contenders, str(conditions["device"]))
    writing.messages.append(f"{kernel} takes {name_bucket(place.bucket)}: {place.reason}")


def _find_manifest(frozen: Index, winner: Candidate, writing: Writing) -> Mapping[str, Any]:
    """Return the manifest of a candidate: the one that the set has, or its own, which is then written with its sources."""
    kernel = winner.manifest["kernel"]
    if (frozen.folder / name_manifest(kernel)).exists():
        # Sealed before, for another bucket: the same device sources, flags and architecture.
        manifest = read_kernel(frozen.folder, kernel).manifest
        if manifest["build"]["machine_code"] != winner.manifest["build"]["machine_code"]:
            raise FrozenError(f"{kernel} is sealed with other machine code, by another compiler ({manifest['build']['toolchain']})")
        return manifest
    for document, value in zip(("manifest", "tree"), split(winner.manifest), strict=True):
        if fault := find_schema_fault(document, value):
            raise FrozenError(f"the {document} of {kernel} would not be valid: {fault}")
    writing.files |= list_kernel_files(winner.manifest, {f"{SOURCES}/{name}": content for name, content in winner.sources.items()})
    return winner.manifest


def list_medians(
    session: Session, bucket: dict[str, str], matches: Sequence[Measured], kernels: Mapping[str, str], device: str
) -> list[Row]:
    """Return a row for each problem and contender whose kernel is, or becomes, a frozen one; ``kernels`` are these by contender."""
    rows = []
    for match in matches:
        for name, kernel in kernels.items():
            median = match.find_median_us(name)
            if median is not None and not match.find_fault(name):
                rows.append(
                    {
                        "kind": "median",
                        "arch": bucket["arch"],
                        "device": device,
                        "kernel": kernel,
                        "problem": match.problem.name,
                        "sizes": dict(match.problem.sizes),
                        "attributes": session.loaded.op.attribute_values(match.problem),
                        "group": find_axes(session.loaded.op).name_group(bucket),
                        "mode": match.mode.value,
                        "median_us": float(f"{median:.6g}"),
                        "record": match.find_record(name, session.records),
                    }
                )
    return rows
