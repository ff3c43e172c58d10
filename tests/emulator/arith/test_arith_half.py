"""f16, bf16 and their pairs against exact rational arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.arith.support import (
    BF16,
    F16,
    Bits,
    Format,
    Lanes,
    Value,
    add,
    assert_bits,
    decode,
    encode,
    flush,
    multiply,
    negate,
    patterns,
)

# x86-64-v2 has no fused multiply-add: its fallbacks are tested too.
pytestmark = pytest.mark.parametrize("lanes", [pytest.param("x86-64-v2", marks=pytest.mark.slow), "native"], indirect=True)
FORMATS = {"f16": F16, "bf16": BF16}
COUNT = 1024


def exact(operation: str, values: list[Value]) -> Value:
    if operation == "add":
        return add(values[0], values[1])
    if operation == "sub":
        return add(values[0], negate(values[1]))
    product = multiply(values[0], values[1])
    return product if operation == "mul" else add(product, values[2])


def modified(bits: int, form: Format, modifiers: str) -> int:
    value = decode(bits, form)
    if "ftz" in modifiers:
        bits = flush(bits, form)
    if "relu" in modifiers and value <= 0 and bits & form.sign:
        return 0
    if "sat" in modifiers:
        one = encode(multiply(1.0, 1.0), form) and ((1 << form.exponent_bits - 1) - 1) << form.mantissa_bits
        return 0 if value != value or value <= 0 else min(bits, one)
    return bits


def pair(low: list[int]) -> list[int]:
    """Two by two: element 2i in the lower half, 2i + 1 in the upper."""
    return [low[i] | low[i + 1] << 16 for i in range(0, len(low), 2)]


def check_both(lanes: Lanes, prefix: str, name: str, sources: list[list[int]], want: list[int]) -> None:
    assert_bits(lanes.run(f"{prefix}.{name}", *sources).d, want, *sources)
    packed = [pair(source) for source in sources]
    assert_bits(lanes.run(f"{prefix}.{name}x2", *packed).d, pair(want), *packed)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("operation", ["add", "sub", "mul", "fma"])
def test_arithmetic(lanes: Lanes, operation: str, name: str) -> None:
    form = FORMATS[name]
    sources = patterns(form, 11, COUNT, arity=3 if operation == "fma" else 2)
    if operation == "fma":  # addends that nearly cancel the product
        for i in range(0, COUNT, 2):
            sources[2][i] = encode(negate(multiply(decode(sources[0][i], form), decode(sources[1][i], form))), form)
    want = [encode(exact(operation, [decode(x, form) for x in bits]), form) for bits in zip(*sources, strict=True)]
    check_both(lanes, f"{operation}.rn", name, sources, want)


@pytest.mark.parametrize("modifiers", ["ftz", "sat", "ftz.sat"])
@pytest.mark.parametrize("operation", ["add", "mul", "fma"])
def test_modifiers_of_f16(lanes: Lanes, operation: str, modifiers: str) -> None:
    sources = patterns(F16, 12, 512, arity=3 if operation == "fma" else 2)
    want = []
    for bits in zip(*sources, strict=True):
        values = [decode(flush(x, F16) if "ftz" in modifiers else x, F16) for x in bits]
        want.append(modified(encode(exact(operation, values), F16), F16, modifiers))
    check_both(lanes, f"{operation}.rn.{modifiers}", "f16", sources, want)


@pytest.mark.parametrize("name", FORMATS)
def test_fma_relu(lanes: Lanes, name: str) -> None:
    form = FORMATS[name]
    sources = patterns(form, 13, 512, arity=3)
    want = [modified(encode(exact("fma", [decode(x, form) for x in bits]), form), form, "relu") for bits in zip(*sources, strict=True)]
    check_both(lanes, "fma.rn.relu", name, sources, want)


def extremum(a: int, b: int, form: Format, modifiers: str, larger: bool) -> int:
    sign = (a ^ b) & form.sign
    if "ftz" in modifiers:
        a, b = flush(a, form), flush(b, form)
    if "xorsign" in modifiers:
        a, b = a & ~form.sign, b & ~form.sign
    x, y = decode(a, form), decode(b, form)
    if (x != x and y != y) or ("NaN" in modifiers and (x != x or y != y)):
        return form.nan
    if x != x or y != y:
        chosen = b if x != x else a
    else:
        chosen = sorted([a, b], key=lambda bits: (decode(bits, form), not bits & form.sign))[larger]
    return chosen | sign if "xorsign" in modifiers else chosen


@pytest.mark.parametrize("modifiers", ["", ".NaN", ".xorsign.abs", ".NaN.xorsign.abs", ".ftz"])
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("opcode", ["min", "max"])
def test_extrema(lanes: Lanes, opcode: str, name: str, modifiers: str) -> None:
    if name == "bf16" and modifiers == ".ftz":
        assert "not one of the forms" in lanes.describe("min.ftz.bf16", 3).reason
        return
    form = FORMATS[name]
    a, b = patterns(form, 14, 512, arity=2)
    want = [extremum(x, y, form, modifiers, opcode == "max") for x, y in zip(a, b, strict=True)]
    check_both(lanes, f"{opcode}{modifiers}", name, [a, b], want)


@pytest.mark.parametrize("name", FORMATS)
def test_signs(lanes: Lanes, name: str) -> None:
    form = FORMATS[name]
    (a,) = patterns(form, 15, 512)
    nan = [decode(x, form) != decode(x, form) for x in a]
    check_both(lanes, "neg", name, [a], [form.nan if n else x ^ form.sign for n, x in zip(nan, a, strict=True)])
    check_both(lanes, "abs", name, [a], [form.nan if n else x & ~form.sign for n, x in zip(nan, a, strict=True)])


def within_one_ulp(got: Bits, want: np.ndarray, form: Format) -> None:
    for bits, value in zip(got.tolist(), want.tolist(), strict=True):
        result = decode(bits, form)
        if value != value:
            assert bits == form.nan
        elif abs(value) == np.inf or value == 0:
            assert float(result) == value
        else:
            rounded = encode(decode(int(np.float64(value).view(np.uint64)), FORMAT64), form)
            assert abs(rounded - bits) <= 1, (hex(bits), value)


FORMAT64 = Format(64, 52, 0xFFF8000000000000)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("function", ["ex2", "tanh"])
def test_functions(lanes: Lanes, function: str, name: str) -> None:
    form = FORMATS[name]
    flushing = function == "ex2" and name == "bf16"
    bits = list(range(0, 1 << 16, 8))
    inputs = np.array([float(decode(flush(x, form) if flushing else x, form)) for x in bits])
    with np.errstate(all="ignore"):
        want = np.exp2(inputs) if function == "ex2" else np.tanh(inputs)
    if flushing:
        want[np.abs(want) < 2.0**-126] = 0.0
    got = lanes.run(f"{function}.approx{'.ftz' if flushing else ''}.{name}", bits).d
    within_one_ulp(got, want, form)
