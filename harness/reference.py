"""What a problem's outputs must be: inputs, float64 reference and bound, computed once and shared by all variants.

Also the checks of the op itself: a tolerance that is not finite, or that would let an output of zeros pass, judges nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.compare import find_mismatches
from harness.dtypes import find_dtype
from harness.findings import Fault, FaultKind
from harness.inputs import make_inputs
from harness.spec import Op, Problem

# Outputs smaller than this may be all (near) zero by chance, for instance one element behind a relu.
_MIN_ELEMS_FOR_ZERO_LINT = 64


@dataclass(frozen=True)
class Expected:
    """Inputs in their own dtypes, and float64 outputs with their absolute bounds, by tensor name."""

    inputs: dict[str, NDArray[np.generic]]
    outputs: dict[str, NDArray[np.float64]]
    bounds: dict[str, NDArray[np.float64]]

    @property
    def size_bytes(self) -> int:
        """Host memory held."""
        return sum(a.nbytes for group in (self.inputs, self.outputs, self.bounds) for a in group.values())


class References:
    """Computes :class:`Expected` on demand, and keeps the latest up to ``max_bytes``."""

    def __init__(self, op: Op, max_bytes: int = 1 << 30) -> None:
        self.op = op
        self._max_bytes = max_bytes
        self._kept: OrderedDict[tuple[str, str, int], Expected] = OrderedDict()

    def get(self, problem: Problem, distribution: str = "normal", seed: int = 0) -> Expected:
        """Return what is expected of ``problem`` on the given inputs. Raises what the op's own callables raise."""
        key = (problem.name, distribution, seed)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        made = compute_expected(self.op, problem, make_inputs(self.op, problem, distribution, seed))
        self._kept[key] = made
        while len(self._kept) > 1 and sum(e.size_bytes for e in self._kept.values()) > self._max_bytes:
            self._kept.popitem(last=False)
        return made


def compute_expected(op: Op, problem: Problem, inputs: dict[str, NDArray[np.generic]]) -> Expected:
    """Run the op's float64 reference and tolerance on ``inputs``."""
    wide = {name: array.astype(np.float64) for name, array in inputs.items()}
    with np.errstate(all="ignore"):
        outputs = op.reference(wide, problem)
        bounds = op.tolerance(wide, outputs, problem)
    wanted = {t.name: t.resolve_shape(problem) for t in op.outputs if t.present(problem)}
    for name, shape in wanted.items():
        if name not in outputs or name not in bounds:
            raise ValueError(f"op {op.name}: reference() and tolerance() must both give output {name!r} for problem {problem.name}")
        if outputs[name].shape != shape:
            raise ValueError(
                f"op {op.name}: reference() gives {name} the shape {outputs[name].shape}, problem {problem.name} wants {shape}"
            )
    return Expected(inputs, {n: outputs[n] for n in wanted}, {n: np.asarray(bounds[n], np.float64) for n in wanted})


def check_tolerance(op: Op, problem: Problem, expected: Expected) -> list[Fault]:
    """Return what is wrong with the op's bound on this problem: not finite, negative, or so wide that zeros pass."""
    faults = []
    dtypes: dict[str, Any] = {t.name: find_dtype(t.resolve_dtype(problem)) for t in op.outputs}
    for name, values in expected.outputs.items():
        bound = np.broadcast_to(expected.bounds[name], values.shape)
        if not (np.isfinite(bound) & (bound >= 0))[np.isfinite(values)].all():
            detail = f"tolerance() gives {name} a bound that is negative or not finite on problem {problem.name}"
            faults.append(Fault(FaultKind.TOLERANCE_INVALID, "op", detail))
        elif values.size >= _MIN_ELEMS_FOR_ZERO_LINT and values.any():
            wrong = find_mismatches(np.zeros(values.shape, dtypes[name]), values, bound)
            if not wrong.any():
                detail = f"an output of zeros would pass for {name} on problem {problem.name}: the bound is up to {bound.max():.3g}"
                faults.append(Fault(FaultKind.TOLERANCE_ACCEPTS_ZEROS, "op", detail))
    return faults
