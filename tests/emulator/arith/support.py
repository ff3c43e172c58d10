"""The lane-arithmetic library for tests, and an exact model of floating point to compare it with.

The model works on bit patterns and :class:`fractions.Fraction`: no host floating-point operation decides a finite result, so it shares
nothing with the library that it judges.
"""

from __future__ import annotations

import ctypes
import math
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

REPOSITORY = Path(__file__).resolve().parents[3]
SOURCES = REPOSITORY / "device" / "emulator" / "src"
FLAGS = ["-std=c++20", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fPIC"]
LIBRARY = "libarith.so"
LANES = 32
ALL = 0xFFFFFFFF

Bits = NDArray[np.uint32] | NDArray[np.uint64]


class Batch(ctypes.Structure):
    """Mirror of `Batch` in library.cpp."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("d", "a", "b", "c", "e", "pd", "qd", "carry", "pa", "pb", "masks")),
        *((name, ctypes.c_uint32) for name in ("num_warps", "immediate", "in_place")),
    ]


def build_library(march: str, folder: Path) -> Path:
    """Compile the library for one ``-march`` into `folder`; returns its path. What every file includes is compiled first, once."""
    options = [*FLAGS, f"-march={march}", "-I", str(SOURCES / "exec/arith")]
    header = folder / "common.hpp"
    header.write_text('#include <cmath>\n#include <cstring>\n#include <string>\n#include "values.hpp"\n')
    subprocess.run(["g++", *options, "-x", "c++-header", str(header), "-o", f"{header}.gch"], check=True)
    sources = [*sorted((SOURCES / "exec/arith").glob("*.cpp")), SOURCES / "ptx" / "module.cpp", Path(__file__).with_name("library.cpp")]
    objects = [folder / f"{source.stem}.o" for source in sources]

    def compile_one(source: Path, target: Path) -> None:
        command = ["g++", *options, "-include", str(header), "-c", str(source), "-o", str(target)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(compile_one, sources, objects))
    library = folder / LIBRARY
    subprocess.run(["g++", "-shared", "-o", str(library), *map(str, objects)], check=True)
    return library


@dataclass(frozen=True)
class Description:
    """What ``find`` says of a spelling; `reason` is empty where it knows it."""

    reason: str
    operands: str = ""
    d_bytes: int = 0
    source_bytes: tuple[int, ...] = ()
    counter: int = 0
    is_fma: bool = False
    writes_predicate: bool = False
    reads_predicate: bool = False
    uses_carry: bool = False


@dataclass
class Result:
    """Rows and predicates after a run; predicates are one uint32 mask for each warp."""

    d: Bits
    p: NDArray[np.uint32]
    q: NDArray[np.uint32]
    carry: NDArray[np.uint32]

    def lanes(self, which: str = "p") -> NDArray[np.bool_]:
        """A predicate as one bool for each lane, shape (num_warps * 32,)."""
        masks: NDArray[np.uint32] = getattr(self, which)
        return ((masks[:, None] >> np.arange(LANES, dtype=np.uint32)) & 1).astype(bool).reshape(-1)


class Lanes:
    """The compiled library."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        self._library.arith_describe.restype = ctypes.c_char_p

    def describe(self, spelling: str, num_operands: int) -> Description:
        """Ask ``find`` about a spelling with so many operands."""
        text = self._library.arith_describe(spelling.encode(), num_operands).decode()
        if text.startswith("!"):
            return Description(text[1:])
        operands, *numbers = text.split()
        values = [int(number) for number in numbers]
        return Description("", operands, values[0], tuple(values[1:5]), values[5], *map(bool, values[6:]))

    def run(
        self,
        spelling: str,
        *sources: Sequence[int] | Bits,
        num_operands: int | None = None,
        masks: int | NDArray[np.uint32] = ALL,
        before: Bits | None = None,
        predicates: Sequence[int | NDArray[np.uint32]] = (),
        carry: int | NDArray[np.uint32] = 0,
        immediate: int = 0,
        in_place: bool = False,
    ) -> Result:
        """Perform `spelling` on bit patterns.

        Sources have one bit pattern for each lane, all of one length, a multiple of 32. `before` is what the destination held,
        `predicates` are the source predicates (a mask for each warp, or one for all), `masks` the active lanes of each warp.
        """
        count = num_operands if num_operands is not None else 1 + len(sources) + len(predicates)
        known = self.describe(spelling, count)
        assert not known.reason, known.reason
        num_lanes = len(sources[0]) if sources else LANES * np.size(masks)
        assert num_lanes % LANES == 0
        num_warps = num_lanes // LANES
        rows = [_row(source, size) for source, size in zip(sources, known.source_bytes, strict=False)]
        d = _row([0] * num_lanes if before is None else before, known.d_bytes)
        filled = [_masks(value, num_warps) for value in predicates]
        p, q, carries, active = (_masks(value, num_warps).copy() for value in (0x5A5A5A5A, 0xA5A5A5A5, carry, masks))
        batch = Batch(num_warps=num_warps, immediate=immediate, in_place=int(in_place))
        for name, array in [
            ("d", d), ("pd", p), ("qd", q), ("carry", carries), ("masks", active),
            *zip("abce", rows, strict=False), *zip(("pa", "pb"), filled, strict=False),
        ]:  # fmt: skip
            setattr(batch, name, array.ctypes.data)
        assert self._library.arith_run(spelling.encode(), count, ctypes.byref(batch)) == 0
        return Result(d, p, q, carries)


def _row(source: Sequence[int] | Bits, size_bytes: int) -> Bits:
    """A fresh row: the low bits of each value."""
    top = (1 << 8 * size_bytes) - 1
    values = source if isinstance(source, np.ndarray) else [value & top for value in source]
    return np.array(values, np.uint64) if size_bytes == 8 else np.array(values).astype(np.uint32)


def _masks(value: int | NDArray[np.uint32], num_warps: int) -> NDArray[np.uint32]:
    return np.ascontiguousarray(np.broadcast_to(np.asarray(value, np.uint32), (num_warps,)))


@dataclass(frozen=True)
class Format:
    """A binary floating-point format."""

    bits: int
    mantissa_bits: int
    nan: int
    has_infinity: bool = True

    @property
    def exponent_bits(self) -> int:
        """Width of the exponent field."""
        return self.bits - 1 - self.mantissa_bits

    @property
    def min_exponent(self) -> int:
        """Exponent of the least normal value."""
        return 2 - (1 << self.exponent_bits - 1)

    @property
    def sign(self) -> int:
        """The sign bit."""
        return 1 << self.bits - 1

    @property
    def infinity(self) -> int:
        """Bits of +inf, or of the NaN that stands in its place."""
        return ((1 << self.exponent_bits) - 1) << self.mantissa_bits if self.has_infinity else self.sign - 1

    @property
    def max_finite(self) -> int:
        """Bits of the greatest finite value."""
        return self.infinity - 1


F64 = Format(64, 52, 0xFFF8000000000000)
F32 = Format(32, 23, 0x7FFFFFFF)
F16 = Format(16, 10, 0x7FFF)
BF16 = Format(16, 7, 0x7FFF)
TF32 = Format(19, 10, 0x3FFFF)
E4M3 = Format(8, 3, 0x7F, has_infinity=False)
E5M2 = Format(8, 2, 0x7F)

Value = Fraction | float  # Fraction where finite and not zero, else a float: +-0.0, +-inf, nan


def decode(bits: int, form: Format) -> Value:
    """The value of a bit pattern."""
    bits = int(bits) & ((1 << form.bits) - 1)
    magnitude, sign = bits & (form.sign - 1), -1 if bits & form.sign else 1
    if magnitude == 0:
        return math.copysign(0.0, sign)
    if magnitude == form.infinity and form.has_infinity:
        return sign * math.inf
    if magnitude >= form.infinity:
        return math.nan
    field, mantissa = magnitude >> form.mantissa_bits, magnitude & ((1 << form.mantissa_bits) - 1)
    if field:
        mantissa += 1 << form.mantissa_bits
    return sign * mantissa * Fraction(2) ** (form.min_exponent - form.mantissa_bits + max(field, 1) - 1)


def encode(value: Value, form: Format, mode: str = "rn", *, satfinite: bool = False) -> int:
    """Round to a format: `mode` rn, rz, rm, rp or rna, as IEEE 754 has them."""
    if isinstance(value, float):
        if math.isnan(value):
            return form.nan
        sign = form.sign if math.copysign(1.0, value) < 0 else 0
        if value == 0:
            return sign
        return sign | (form.max_finite if satfinite else form.infinity)
    sign = form.sign if value < 0 else 0
    magnitude = abs(value)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if Fraction(2) ** exponent > magnitude:
        exponent -= 1
    exponent = max(exponent, form.min_exponent)
    units = magnitude / Fraction(2) ** (exponent - form.mantissa_bits)
    whole, rest = int(units), units - int(units)
    up = {
        "rz": False,
        "rm": sign != 0 and rest > 0,
        "rp": sign == 0 and rest > 0,
        "rna": rest >= Fraction(1, 2),
        "rn": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1),
    }[mode]
    bits = ((exponent - form.min_exponent) << form.mantissa_bits) + whole + up
    if bits <= form.max_finite:
        return sign | bits
    stays = mode == "rz" or (mode == "rm" and not sign) or (mode == "rp" and sign != 0)
    return sign | (form.max_finite if stays or satfinite else form.infinity)


