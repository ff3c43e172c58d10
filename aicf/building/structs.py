"""The C structs of ops and entry points, laid out from the index."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

from contract.calls import Interface, Query

_TYPES: Mapping[str, type[Any]] = {
    "pointer": ctypes.c_void_p,
    "int64": ctypes.c_int64,
    "int32": ctypes.c_int32,
    "float32": ctypes.c_float,
    "float64": ctypes.c_double,
}
_made: dict[int, tuple[Interface, type[ctypes.Structure]]] = {}


class Status(ctypes.Structure):
    """``AicfStatus`` of ``common/status.h``: a code (0: done), the ``cudaError_t``, and the reason in words."""

    _fields_ = (("code", ctypes.c_int32), ("cuda_code", ctypes.c_int32), ("reason", ctypes.c_char * 248))


def find_struct(interface: Interface) -> type[ctypes.Structure]:
    """Return the op's Params struct."""
    known = _made.get(id(interface))
    if known is None:
        fields = [(f["name"], _TYPES[f["type"]]) for f in interface.row["fields"]]
        made = type(str(interface.row["struct"]), (ctypes.Structure,), {"_fields_": fields})
        known = _made[id(interface)] = (interface, made)
    return known[1]


def make_params(interface: Interface, query: Query, addresses: Mapping[str, int]) -> ctypes.Structure:
    """Return the struct for a problem; a tensor without an address that is part of the call gets NULL."""
    params = find_struct(interface)()
    for size, field in interface.row["sizes"].items():
        setattr(params, field, query.by_size[size])
    for attribute in interface.attributes:
        if "field" in attribute:
            value = query.attributes[attribute["name"]]
            setattr(params, attribute["field"], attribute["codes"][attribute["choices"].index(value)])
    for layout in interface.find_layouts(query.values):
        setattr(params, layout.field, addresses.get(layout.name))
        if layout.stride_field is not None:
            setattr(params, layout.stride_field, query.strides[layout.name])
    return params
