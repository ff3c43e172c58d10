"""How a call's arguments are read: attributes that follow from the arrays, sizes named by their shapes, and whether they fit the op.

All of it comes from the interface tables of the index: a new op needs no code here.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from aicf.errors import FrozenError
from aicf.ops.arrays import View
from contract.calls import Interface, Problem, Value, find_row


class Signature:
    """An op as a Python function: input arrays in the interface's order, then the attributes that no array tells.

    ``inputs`` are (name, may be left out), of which those in ``changed`` are overwritten in place; ``options`` are the attributes to be
    given, ``inferred`` those that dtypes tell.
    """

    def __init__(self, interface: Interface, ties: Sequence[Mapping[str, Any]] = ()) -> None:
        self.interface = interface
        self._ties = ties
        self.op = interface.op
        tensors = [t for t in interface.tensors if t["role"] in ("input", "inout")]
        presence = {a["present"]: a["name"] for a in interface.attributes if "present" in a}
        self.presence = {t["name"]: presence[t["name"]] for t in tensors if t["name"] in presence}
        # Arrays that may be left out come last, as parameters with defaults must.
        optional = {t["name"] for t in tensors if any(not row["value"] for row in t["present"])}
        order = sorted(tensors, key=lambda t: t["name"] in optional)
        self.inputs = tuple((str(t["name"]), t["name"] in optional) for t in order)
        self.changed = frozenset(str(t["name"]) for t in tensors if t["role"] == "inout")
        told = {name for t in tensors for row in t["dtype"] for name in row["when"]}
        rest = [a for a in interface.row["attributes"] if a["name"] not in self.presence.values()]
        self.inferred = tuple(a for a in rest if a["name"] in told)
        self.options = tuple(a for a in rest if a["name"] not in told)
        self._tensors = {t["name"]: t for t in interface.tensors}

    def require_callable(self) -> None:
        """Raise :class:`FrozenError` for an op that needs more than arrays and attributes."""
        if self.interface.scalars or "derived" in self.interface.row:
            raise FrozenError(
                f"{self.op}: has scalars or sizes that follow from others, which aicf.ops cannot pass; "
                "select a kernel with aicf.registry.select and launch it by addresses"
            )

    def list_outputs(self, attributes: Mapping[str, Value]) -> list[Mapping[str, Any]]:
        """Return the rows of the interface's outputs that a call has; attributes that are not given are at their defaults."""
        values = {a["name"]: a["default"] for a in self.interface.attributes} | dict(attributes)
        return [t for t in self.interface.tensors if t["role"] == "output" and find_row(t["present"], values)]

    def make_problem(self, views: Mapping[str, View], options: Mapping[str, Value], given: Mapping[str, int] | None = None) -> Problem:
        """Return the problem that arguments make; ``views`` has the arrays that are given, ``given`` sizes that none of them tells.

        Raises TypeError or ValueError that names the argument, what it is, and what is expected.
        """
        attributes: dict[str, Value] = {attribute: name in views for name, attribute in self.presence.items()}
        for attribute in self.options:
            attributes[attribute["name"]] = self._check_option(attribute, options)
        attributes |= self._infer(views, attributes)
        self._check_presence(views, attributes)
        sizes = dict(given or {})
        strides: dict[str, int | tuple[int, ...]] = {}
        for name, view in views.items():
            shape = find_row(self._tensors[name]["shape"], attributes)
            self._bind_sizes(name, view, shape, sizes)
            stride = self._list_strides(name, view) if "strides" in self._tensors[name] else self._find_stride(name, view)
            if stride is not None:
                strides[name] = stride
        self._tie(attributes, sizes)
        missing = [s for s in self.interface.size_names if s not in sizes]
        if missing:
            raise FrozenError(f"{self.op}: size {missing[0]} cannot be found from the inputs' shapes")
        return Problem(sizes, attributes, strides, {name: view.address for name, view in views.items()})

    def _tie(self, attributes: Mapping[str, Value], sizes: dict[str, int]) -> None:
        """Hold a call to what the op ties together, and find sizes that no input's shape names."""
        for tie in self._ties:
            if any(attributes[c["attribute"]] not in c["in"] for c in tie["when"]):
                continue
            where = ", ".join(f"{c['attribute']} = {attributes[c['attribute']]!r}" for c in tie["when"])
            for name, value in tie["then"].items():
                if attributes[name] != value:
                    raise ValueError(f"{name}: expected {value!r} where {where}, got {attributes[name]!r}")
            for pair in tie["equal"]:
                known = [sizes[name] for name in pair if name in sizes]
                if len(set(known)) > 1:
                    raise ValueError(f"{self.op}: expected {pair[0]} = {pair[1]} where {where}, got {known[0]} and {known[1]}")
                if known:
                    sizes.update(dict.fromkeys(pair, known[0]))

    def _check_presence(self, views: Mapping[str, View], attributes: Mapping[str, Value]) -> None:
        for name, _ in self.inputs:
            wanted = bool(find_row(self._tensors[name]["present"], attributes))
            if wanted != (name in views):
                deciding = {key for row in self._tensors[name]["present"] for key in row["when"]}
                where = ", ".join(f"{key} = {attributes[key]!r}" for key in sorted(deciding))
                raise ValueError(f"{name}: expected {'an array' if wanted else 'None'} where {where}")

    def _check_option(self, attribute: Mapping[str, Any], options: Mapping[str, Value]) -> Value:
        name, value = attribute["name"], options.get(attribute["name"], attribute["default"])
        for choice in attribute["choices"]:
            if choice == value and isinstance(choice, type(value)):
                found: Value = choice
                return found
        raise ValueError(f"{name}: expected one of {', '.join(map(repr, attribute['choices']))}, got {value!r}")

    def _infer(self, views: Mapping[str, View], attributes: Mapping[str, Value]) -> dict[str, Value]:
        names = [a["name"] for a in self.inferred]
        for values in itertools.product(*(a["choices"] for a in self.inferred)):
            tried = dict(zip(names, values, strict=True))
            if all(self._dtype(n, {**attributes, **tried}) == v.dtype for n, v in views.items()):
                return tried
        # Say which argument is to blame: the first whose dtype no setting has, else the first that differs from the one before.
        settings = [dict(zip(names, v, strict=True)) for v in itertools.product(*(a["choices"] for a in self.inferred))]
        for name, view in views.items():
            allowed = list(dict.fromkeys(self._dtype(name, {**attributes, **s}) for s in settings))
            if view.dtype not in allowed:
                raise TypeError(f"{name}: expected a dtype of {', '.join(map(str, allowed))}, got {view.dtype}")
            settings = [s for s in settings if self._dtype(name, {**attributes, **s}) == view.dtype]
        raise TypeError(f"{self.op}: no setting has these dtypes")

    def _dtype(self, name: str, attributes: Mapping[str, Value]) -> Any:
        return find_row(self._tensors[name]["dtype"], attributes)

    def _bind_sizes(self, name: str, view: View, shape: Sequence[str | int], sizes: dict[str, int]) -> None:
        words = f"({', '.join(f'{s}={sizes[s]}' if s in sizes else str(s) for s in shape)}{',' if len(shape) == 1 else ''})"
        if len(view.shape) != len(shape):
            raise ValueError(f"{name}: expected {len(shape)} dimensions {words}, got shape {view.shape}")
        for size, extent in zip(shape, view.shape, strict=True):
            if extent < 1:
                raise ValueError(f"{name}: expected extents of at least 1, got shape {view.shape}")
            if (sizes.setdefault(size, extent) if isinstance(size, str) else size) != extent:
                raise ValueError(f"{name}: expected shape {words}, got {view.shape}")

    def _list_strides(self, name: str, view: View) -> tuple[int, ...]:
        """Return the stride of each dimension; that of a single element says nothing."""
        strides = tuple(max(stride, 1) if extent == 1 else stride for extent, stride in zip(view.shape, view.strides, strict=True))
        is_last_fixed = self._tensors[name]["strides"][len(strides) - 1] is None
        if is_last_fixed and view.shape[-1] > 1 and strides[-1] != 1:
            raise ValueError(f"{name}: expected contiguous rows (last stride 1 element), got {view.strides}; pass a contiguous copy")
        if min(strides) < 1:
            raise ValueError(f"{name}: expected strides of at least 1 element, got {view.strides}")
        return (*strides[:-1], 1) if is_last_fixed else strides

    def _find_stride(self, name: str, view: View) -> int | None:
        """Return the row stride, None for a tensor that has none; a single row's or element's stride says nothing."""
        shape, strides = view.shape, view.strides
        if not shape:
            return None
        if shape[-1] > 1 and strides[-1] != 1:
            raise ValueError(f"{name}: expected contiguous rows (last stride 1 element), got strides {strides}; pass a contiguous copy")
        step = shape[-1]
        row: int | None = None
        for extent, stride in zip(shape[-2::-1], strides[-2::-1], strict=True):
            if row is None:
                if extent > 1 and stride < step:
                    raise ValueError(f"{name}: expected rows that do not overlap (stride at least {step} elements), got strides {strides}")
                row = stride if extent > 1 else step
                step = row * extent
            elif extent > 1 and stride != step:
                raise ValueError(f"{name}: expected rows at one stride from each other, got strides {strides}; pass a contiguous copy")
            else:
                step *= extent
        if self._tensors[name]["stride"] is None:
            if row is not None and row != shape[-1]:
                raise ValueError(f"{name}: expected a contiguous array, got strides {strides}; pass a contiguous copy")
            return None
        return row
