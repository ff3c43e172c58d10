"""Bit-for-bit comparison of one op's outputs on two devices.

The same variants, problems and seeded inputs are run and recorded on both.

What PTX defines exactly (IEEE arithmetic, integers, data movement, the order of a kernel's sums) must agree in every bit; approximate
functions (``ex2.approx`` and its kin) may differ in the last places, so the table counts both.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from device.interface import Device
from harness.errors import RecordError, RecordUseError
from harness.nvtx_ranges import mark_range
from harness.spec import Launchable, Op, Problem, Variant
from harness.spec.dtypes import find_dtype, is_float
from harness.verify.case import Case
from harness.verify.inputs import make_inputs

Outputs = dict[str, NDArray[Any]]
_SEPARATOR = "|"
_ORDERED_BITS: Mapping[int, np.dtype[np.signedinteger[Any]]] = {2: np.dtype(np.int16), 4: np.dtype(np.int32), 8: np.dtype(np.int64)}


@dataclass(frozen=True)
class Agreement:
    """How far one variant's outputs agree, over problems with the same attributes. ``max_ulp`` is over elements finite on both sides."""

    variant: str
    attributes: str
    num_outputs: int
    num_elems: int
    num_equal: int
    max_ulp: int

    @property
    def bit_exact(self) -> bool:
        """Whether every element has the same bits (any NaN equals any NaN: PTX leaves payloads open)."""
        return self.num_equal == self.num_elems


def record_outputs(
    device: Device, op: Op, launchables: Mapping[Variant, Launchable], problems: Sequence[Problem], distributions: Sequence[str]
) -> Iterator[tuple[str, NDArray[Any]]]:
    """Run every variant on every problem and distribution; yield (key, output array). Unsupported problems are left out."""
    stream = device.create_stream()
    for problem in problems:
        with Case(device, op, problem) as case:
            for distribution in distributions:
                inputs = make_inputs(op, problem, distribution, seed=0)
                for variant, launchable in launchables.items():
                    case.upload(inputs)
                    if launchable.supports(**case.arguments):
                        continue
                    case.prepare(launchable)
                    with mark_range(op.name, variant.name, problem.name, "crosscheck"):
                        case.launch(launchable, stream)
                        stream.synchronize()
                    for tensor, values in case.read_outputs().items():
                        yield _SEPARATOR.join((variant.name, problem.name, distribution, tensor)), values


def save_outputs(path: Path, outputs: Mapping[str, NDArray[Any]], about: str) -> None:
    """Write outputs to a compressed ``.npz``, with ``about`` (device, driver, toolchain, commit) beside them."""
    with path.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, about=np.array(about), **dict(outputs))


def load_outputs(path: Path) -> tuple[Outputs, str]:
    """Read what :func:`save_outputs` wrote. Raises :class:`RecordError` for anything else."""
    try:
        with np.load(path, allow_pickle=False) as file:
            outputs = {key: _restore_dtype(file[key]) for key in file.files}
        return outputs, str(outputs.pop("about"))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise RecordUseError(f"{path} holds no outputs saved by crosscheck: {error}") from error


def _restore_dtype(values: NDArray[Any]) -> NDArray[Any]:
    # A file holds bfloat16 as two bytes of no kind.
    return values.view(find_dtype("bfloat16")) if values.dtype.str == "|V2" else values


def measure_ulps(left: NDArray[Any], right: NDArray[Any]) -> NDArray[np.int64]:
    """Return the distance in units of the last place between two float arrays of one dtype, counted over representable values.

    Elements of which either side is not finite count 0 here; they are compared for equality elsewhere.
    """
    integer = _ORDERED_BITS[left.dtype.itemsize]
    lowest = np.iinfo(integer).min

    def to_ordered(values: NDArray[Any]) -> NDArray[np.int64]:
        bits = values.view(integer).astype(np.int64)
        return np.where(bits < 0, np.int64(lowest) - bits, bits)

    finite = np.isfinite(left) & np.isfinite(right)
    return np.where(finite, np.abs(to_ordered(left) - to_ordered(right)), 0)


def compare_outputs(op: Op, left: Outputs, right: Outputs) -> list[Agreement]:
    """Compare two recordings key by key; raises :class:`RecordError` when they do not hold the same keys and shapes."""
    if missing := sorted(set(left) ^ set(right)):
        raise RecordError(f"the two recordings differ in {len(missing)} outputs, the first is {missing[0]}; record both from one commit")
    attributes = {p.name: " ".join(p.name.split("-")[1:]) or "-" for p in op.problems}
    groups: dict[tuple[str, str], list[tuple[NDArray[Any], NDArray[Any]]]] = {}
    for key, values in left.items():
        variant, problem, _, _ = key.split(_SEPARATOR)
        if values.shape != right[key].shape or values.dtype != right[key].dtype:
            raise RecordError(f"output {key} has shape {values.shape} on one side and {right[key].shape} on the other")
        groups.setdefault((variant, attributes.get(problem, "-")), []).append((values, right[key]))
    return [_summarise(variant, label, pairs) for (variant, label), pairs in groups.items()]


def _summarise(variant: str, label: str, pairs: Sequence[tuple[NDArray[Any], NDArray[Any]]]) -> Agreement:
    equal = sum(int(np.count_nonzero(_same_bits(a, b))) for a, b in pairs)
    ulps = max((int(measure_ulps(a, b).max(initial=0)) for a, b in pairs if is_float(a.dtype)), default=0)
    return Agreement(variant, label, len(pairs), sum(a.size for a, _ in pairs), equal, ulps)


def _same_bits(left: NDArray[Any], right: NDArray[Any]) -> NDArray[np.bool_]:
    if not is_float(left.dtype):
        return np.asarray(left == right)
    integer = _ORDERED_BITS[left.dtype.itemsize]
    return np.asarray((left.view(integer) == right.view(integer)) | (np.isnan(left) & np.isnan(right)))
