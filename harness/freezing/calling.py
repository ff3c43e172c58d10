"""Calling a kernel's C entry points by its interface as data, as whoever has only the frozen set does; and whether that comes out right."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

from harness.benchmark.session import Session
from harness.build.builder import BuildResult
from harness.spec import AttributeValue, Launchable, Op, Problem
from harness.verify.inputs import make_inputs
from harness.verify.reference import compute_expected
from harness.verify.runner import Case

C_TYPES = {
    "pointer": ctypes.c_void_p,
    "int64": ctypes.c_int64,
    "int32": ctypes.c_int32,
    "float32": ctypes.c_float,
    "float64": ctypes.c_double,
}
# Problems of more work than this are left to the binding's own verification.
_MAX_FLOPS = 4e6


class Status(ctypes.Structure):
    """``AicfStatus`` of ``common/status.h``."""

    _fields_ = (("code", ctypes.c_int32), ("cuda_code", ctypes.c_int32), ("reason", ctypes.c_char * 248))


def make_params(
    interface: Mapping[str, Any],
    sizes: Mapping[str, int],
    attributes: Mapping[str, AttributeValue],
    addresses: Mapping[str, int],
    strides: Mapping[str, int],
) -> ctypes.Structure:
    """Return the op's Params struct for a call: addresses of the tensors that are there, strides of their rows in elements."""
    fields = [(f["name"], C_TYPES[f["type"]]) for f in interface["fields"]]
    params: ctypes.Structure = type("Params", (ctypes.Structure,), {"_fields_": fields})()
    for size, field in interface["sizes"].items():
        setattr(params, field, sizes[size])
    for attribute in interface["attributes"]:
        if "field" in attribute:
            setattr(params, attribute["field"], attribute["codes"][attribute["choices"].index(attributes[attribute["name"]])])
    for tensor in interface["tensors"]:
        setattr(params, tensor["field"], addresses.get(tensor["name"]))
        if tensor["stride"]:
            setattr(params, tensor["stride"], strides.get(tensor["name"], 0))
    return params


def find_wrong_call(session: Session, build: BuildResult, launchable: Launchable, interface: Mapping[str, Any]) -> str:
    """Return "" where a variant called by its interface as data gives what the reference asks for, else what is wrong.

    It is called on every listed problem of little work that it serves, which has each value of each attribute among them.
    """
    op = session.loaded.op
    assert build.library is not None
    launch = getattr(ctypes.CDLL(str(build.library)), f"{op.name}_launch__{build.variant.symbol_suffix}")
    launch.restype = Status
    seen = 0
    for problem in op.select_problems("verify"):
        if op.cost(problem).flops > _MAX_FLOPS:
            continue
        with Case(session.device, op, problem) as case:
            if launchable.supports(**case.arguments):
                continue
            seen += 1
            expected = compute_expected(op, problem, make_inputs(op, problem, "normal"))
            case.upload(expected.inputs)
            case.prepare(launchable)
            params = _fill(op, problem, case, interface)
            status: Status = launch(ctypes.byref(params), ctypes.c_void_p(case.workspace_address or None), None)
            if status.code != 0:
                return f"{problem.name}: {status.reason.decode(errors='replace')}"
            session.device.synchronize()
            for tensor, comparison in expected.compare(case.read_outputs()).items():
                if not comparison.ok:
                    return f"{problem.name}, called by api.hpp as op.py describes it: {comparison.describe(tensor)}"
    return "" if seen else "no problem of little work is served"


def _fill(op: Op, problem: Problem, case: Case, interface: Mapping[str, Any]) -> ctypes.Structure:
    addresses, strides = {}, {}
    for tensor in op.tensors:
        array = case.arguments[tensor.name]
        if array is None:
            continue
        view = array.__cuda_array_interface__
        addresses[tensor.name] = view["data"][0]
        shape: Sequence[int] = view["shape"]
        item = int(view["typestr"][2:])
        strides[tensor.name] = view["strides"][-2] // item if view.get("strides") and len(shape) > 1 else shape[-1]
    return make_params(interface, problem.sizes, op.attribute_values(problem), addresses, strides)
