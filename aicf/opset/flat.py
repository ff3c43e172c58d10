"""One launch for many tensors: to a kernel that takes flat arrays, adjacent values are one value.

An output that takes the memory of an operand which all members share, a counter, is there once, behind all others.

Members begin at multiples of ``MEMBER_ELEMS`` elements, in every list of a call, so that one number is one element in all of them. What
lies between members is zero, and is computed on like the rest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from aicf.opset.chains import OPS as CHAINS
from aicf.opset.definition import REQUIRED, Arrays, OpDef, Types
from aicf.opset.reduce import OPS as REDUCTIONS
from aicf.opset.types import Attr, Attrs, Type
from aicf.opset.updates import OPS as UPDATES

# 256 bytes of 16-bit elements: members of every dtype begin where buffers may.
MEMBER_ELEMS = 128
# The frozen ops that work element by element; and sums over all elements, to which zeros between members add nothing.
PARTS: Mapping[str, OpDef] = {op.name: op for op in (*CHAINS, *UPDATES, *REDUCTIONS) if op.is_frozen}
ELEMENTWISE, REDUCE = "elementwise", "reduce"


def find_offsets(types: Sequence[Type]) -> tuple[list[int], int]:
    """Return at which element each member of a list begins, and at which the last one ends."""
    offsets, at, end = [], 0, 0
    for t in types:
        offsets.append(at)
        end = at + t.num_elems
        at = -(-end // MEMBER_ELEMS) * MEMBER_ELEMS
    return offsets, end


def read_attrs(attrs: Attrs) -> dict[str, Attr]:
    """Return the attributes of the op that a flat call makes for all members."""
    made: dict[str, Attr] = json.loads(str(attrs["attrs"]))
    return made


def make_attrs(op: str, attrs: Attrs, types: Types) -> Mapping[str, Attr]:
    """Return an op's attributes for arrays of given types: a chain says how many elements there are."""
    if op != ELEMENTWISE:
        return attrs
    first = max((t for t in types[1:] if t is not None), key=lambda t: t.num_elems)
    dtypes = str(attrs["results"]).split()
    results = "; ".join(str(Type(dtype, first.shape)) for dtype in dtypes)
    return {**attrs, "rows": 1, "columns": first.num_elems, "results": results}


def split_inputs(inputs: Sequence[Any], attrs: Attrs) -> tuple[list[list[Any]], int]:
    """Return an op's operands, each as its members or alone, and the number of members."""
    members, grouped = attrs["members"], str(attrs["grouped"])
    assert isinstance(members, int)
    found, at = [], 0
    for mark in grouped:
        count = members if mark == "1" else 1
        found.append(list(inputs[at : at + count]))
        at += count
    if at != len(inputs):
        raise TypeError(f"flat: {attrs['op']} of {members} members with operands {grouped} takes {at} inputs, got {len(inputs)}")
    return found, members


def take_member(operands: Sequence[Sequence[Any]], member: int) -> list[Any]:
    """Return the operands of one member's call."""
    return [each[member] if len(each) > 1 else each[0] for each in operands]


def find_taken(output: int, num_inputs: int, attrs: Attrs) -> int | None:
    """Return which input's memory an output takes, by their places; None where it has its own."""
    if attrs["op"] == REDUCE:
        return None
    members, grouped = attrs["members"], str(attrs["grouped"])
    assert isinstance(members, int)
    operand = PARTS[str(attrs["op"])].find_taken(output // members, len(grouped), read_attrs(attrs))
    if operand is None:
        return None
    before = sum(members if mark == "1" else 1 for mark in grouped[:operand])
    return before + output % members


def is_shared(output: int, attrs: Attrs) -> bool:
    """Whether an output of the op that is called for each member is one for all: it takes the memory of an operand that they share."""
    grouped = str(attrs["grouped"])
    operand = PARTS[str(attrs["op"])].find_taken(output, len(grouped), read_attrs(attrs))
    return operand is not None and grouped[operand] == "0"


def _infer(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    operands, members = split_inputs(types, attrs)
    part, inner = PARTS[str(attrs["op"])], read_attrs(attrs)
    if part.name == REDUCE:
        return (Type(str(inner["result_dtype"]), ()),)
    found = [part.find_types(own, make_attrs(part.name, inner, own)) for own in (take_member(operands, i) for i in range(members))]
    return tuple(_join(found, attrs))


def _compute(arrays: Arrays, attrs: Attrs) -> list[Any]:
    operands, members = split_inputs(arrays, attrs)
    part, inner = PARTS[str(attrs["op"])], read_attrs(attrs)
    if part.name == REDUCE:
        return [sum(part.meaning([member.reshape(1, -1)], inner)[0] for member in operands[0])]
    found = []
    for i in range(members):
        own = take_member(operands, i)
        types = [None if a is None else Type(a.dtype.name, a.shape) for a in own]
        found.append(part.meaning(own, make_attrs(part.name, inner, types)))
    return _join(found, attrs)


def _join(found: Sequence[Sequence[Any]], attrs: Attrs) -> list[Any]:
    """Return the outputs of members' calls, each output's beside each other."""
    return [made[i] for i in range(len(found[0])) for made in (found[:1] if is_shared(i, attrs) else found)]


OPS = (
    OpDef(
        "flat",
        ("x*",),
        (),
        _infer,
        _compute,
        {"op": REQUIRED, "members": REQUIRED, "grouped": REQUIRED, "attrs": REQUIRED},
        is_frozen=True,
        takes=find_taken,
    ),
)
