"""The structs of ``decide.h`` in ctypes. Order and limits are those of the header; a test compares the two."""

from __future__ import annotations

import ctypes
from typing import Any

from contract.axes import MAX_AXES

MAX_SIZES = 16
MAX_ATTRIBUTES = 16
MAX_TENSORS = 32
MAX_UNITS = 8
MAX_KERNELS = 256
MASK_WORDS = 4
MAX_STACK = 32
NUM_TERMS = 7

INT32, INT64, UINT32, UINT64, DOUBLE = ctypes.c_int32, ctypes.c_int64, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_double
Masks = UINT64 * MASK_WORDS


class AicfCall(ctypes.Structure):
    """A call: sizes, attributes by their place among the choices, row strides and addresses by tensor."""

    _fields_ = (
        ("sizes", INT64 * MAX_SIZES),
        ("attributes", INT64 * MAX_ATTRIBUTES),
        ("strides", INT64 * MAX_TENSORS),
        ("max_strides", INT64 * MAX_TENSORS),
        ("addresses", UINT64 * MAX_TENSORS),
    )


class AicfCondition(ctypes.Structure):
    """What must hold for a kernel to serve a call, or for a call to be in a class."""

    _fields_ = (
        ("kind", INT32),
        ("place", INT32),
        ("choices", UINT64),
        ("least", INT64),
        ("most", INT64),
        ("multiple", INT64),
        ("steps", INT64 * MAX_SIZES),
        ("kernels", Masks),
    )


class AicfClass(ctypes.Structure):
    """A class of an axis, with where its conditions are."""

    _fields_ = (("axis", INT32), ("number", INT32), ("first", INT32), ("count", INT32))


class AicfKernel(ctypes.Structure):
    """A kernel's tile, and the chip's rates."""

    _fields_ = (
        ("deterministic", INT32),
        ("accumulate", INT32),
        ("slots", INT64),
        ("edges", INT64 * MAX_SIZES),
        ("bytes_per_s", DOUBLE),
        ("flops_per_s", DOUBLE * MAX_UNITS),
    )


class AicfWinner(ctypes.Structure):
    """A bucket's kernel."""

    _fields_ = (("kernel", INT32), ("is_apart", INT32), ("classes", INT32 * MAX_AXES))


class AicfPoint(ctypes.Structure):
    """A measured problem, with where its times are."""

    _fields_ = (
        ("classes", INT32 * MAX_AXES),
        ("attributes", INT64 * MAX_ATTRIBUTES),
        ("sizes", INT64 * MAX_SIZES),
        ("logs", DOUBLE * MAX_SIZES),
        ("kernels", Masks),
        ("first", INT32),
        ("count", INT32),
    )


class AicfTime(ctypes.Structure):
    """A kernel's median on a point."""

    _fields_ = (("kernel", INT32), ("us", DOUBLE))


class AicfSurveyPoint(ctypes.Structure):
    """A surveyed problem."""

    _fields_ = (("classes", UINT64 * MAX_AXES), ("is_loose", INT32), ("logs", DOUBLE * MAX_SIZES))


class AicfRow(ctypes.Structure):
    """A row of a table by attributes."""

    _fields_ = (("when", INT32 * MAX_ATTRIBUTES), ("first", INT32), ("count", INT32))


class AicfStep(ctypes.Structure):
    """A step of a formula in postfix order."""

    _fields_ = (("code", INT32), ("size", INT32), ("number", DOUBLE))


class AicfInput(ctypes.Structure):
    """An input: the formula of its bytes, the sizes that its shape names, and whose row stride it has."""

    _fields_ = (("first", INT32), ("count", INT32), ("shape", UINT32), ("tensor", INT32), ("item_bytes", INT32))


class AicfModel(ctypes.Structure):
    """How a kernel's time grows with the sizes."""

    _fields_ = (("edges", INT64 * MAX_SIZES), ("least", INT64 * MAX_SIZES), ("slots", DOUBLE), ("idle_us", DOUBLE))


# The lists of a table by field, in the header's order.
LISTS: dict[str, Any] = {
    "conditions": AicfCondition,
    "classes": AicfClass,
    "kernels": AicfKernel,
    "winners": AicfWinner,
    "fallbacks": INT32,
    "points": AicfPoint,
    "times": AicfTime,
    "steps": AicfStep,
    "flops": AicfRow,
    "bytes": AicfRow,
    "units": AicfRow,
    "reads": AicfRow,
    "inputs": AicfInput,
    "models": AicfModel,
    "weights": DOUBLE,
    "survey_points": AicfSurveyPoint,
    "errors": DOUBLE,
}
NUMBERS = (
    "num_sizes",
    "num_attributes",
    "num_tensors",
    "num_kernels",
    "num_axes",
    "num_group_axes",
    "num_survey_axes",
    "num_conditions",
    "num_classes",
    "num_winners",
    "num_fallbacks",
    "num_points",
    "num_flops",
    "num_bytes",
    "num_units",
    "num_reads",
    "has_survey",
    "num_survey_points",
)


class AicfTable(ctypes.Structure):
    """What is known of an op's kernels for one architecture."""

    _fields_ = (
        *((name, INT32) for name in NUMBERS),
        ("l2_bytes_per_s", DOUBLE),
        ("surveyed", Masks),
        *((name, ctypes.POINTER(kind)) for name, kind in LISTS.items()),
    )


class AicfQuery(ctypes.Structure):
    """A call with all that its decision looks at."""

    _fields_ = (
        ("call", AicfCall),
        ("legal", Masks),
        ("classes", INT32 * MAX_AXES),
        ("is_loose", INT32),
        ("unit", INT32),
        ("num_reads", INT32),
        ("flops", DOUBLE),
        ("bytes", DOUBLE),
        ("reads", DOUBLE * MAX_TENSORS),
        ("off_line", DOUBLE * MAX_TENSORS),
        ("shapes", UINT32 * MAX_TENSORS),
        ("logs", DOUBLE * MAX_SIZES),
    )


class AicfDecision(ctypes.Structure):
    """The kernel by number, which step found it, and its time where one is known."""

    _fields_ = (("kernel", INT32), ("how", INT32), ("point", INT32), ("in_bucket", INT32), ("us", DOUBLE), ("distance", DOUBLE))


class AicfWishes(ctypes.Structure):
    """What a caller asks of a kernel beyond the problem."""

    _fields_ = (("deterministic", INT32), ("accumulate", INT32), ("least_workspace", INT32), ("max_workspace_bytes", INT64))
