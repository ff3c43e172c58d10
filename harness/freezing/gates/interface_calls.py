"""Calling a kernel's C entry points through its interface as data, as a reader of the frozen set would, and checking the results."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

from contract.structs import Status, make_params
from harness.benchmark.session import Session
from harness.build.builder import BuildResult
from harness.spec import Launchable, Op, Problem
from harness.verify.case import Case
from harness.verify.inputs import make_inputs
from harness.verify.reference import compute_expected

# Problems of more work than this are left to the binding's own verification.
_MAX_FLOPS = 4e6


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
                return f"{problem.name}: {status.read_reason()}"
            session.device.synchronize()
            for tensor, comparison in expected.compare(case.read_outputs()).items():
                if not comparison.ok:
                    return f"{problem.name}, called by api.hpp as op.py describes it: {comparison.describe(tensor)}"
    return "" if seen else "no problem of little work is served"


def _fill(op: Op, problem: Problem, case: Case, interface: Mapping[str, Any]) -> ctypes.Structure:
    addresses: dict[str, int] = {}
    strides: dict[str, int | tuple[int, ...]] = {}
    for tensor in op.tensors:
        array = case.arguments[tensor.name]
        if array is None:
            continue
        addresses[tensor.name] = array.__cuda_array_interface__["data"][0]
        given = tensor.find_strides(problem)
        strides[tensor.name] = given if tensor.is_strided else given[-2] if len(given) > 1 else 0
    return make_params(interface, problem.sizes, op.attribute_values(problem), addresses, strides, op.scalar_values(problem))
