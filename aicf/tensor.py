"""``Tensor``: an array of a backend together with the call that made it; and ``apply``, which makes every eager call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from aicf.autograd import Node, Version, run_backward
from aicf.backends import Backend, find_backend, find_default, read_host
from aicf.errors import GradientError
from aicf.modes import MODES, refuse_while_recording
from aicf.operators import Operators, read_key
from aicf.opset import Attr, Attrs, Builder, OpDef, Type, find_op
from aicf.opset.filled import Filled, fill, fill_choice

Scalar = bool | int | float


class _Eager(Builder):
    """Calls ops on tensors."""

    def call(self, op: str, inputs: Sequence[Tensor | None], attrs: Attrs) -> tuple[Tensor, ...]:
        """Return the outputs of an op."""
        return apply(op, inputs, **attrs)

    def type_of(self, value: Tensor) -> Type:
        """Return a tensor's type."""
        return value.type

    def full(self, value: float, like: Tensor) -> Tensor:
        """Return a scalar of a tensor's dtype, on its backend."""
        return make_scalar(value, like.dtype, like.backend)


class Tensor(Operators):
    """An array of a backend, with its gradient.

    ``data`` is the backend's array; ``grad`` the gradient that backward passes have added up; ``edge`` the call that made it and its place
    among that one's outputs, None for one that nothing made. Writing to ``data`` goes past the checks of in-place writes; the methods
    ending in ``_`` do not.
    """

    BUILDER: ClassVar[Builder] = _Eager()
    __array_priority__ = 1000  # NumPy's operators leave ours the right to decide
    __slots__ = ("__weakref__", "backend", "data", "edge", "grad", "requires_grad", "type", "version")

    data: Any
    grad: Tensor | None
    edge: tuple[Node, int] | None

    def __init__(self, values: Any, *, dtype: str | None = None, requires_grad: bool = False, backend: str | Backend | None = None) -> None:
        refuse_while_recording("a tensor was made from host values", "make it outside, and pass it as an input or register it as a buffer")
        chosen = find_default() if backend is None else find_backend(backend) if isinstance(backend, str) else backend
        host = values.numpy() if isinstance(values, Tensor) else values
        self._set(chosen.from_host(read_host(host, dtype)), chosen, Version())
        self.require_grad(requires_grad)

    def _set(self, data: Any, backend: Backend, version: Version) -> None:
        self.data = data
        self.backend = backend
        self.type = backend.type_of(data)
        self.version = version
        self.grad = self.edge = None
        self.requires_grad = False

    @classmethod
    def wrap(cls, data: Any, backend: Backend, version: Version | None = None) -> Self:
        """Return a tensor of an array that a backend has made, without a copy."""
        made = cls.__new__(cls)
        # As _set does, without a call: an output of every call is made here.
        made.data = data
        made.backend = backend
        made.type = backend.type_of(data)
        made.version = Version() if version is None else version
        made.grad = made.edge = None
        made.requires_grad = False
        return made

    def require_grad(self, needed: bool = True) -> Self:
        """Say whether backward passes are to find this tensor's gradient; returns the tensor. Raises TypeError for integers."""
        if needed and not self.type.is_float:
            raise TypeError(f"a tensor of {self.type.dtype} has no gradient; only floating tensors do")
        self.requires_grad = needed
        return self

    @property
    def creator(self) -> Node | None:
        """The recorded call that made it, None for one that nothing made."""
        return None if self.edge is None else self.edge[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents."""
        return self.type.shape

    @property
    def dtype(self) -> str:
        """The dtype's name."""
        return self.type.dtype

    @property
    def ndim(self) -> int:
        """How many dimensions there are."""
        return len(self.type.shape)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a scalar tensor has no length")
        return self.shape[0]

    # ---- to the host

    def numpy(self) -> NDArray[Any]:
        """Return the values in host memory, not to be written to."""
        refuse_while_recording("a tensor's values were read", "keep the computation in tensors")
        view = self.backend.to_host(self.data).view()
        view.flags.writeable = False
        return view

    def item(self) -> Any:
        """Return the only element as a Python number; raises ValueError where there is not exactly one."""
        refuse_while_recording("a tensor's value was read (.item(), float, if)", "keep the computation in tensors, or branch by F.where")
        if self.type.num_elems != 1:
            raise ValueError(f"item() needs one element, got shape {self.shape}")
        return self.backend.to_host(self.data).reshape(()).item()

    def __bool__(self) -> bool:
        return bool(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        values = self.numpy()
        return np.array(values, dtype=dtype, copy=copy) if dtype is not None or copy else values

    def __dlpack__(self, **arguments: Any) -> Any:
        refuse_while_recording("a tensor was exported", "keep the computation in tensors")
        if self.requires_grad:
            raise GradientError("a tensor that needs a gradient cannot be exported: export x.detach()")
        exported = self.data.__dlpack__(**arguments)
        self.version.is_exported = True
        return exported

    def __dlpack_device__(self) -> Any:
        return self.data.__dlpack_device__()

    def __format__(self, spec: str) -> str:
        """Return the only element in a format (``f"{loss:.3f}"``), or the tensor as it prints where there is none."""
        return format(self.item(), spec) if spec else str(self)

    def __repr__(self) -> str:
        if MODES.recorder is not None or not hasattr(self.backend, "to_host"):
            return f"Tensor({self.type})"
        body = np.array2string(self.backend.to_host(self.data), separator=", ", prefix="Tensor(")
        note = ", requires_grad=True" if self.requires_grad else ""
        return f"Tensor({body}, dtype={self.dtype}{note})"

    # ---- gradients

    def backward(self, gradient: Tensor | None = None, *, retain_graph: bool = False) -> None:
        """Add the gradients of this tensor (a scalar, or weighted by ``gradient``) to the ``grad`` of the leaves it was made of.

        The graph is freed, unless it is to be retained. Raises :class:`~aicf.errors.GradientError`.
        """
        run_backward([self], [gradient], retain_graph=retain_graph)

    def detach(self) -> Tensor:
        """Return a tensor of the same memory that no gradient flows through."""
        if MODES.recorder is not None:  # the graph is differentiated later, and has to know
            return _apply_one("Detach", self)
        return Tensor.wrap(self.data, self.backend, self.version)

    def alias(self) -> Tensor:
        """Return a tensor of the same memory that needs a gradient of its own, and passes it on where this one needs one."""
        return _apply_one("Reshape", self, shape=self.shape) if self.requires_grad else self.detach().require_grad()

    def clone(self) -> Tensor:
        """Return a copy, through which gradients flow."""
        if MODES.recorder is None:
            return _apply_one("Copy", self)
        return self * 1.0 if self.type.is_float else _apply_one("Cast", self, dtype=self.dtype)

    # ---- writes in place

    def copy_(self, source: Tensor | Scalar) -> Self:
        """Overwrite the elements; returns the tensor. Raises :class:`~aicf.errors.GradientError` where gradients would be wrong."""
        self._check_write()
        values = self._lift(source)
        if values.type != self.type:
            values = _apply_one("Broadcast", values.cast(self.dtype), shape=self.shape)
        self.backend.copy_into(self.data, values.data)
        self.version.count += 1
        return self

    def _check_write(self) -> None:
        refuse_while_recording("a tensor was changed in place", "return the new values instead")
        if MODES.grad_enabled and self.requires_grad:
            raise GradientError("a tensor that needs a gradient was changed in place; do it under aicf.no_grad(), or make a new tensor")

    def zero_(self) -> Self:
        """Set all elements to zero; returns the tensor."""
        return self.copy_(0)

    def add_(self, other: Tensor | Scalar) -> Self:
        """Add in place; returns the tensor."""
        self._check_write()
        return self.copy_(self.detach() + other)

    def mul_(self, other: Tensor | Scalar) -> Self:
        """Multiply in place; returns the tensor."""
        self._check_write()
        return self.copy_(self.detach() * other)

    # ---- arithmetic

    def _lift(self, other: Any) -> Tensor:
        """Return an operand as a tensor: a number in this tensor's dtype and backend."""
        if isinstance(other, Tensor):
            return other
        if not isinstance(other, (bool, int, float, np.generic)):
            raise TypeError(f"expected a tensor or a number, got {type(other).__name__}; Tensor(values) makes one")
        if not self.type.is_float and int(other) != other:
            raise TypeError(f"{other} is not an integer, and the tensor is {self.dtype}; cast it: x.cast('float32')")
        return make_scalar(float(other) if self.type.is_float else int(other), self.dtype, self.backend)

    def _unary(self, function: str) -> Tensor:
        return apply_filled(fill_choice("Elementwise", "function", function), (self,))[0]

    def _binary(self, function: str, other: Any) -> Tensor:
        return apply_filled(fill_choice("Elementwise", "function", function), (self, self._lift(other)))[0]

    def __matmul__(self, other: Tensor) -> Tensor:
        return _apply_one("MatMul", self, other)

    # ---- shapes and reductions

    def cast(self, dtype: str) -> Tensor:
        """Return the tensor in another dtype."""
        return self if dtype == self.dtype else _apply_one("Cast", self, dtype=dtype)

    def reshape(self, *shape: int) -> Tensor:
        """Return the elements in another shape; one extent may be -1."""
        return _apply_one("Reshape", self, shape=shape)

    def permute(self, *order: int) -> Tensor:
        """Return the tensor with its axes in another order."""
        return _apply_one("Permute", self, order=order)

    @property
    def T(self) -> Tensor:  # noqa: N802  # as NumPy has it
        """The tensor with its axes reversed."""
        return self.permute(*reversed(range(self.ndim)))

    def _reduce(self, function: str, axes: int | Sequence[int] | None, keep: bool) -> Tensor:
        chosen = axes if axes is None or isinstance(axes, int) else tuple(axes)
        return _apply_one("Reduce", self, function=function, axes=chosen, keep=keep)

    def sum(self, axes: int | Sequence[int] | None = None, *, keep: bool = False) -> Tensor:
        """Return the sum over axes, over all by default."""
        return self._reduce("sum", axes, keep)

    def mean(self, axes: int | Sequence[int] | None = None, *, keep: bool = False) -> Tensor:
        """Return the mean over axes, over all by default."""
        return self._reduce("mean", axes, keep)

    def max(self, axes: int | Sequence[int] | None = None, *, keep: bool = False) -> Tensor:
        """Return the maximum over axes, over all by default."""
        return self._reduce("max", axes, keep)

    def min(self, axes: int | Sequence[int] | None = None, *, keep: bool = False) -> Tensor:
        """Return the minimum over axes, over all by default."""
        return self._reduce("min", axes, keep)

    def argmax(self, axis: int, *, keep: bool = False) -> Tensor:
        """Return the index of the first maximum along an axis."""
        return self._reduce("argmax", axis, keep)

    def __getitem__(self, key: Any) -> Tensor:
        starts, stops, kept = read_key(key, self.shape)
        cut = _apply_one("Slice", self, starts=starts, stops=stops)
        shape = tuple(n for n, keep in zip(cut.shape, kept, strict=True) if keep)
        return cut if all(kept) else cut.reshape(*shape)


def apply(op: str, inputs: Sequence[Tensor | None], **attrs: Attr) -> tuple[Tensor, ...]:
    """Call an op: its backend runs it, and where an input needs a gradient the call is recorded.

    Raises TypeError or ValueError for inputs that the op does not take or that are of several backends.
    """
    return apply_filled(fill(find_op(op), attrs), inputs)


def apply_filled(attrs: Filled, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
    """Call an op as :func:`apply` does, with attributes that were filled in before."""
    if MODES.recorder is not None:
        return _record(attrs, inputs)
    op = attrs.op
    backend, needs, given = _find_common_backend(op, inputs)
    recipe = attrs.recipes[len(inputs), needs] if needs and MODES.grad_enabled else None
    arrays = backend.op_call(op.name, given, attrs if recipe is None else recipe.attrs)
    outputs = _wrap_all(op, inputs, arrays, backend)
    if recipe is not None:
        Node(op, recipe, inputs, given, outputs)
    return outputs


def _record(attrs: Filled, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
    """Make a call a node of the graph that is being recorded."""
    recorder, op = MODES.recorder, attrs.op
    assert recorder is not None
    lifted = [None if t is None else recorder.lift(t) for t in inputs]
    needs = sum(1 << i for i, t in enumerate(lifted) if t is not None and t.requires_grad) if MODES.grad_enabled else 0
    recipe = attrs.recipes[len(lifted), needs] if needs else None
    given = [None if t is None else t.data for t in lifted]
    arrays = recorder.op_call(op.name, given, dict(attrs if recipe is None else recipe.attrs))
    if not MODES.grad_enabled and op.gradient is not None:
        arrays = tuple(recorder.op_call("Detach", (array,), {})[0] for array in arrays)
    outputs = _wrap_all(op, lifted, arrays, recorder)
    if recipe is not None:
        Node(op, recipe, lifted, given, outputs)
    return outputs


def _wrap_all(op: OpDef, inputs: Sequence[Tensor | None], arrays: Sequence[Any], backend: Backend) -> tuple[Tensor, ...]:
    version = inputs[0].version if op.moves and inputs and inputs[0] is not None else None  # what is moved may be a view
    if len(arrays) == 1:
        return (Tensor.wrap(arrays[0], backend, version),)
    return tuple([Tensor.wrap(array, backend, version) for array in arrays])


def make_scalar(value: Scalar, dtype: str, backend: Backend) -> Tensor:
    """Return a scalar on a backend, or of the graph that is being recorded."""
    chosen: Backend = MODES.recorder or backend
    (data,) = chosen.op_call("Full", (), {"value": value, "dtype": dtype, "shape": ()})
    return Tensor.wrap(data, chosen)


def _apply_one(op: str, *inputs: Tensor | None, **attrs: Attr) -> Tensor:
    (output,) = apply(op, inputs, **attrs)
    return output


def _find_common_backend(op: OpDef, inputs: Sequence[Tensor | None]) -> tuple[Backend, int, list[Any]]:
    """Return the backend of all inputs, which of them need gradients, as bits, and their arrays."""
    found: Backend | None = None
    needs, bit = 0, 1
    arrays: list[Any] = []
    try:
        for tensor in inputs:
            if tensor is None:
                arrays.append(None)
            else:
                backend = tensor.backend
                if backend is not found:
                    if found is not None:
                        two = f"{found.name} and {backend.name}"
                        raise TypeError(f"{op.name}: inputs are on {two}; make them on one: Tensor(x, backend=...)")
                    found = backend
                arrays.append(tensor.data)
                if tensor.requires_grad:
                    needs |= bit
            bit += bit
    except AttributeError:
        if isinstance(tensor, Tensor):
            raise
        raise TypeError(f"{op.name}: expected tensors, got {type(tensor).__name__}; Tensor(values) makes one") from None
    return found or find_default(), needs, arrays