def _stand_in(value: Value) -> float:
    """A float with the sign and the class of `value`."""
    if isinstance(value, float):
        return value
    return 1.0 if value > 0 else -1.0


def _special(value: Value) -> bool:
    return isinstance(value, float) and value != 0


def multiply(a: Value, b: Value) -> Value:
    """The exact product."""
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a * b
    return _stand_in(a) * _stand_in(b)


def add(a: Value, b: Value, mode: str = "rn") -> Value:
    """The exact sum; an exact zero has the sign that `mode` gives it."""
    if _special(a) or _special(b):
        return _stand_in(a) + _stand_in(b)
    if isinstance(a, float) and isinstance(b, float):
        return -0.0 if mode == "rm" and (math.copysign(1, a) < 0 or math.copysign(1, b) < 0) else a + b
    total = Fraction(a) + Fraction(b)
    if total == 0:
        return -0.0 if mode == "rm" else 0.0
    return total


def negate(a: Value) -> Value:
    """The value with its sign changed."""
    return -a


def divide(a: Value, b: Value) -> Value:
    """The exact quotient."""
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a / b
    x, y = _stand_in(a), _stand_in(b)
    if y == 0:
        return math.nan if x == 0 or math.isnan(x) else math.copysign(math.inf, x) * math.copysign(1.0, y)
    return x / y


