"""Integer arithmetic, extended precision and dot products against Python integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.emulator.arith.support import Lanes, assert_bits

TYPES = ["u16", "u32", "u64", "s16", "s32", "s64"]
WIDE = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}
COUNT = 512


def low_and_high(name: str) -> tuple[int, int]:
    bits = int(name[1:])
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if name[0] == "s" else (0, (1 << bits) - 1)


def values(name: str, seed: int) -> list[int]:
    random = np.random.default_rng(seed)
    low, high = low_and_high(name)
    corners = [low, low + 1, high, high - 1, 0, 1, 2, max(low, -1), high >> 1]
    result = [corners[int(random.integers(len(corners)))] for _ in range(COUNT // 2)]
    while len(result) < COUNT:
        magnitude = int(random.integers(0, 1 << 64, dtype=np.uint64)) >> int(random.integers(0, 64))
        result.append(wrap(magnitude, name))
    return result


def wrap(value: int, name: str) -> int:
    bits = int(name[1:])
    value &= (1 << bits) - 1
    return value - (1 << bits) if name[0] == "s" and value >> bits - 1 else value


def clamp(value: int, name: str) -> int:
    low, high = low_and_high(name)
    return max(low, min(high, value))


def bits_of(items: list[int], name: str) -> list[int]:
    return [x & ((1 << int(name[1:])) - 1) for x in items]


def quotient(a: int, b: int) -> int:
    return -1 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def remainder(a: int, b: int) -> int:
    return -1 if b == 0 else a - quotient(a, b) * b


OPERATIONS: dict[str, Callable[..., int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul.lo": lambda a, b: a * b,
    "div": quotient,
    "rem": remainder,
    "min": min,
    "max": max,
    "mad.lo": lambda a, b, c: a * b + c,
    "sad": lambda a, b, c: c + abs(a - b),
    "neg": lambda a: -a,
    "abs": abs,
}


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_operations(lanes: Lanes, operation: str, name: str) -> None:
    if operation in ("neg", "abs") and name[0] == "u":
        assert lanes.describe(f"{operation}.{name}", 2).reason
        return
    function = OPERATIONS[operation]
    arity = function.__code__.co_argcount if hasattr(function, "__code__") else (1 if function is abs else 2)
    sources = [values(name, seed) for seed in range(arity)]
    want = [wrap(function(*items), name) for items in zip(*sources, strict=True)]
    assert_bits(lanes.run(f"{operation}.{name}", *sources).d, bits_of(want, name), *sources)


@pytest.mark.parametrize("name", TYPES)
def test_high_products(lanes: Lanes, name: str) -> None:
    a, b, c = (values(name, seed) for seed in (3, 4, 5))
    bits = int(name[1:])
    high = [x * y >> bits for x, y in zip(a, b, strict=True)]
    assert_bits(lanes.run(f"mul.hi.{name}", a, b).d, bits_of(high, name), a, b)
    assert_bits(lanes.run(f"mad.hi.{name}", a, b, c).d, bits_of([x + y for x, y in zip(high, c, strict=True)], name), a, b, c)


@pytest.mark.parametrize("name", WIDE)
def test_wide_products(lanes: Lanes, name: str) -> None:
    a, b, c = values(name, 6), values(name, 7), values(WIDE[name], 8)
    product = [x * y for x, y in zip(a, b, strict=True)]
    assert_bits(lanes.run(f"mul.wide.{name}", a, b).d, bits_of(product, WIDE[name]), a, b)
    want = [x + y for x, y in zip(product, c, strict=True)]
    assert_bits(lanes.run(f"mad.wide.{name}", a, b, c).d, bits_of(want, WIDE[name]), a, b, c)


def test_saturation_and_relu(lanes: Lanes) -> None:
    a, b, c = (values("s32", seed) for seed in (9, 10, 11))
    pairs = list(zip(a, b, strict=True))
    for spelling, want in {
        "add.sat.s32": [clamp(x + y, "s32") for x, y in pairs],
        "sub.sat.s32": [clamp(x - y, "s32") for x, y in pairs],
        "min.relu.s32": [max(min(x, y), 0) for x, y in pairs],
        "max.relu.s32": [max(x, y, 0) for x, y in pairs],
    }.items():
        assert_bits(lanes.run(spelling, a, b).d, bits_of(want, "s32"), a, b)
    want = [clamp((x * y >> 32) + z, "s32") for (x, y), z in zip(pairs, c, strict=True)]
    assert_bits(lanes.run("mad.hi.sat.s32", a, b, c).d, bits_of(want, "s32"), a, b, c)


@pytest.mark.parametrize("name", ["u32", "s32"])
@pytest.mark.parametrize("half", ["lo", "hi"])
def test_24_bit_products(lanes: Lanes, half: str, name: str) -> None:
    a, b, c = (values(name, seed) for seed in (12, 13, 14))
    product = [wrap(x, f"{name[0]}24") * wrap(y, f"{name[0]}24") for x, y in zip(a, b, strict=True)]
    part = [wrap(x if half == "lo" else x >> 16, name) for x in product]
    assert_bits(lanes.run(f"mul24.{half}.{name}", a, b).d, bits_of(part, name), a, b)
    want = [x + y for x, y in zip(part, c, strict=True)]
    assert_bits(lanes.run(f"mad24.{half}.{name}", a, b, c).d, bits_of(want, name), a, b, c)
    if (half, name) == ("hi", "s32"):
        assert_bits(lanes.run("mad24.hi.sat.s32", a, b, c).d, bits_of([clamp(x, name) for x in want], name), a, b, c)


@pytest.mark.parametrize("spelling", ["add.u16x2", "add.s16x2", "min.u16x2", "max.s16x2", "min.relu.s16x2"])
def test_pairs_of_16_bits(lanes: Lanes, spelling: str) -> None:
    a, b = values("u32", 15), values("u32", 16)
    name = spelling.split(".")[-1].removesuffix("x2")
    function = OPERATIONS[spelling.split(".")[0]]

    def half(x: int, y: int) -> int:
        result = function(wrap(x, name), wrap(y, name))
        return (max(result, 0) if "relu" in spelling else result) & 0xFFFF

    want = [half(x, y) | half(x >> 16, y >> 16) << 16 for x, y in zip(a, b, strict=True)]
    assert_bits(lanes.run(spelling, a, b).d, want, a, b)


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("opcode", ["add", "sub", "mad.lo", "mad.hi"])
def test_carries(lanes: Lanes, opcode: str, bits: int) -> None:
    name = f"u{bits}"
    sources = [values(name, seed) for seed in range(17, 20 if "mad" in opcode else 19)]
    carry_in = np.arange(COUNT // 32, dtype=np.uint32) * 0x9E3779B9
    incoming = ((carry_in[:, None] >> np.arange(32, dtype=np.uint32)) & 1).reshape(-1).tolist()
    family, _, half = opcode.partition(".")
    for reads, writes in ((False, True), (True, False), (True, True)):
        spelling = ".".join(filter(None, [family + "c" * reads, half, "cc" * writes, name]))
        want, flags = [], []
        for i, items in enumerate(zip(*sources, strict=True)):
            product = items[0] if len(items) == 2 else (items[0] * items[1] >> (bits if half == "hi" else 0)) & ((1 << bits) - 1)
            if family == "sub":  # a + ~b + carry, as the adder does it: the flag is the inverse of the borrow
                total = product + (~items[-1] & ((1 << bits) - 1)) + (incoming[i] if reads else 1)
            else:
                total = product + items[-1] + (incoming[i] if reads else 0)
            want.append(total & ((1 << bits) - 1))
            flags.append(bool(total >> bits))
        result = lanes.run(spelling, *sources, carry=carry_in)
        assert_bits(result.d, want, *sources)
        assert result.lanes("carry").tolist() == (flags if writes else [bool(x) for x in incoming]), spelling


@pytest.mark.parametrize("a_type", ["u32", "s32"])
@pytest.mark.parametrize("b_type", ["u32", "s32"])
def test_dot_products(lanes: Lanes, a_type: str, b_type: str) -> None:
    a, b, c = (values("u32", seed) for seed in (20, 21, 22))
    byte_a, byte_b, short_a = f"{a_type[0]}8", f"{b_type[0]}8", f"{a_type[0]}16"
    items = list(zip(a, b, c, strict=True))
    want = [z + sum(wrap(x >> s, byte_a) * wrap(y >> s, byte_b) for s in (0, 8, 16, 24)) for x, y, z in items]
    assert_bits(lanes.run(f"dp4a.{a_type}.{b_type}", a, b, c).d, bits_of(want, "u32"), a, b, c)
    for half, shift in (("lo", 0), ("hi", 16)):
        want = [z + sum(wrap(x >> 16 * i, short_a) * wrap(y >> shift + 8 * i, byte_b) for i in (0, 1)) for x, y, z in items]
        assert_bits(lanes.run(f"dp2a.{half}.{a_type}.{b_type}", a, b, c).d, bits_of(want, "u32"), a, b, c)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(a=st.integers(0, 2**128 - 1), b=st.integers(0, 2**128 - 1))
def test_chains_of_carries_add_wide_integers(lanes: Lanes, a: int, b: int) -> None:
    carry = np.zeros(1, np.uint32)
    total = 0
    for word in range(4):
        spelling = "add.cc.u32" if word == 0 else "addc.cc.u32"
        result = lanes.run(spelling, [a >> 32 * word & 0xFFFFFFFF] * 32, [b >> 32 * word & 0xFFFFFFFF] * 32, carry=carry)
        carry = result.carry
        total |= int(result.d[0]) << 32 * word
    assert total == (a + b) & (2**128 - 1)
    assert bool(carry[0]) == bool(a + b >> 128)


@pytest.mark.parametrize("kind", "us")
def test_absolute_differences_of_bytes(lanes: Lanes, kind: str) -> None:
    a, b, c = (values("u32", seed) for seed in (23, 24, 25))
    byte, spelling = f"{kind}8", f"vabsdiff4.{kind}32.{kind}32.{kind}32"
    parts = [[abs(wrap(x >> s, byte) - wrap(y >> s, byte)) for s in (0, 8, 16, 24)] for x, y in zip(a, b, strict=True)]
    assert_bits(lanes.run(spelling, a, b, c).d, [int.from_bytes(bytes(part), "little") for part in parts], a, b)
    want = [(z + sum(part)) & 0xFFFFFFFF for z, part in zip(c, parts, strict=True)]
    assert_bits(lanes.run(f"{spelling}.add", a, b, c).d, want, a, b, c)
