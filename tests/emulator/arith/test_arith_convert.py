"""cvt between every pair of types against exact conversion, and cvt.pack."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from tests.emulator.arith.support import (
    BF16,
    E4M3,
    E5M2,
    F16,
    F32,
    F64,
    TF32,
    Bits,
    Format,
    Lanes,
    Value,
    assert_bits,
    decode,
    encode,
    flush,
    patterns,
)

FLOATS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}
INTEGERS = {f"{sign}{bits}": (sign == "s", bits) for sign in "us" for bits in (8, 16, 32, 64)}
COUNT = 256
SMALL = {"e4m3": E4M3, "e5m2": E5M2}


def integers(name: str, seed: int) -> list[int]:
    """Values of an integer type: ends, small ones, and all magnitudes."""
    signed, bits = INTEGERS[name]
    random = np.random.default_rng(seed)
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    values = [low, low + 1, -1 if signed else 2, 0, 1, high - 1, high, high >> 1]
    while len(values) < COUNT:
        magnitude = int(random.integers(0, 1 << 63)) >> int(random.integers(0, 63)) << int(random.integers(0, 3))
        values.append(max(min(-magnitude if signed and random.integers(2) else magnitude, high), low))
    return values


def slot(value: int, name: str) -> int:
    """What a row holds after a conversion: .s8 and .s16 sign-extended to 32 bits."""
    signed, bits = INTEGERS[name]
    return value & ((1 << max(bits, 32)) - 1) if signed else value & ((1 << bits) - 1)


def wrap(value: int, name: str) -> int:
    signed, bits = INTEGERS[name]
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> bits - 1 else value


def clamp(value: int, name: str) -> int:
    signed, bits = INTEGERS[name]
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return max(low, min(high, value))


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("to", INTEGERS)
def test_integers(lanes: Lanes, to: str, source: str) -> None:
    values = integers(source, 21)
    assert_bits(lanes.run(f"cvt.{to}.{source}", values).d, [slot(wrap(x, to), to) for x in values], values)
    assert_bits(lanes.run(f"cvt.sat.{to}.{source}", values).d, [slot(clamp(x, to), to) for x in values], values)


def to_integral(value: Value, mode: str) -> int:
    exact = Fraction(value)
    if mode == "rni":
        return round(exact)
    if mode == "rzi":
        return int(exact)
    return math.floor(exact) if mode == "rmi" else math.ceil(exact)


@pytest.mark.parametrize("mode", ["rni", "rzi", "rmi", "rpi"])
@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("to", INTEGERS)
def test_float_to_integer(lanes: Lanes, to: str, source: str, mode: str) -> None:
    if source == "bf16" and to.endswith("8"):
        assert lanes.describe(f"cvt.{mode}.{to}.bf16", 2).reason
        return
    form, width = FLOATS[source], INTEGERS[to][1]
    (bits,) = patterns(form, 22, COUNT)
    bits[::3] = [encode(Fraction(x, 4), form) if x else 0 for x in integers("s64", 23)[: len(bits[::3])]]
    want = []
    for x in bits:
        value = decode(x, form)
        if value != value:
            narrow = source != "f64" and width < 64
            want.append(0 if narrow else slot(wrap(1 << width - 1, to), to))
        elif isinstance(value, float) and math.isinf(value):
            want.append(slot(clamp((1 << 70) * (1 if value > 0 else -1), to), to))
        else:
            want.append(slot(clamp(to_integral(value, mode), to), to))
    assert_bits(lanes.run(f"cvt.{mode}.{to}.{source}", bits).d, want, bits)


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("to", FLOATS)
@pytest.mark.parametrize("source", INTEGERS)
def test_integer_to_float(lanes: Lanes, source: str, to: str, mode: str) -> None:
    if to == "bf16" and source.endswith("8"):
        assert lanes.describe(f"cvt.{mode}.bf16.{source}", 2).reason
        return
    values = integers(source, 24)
    want = [encode(Fraction(x) if x else 0.0, FLOATS[to], mode) for x in values]
    assert_bits(lanes.run(f"cvt.{mode}.{to}.{source}", values).d, want, values)


def narrow(bits: int, to: str, source: str, mode: str) -> int:
    """Round to a narrower type. A NaN of f64 keeps its sign and the upper payload bits, quieted; others are canonical."""
    form, result = FLOATS[source], FLOATS[to]
    value = decode(bits, form)
    if value == value or source != "f64":
        return encode(value, result, mode)
    payload = (bits >> form.mantissa_bits - result.mantissa_bits) & ((1 << result.mantissa_bits) - 1)
    return (result.sign if bits & form.sign else 0) | result.infinity | 1 << result.mantissa_bits - 1 | payload


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize(("to", "source"), [("f32", "f64"), ("f16", "f32"), ("f16", "f64"), ("bf16", "f32"), ("bf16", "f64")])
def test_narrowing(lanes: Lanes, to: str, source: str, mode: str) -> None:
    form = FLOATS[source]
    (bits,) = patterns(form, 25, COUNT)
    bits[1::4] = patterns(FLOATS[to], 26, COUNT // 4)[0]
    for i in range(1, COUNT, 4):  # values of the narrow format, and half a unit beside them
        value = decode(bits[i], FLOATS[to])
        bits[i] = encode(value * (1 + Fraction(1, 1 << FLOATS[to].mantissa_bits + 1)) if isinstance(value, Fraction) else value, form)
    want = [narrow(x, to, source, mode) for x in bits]
    assert_bits(lanes.run(f"cvt.{mode}.{to}.{source}", bits).d, want, bits)
    if (to, source) == ("f16", "f32"):  # .ftz leaves a subnormal source as it is: rounding up sees that it is not zero
        assert_bits(lanes.run(f"cvt.{mode}.ftz.f16.f32", bits).d, want, bits)
    if (to, source) == ("f32", "f64"):
        assert_bits(lanes.run(f"cvt.{mode}.ftz.f32.f64", bits).d, [flush(x, F32) for x in want], bits)


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("to", ["f32", "f16", "bf16"])
def test_narrowing_keeps_nan_of_f64(lanes: Lanes, to: str, mode: str) -> None:
    nans = [0x7FF8000000000000, 0xFFFFFFFFFFFFFFFF, 0x7FFFFFFFFFFFFFFF, 0x7FF0000000000001] * 8
    quiet = {"f32": [0x7FC00000, 0xFFFFFFFF, 0x7FFFFFFF, 0x7FC00000], "f16": [0x7E00, 0xFFFF, 0x7FFF, 0x7E00]}
    want = (quiet | {"bf16": [0x7FC0, 0xFFFF, 0x7FFF, 0x7FC0]})[to]
    assert_bits(lanes.run(f"cvt.{mode}.{to}.f64", nans).d, want * 8, nans)


@pytest.mark.parametrize(("to", "source"), [("f32", "f16"), ("f32", "bf16"), ("f64", "f16"), ("f64", "f32"), ("f64", "bf16")])
def test_widening(lanes: Lanes, by_tier: Callable[[int, int], int], to: str, source: str) -> None:
    step = by_tier(8, 1)  # with all last digits, infinities and zeros among them
    bits = [step * i + i % step for i in range((1 << 16) // step)] if FLOATS[source].bits == 16 else patterns(F32, 27, COUNT)[0]
    want = [encode(decode(x, FLOATS[source]), FLOATS[to]) for x in bits]
    if (to, source) == ("f32", "bf16"):
        want = [x << 16 for x in bits]
    assert_bits(lanes.run(f"cvt.{to}.{source}", bits).d, want, bits, form=FLOATS[to])


@pytest.mark.parametrize("mode", ["rni", "rzi", "rmi", "rpi"])
@pytest.mark.parametrize("name", FLOATS)
def test_rounding_to_integral_values(lanes: Lanes, name: str, mode: str) -> None:
    form = FLOATS[name]
    (bits,) = patterns(form, 28, COUNT)
    bits[::2] = [encode(Fraction(x % 4096, 8) if x % 4096 else 0.0, form) for x in integers("s64", 29)[: COUNT // 2]]
    want = []
    for x in bits:
        value = decode(x, form)
        if isinstance(value, Fraction):
            whole = to_integral(value, mode)
            value = Fraction(whole) if whole else math.copysign(0.0, -1.0 if x & form.sign else 1.0)
        want.append(encode(value, form))
    assert_bits(lanes.run(f"cvt.{mode}.{name}.{name}", bits).d, want, bits, form=form)


def saturated(value: Value) -> Value:
    return 0.0 if value != value or value <= 0 else min(value, Fraction(1))


def test_saturation_flushing_and_relu(lanes: Lanes) -> None:
    (bits,) = patterns(F32, 30, COUNT)
    values = [decode(x, F32) for x in bits]

    def run(spelling: str) -> Bits:
        return lanes.run(spelling, bits).d

    assert_bits(run("cvt.rn.sat.f16.f32"), [encode(saturated(x), F16) for x in values], bits)
    assert_bits(run("cvt.sat.f32.f32"), [encode(saturated(x), F32) for x in values], bits)
    nan = 0x7FFFFFFFE0000000  # the canonical NaN of f32, widened
    assert_bits(
        run("cvt.ftz.f64.f32"),
        [nan if y != y else encode(decode(flush(x, F32), F32), F64) for x, y in zip(bits, values, strict=True)],
        bits,
    )
    assert_bits(run("cvt.ftz.f32.f32"), [F32.nan if y != y else flush(x, F32) for x, y in zip(bits, values, strict=True)], bits)
    relu = [x if x != x or x > 0 else 0.0 for x in values]
    for name in ("f16", "bf16"):
        for mode in ("rn", "rz"):
            form = FLOATS[name]
            assert_bits(run(f"cvt.{mode}.relu.{name}.f32"), [encode(x, form, mode) for x in relu], bits)
            want = [encode(x, form, mode, satfinite=True) for x in relu]
            assert_bits(run(f"cvt.{mode}.relu.satfinite.{name}.f32"), want, bits)


def test_tf32(lanes: Lanes) -> None:
    (bits,) = patterns(F32, 31, COUNT)
    want = [(x if decode(x, F32) != decode(x, F32) else encode(decode(x, F32), TF32, "rna") << 13) & 0xFFFFE000 for x in bits]
    assert_bits(lanes.run("cvt.rna.tf32.f32", bits).d, want, bits)
    want = [x - 0x2000 if x & 0x7FFFFFFF >= 0x7F800000 else x for x in want]
    assert_bits(lanes.run("cvt.rna.satfinite.tf32.f32", bits).d, want, bits)
    for mode in ("rn", "rz"):
        want = [F32.nan & 0xFFFFE000 if decode(x, F32) != decode(x, F32) else encode(decode(x, F32), TF32, mode) << 13 for x in bits]
        assert_bits(lanes.run(f"cvt.{mode}.tf32.f32", bits).d, want, bits)


@pytest.mark.parametrize("modifiers", ["", ".relu", ".satfinite", ".relu.satfinite"])
@pytest.mark.parametrize("mode", ["rn", "rz"])
@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_pairs_from_floats(lanes: Lanes, name: str, mode: str, modifiers: str) -> None:
    a, b = patterns(F32, 32, COUNT, arity=2)

    def element(bits: int) -> int:
        value = decode(bits, F32)
        if "relu" in modifiers and value <= 0:
            value = 0.0
        return encode(value, FLOATS[name], mode, satfinite="satfinite" in modifiers)

    want = [element(x) << 16 | element(y) for x, y in zip(a, b, strict=True)]
    assert_bits(lanes.run(f"cvt.{mode}{modifiers}.{name}x2.f32", a, b).d, want, a, b)


@pytest.mark.parametrize("name", SMALL)
def test_eight_bit_floats(lanes: Lanes, name: str) -> None:
    form = SMALL[name]
    a, b = patterns(F32, 33, 4 * COUNT, arity=2)
    for i in range(0, len(a), 2):  # values that the small format can nearly hold
        a[i] = encode(decode(a[i] >> 24, form), F32) ^ (a[i] & 0x3FFFFF)

    def element(value: Value, relu: bool = False) -> int:
        return encode(0.0 if relu and value <= 0 else value, form, satfinite=True)

    for relu in (False, True):
        text = ".relu" if relu else ""
        want = [element(decode(x, F32), relu) << 8 | element(decode(y, F32), relu) for x, y in zip(a, b, strict=True)]
        assert_bits(lanes.run(f"cvt.rn.satfinite{text}.{name}x2.f32", a, b).d, want, a, b)
        pairs = patterns(Format(32, 10, 0), 34, COUNT)[0]
        want = [element(decode(x >> 16, F16), relu) << 8 | element(decode(x, F16), relu) for x in pairs]
        assert_bits(lanes.run(f"cvt.rn.satfinite{text}.{name}x2.f16x2", pairs).d, want, pairs)
    every = [x | (x * 7 + 3) % 256 << 8 for x in range(256)]
    want = [encode(decode(x >> 8, form), F16) << 16 | encode(decode(x, form), F16) for x in every]
    assert_bits(lanes.run(f"cvt.rn.f16x2.{name}x2", every).d, want, every)


@pytest.mark.parametrize(("name", "bits", "signed"), [("u16", 16, False), ("s16", 16, True)])
def test_pack_two(lanes: Lanes, name: str, bits: int, signed: bool) -> None:
    a, b = integers("s32", 35), integers("s32", 36)
    want = [(clamp(x, name) & 0xFFFF) << 16 | (clamp(y, name) & 0xFFFF) for x, y in zip(a, b, strict=True)]
    assert_bits(lanes.run(f"cvt.pack.sat.{name}.s32", a, b).d, want, a, b)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("sign", "us")
def test_pack_above(lanes: Lanes, sign: str, bits: int) -> None:
    a, b, c = integers("s32", 37), integers("s32", 38), integers("u32", 39)
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if sign == "s" else (0, (1 << bits) - 1)

    def element(x: int) -> int:
        return max(low, min(high, x)) & ((1 << bits) - 1)

    want = [(z << 2 * bits | element(x) << bits | element(y)) & 0xFFFFFFFF for x, y, z in zip(a, b, c, strict=True)]
    assert_bits(lanes.run(f"cvt.pack.sat.{sign}{bits}.s32.b32", a, b, c).d, want, a, b, c)
