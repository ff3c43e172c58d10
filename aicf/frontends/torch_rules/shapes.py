"""Operators of PyTorch that move elements, and those that ask for sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aicf import functional as F
from aicf.frontends.imported import lift
from aicf.frontends.network import Refusal
from aicf.frontends.torch_rules.elementwise import find_dtype_name
from aicf.frontends.torch_rules.table import rule
from aicf.opset.types import broadcast_shapes
from aicf.tensor import Tensor

# Parameters have PyTorch's names: callers give them by keyword.


def _ints(given: Sequence[Any]) -> tuple[int, ...]:
    """Return sizes that are given as one sequence or one by one."""
    whole = given[0] if len(given) == 1 and isinstance(given[0], (list, tuple)) else given
    return tuple(int(n) for n in whole)


@rule("reshape", "view", "_unsafe_view", is_view=True)
def _reshape(input: Tensor, *shape: Any) -> Tensor:  # noqa: A002
    return input.reshape(*_ints(shape))


@rule("view_as", "reshape_as", is_view=True)
def _reshape_as(input: Tensor, other: Tensor) -> Tensor:  # noqa: A002
    return input.reshape(*other.shape)


@rule("flatten", is_view=True)
def _flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:  # noqa: A002
    return F.flatten(input, start_dim, end_dim)


@rule("unflatten", is_view=True)
def _unflatten(input: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:  # noqa: A002
    dim %= input.ndim
    return input.reshape(*input.shape[:dim], *sizes, *input.shape[dim + 1 :])


@rule("squeeze", is_view=True)
def _squeeze(input: Tensor, dim: Any = None) -> Tensor:  # noqa: A002
    places = range(input.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    return F.squeeze(input, [d for d in places if input.shape[d] == 1])


@rule("unsqueeze", is_view=True)
def _unsqueeze(input: Tensor, dim: int) -> Tensor:  # noqa: A002
    return F.unsqueeze(input, (dim,))


@rule("transpose", "swapaxes", "swapdims", is_view=True)
def _transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:  # noqa: A002
    order = list(range(input.ndim))
    order[dim0], order[dim1] = order[dim1], order[dim0]
    return input.permute(*order)


@rule("permute", is_view=True)
def _permute(input: Tensor, *dims: Any) -> Tensor:  # noqa: A002
    return input.permute(*(d % input.ndim for d in _ints(dims)))


@rule("t", "numpy_T", "T", is_view=True)
def _t(input: Tensor) -> Tensor:  # noqa: A002
    return input.T


@rule("mT", is_view=True)
def _turned(input: Tensor) -> Tensor:  # noqa: A002
    return F.move_axis(input, -1, -2)


@rule("expand", is_view=True, implicit=(False,))
def _expand(input: Tensor, *size: Any, implicit: bool = False) -> Tensor:  # noqa: A002
    wanted = _ints([n for n in size if not isinstance(n, bool)])  # TorchScript gives ``implicit`` by place
    own = (1,) * (len(wanted) - input.ndim) + input.shape
    return F.broadcast(input, [n if want == -1 else want for want, n in zip(wanted, own, strict=True)])


@rule("expand_as", is_view=True)
def _expand_as(input: Tensor, other: Tensor) -> Tensor:  # noqa: A002
    return F.broadcast(input, other.shape)


@rule("broadcast_tensors", is_view=True)
def _broadcast_tensors(*tensors: Any) -> list[Tensor]:
    given = tensors[0] if len(tensors) == 1 else tensors
    shape = broadcast_shapes("broadcast_tensors", *(x.shape for x in given))
    return [F.broadcast(x, shape) for x in given]


@rule("cat", "concat")
def _cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    return F.concat(tensors, dim % tensors[0].ndim)


@rule("stack")
def _stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    return F.stack(tensors, dim)


@rule("split", "split_with_sizes", is_view=True)
def _split(input: Tensor, split_size_or_sections: Any, dim: int = 0) -> list[Tensor]:  # noqa: A002
    length = input.shape[dim]
    if not isinstance(split_size_or_sections, int):
        return F.split(input, split_size_or_sections, dim)
    size = split_size_or_sections
    return F.split(input, [min(size, length - start) for start in range(0, length, size)], dim)


@rule("chunk", is_view=True)
def _chunk(input: Tensor, chunks: int, dim: int = 0) -> list[Tensor]:  # noqa: A002
    return _split(input, max(-(-input.shape[dim] // chunks), 1), dim)  # type: ignore[no-any-return]


@rule("unbind", is_view=True)
def _unbind(input: Tensor, dim: int = 0) -> list[Tensor]:  # noqa: A002
    return [_select(input, dim, i) for i in range(input.shape[dim])]


@rule("select", is_view=True)
def _select(input: Tensor, dim: int, index: int) -> Tensor:  # noqa: A002
    return input[(*[slice(None)] * (dim % input.ndim), index)]


@rule("slice", is_view=True, step=(1,))
def _slice(input: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Tensor:  # noqa: A002
    return input[(*[slice(None)] * (dim % input.ndim), slice(start, end))]


@rule("narrow", is_view=True)
def _narrow(input: Tensor, dim: int, start: int, length: int) -> Tensor:  # noqa: A002
    return input[(*[slice(None)] * (dim % input.ndim), slice(start, start + length))]


@rule("getitem", is_view=True)
def _getitem(input: Any, key: Any) -> Any:  # noqa: A002
    """Return part of a list of values, or of a tensor by integers, slices, ``None`` and ``...``."""
    if not isinstance(input, Tensor):
        return input[key]
    keys = list(key) if isinstance(key, (list, tuple)) else [key]
    if any(isinstance(k, Tensor) for k in keys):
        raise Refusal("a tensor as index is not supported; use torch.index_select or an embedding")
    if Ellipsis in keys:
        at, given = keys.index(Ellipsis), sum(k is not None for k in keys) - 1
        keys[at : at + 1] = [slice(None)] * (input.ndim - given)
    made = input[tuple(k for k in keys if k is not None)]
    kept = [k for k in keys if k is None or isinstance(k, slice)]
    places = [i for i, k in enumerate(kept) if k is None]
    return F.unsqueeze(made, places) if places else made


@rule("index_select")
def _index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:  # noqa: A002
    return F.gather(input, index, dim)


@rule("repeat", "tile")
def _repeat(input: Tensor, *repeats: Any) -> Tensor:  # noqa: A002
    return F.tile(input, _ints(repeats))


@rule("pad", "constant_pad_nd", mode=("constant",))
def _pad(input: Tensor, pad: Sequence[int], mode: Any = "constant", value: Any = 0.0) -> Tensor:  # noqa: A002
    before, after = [0] * input.ndim, [0] * input.ndim
    for i in range(len(pad) // 2):
        before[-1 - i], after[-1 - i] = pad[2 * i], pad[2 * i + 1]
    return F.pad(input, before, after, value or 0.0)


@rule("contiguous", "alias", "detach_copy", "lift_fresh_copy", "lift_fresh", "identity", "positive", is_view=True)
def _same(input: Tensor, memory_format: Any = None) -> Tensor:  # noqa: A002
    return input


@rule("clone")
def _clone(input: Tensor, memory_format: Any = None) -> Tensor:  # noqa: A002
    return input


@rule("detach", "detach_", is_view=True)
def _detach(input: Tensor) -> Tensor:  # noqa: A002
    return input.detach()


# ---- sizes: numbers of the host


@rule("size")
def _size(input: Tensor, dim: int | None = None) -> Any:  # noqa: A002
    return input.shape if dim is None else input.shape[dim]


@rule("sym_size")
def _sym_size(input: Tensor, dim: int) -> int:  # noqa: A002
    return input.shape[dim]


@rule("numel", "sym_numel")
def _numel(input: Tensor) -> int:  # noqa: A002
    return input.type.num_elems


@rule("dim")
def _dim(input: Tensor) -> int:  # noqa: A002
    return input.ndim


@rule("getattr", is_view=True, name=("shape", "ndim", "T", "mT", "dtype"))
def _getattr(input: Tensor, name: str) -> Any:  # noqa: A002
    return F.move_axis(input, -1, -2) if name == "mT" else getattr(input, name)


def _full_like(value: float) -> Callable[..., Tensor]:
    def make(input: Tensor, dtype: Any = None, *places: Any, **options: Any) -> Tensor:  # noqa: A002
        name = input.dtype if dtype is None else find_dtype_name(dtype)
        return F.broadcast(lift(np.asarray(value), input.backend).cast(name), input.shape)

    return make


rule("zeros_like")(_full_like(0.0))
rule("ones_like")(_full_like(1.0))
