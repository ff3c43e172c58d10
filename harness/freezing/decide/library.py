"""Putting a library of others into the frozen set: its times on drawn problems, beside the kernels chosen there, become a row of the index.

Own kernels are judged without it. What the row says of the library was found out on the GPU that its times are of.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from contract.documents import read_plain_file
from contract.extension import fill_attributes
from contract.index import Index
from contract.layout import hash_bytes, hash_value
from contract.libraries.adapters import MARGIN, Adapter, describe_version, find_adapter
from harness.compare.drawn.record import FROZEN, DrawnRow, DrawnRun, merge_runs, read_runs
from harness.errors import FrozenUseError, RecordError
from harness.freezing.gates.candidate import Gate
from harness.freezing.store.changes import change_index


@dataclass(frozen=True)
class LibraryAdoption:
    """What came of it: the gates' answers, and the row, which is empty where one of them refused."""

    op: str
    library: str
    gates: list[Gate]
    row: dict[str, Any] = field(default_factory=dict)

    @property
    def is_passed(self) -> bool:
        """Whether nothing refuses it."""
        return all(g.passed for g in self.gates)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"op": self.op, "library": self.library, "gates": [g.to_json() for g in self.gates], "row": self.row}


def read_drawn_runs(op: str, path: Path) -> tuple[list[DrawnRun], list[DrawnRow], str]:
    """Return the runs of a record that stand together with the newest one, their rows, and the record's name with its hash.

    Raises :class:`FrozenUseError` where it holds none of the op.
    """
    try:
        content, runs = read_plain_file(path), read_runs(path)
    except OSError as error:
        raise FrozenUseError(f"--recorded {path}: cannot be read: {error.strerror}") from error
    except RecordError as error:
        raise FrozenUseError(f"--recorded {path}: {error}") from error
    alike, rows = merge_runs([r for r in runs if r.op == op])
    if not rows:
        raise FrozenUseError(f"--recorded {path}: has no times of {op}: `compare {op} --drawn N --publish FOLDER` measures them on a GPU")
    return alike, rows, f"{path.name} ({hash_bytes(content)[:16]})"


def adopt_library(frozen: Index, library: str, path: Path, *, dry_run: bool) -> LibraryAdoption:
    """Put a library into an op's index by a record of drawn problems, or say why not; in a dry run nothing is written.

    A row of the same version is replaced. Raises :class:`FrozenUseError` for an op or a file that has nothing of it.
    """
    adapter, description = find_adapter(library, frozen.op), frozen.description
    if adapter is None or description is None:
        raise FrozenUseError(f"--library {library}: the project calls no such library for {frozen.op}")
    if fault := adapter.find_fault(description["interface"]):
        raise FrozenUseError(f"--library {library}: {fault}")
    runs, rows, record = read_drawn_runs(frozen.op, path)
    facts, fault = _merge_facts([r.libraries.get(library, {}) for r in runs])
    points = [p for row in rows if (p := _make_point(frozen, adapter, row, description["interface"])) is not None]
    wrong = facts.get("kinds", {})
    kinds = [kind for kind, why in wrong.items() if not why]
    points = [p for p in points if p["attributes"][adapter.kind] in kinds or not facts]
    gates = _pass_gates(facts, fault, points, adapter.kind)
    done = LibraryAdoption(frozen.op, library, gates)
    if not done.is_passed:
        return done
    row = {
        "kind": "library",
        "arch": runs[-1].arch,
        "library": library,
        "version": facts["version"],
        "device": str(runs[-1].environment["device_name"]),
        "interface": hash_value(description["interface"]),
        "domain": adapter.restrict(kinds),
        "alignment_bytes": dict(adapter.alignment_bytes),
        "workspace_bytes": facts["workspace_bytes"],
        "deterministic": facts["deterministic"],
        "capture_safe": facts["capture_safe"],
        "accumulate": "float32",
        "record": record,
        "points": sorted(points, key=lambda p: str(p["problem"])),
    }
    if not dry_run:
        message = f"{library} {describe_version(facts['version'])}, {len(points)} problems: {record}"
        change_index(frozen.folder.parent, frozen.op, "measure", message, put=[row], expect=frozen)
    return LibraryAdoption(frozen.op, library, gates, row)


