"""The C structs of ops and of entry points, laid out from the index."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

_TYPES: Mapping[str, type[Any]] = {
    "pointer": ctypes.c_void_p,
    "int64": ctypes.c_int64,
    "int32": ctypes.c_int32,
    "float32": ctypes.c_float,
    "float64": ctypes.c_double,
}


class Status(ctypes.Structure):
    """``AicfStatus`` of ``common/status.h``: a code (0: done), the ``cudaError_t``, and the reason in words."""

    _fields_ = (("code", ctypes.c_int32), ("cuda_code", ctypes.c_int32), ("reason", ctypes.c_char * 248))

    def read_reason(self) -> str:
        """Return the reason, "" where there is none."""
        return bytes(self.reason).decode("utf-8", "replace")


def find_struct(interface: Mapping[str, Any]) -> type[ctypes.Structure]:
    """Return the op's Params struct, by the index' ``interface``."""
    return _make_struct(str(interface["struct"]), tuple((f["name"], f["type"]) for f in interface["fields"]))


@cache
def _make_struct(name: str, fields: tuple[tuple[str, str], ...]) -> type[ctypes.Structure]:
    return type(name, (ctypes.Structure,), {"_fields_": [(field, _TYPES[kind]) for field, kind in fields]})


def make_params(
    interface: Mapping[str, Any],
    sizes: Mapping[str, int],
    attributes: Mapping[str, Any],
    addresses: Mapping[str, int],
    strides: Mapping[str, int | Sequence[int]],
    scalars: Mapping[str, float] = MappingProxyType({}),
) -> ctypes.Structure:
    """Return the op's Params struct for a call.

    ``addresses`` (bytes) and ``strides`` (elements) are those of the tensors that are part of it; the pointers of others are NULL. A tensor
    whose dimensions have strides of their own gives all of them, any other that of its rows. A scalar that is left out has its default.
    """
    params = find_struct(interface)()
    for size, field in interface["sizes"].items():
        setattr(params, field, sizes[size])
    for attribute in interface["attributes"]:
        if "field" in attribute:
            code = attribute["codes"][attribute["choices"].index(attributes[attribute["name"]])]
            setattr(params, attribute["field"], code)
    for tensor in interface["tensors"]:
        setattr(params, tensor["field"], addresses.get(tensor["name"]))
        given = strides.get(tensor["name"], 0)
        if tensor["stride"] is not None:
            setattr(params, tensor["stride"], given)
        for field, stride in zip(tensor.get("strides", ()), given if isinstance(given, Sequence) else (), strict=False):
            if field is not None:
                setattr(params, field, stride)
    for scalar in interface.get("scalars", ()):
        setattr(params, scalar["field"], scalars.get(scalar["name"], scalar["default"]))
    return params
