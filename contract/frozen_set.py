"""Reading an op of the frozen set: its index and the kernels that this names, validated; nothing is trusted by its name alone.

Sources are checked against their hashes where they are used: :meth:`contract.kernels.FrozenKernel.read_source`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from contract.agreement import check_agreement
from contract.errors import FrozenError, NotFrozenError
from contract.extension import extend_description, fill_attributes, find_earlier_calls, list_served_interfaces
from contract.index import Index, read_index
from contract.kernels import FrozenKernel, read_kernel
from contract.layout import INDEX, dump_line, find_frozen_dirs, hash_value, is_op_name

Row = Mapping[str, Any]


@dataclass(frozen=True)
class FrozenOp:
    """What the frozen set says of an op.

    ``kernels`` are in the order of their names; ``medians`` are those of mode ``cold``; ``surveys`` are by architecture.
    ``libraries`` are calls of others that may stand for a kernel, with the conditions of the interface that each was measured with.
    """

    name: str
    folder: Path
    description: Row
    entries: tuple[Row, ...]
    medians: tuple[Row, ...]
    kernels: Mapping[str, FrozenKernel]
    surveys: Mapping[str, Row] = field(default_factory=dict)
    libraries: tuple[Row, ...] = ()

    @property
    def interface(self) -> Row:
        """How a call's problem is found in the op's C struct."""
        interface: Row = self.description["interface"]
        return interface

    @property
    def archs(self) -> list[str]:
        """The architectures that kernels are for."""
        return sorted({k.arch for k in self.kernels.values()})


def list_ops(frozen_dir: Path | None = None) -> list[str]:
    """Return the ops that have an index, sorted: those of one set, or of all (:func:`~contract.layout.find_frozen_dirs`)."""
    places = find_frozen_dirs() if frozen_dir is None else (frozen_dir,)
    found = {path.parent.name for place in places for path in place.glob(f"*/{INDEX}")}
    return sorted(name for name in found if is_op_name(name))


def read_op(op: str, frozen_dir: Path | None = None) -> FrozenOp:
    """Read an op's index and the kernels that it names: from one set, or from the first of all that has the op.

    Raises :class:`NotFrozenError` for an op that is not there, and :class:`FrozenError`, naming file, line and field, where something is
    missing, breaks its schema, or disagrees.
    """
    places = find_frozen_dirs() if frozen_dir is None else (frozen_dir,)
    place = next((p for p in places if op in list_ops(p)), None)
    if place is None:
        known = list_ops(frozen_dir)
        raise NotFrozenError(f"{' and '.join(map(str, places))}: op {op!r} is not frozen; there are: {', '.join(known) or 'none'}")
    return load_kernels(read_index(place / op))


def load_kernels(index: Index, keep: Callable[[Row], bool] = lambda entry: True) -> FrozenOp:
    """Return the op of an index with the entries to ``keep``, and the kernels, medians and surveys that go with them.

    Raises :class:`FrozenError` as :func:`read_op` does.
    """
    path = index.folder / INDEX
    descriptions = [row for row in index.rows if row["kind"] == "op"]
    if len(descriptions) != 1 or descriptions[0]["op"] != index.op:
        raise FrozenError(f"{path}: must have one line of kind op, for {index.op}; it has {len(descriptions)}")
    seals: dict[str, str] = {}
    for entry in index.entries:
        if seals.setdefault(entry["kernel"], entry["seal"]) != entry["seal"]:
            raise FrozenError(f"{path}: seal: two entries of kernel {entry['kernel']} name different seals")
    entries = tuple(sorted(filter(keep, index.entries), key=dump_line))
    served = list_served_interfaces(descriptions[0])
    names = sorted({entry["kernel"] for entry in entries})
    kernels = {name: _restrict(read_kernel(index.folder, name, seal=seals[name], interfaces=served), served) for name in names}
    medians = sorted((row for row in index.medians if row["mode"] == "cold" and row["kernel"] in kernels), key=dump_line)
    surveys = {row["arch"]: row for row in index.rows if row["kind"] == "survey"}
    check_agreement(str(path), index.rows, [k.manifest for k in kernels.values()])
    libraries = tuple(_restrict_library(path, row, served) for row in index.rows if row["kind"] == "library")
    return FrozenOp(index.op, index.folder, descriptions[0], entries, tuple(medians), kernels, surveys, libraries)


def extend_op(frozen: FrozenOp, interface: Row) -> FrozenOp | None:
    """Return the op with this interface, whose kernels serve the calls that those of their own are; None where it is no extension."""
    if hash_value(interface) == hash_value(frozen.interface):
        return frozen
    conditions = find_earlier_calls(frozen.interface, interface)
    if conditions is None:
        return None
    description = {**frozen.description, "interface": interface, "extends": extend_description(frozen.description, interface)}
    medians = tuple({**row, "attributes": fill_attributes(row["attributes"], interface)} for row in frozen.medians)
    kernels = {name: replace(kernel, manifest=_narrow(kernel.manifest, conditions)) for name, kernel in frozen.kernels.items()}
    libraries = tuple(_narrow(row, conditions) for row in frozen.libraries)
    return replace(frozen, description=description, medians=medians, kernels=kernels, libraries=libraries)


def _restrict_library(path: Path, row: Row, served: Mapping[str, list[Any]]) -> Row:
    """Return a library's row whose domain has only calls by the interface that it was measured with."""
    if row["interface"] not in served:
        raise FrozenError(
            f"{path}: library {row['library']}: interface: it is neither the C interface described here nor one that this extends"
        )
    return _narrow(row, served[row["interface"]])


def _restrict(kernel: FrozenKernel, served: Mapping[str, list[Any]]) -> FrozenKernel:
    """Return a kernel whose domain has only calls by the interface that it was sealed with."""
    conditions = served[kernel.manifest["interface"]]
    return replace(kernel, manifest=_narrow(kernel.manifest, conditions)) if conditions else kernel


def _narrow(row: Row, conditions: Sequence[Any]) -> Row:
    """Return a row whose domain has these conditions too."""
    return {**row, "domain": [*row["domain"], *conditions]}
