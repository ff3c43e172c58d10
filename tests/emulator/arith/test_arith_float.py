"""Single and double precision arithmetic against exact rational arithmetic, in every rounding direction."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.emulator.arith.support import (
    F32,
    F64,
    Format,
    Lanes,
    Value,
    add,
    assert_bits,
    decode,
    divide,
    encode,
    flush,
    multiply,
    negate,
    patterns,
    square_root,
)

# x86-64-v2 has no fused multiply-add: its fallbacks are tested too.
pytestmark = pytest.mark.parametrize("lanes", [pytest.param("x86-64-v2", marks=pytest.mark.slow), "native"], indirect=True)
FORMATS = {"f32": F32, "f64": F64}
MODES = ["rn", "rz", "rm", "rp"]
COUNT = 512

BINARY: dict[str, Callable[[Value, Value, str], Value]] = {
    "add": add,
    "sub": lambda a, b, mode: add(a, negate(b), mode),
    "mul": lambda a, b, mode: multiply(a, b),
    "div": lambda a, b, mode: divide(a, b),
}


def saturated(bits: int) -> int:
    value = decode(bits, F32)
    if value != value or value <= 0:
        return 0
    return min(bits, 0x3F800000)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("operation", BINARY)
def test_binary(lanes: Lanes, operation: str, mode: str, name: str) -> None:
    form = FORMATS[name]
    a, b = patterns(form, 1, COUNT, arity=2)
    want = [encode(BINARY[operation](decode(x, form), decode(y, form), mode), form, mode) for x, y in zip(a, b, strict=True)]
    assert_bits(lanes.run(f"{operation}.{mode}.{name}", a, b).d, want, a, b, form=form)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("mode", MODES)
def test_fma(lanes: Lanes, mode: str, name: str) -> None:
    form = FORMATS[name]
    a, b, c = patterns(form, 2, 2 * COUNT, arity=3)
    # Also addends that nearly cancel the product, where a product rounded first would show.
    for i in range(0, COUNT, 2):
        c[i] = encode(negate(multiply(decode(a[i], form), decode(b[i], form))), form)
    want = [
        encode(add(multiply(decode(x, form), decode(y, form)), decode(z, form), mode), form, mode) for x, y, z in zip(a, b, c, strict=True)
    ]
    for opcode in ("fma", "mad"):
        assert_bits(lanes.run(f"{opcode}.{mode}.{name}", a, b, c).d, want, a, b, c, form=form)


@pytest.mark.parametrize("modifiers", ["ftz", "sat", "ftz.sat"])
@pytest.mark.parametrize("mode", ["rn", "rz", "rp"])
@pytest.mark.parametrize("operation", ["add", "sub", "mul", "fma"])
def test_flush_and_saturate(lanes: Lanes, operation: str, mode: str, modifiers: str) -> None:
    sources = patterns(F32, 3, COUNT, arity=3 if operation == "fma" else 2)
    want = []
    for bits in zip(*sources, strict=True):
        flushed = [flush(x, F32) if "ftz" in modifiers else x for x in bits]
        values = [decode(x, F32) for x in flushed]
        exact = (
            add(multiply(values[0], values[1]), values[2], mode) if operation == "fma" else BINARY[operation](values[0], values[1], mode)
        )
        result = encode(exact, F32, mode)
        result = flush(result, F32) if "ftz" in modifiers else result
        want.append(saturated(result) if "sat" in modifiers else result)
    assert_bits(lanes.run(f"{operation}.{mode}.{modifiers}.f32", *sources).d, want, *sources)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("mode", MODES)
def test_reciprocal_and_root(lanes: Lanes, mode: str, name: str) -> None:
    form = FORMATS[name]
    (a,) = patterns(form, 4, COUNT)
    one = decode(encode(divide(*[decode(1, form)] * 2), form), form)
    want = [encode(divide(one, decode(x, form)), form, mode) for x in a]
    assert_bits(lanes.run(f"rcp.{mode}.{name}", a).d, want, a, form=form)
    want = [encode(square_root(decode(x, form)), form, mode) for x in a]
    assert_bits(lanes.run(f"sqrt.{mode}.{name}", a).d, want, a, form=form)


def extremum(a: int, b: int, form: Format, *, larger: bool, nan: bool = False) -> int:
    x, y = decode(a, form), decode(b, form)
    if (x != x and y != y) or (nan and (x != x or y != y)):
        return form.nan
    if x != x or y != y:
        return b if x != x else a
    ordered = sorted([a, b], key=lambda bits: (decode(bits, form), not bits & form.sign))
    return ordered[larger]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("opcode", ["min", "max"])
def test_extrema(lanes: Lanes, opcode: str, name: str) -> None:
    form = FORMATS[name]
    a, b = patterns(form, 5, COUNT, arity=2)
    want = [extremum(x, y, form, larger=opcode == "max") for x, y in zip(a, b, strict=True)]
    assert_bits(lanes.run(f"{opcode}.{name}", a, b).d, want, a, b, form=form)


@pytest.mark.parametrize("opcode", ["min", "max"])
def test_extrema_with_modifiers(lanes: Lanes, opcode: str) -> None:
    a, b = patterns(F32, 6, COUNT, arity=2)
    larger = opcode == "max"
    pairs = list(zip(a, b, strict=True))
    want = [extremum(x, y, F32, larger=larger, nan=True) for x, y in pairs]
    assert_bits(lanes.run(f"{opcode}.NaN.f32", a, b).d, want, a, b)
    want = [extremum(flush(x, F32), flush(y, F32), F32, larger=larger) for x, y in pairs]
    assert_bits(lanes.run(f"{opcode}.ftz.f32", a, b).d, want, a, b)
    want = []
    for x, y in pairs:
        chosen = extremum(x & 0x7FFFFFFF, y & 0x7FFFFFFF, F32, larger=larger)
        want.append(chosen if chosen == F32.nan else chosen | ((x ^ y) & 0x80000000))
    assert_bits(lanes.run(f"{opcode}.xorsign.abs.f32", a, b).d, want, a, b)


@pytest.mark.parametrize("name", FORMATS)
def test_signs(lanes: Lanes, name: str) -> None:
    form = FORMATS[name]
    a, b = patterns(form, 7, COUNT, arity=2)
    nan = [decode(x, form) != decode(x, form) for x in a]
    for opcode, changed in {"neg": [x ^ form.sign for x in a], "abs": [x & ~form.sign for x in a]}.items():
        # a NaN becomes the canonical one in f32, and passes unchanged in f64
        want = [(x if name == "f64" else form.nan) if n else y for n, x, y in zip(nan, a, changed, strict=True)]
        assert_bits(lanes.run(f"{opcode}.{name}", a).d, want, a)
    want = [(x & form.sign) | (y & ~form.sign) for x, y in zip(a, b, strict=True)]
    assert_bits(lanes.run(f"copysign.{name}", a, b).d, want, a, b)


def test_nan_results_are_canonical(lanes: Lanes) -> None:
    nans = [0x7FC00001, 0xFF812345, 0x7F800001, 0xFFFFFFFF] * 8
    ones = [0x3F800000] * 32
    for spelling, sources in {
        "add.f32": (nans, ones),
        "mul.rz.f32": (ones, nans),
        "fma.rn.f32": (ones, ones, nans),
        "min.f32": (nans, nans),
        "rcp.approx.f32": (nans,),
        "ex2.approx.ftz.f32": (nans,),
        "cvt.ftz.f32.f32": (nans,),
    }.items():
        assert set(lanes.run(spelling, *sources).d.tolist()) == {0x7FFFFFFF}, spelling


APPROXIMATE: dict[str, tuple[Callable[..., np.ndarray], float]] = {
    "rcp.approx": (lambda x: 1 / x, 1.0),
    "rsqrt.approx": (lambda x: 1 / np.sqrt(x), 1.0),
    "sqrt.approx": (np.sqrt, 1.0),
    "ex2.approx": (np.exp2, 1.0),
    "lg2.approx": (np.log2, 1.0),
    "tanh.approx": (np.tanh, 1.0),
    "div.full": (lambda x, y: x / y, 1.0),
}


@pytest.mark.parametrize("operation", APPROXIMATE)
@pytest.mark.parametrize("ftz", ["", ".ftz"])
def test_approximate_functions_are_within_an_ulp(lanes: Lanes, operation: str, ftz: str) -> None:
    if operation == "tanh.approx" and ftz:
        assert "not one of the forms" in lanes.describe("tanh.approx.ftz.f32", 2).reason
        return
    function, limit_ulps = APPROXIMATE[operation]
    random = np.random.default_rng(8)
    sources = [np.array(x, np.uint32) for x in patterns(F32, 8, 2048, arity=2 if "div" in operation else 1)]
    sources[0][1024:] = random.normal(0, 30, 1024).astype(np.float32).view(np.uint32)
    got = lanes.run(f"{operation}{ftz}.f32", *sources).d
    if ftz:
        sources = [np.where(x & 0x7F800000, x, x & 0x80000000).astype(np.uint32) for x in sources]
    with np.errstate(all="ignore"):
        exact = function(*(x.view(np.float32).astype(np.float64) for x in sources))
        want = exact.astype(np.float32)
    if ftz:
        bits = want.view(np.uint32)
        want = np.where(bits & 0x7F800000, bits, bits & 0x80000000).astype(np.uint32).view(np.float32)
    finite = np.isfinite(want)
    value = got.view(np.float32)
    assert np.array_equal(np.isnan(value), np.isnan(want))
    assert np.array_equal(value[np.isinf(want)], want[np.isinf(want)])
    assert np.array_equal(got[want == 0], want[want == 0].view(np.uint32))
    with np.errstate(over="ignore"):
        error_ulps = np.abs(value[finite].astype(np.float64) - exact[finite]) / np.spacing(np.abs(want[finite])).astype(np.float64)
    if ftz:
        error_ulps = error_ulps[want[finite] != 0]
    assert error_ulps.max() <= limit_ulps


@pytest.mark.parametrize("opcode", ["sin", "cos"])
def test_sine_and_cosine(lanes: Lanes, opcode: str) -> None:
    """Within 2^-20.5 near zero (PTX ISA), and off by what scaling to turns in single precision loses for large arguments."""
    x = np.random.default_rng(10).normal(0, 1, 1024).astype(np.float32)
    x[512:] *= np.float32(1000)
    x[:4] = [0.0, -0.0, np.inf, np.nan]
    got = lanes.run(f"{opcode}.approx.f32", x.view(np.uint32)).d.view(np.float32)
    with np.errstate(invalid="ignore"):
        want = getattr(np, opcode)(x.astype(np.float64))
    assert np.array_equal(np.isnan(got), np.isnan(want))
    error = np.abs(got - want)[4:]
    assert np.all(error <= 2.0**-20.5 + np.abs(x[4:]) * 2.0**-22)
    assert error[512:].max() > 2.0**-16  # the loss is there
    assert got[0] == want[0]
    assert opcode == "cos" or np.signbit(got[1])


def test_divisors_beyond_the_range_of_div_approx(lanes: Lanes) -> None:
    a = np.array([1.0, -3.0, np.inf, 2.0**100] * 8, np.float32)
    b = np.full(32, 2.0**127, np.float32)
    got = lanes.run("div.approx.f32", a.view(np.uint32), b.view(np.uint32)).d
    assert got[:4].tolist() == [0, 0x80000000, 0x7FFFFFFF, 0]


@pytest.mark.parametrize("opcode", ["rcp", "rsqrt"])
def test_upper_word_approximations(lanes: Lanes, opcode: str) -> None:
    random = np.random.default_rng(9)
    x = np.exp(random.normal(0, 100, 512))
    got = lanes.run(f"{opcode}.approx.ftz.f64", x.view(np.uint64)).d
    assert not np.any(got & np.uint64(0xFFFFFFFF))
    want = 1 / x if opcode == "rcp" else 1 / np.sqrt(x)
    assert np.max(np.abs(got.view(np.float64) / want - 1)) < 2.0**-18
    corners = np.array([0.0, -0.0, np.inf, 1e-310] * 8).view(np.uint64)
    values = lanes.run("rcp.approx.ftz.f64", corners).d.view(np.float64)[:4]
    assert values.tolist() == [np.inf, -np.inf, 0.0, np.inf]
