"""PyTorch's kernels, for comparison: the same models, gradient rules and optimizers on another library's kernels, call by call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from aicf.backends import Backend
from aicf.backends.torch_rules import RULES
from aicf.errors import UnsupportedError
from aicf.opset import Attrs, Type, find_dtype, find_op


class TorchBackend(Backend):
    """Arrays are PyTorch's tensors, on its current GPU if it has one and in host memory otherwise. Plans are not made for it."""

    name = "torch"

    def __init__(self) -> None:
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def op_call(self, op: str, inputs: Sequence[Any | None], attrs: Attrs) -> tuple[Any, ...]:
        """Return the outputs of an op; frozen ops, and those of a project of one's own, are unsupported."""
        types = [None if x is None else self.type_of(x) for x in inputs]
        results = find_op(op).find_types(types, attrs)
        if op not in RULES:
            raise UnsupportedError(f"{op}: not supported on the torch backend; use backend numpy or cuda")
        try:
            with torch.no_grad():
                made = RULES[op](inputs, attrs, results)
        except NotImplementedError as error:  # a dtype that PyTorch has no kernel for
            raise UnsupportedError(f"{op}({', '.join(map(str, types))}): not supported by PyTorch: {error}") from error
        return tuple(x.to(device=self.device, dtype=find_torch_dtype(t.dtype)) for x, t in zip(made, results, strict=True))

    def from_host(self, values: NDArray[Any]) -> Any:
        """Return a copy on PyTorch's device."""
        copied = np.array(values, order="C")
        if copied.dtype == find_dtype("bfloat16"):
            return torch.from_numpy(copied.view(np.int16)).view(torch.bfloat16).to(self.device)
        return torch.from_numpy(copied).to(self.device)

    def to_host(self, array: Any) -> NDArray[Any]:
        """Return the values in host memory; a view where they are there already, row by row."""
        host = array.contiguous().cpu()
        made: NDArray[Any] = host.view(torch.int16).numpy().view(find_dtype("bfloat16")) if host.dtype == torch.bfloat16 else host.numpy()
        return made

    def copy_into(self, target: Any, source: Any) -> None:
        """Overwrite an array's elements."""
        target.copy_(source)

    def type_of(self, array: Any) -> Type:
        """Return an array's type."""
        return Type(str(array.dtype).removeprefix("torch."), tuple(array.shape))


def find_torch_dtype(name: str) -> Any:
    """Return PyTorch's dtype of a name."""
    return getattr(torch, name)


BACKEND = TorchBackend
