"""Logic, shifts, bit fields, byte permutation and moves, against the ISA's pseudo-code on Python integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.emulator.arith.support import Lanes, assert_bits

COUNT = 512
WIDTHS = [16, 32, 64]


def words(seed: int, bits: int = 32) -> list[int]:
    random = np.random.default_rng(seed)
    corners = [0, 1, (1 << bits) - 1, 1 << bits - 1, (1 << bits - 1) - 1, 0x5A]
    result = [corners[int(random.integers(6))] for _ in range(COUNT // 4)]
    while len(result) < COUNT:
        result.append((int(random.integers(0, 1 << 64, dtype=np.uint64)) & ((1 << bits) - 1)) >> int(random.integers(0, bits)))
    return result


def amounts(seed: int) -> list[int]:
    random = np.random.default_rng(seed)
    special = [0, 1, 15, 16, 31, 32, 33, 63, 64, 65, 255, 256, 0xFFFFFFFF]
    return [special[i % 13] if i % 3 == 0 else int(random.integers(0, 70)) for i in range(COUNT)]


def signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value


@pytest.mark.parametrize("bits", WIDTHS)
def test_logic(lanes: Lanes, bits: int) -> None:
    a, b = words(1, bits), words(2, bits)
    top = (1 << bits) - 1
    for opcode, function in {"and": int.__and__, "or": int.__or__, "xor": int.__xor__}.items():
        assert_bits(lanes.run(f"{opcode}.b{bits}", a, b).d, [function(x, y) for x, y in zip(a, b, strict=True)], a, b)
    assert_bits(lanes.run(f"not.b{bits}", a).d, [~x & top for x in a], a)
    assert_bits(lanes.run(f"cnot.b{bits}", a).d, [int(x == 0) for x in a], a)
    assert_bits(lanes.run(f"mov.b{bits}", a).d, a, a)


@pytest.mark.parametrize("bits", WIDTHS)
def test_shifts(lanes: Lanes, bits: int) -> None:
    a, n = words(3, bits), amounts(4)
    pairs = list(zip(a, n, strict=True))
    assert_bits(lanes.run(f"shl.b{bits}", a, n).d, [x << y & ((1 << bits) - 1) if y < bits else 0 for x, y in pairs], a, n)
    for kind in "bu":
        assert_bits(lanes.run(f"shr.{kind}{bits}", a, n).d, [x >> y for x, y in pairs], a, n)
    want = [signed(x, bits) >> min(y, bits) & ((1 << bits) - 1) for x, y in pairs]
    assert_bits(lanes.run(f"shr.s{bits}", a, n).d, want, a, n)


@pytest.mark.parametrize("mode", ["clamp", "wrap"])
def test_funnel_shifts(lanes: Lanes, mode: str) -> None:
    a, b, n = words(5), words(6), amounts(7)
    shift = [min(y, 32) if mode == "clamp" else y & 31 for y in n]
    both = [y << 32 | x for x, y in zip(a, b, strict=True)]
    want = [x << y >> 32 & 0xFFFFFFFF for x, y in zip(both, shift, strict=True)]
    assert_bits(lanes.run(f"shf.l.{mode}.b32", a, b, n).d, want, a, b, n)
    assert_bits(lanes.run(f"shf.r.{mode}.b32", a, b, n).d, [x >> y & 0xFFFFFFFF for x, y in zip(both, shift, strict=True)], a, b, n)


@pytest.mark.parametrize("table", [0x80, 0xFE, 0x96, 0xE8, 0xCA, 0x1, 0x0, 0xFF, 0x3C])
def test_lop3(lanes: Lanes, table: int) -> None:
    a, b, c = words(8), words(9), words(10)

    def look_up(x: int, y: int, z: int) -> int:
        return sum((table >> ((x >> i & 1) * 4 + (y >> i & 1) * 2 + (z >> i & 1)) & 1) << i for i in range(32))

    want = [look_up(*items) for items in zip(a, b, c, strict=True)]
    assert_bits(lanes.run("lop3.b32", a, b, c, num_operands=5, immediate=table).d, want, a, b, c)
    for operation, function in (("or", bool.__or__), ("and", bool.__and__)):
        result = lanes.run(f"lop3.{operation}.b32", a, b, c, num_operands=6, immediate=table, predicates=[0x0F0F3355])
        assert_bits(result.d, want, a, b, c)
        other = [bool(0x0F0F3355 >> i % 32 & 1) for i in range(COUNT)]
        assert result.lanes().tolist() == [function(x != 0, y) for x, y in zip(want, other, strict=True)]


def permute(a: int, b: int, selectors: int) -> int:
    data = (b << 32 | a).to_bytes(8, "little")
    result = 0
    for i in range(4):
        selector = selectors >> 4 * i
        byte = data[selector & 7]
        result |= ((0xFF if byte & 0x80 else 0) if selector & 8 else byte) << 8 * i
    return result


MODES = {
    "f4e": [0x3210, 0x4321, 0x5432, 0x6543],
    "b4e": [0x5670, 0x6701, 0x7012, 0x0123],
    "rc8": [0x0000, 0x1111, 0x2222, 0x3333],
    "ecl": [0x3210, 0x3211, 0x3222, 0x3333],
    "ecr": [0x0000, 0x1110, 0x2210, 0x3210],
    "rc16": [0x1010, 0x3232, 0x1010, 0x3232],
}


def test_byte_permutation(lanes: Lanes) -> None:
    a, b, c = words(11), words(12), words(13)
    items = list(zip(a, b, c, strict=True))
    assert_bits(lanes.run("prmt.b32", a, b, c).d, [permute(*item) for item in items], a, b, c)
    for mode, selectors in MODES.items():
        want = [permute(x, y, selectors[z & 3]) for x, y, z in items]
        assert_bits(lanes.run(f"prmt.b32.{mode}", a, b, c).d, want, a, b, c)


@pytest.mark.parametrize("bits", [32, 64])
def test_counting_and_finding(lanes: Lanes, bits: int) -> None:
    a = words(14, bits)
    assert_bits(lanes.run(f"popc.b{bits}", a).d, [x.bit_count() for x in a], a)
    assert_bits(lanes.run(f"clz.b{bits}", a).d, [bits - x.bit_length() for x in a], a)
    assert_bits(lanes.run(f"brev.b{bits}", a).d, [int(f"{x:0{bits}b}"[::-1], 2) for x in a], a)
    for kind in "us":
        plain = [(x if kind == "u" or signed(x, bits) >= 0 else ~signed(x, bits)).bit_length() - 1 for x in a]
        assert_bits(lanes.run(f"bfind.{kind}{bits}", a).d, [x & 0xFFFFFFFF for x in plain], a)
        want = [0xFFFFFFFF if x < 0 else bits - 1 - x for x in plain]
        assert_bits(lanes.run(f"bfind.shiftamt.{kind}{bits}", a).d, want, a)


def find_nth(mask: int, base: int, offset: int) -> int:
    """The ISA's pseudo-code of fns."""
    if offset == 0:
        return base if mask >> base & 1 else 0xFFFFFFFF
    step, count, position = (1 if offset > 0 else -1), abs(offset) - 1, base
    while 0 <= position < 32:
        if mask >> position & 1:
            if count == 0:
                return position
            count -= 1
        position += step
    return 0xFFFFFFFF


