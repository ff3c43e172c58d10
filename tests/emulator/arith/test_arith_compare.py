"""setp, set, selp, slct and testp, for every comparison and type."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.emulator.arith.support import BF16, F16, F32, F64, Format, Lanes, Value, assert_bits, decode, flush, patterns

FLOATS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}
BASIC: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
UNSIGNED: dict[str, Callable[[Any, Any], bool]] = {"lo": operator.lt, "ls": operator.le, "hi": operator.gt, "hs": operator.ge}
COUNT = 256
OTHER = 0x0F0F3355
BOOLEANS: dict[str, Callable[[bool, bool], bool]] = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}


def compare_floats(name: str, x: Value, y: Value) -> bool:
    unordered = x != x or y != y
    if name == "num":
        return not unordered
    if name == "nan":
        return unordered
    if name.endswith("u"):
        return unordered or BASIC[name[:-1]](x, y)
    return not unordered and BASIC[name](x, y)


FLOAT_NAMES = [*BASIC, *(f"{name}u" for name in BASIC), "num", "nan"]


def integers(bits: int, signed: bool) -> tuple[list[int], list[int]]:
    random = np.random.default_rng(bits)
    low = -(1 << bits - 1) if signed else 0
    corners = [low, low + 1, 0, 1, low + (1 << bits) - 1, low + (1 << bits - 1), low + (1 << bits - 1) - 1]
    a = [corners[int(random.integers(7))] for _ in range(COUNT)]
    b = [corners[int(random.integers(7))] if i % 2 else a[i] for i in range(COUNT)]
    return a, b


@pytest.mark.parametrize("bits", [16, 32, 64])
@pytest.mark.parametrize("kind", "bus")
def test_integer_comparisons(lanes: Lanes, kind: str, bits: int) -> None:
    a, b = integers(bits, kind == "s")
    names = {"b": ["eq", "ne"], "s": list(BASIC), "u": [*BASIC, *UNSIGNED]}[kind]
    functions = {**BASIC, **UNSIGNED}
    for name in functions:
        spelling = f"setp.{name}.{kind}{bits}"
        if name not in names:
            assert lanes.describe(spelling, 3).reason
            continue
        want = [functions[name](x, y) for x, y in zip(a, b, strict=True)]
        result = lanes.run(spelling, a, b, num_operands=3)
        assert result.lanes("p").tolist() == want, spelling
        assert result.lanes("q").tolist() == [not x for x in want], spelling


@pytest.mark.parametrize("name", FLOATS)
def test_float_comparisons(lanes: Lanes, name: str) -> None:
    form = FLOATS[name]
    a, b = patterns(form, 41, COUNT, arity=2)
    b[::5] = a[::5]
    for ftz in ("", ".ftz") if name in ("f16", "f32") else ("",):
        flushed = [[decode(flush(x, form) if ftz else x, form) for x in source] for source in (a, b)]
        for comparison in FLOAT_NAMES:
            want = [compare_floats(comparison, x, y) for x, y in zip(*flushed, strict=True)]
            assert lanes.run(f"setp.{comparison}{ftz}.{name}", a, b, num_operands=3).lanes().tolist() == want, comparison


def test_boolean_operators(lanes: Lanes) -> None:
    a, b = integers(32, True)
    other = [bool(OTHER >> i % 32 & 1) for i in range(COUNT)]
    truth = [x < y for x, y in zip(a, b, strict=True)]
    for name, function in BOOLEANS.items():
        result = lanes.run(f"setp.lt.{name}.s32", a, b, num_operands=4, predicates=[OTHER])
        assert result.lanes("p").tolist() == [function(x, y) for x, y in zip(truth, other, strict=True)]
        assert result.lanes("q").tolist() == [function(not x, y) for x, y in zip(truth, other, strict=True)]
        d = lanes.run(f"set.lt.{name}.u32.s32", a, b, num_operands=4, predicates=[OTHER]).d
        assert_bits(d, [0xFFFFFFFF if function(x, y) else 0 for x, y in zip(truth, other, strict=True)], a, b)


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_pairs(lanes: Lanes, name: str) -> None:
    form = FLOATS[name]
    halves = patterns(form, 42, COUNT, arity=4)
    a = [x | y << 16 for x, y in zip(halves[0], halves[1], strict=True)]
    b = [x | y << 16 for x, y in zip(halves[2], halves[3], strict=True)]
    values = [[decode(x, form) for x in half] for half in halves]
    for comparison in FLOAT_NAMES:
        low = [compare_floats(comparison, x, y) for x, y in zip(values[0], values[2], strict=True)]
        high = [compare_floats(comparison, x, y) for x, y in zip(values[1], values[3], strict=True)]
        result = lanes.run(f"setp.{comparison}.{name}x2", a, b, num_operands=3)
        assert result.lanes("p").tolist() == low
        assert result.lanes("q").tolist() == high
        one = 0x3C00 if name == "f16" else 0x3F80
        want = [(one if x else 0) | (one << 16 if y else 0) for x, y in zip(low, high, strict=True)]
        assert_bits(lanes.run(f"set.{comparison}.{name}x2.{name}x2", a, b).d, want, a, b)
        want = [(0xFFFF if x else 0) | (0xFFFF0000 if y else 0) for x, y in zip(low, high, strict=True)]
        assert_bits(lanes.run(f"set.{comparison}.u32.{name}x2", a, b).d, want, a, b)


@pytest.mark.parametrize(("to", "true"), [("u32", 0xFFFFFFFF), ("s32", 0xFFFFFFFF), ("f32", 0x3F800000), ("f16", 0x3C00), ("bf16", 0x3F80)])
def test_set(lanes: Lanes, to: str, true: int) -> None:
    for name in ("f32", "f64"):
        a, b = patterns(FLOATS[name], 43, COUNT, arity=2)
        want = [true if compare_floats("leu", decode(x, FLOATS[name]), decode(y, FLOATS[name])) else 0 for x, y in zip(a, b, strict=True)]
        assert_bits(lanes.run(f"set.leu.{to}.{name}", a, b).d, want, a, b)
    for bits in (16, 32, 64):
        a, b = integers(bits, True)
        assert_bits(lanes.run(f"set.gt.{to}.s{bits}", a, b).d, [true if x > y else 0 for x, y in zip(a, b, strict=True)], a, b)
    a, b = patterns(F16, 44, COUNT, arity=2)
    half = {"u16": 0xFFFF, "s16": 0xFFFF, "s32": 0xFFFFFFFF, "f16": 0x3C00}
    for name, value in half.items():
        want = [value if compare_floats("lt", decode(x, F16), decode(y, F16)) else 0 for x, y in zip(a, b, strict=True)]
        assert_bits(lanes.run(f"set.lt.{name}.f16", a, b).d, want, a, b)


@pytest.mark.parametrize("name", ["b16", "u32", "f32", "s64", "f64"])
def test_selection(lanes: Lanes, name: str) -> None:
    bits = int(name[1:])
    a, b = ([x & ((1 << bits) - 1) for x in column] for column in patterns(F64, 45, COUNT, arity=2))
    want = [x if OTHER >> i % 32 & 1 else y for i, (x, y) in enumerate(zip(a, b, strict=True))]
    assert_bits(lanes.run(f"selp.{name}", a, b, num_operands=4, predicates=[OTHER]).d, want, a, b)
    (c,) = patterns(F32, 46, COUNT)
    items = list(zip(a, b, c, strict=True))
    assert_bits(lanes.run(f"slct.{name}.s32", a, b, c).d, [x if z < 0x80000000 else y for x, y, z in items], a, b, c)
    assert_bits(lanes.run(f"slct.{name}.f32", a, b, c).d, [x if decode(z, F32) >= 0 else y for x, y, z in items], a, b, c)
    want = [x if decode(flush(z, F32), F32) >= 0 else y for x, y, z in items]
    assert_bits(lanes.run(f"slct.ftz.{name}.f32", a, b, c).d, want, a, b, c)


def classify(bits: int, form: Format) -> set[str]:
    """The tests that a value passes; the hardware counts zeros among the normal numbers."""
    value = decode(bits, form)
    if value != value:
        return {"notanumber"}
    if isinstance(value, float) and math.isinf(value):
        return {"infinite", "number"}
    is_subnormal = value != 0 and not bits & form.infinity
    return {"finite", "number", "subnormal" if is_subnormal else "normal"}


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_testp(lanes: Lanes, name: str) -> None:
    (bits,) = patterns(FLOATS[name], 47, COUNT)
    for test in ("finite", "infinite", "number", "notanumber", "normal", "subnormal"):
        want = [test in classify(x, FLOATS[name]) for x in bits]
        assert lanes.run(f"testp.{test}.{name}", bits, num_operands=2).lanes().tolist() == want, test