def square_root(a: Value) -> Value:
    """The square root, exact enough to round to 53 bits in any direction."""
    if isinstance(a, float):
        return a if a == 0 or a == math.inf else math.nan
    if a < 0:
        return math.nan
    shift = 2 * (200 + a.denominator.bit_length())
    scaled = a.numerator * (1 << shift) // a.denominator
    root = math.isqrt(scaled)
    exact = root * root == scaled and scaled * a.denominator == a.numerator * (1 << shift)
    return Fraction(2 * root + (not exact), 1 << (shift // 2 + 1))


def flush(bits: int, form: Format) -> int:
    """Subnormals become zeros of the same sign."""
    return bits & form.sign if not bits & form.infinity else bits


def specials(form: Format) -> list[int]:
    """Bit patterns where arithmetic has corners: zeros, ends of ranges, ones, infinities, NaNs; both signs."""
    one = ((1 << form.exponent_bits - 1) - 1) << form.mantissa_bits
    least = 1 << form.mantissa_bits
    positive = [0, 1, 2, 3, least - 1, least, least + 1, one - 1, one, one + 1, one + (least >> 1), one + least, one + 5 * least]
    positive += [form.max_finite - 1, form.max_finite, form.infinity, form.infinity + 1, form.sign - 1]
    return positive + [bits | form.sign for bits in positive]


def patterns(form: Format, seed: int, count: int, *, arity: int = 1) -> list[list[int]]:
    """`arity` lists of `count` bit patterns (a multiple of 32): specials against each other, random bits, and values of near exponents."""
    random = np.random.default_rng(seed)
    corners = specials(form)
    columns: list[list[int]] = [[] for _ in range(arity)]
    for i in range(count):
        kind = i % 4
        base = int(random.integers(0, 1 << form.exponent_bits))
        for column in columns:
            if kind == 0:
                bits = corners[int(random.integers(len(corners)))]
            elif kind == 1:
                bits = int(random.integers(0, 1 << 63, dtype=np.uint64)) << 1 | int(random.integers(2))
            else:
                field = min(max(base + int(random.integers(-3, 4)), 0), (1 << form.exponent_bits) - 2)
                mantissa = int(random.integers(0, 1 << form.mantissa_bits))
                if kind == 3:  # few significant bits, so that results are often exact or ties
                    mantissa &= -1 << max(form.mantissa_bits // 2, form.mantissa_bits - 6)
                bits = (int(random.integers(2)) << form.bits - 1) | field << form.mantissa_bits | mantissa
            column.append(bits & ((1 << form.bits) - 1))
    return columns


def assert_bits(got: Bits, want: Sequence[int], *sources: Sequence[int], form: Format | None = None) -> None:
    """Compare bit patterns, any NaN being equal to any other for F64; on a mismatch show the operands."""

    def quiet(bits: int) -> bool:
        return form is F64 and bits & 0x7FFFFFFFFFFFFFFF > 0x7FF0000000000000

    for i, (x, y) in enumerate(zip(got.tolist(), want, strict=True)):
        if x != y and not (quiet(x) and quiet(y)):
            shown = ", ".join(hex(source[i]) for source in sources)
            raise AssertionError(f"lane {i}: got {x:#x}, want {y:#x} from {shown}")