def test_fns(lanes: Lanes) -> None:
    random = np.random.default_rng(15)
    mask, base, offset = words(16), random.integers(0, 32, COUNT).tolist(), random.integers(-9, 10, COUNT).tolist()
    want = [find_nth(*items) for items in zip(mask, base, offset, strict=True)]
    assert_bits(lanes.run("fns.b32", mask, base, offset).d, want, mask, base)


def field_operand(value: int, bits: int) -> int:
    """What the hardware reads of a field's position or length: the low 8 bits in 32-bit forms, all 32 in 64-bit ones."""
    return value & 0xFF if bits == 32 else value


@pytest.mark.parametrize("name", ["u32", "s32", "u64", "s64"])
def test_bit_field_extract(lanes: Lanes, name: str) -> None:
    bits = int(name[1:])
    a, b, c = words(17, bits), amounts(18), amounts(19)[::-1]

    def extract(x: int, position: int, length: int) -> int:
        position, length = field_operand(position, bits), field_operand(length, bits)
        fill = 0 if name[0] == "u" or length == 0 else x >> min(position + length - 1, bits - 1) & 1
        return sum((x >> position + i & 1 if i < length and position + i < bits else fill) << i for i in range(bits))

    want = [extract(*items) for items in zip(a, b, c, strict=True)]
    assert_bits(lanes.run(f"bfe.{name}", a, b, c).d, want, a, b, c)


@pytest.mark.parametrize("bits", [32, 64])
def test_bit_field_insert(lanes: Lanes, bits: int) -> None:
    a, b, c, e = words(20, bits), words(21, bits), amounts(22), amounts(23)[::-1]

    def insert(x: int, y: int, position: int, length: int) -> int:
        for i in range(min(field_operand(length, bits), bits)):
            place = field_operand(position, bits) + i
            if place < bits:
                y = y & ~(1 << place) | (x >> i & 1) << place
        return y

    want = [insert(*items) for items in zip(a, b, c, e, strict=True)]
    assert_bits(lanes.run(f"bfi.b{bits}", a, b, c, e).d, want, a, b, c, e)


@pytest.mark.parametrize("mode", ["clamp", "wrap"])
def test_sign_extension_and_masks(lanes: Lanes, mode: str) -> None:
    a, b = words(24), amounts(25)

    def extend(x: int, width: int, kind: str) -> int:
        if mode == "clamp" and width >= 32:
            return x
        width &= 31
        field = x & ((1 << width) - 1)
        return signed(field, width) & 0xFFFFFFFF if kind == "s" and width else field

    for kind in "us":
        want = [extend(x, y, kind) for x, y in zip(a, b, strict=True)]
        assert_bits(lanes.run(f"szext.{mode}.{kind}32", a, b).d, want, a, b)

    position = amounts(26)[::-1]

    def mask(start: int, width: int) -> int:
        if mode == "clamp":
            start, width = min(start, 32), min(width, 32)
        else:
            start, width = start & 31, width & 31
        return ((1 << width) - 1) << start & 0xFFFFFFFF

    want = [mask(*items) for items in zip(position, b, strict=True)]
    assert_bits(lanes.run(f"bmsk.{mode}.b32", position, b).d, want, position, b)


def test_predicates(lanes: Lanes) -> None:
    p, q, active = 0x0F0F3355, 0x00FF5A5A, 0xFFFF0FF0
    before = 0x5A5A5A5A
    functions: dict[str, Callable[[], int]] = {"and": lambda: p & q, "or": lambda: p | q, "xor": lambda: p ^ q}
    for opcode, function in functions.items():
        result = lanes.run(f"{opcode}.pred", num_operands=3, predicates=[p, q], masks=active)
        assert int(result.p[0]) == (function() & active) | (before & ~active)
    assert int(lanes.run("not.pred", num_operands=2, predicates=[p]).p[0]) == ~p & 0xFFFFFFFF
    assert int(lanes.run("mov.pred", num_operands=2, predicates=[p], masks=1).p[0]) == (before & ~1) | (p & 1)