def _merge_facts(found: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], str]:
    """Return what runs that stand together found out about a library, and what is wrong with it, "" if nothing."""
    if not all(found):
        return {}, "the record does not say which version was timed: it is older than that, or the library was not there; measure again"
    versions = {f["version"] for f in found}
    if len(versions) > 1:
        return {}, f"runs of versions {', '.join(map(describe_version, sorted(versions)))}: publish to an empty folder"
    return {
        "version": versions.pop(),
        "workspace_bytes": max(f["workspace_bytes"] for f in found),
        "deterministic": all(f["deterministic"] for f in found),
        "capture_safe": all(f["capture_safe"] for f in found),
        "checked": sum(f["checked"] for f in found),
        "kinds": {kind: "; ".join(filter(None, (f["kinds"].get(kind, "") for f in found))) for f in found for kind in f["kinds"]},
    }, ""


def _make_point(frozen: Index, adapter: Adapter, row: DrawnRow, interface: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a timed problem of the library's domain as a point of its row.

    None where there is none: strides are not natural, either was not timed, or the kernel that was judged is frozen no more.
    """
    mine, library = row.mine, row.find(adapter.library)
    if mine is None or mine.role != FROZEN or mine.name not in frozen.kernels or library is None or library.us is None:
        return None
    if row.orders or any(np.any(pad) for pad in row.padding.values()):
        return None
    attributes = fill_attributes(row.attributes, interface)
    if not adapter.serves(row.sizes, attributes):
        return None
    is_right = library.status == "passed"
    return {
        "problem": row.problem,
        "sizes": dict(row.sizes),
        "attributes": attributes,
        "median_us": library.us if is_right else None,
        "error": library.error,
        "kernel": mine.name,
        "kernel_us": mine.us,
    }


def _pass_gates(facts: Mapping[str, Any], fault: str, points: Sequence[Mapping[str, Any]], kind: str) -> list[Gate]:
    gates = [Gate("version", not fault, fault or describe_version(facts["version"]))]
    right = [p for p in points if p["median_us"] is not None]
    wrong = len(points) - len(right)
    detail = f"{len(right)} of {len(points)} problems of its domain within the op's bound"
    gates.append(Gate("right", len(right) > wrong, detail if points else "no problem of its domain was timed beside a frozen kernel"))
    if facts:
        gates.append(_judge_kinds(facts["kinds"], kind))
        checked = f"on {facts['checked']} problems"
        gates.append(Gate("repeats", facts["checked"] > 0, f"{'the same' if facts['deterministic'] else 'other'} bits again, {checked}"))
        gates.append(Gate("capture", facts["capture_safe"], f"{'right' if facts['capture_safe'] else 'WRONG'} as a CUDA graph, {checked}"))
    ratios = [p["median_us"] / p["kernel_us"] for p in right]
    faster = sum(r <= 1.0 - MARGIN for r in ratios)
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        detail = f"on {faster} of {len(ratios)} problems; geometric mean of its time over the kernel's {mean:.3f}, least {min(ratios):.3f}"
        gates.append(Gate("faster", faster > 0, detail))
    return gates


def _judge_kinds(kinds: Mapping[str, str], attribute: str) -> Gate:
    """Return whether some kind of results is right on all inputs that the op's kernels are verified on; calls get these kinds alone."""
    right = [kind for kind, why in kinds.items() if not why]
    detail = f"right on all inputs with {attribute} = {', '.join(right) or '(none)'}"
    return Gate("inputs", bool(right), "; ".join([detail, *(f"NOT with {kind}: {why}" for kind, why in kinds.items() if why)]))
