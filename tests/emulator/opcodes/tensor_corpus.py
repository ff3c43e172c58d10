"""Tensor-core instructions with inputs for each: generated kernels, and the matrices that they multiply.

An instruction runs over ``Form.cases`` multiplications, from ordinary numbers to infinities, subnormals and cancellation (``RANGES``).
``tensor_record.py`` records what a GPU gives, ``test_tensor_goldens.py`` compares the emulator with it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tensor_sparse import draw_units, expand, pack_metadata

BITS = {
    "f16": 16,
    "bf16": 16,
    "tf32": 32,
    "f32": 32,
    "f64": 64,
    "e4m3": 8,
    "e5m2": 8,
    "s8": 8,
    "u8": 8,
    "s4": 4,
    "u4": 4,
    "b1": 1,
    "s32": 32,
}
# exponent bits, mantissa bits, bias
FLOATS = {
    "f16": (5, 10, 15),
    "bf16": (8, 7, 127),
    "tf32": (8, 23, 127),  # with lower bits that the instruction ignores
    "f32": (8, 23, 127),
    "f64": (11, 52, 1023),
    "e4m3": (4, 3, 7),
    "e5m2": (5, 2, 15),
}
# Exponents of the factors, of the accumulator, and the share of zeros; None is the whole range, "bits" any bits at all.
RANGES: tuple[tuple[Any, Any, float], ...] = (
    ((-3, 0), (-3, 3), 0.0),
    ((-3, 0), None, 0.0),
    ((-8, 8), (-12, 12), 0.1),
    ((0, 0), (0, 4), 0.0),
    ((-6, 2), (10, 30), 0.0),
    ((-2000, -12), (-2000, -24), 0.2),
    ((-2000, -12), (-2000, -100), 0.2),
    ((13, 2000), (100, 2000), 0.0),
    ((6, 2000), (0, 16), 0.2),
    (None, None, 0.0),
    (None, None, 0.6),
    ("zeros", (-2000, -100), 0.9),
    ("bits", None, 0.0),
    ("bits", "bits", 0.8),
)
REPEATS = 2
NUM_CASES = len(RANGES) * REPEATS
KINDS = ("f16", "bf16", "tf32")


@dataclass(frozen=True)
class Form:
    """``layout_a``, ``layout_b`` of a wgmma: swizzle bytes (0, 32, 64, 128) and major ("k" or "mn"); ``a_registers``: A in registers.

    ``sparse``: ``.sp`` or ``.sp::ordered_metadata``; of A the stored half of k is drawn, and `selector` names the lanes with metadata.
    """

    family: str
    m: int
    n: int
    k: int
    d: str
    a: str
    b: str
    flags: str = ""
    layout_a: tuple[int, str] = (0, "k")
    layout_b: tuple[int, str] = (0, "k")
    a_registers: bool = False
    negate: tuple[int, int] = (1, 1)
    sparse: str = ""
    selector: int = 0

    @property
    def stored_k(self) -> int:
        """Elements of a row of A that there are."""
        return self.k // 2 if self.sparse else self.k

    @property
    def name(self) -> str:
        shape = f"m{self.m}n{self.n}k{self.k}"
        if self.family == "mma":
            return f"mma{self.sparse}.{shape}.{self.d}.{self.a}.{self.b}{self.flags}" + (f" {self.selector}" if self.sparse else "")
        operands = "rs" if self.a_registers else f"{self.layout_a[0]}{self.layout_a[1]}"
        selector = f" {self.selector}" if self.sparse else ""
        text = f"wgmma{self.sparse}.{shape}.{self.d}.{self.a}.{self.b}{self.flags} {operands}"
        return f"{text} {self.layout_b[0]}{self.layout_b[1]} {self.negate}{selector}"

    @property
    def cases(self) -> int:
        """Multiplications that it is tried on; large shapes are there for their layouts."""
        return 2 if self.n > 24 else NUM_CASES if self.family == "mma" else len(RANGES)

    @property
    def words(self) -> int:
        """32-bit words of a result."""
        return self.m * self.n * BITS[self.d] // 32


def make_corpus() -> list[Form]:
    return [*_mma_forms(), *_wgmma_forms()]


def make_sparse_corpus() -> list[Form]:
    return [*_sparse_mma_forms(), *_sparse_wgmma_forms()]


def _sparse_mma_forms() -> Iterator[Form]:
    floats = [("f32", "f16", 16), ("f16", "f16", 16), ("f32", "bf16", 16), ("f32", "f16", 32), ("f16", "f16", 32), ("f32", "bf16", 32)]
    floats += [("f32", "tf32", 8), ("f32", "tf32", 16)]
    for d, a, k in floats:
        last = 3 if k == (8 if a == "tf32" else 16) else 1
        yield Form("mma", 16, 8, k, d, a, a, sparse=".sp::ordered_metadata")
        yield Form("mma", 16, 8, k, d, a, a, sparse=".sp", selector=last)
    yield from (Form("mma", 16, 8, 64, "f32", a, b, sparse=".sp::ordered_metadata") for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2"))
    for bits, small in ((8, 32), (4, 64)):
        for a, b in ((f"s{bits}", f"s{bits}"), (f"u{bits}", f"s{bits}"), (f"s{bits}", f"u{bits}")):
            yield Form("mma", 16, 8, small, "s32", a, b, sparse=".sp::ordered_metadata", selector=1)
            yield Form("mma", 16, 8, 2 * small, "s32", a, b, sparse=".sp::ordered_metadata")
        yield Form("mma", 16, 8, small, "s32", f"s{bits}", f"s{bits}", ".satfinite", sparse=".sp")


def _sparse_wgmma_forms() -> Iterator[Form]:
    types = [("f32", "f16", "f16"), ("f16", "f16", "f16"), ("f32", "bf16", "bf16"), ("f32", "tf32", "tf32")]
    types += [("f32", "e4m3", "e4m3"), ("f32", "e5m2", "e4m3"), ("f16", "e4m3", "e5m2"), ("s32", "s8", "s8"), ("s32", "u8", "s8")]
    for d, a, b in types:
        k = 512 // BITS[a]
        yield Form("wgmma", 64, 8, k, d, a, b, sparse=".sp")
        yield Form("wgmma", 64, 16, k, d, a, b, a_registers=True, sparse=".sp", selector=int(BITS[a] > 8))
    for swizzle in (0, 32, 64, 128):
        yield Form("wgmma", 64, 64, 32, "f32", "f16", "f16", "", (swizzle, "k"), (swizzle, "mn"), sparse=".sp")
        if swizzle in (0, 64, 128):  # of B two swizzled rows would make one of 64 bytes
            yield Form("wgmma", 64, 64, 32, "f32", "f16", "f16", "", (swizzle, "mn"), (swizzle, "k"), sparse=".sp")
            yield Form("wgmma", 64, 32, 64, "f32", "e4m3", "e4m3", "", (swizzle, "k"), (swizzle, "k"), sparse=".sp")


def _mma_forms() -> Iterator[Form]:
    for k in (8, 16):
        yield Form("mma", 16, 8, k, "f32", "f16", "f16")
        yield Form("mma", 16, 8, k, "f16", "f16", "f16")
        yield Form("mma", 16, 8, k, "f32", "bf16", "bf16")
    for k in (4, 8):
        yield Form("mma", 16, 8, k, "f32", "tf32", "tf32")
    for m, k in ((8, 4), (16, 4), (16, 8), (16, 16)):
        yield Form("mma", m, 8, k, "f64", "f64", "f64")
    for k in (16, 32):
        for d in ("f32", "f16"):
            yield from (Form("mma", 16, 8, k, d, a, b) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2"))
    for bits, shapes in ((8, ((8, 16), (16, 16), (16, 32))), (4, ((8, 32), (16, 32), (16, 64)))):
        for m, k in shapes:
            for flags in ("", ".satfinite"):
                yield Form("mma", m, 8, k, "s32", f"s{bits}", f"s{bits}", flags)
                yield Form("mma", m, 8, k, "s32", f"u{bits}", f"s{bits}", flags)
        yield Form("mma", 16, 8, k, "s32", f"s{bits}", f"u{bits}")
        yield Form("mma", 16, 8, k, "s32", f"u{bits}", f"u{bits}")
    for m, k in ((8, 128), (16, 128), (16, 256)):
        yield from (Form("mma", m, 8, k, "s32", "b1", "b1", flags) for flags in (".xor.popc", ".and.popc"))


def _wgmma_forms() -> Iterator[Form]:
    types = [("f32", "f16", "f16"), ("f16", "f16", "f16"), ("f32", "bf16", "bf16"), ("f32", "tf32", "tf32")]
    types += [(d, a, b) for d in ("f32", "f16") for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")]
    types += [("s32", a, b) for a in ("s8", "u8") for b in ("s8", "u8")]
    for d, a, b in types:
        k = 256 // BITS[a]
        yield Form("wgmma", 64, 8, k, d, a, b)
        if a == b or a == "u8":
            yield Form("wgmma", 64, 16, k, d, a, b, a_registers=True)
    yield Form("wgmma", 64, 8, 32, "s32", "s8", "s8", ".satfinite")
    for swizzle in (0, 32, 64, 128):
        yield Form("wgmma", 64, 128, 16, "f32", "bf16", "bf16", "", (swizzle, "k"), (swizzle, "k"))
        yield Form("wgmma", 64, 128, 16, "f32", "bf16", "bf16", "", (swizzle, "mn"), (swizzle, "mn"))
        yield Form("wgmma", 64, 32, 32, "f32", "e4m3", "e4m3", "", (swizzle, "k"), (swizzle, "k"))
    for negate in ((-1, 1), (1, -1), (-1, -1)):
        yield Form("wgmma", 64, 8, 16, "f32", "f16", "f16", negate=negate)
    yield Form("wgmma", 64, 256, 16, "f32", "f16", "f16", "", (128, "k"), (128, "mn"))
    yield Form("wgmma", 64, 24, 16, "f16", "f16", "f16", "", (64, "mn"), (32, "k"))


def draw(rng: np.random.Generator, kind: str, span: Any, zeros: float, shape: tuple[int, ...]) -> NDArray[np.uint64]:
    """Return patterns of elements of ``kind``: exponents drawn evenly from ``span``, any sign and mantissa."""
    width = BITS[kind]
    bits = rng.integers(0, 2**32, shape, np.uint64) << np.uint64(32) | rng.integers(0, 2**32, shape, np.uint64)
    bits &= np.uint64(2**width - 1)
    if kind in FLOATS and span != "bits":
        exponent_bits, mantissa, bias = FLOATS[kind]
        top = 2**exponent_bits - (1 if kind == "e4m3" else 2)
        low, high = (-bias, top - bias) if span in (None, "zeros") else span
        low, high = np.clip([low + bias, high + bias], 0, top)
        field = rng.integers(low, max(low, high) + 1, shape).astype(np.uint64)
        bits &= ~np.uint64((2**exponent_bits - 1) << mantissa)
        bits |= field << np.uint64(mantissa)
        if kind == "e4m3":
            bits = np.where(bits & np.uint64(0x7F) == 0x7F, bits ^ np.uint64(1), bits)
    elif kind == "s32" and span not in (None, "bits"):
        bits = bits % np.uint64(2**16)
    return np.where(rng.random(shape) < zeros, bits & np.uint64(2 ** (width - 1)), bits)


def make_matrices(form: Form) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]]:
    """Return patterns of A [cases, m, stored k], B transposed [cases, n, k] and C [cases, m, n]."""
    rng = np.random.default_rng(zlib.crc32(form.name.encode()))
    parts = []
    for span, accumulator, zeros in RANGES * REPEATS:
        a_zeros = 1.0 if span == "zeros" else zeros
        parts.append(
            (
                draw(rng, form.a, span, a_zeros, (form.m, form.stored_k)),
                draw(rng, form.b, None if span == "zeros" else span, zeros, (form.n, form.k)),
                draw(rng, form.d, accumulator, zeros / 2, (form.m, form.n)),
            )
        )
    a, b, c = zip(*parts[: form.cases], strict=True)
    return np.stack(a), np.stack(b), np.stack(c)


def to_values(bits: NDArray[np.uint64], kind: str) -> NDArray[np.float64]:
    """Return what the patterns mean."""
    width = BITS[kind]
    if kind not in FLOATS:
        signed = bits.astype(np.int64)
        if kind.startswith("s"):
            signed = np.where(signed >> (width - 1), signed - 2**width, signed)
        return signed.astype(np.float64)
    if kind == "f64":
        return bits.view(np.float64)
    if kind == "tf32":
        bits = bits & ~np.uint64(0x1FFF)
    exponent_bits, mantissa, bias = FLOATS[kind]
    field = (bits >> np.uint64(mantissa) & np.uint64(2**exponent_bits - 1)).astype(np.int64)
    fraction = (bits & np.uint64(2**mantissa - 1)).astype(np.float64) / 2**mantissa
    value = np.ldexp(fraction + (field > 0), np.maximum(field, 1) - bias)
    special = field == 2**exponent_bits - 1
    if kind == "e4m3":
        value = np.where(bits & np.uint64(0x7F) == 0x7F, np.nan, value)
    else:
        value = np.where(special, np.where(fraction > 0, np.nan, np.inf), value)
    return np.where(bits >> np.uint64(width - 1) & np.uint64(1), -value, value)


def pack_rows(bits: NDArray[np.uint64], kind: str) -> NDArray[np.uint8]:
    """Return bytes [..., rows, row_bytes] of elements [..., rows, k], first element lowest."""
    width = BITS[kind]
    if width >= 8:
        cells = bits.astype(f"<u{width // 8}")
        return np.ascontiguousarray(cells).view(np.uint8).reshape(*bits.shape[:-1], -1)
    flat = (bits[..., None] >> np.arange(width, dtype=np.uint64) & np.uint64(1)).astype(np.uint8)
    return np.packbits(flat.reshape(*bits.shape[:-1], -1), axis=-1, bitorder="little")


def to_fragment(rows: NDArray[np.uint8], cell: int, rows_first: bool) -> NDArray[np.uint8]:
    """Return bytes [cases, registers, 32 lanes, cell] of a matrix [cases, rows, bytes]: tiles of 8 rows by 4 cells."""
    cases, num, width = rows.shape
    tiles = rows.reshape(cases, num // 8, 8, width // (4 * cell), 4, cell)
    order = (0, 3, 1, 2, 4, 5) if rows_first else (0, 1, 3, 2, 4, 5)
    return np.ascontiguousarray(tiles.transpose(order)).reshape(cases, -1, 32, cell)


def to_accumulator(bits: NDArray[np.uint64], kind: str) -> NDArray[np.uint8]:
    """Return bytes [cases, registers, 32, 4 or 8] of C [cases, m, n]; an f16 register has two neighbours."""
    cases, m, n = bits.shape
    cells = bits.reshape(cases, m // 8, 8, n // 8, 4, 2).transpose(0, 3, 1, 5, 2, 4)  # case, column of tiles, row of tiles, half, row, cell
    if kind == "f16":
        words = (cells[:, :, :, 0] | cells[:, :, :, 1] << np.uint64(16)).astype("<u4")
    else:
        words = cells.astype("<u8" if kind == "f64" else "<u4")
    return np.ascontiguousarray(words).view(np.uint8).reshape(cases, -1, 32, 8 if kind == "f64" else 4)


def from_accumulator(raw: NDArray[np.uint8], form: Form, m: int | None = None) -> NDArray[np.uint64]:
    """Return patterns [cases, m, n] of result registers: the inverse of :func:`to_accumulator`."""
    m = m or form.m
    cases = raw.shape[0]
    if form.d == "f16":
        words = np.ascontiguousarray(raw).view("<u4").reshape(cases, form.n // 8, m // 8, 8, 4).astype(np.uint64)
        cells = np.stack([words & np.uint64(0xFFFF), words >> np.uint64(16)], axis=3)
    else:
        words = np.ascontiguousarray(raw).view("<u8" if form.d == "f64" else "<u4")
        cells = words.reshape(cases, form.n // 8, m // 8, 2, 8, 4).astype(np.uint64)
    return np.ascontiguousarray(cells.transpose(0, 2, 4, 1, 5, 3)).reshape(cases, m, form.n)


@dataclass(frozen=True)
class Image:
    """An operand of wgmma in shared memory, and its descriptor without the start address. PTX ISA, "Shared Memory Matrix Layout"."""

    data: NDArray[np.uint8]  # [cases, bytes]
    descriptor: int


def to_image(bits: NDArray[np.uint64], kind: str, layout: tuple[int, str]) -> Image:
    """Place a matrix [cases, rows, k], rows being those of A or columns of B, with strides that are larger than need be."""
    swizzle, major = layout
    size = BITS[kind] // 8
    cases, rows, k = bits.shape
    row, col = np.meshgrid(np.arange(rows), np.arange(k), indexing="ij")
    per = 16 // size  # elements of a 16-byte unit
    if major == "k":
        unit, inside, line = col // per, col % per, row
        if swizzle == 0:
            leading, stride = 128, 128 * (k // per) + 128
            offset = line // 8 * stride + unit * leading + line % 8 * 16 + inside * size
        else:
            leading, stride = 16, swizzle * 8 * 2
            offset = line // 8 * stride + line % 8 * swizzle + unit * 16 + inside * size
    else:
        unit, inside, line = row // per, row % per, col
        if swizzle == 0:  # SBO goes along m, LBO along k
            leading, stride = 128 * (rows // per), 128
            offset = line // 8 * leading + unit * stride + line % 8 * 16 + inside * size
        else:
            width = swizzle // 16  # units of a line
            stride = swizzle * 8
            leading = stride * (k // 8) + swizzle * 8
            offset = line // 8 * stride + line % 8 * swizzle + unit // width * leading + unit % width * 16 + inside * size
    if swizzle:
        mask = {32: 1, 64: 3, 128: 7}[swizzle]
        offset = offset ^ ((offset >> 7 & mask) << 4)
    data = np.zeros((cases, int(offset.max()) + 64), np.uint8)
    raw = pack_rows(bits.reshape(cases, -1), kind).reshape(cases, rows, k, size)
    for byte in range(size):
        data[:, offset + byte] = raw[..., byte]
    code = {0: 0, 128: 1, 64: 2, 32: 3}[swizzle]
    return Image(data, leading // 16 << 16 | stride // 16 << 32 | code << 62)


IMAGE_BYTES = {"a": 16 * 1024, "b": 32 * 1024}


def pad_image(image: Image, side: str) -> NDArray[np.uint8]:
    padded = np.zeros((image.data.shape[0], IMAGE_BYTES[side]), np.uint8)
    padded[:, : image.data.shape[1]] = image.data
    return padded


def make_units(form: Form) -> NDArray[np.int64]:
    """Return the units of k [cases, m, stored units] that a sparse A stores."""
    per_unit = 2 if BITS[form.a] == 4 else 1
    return draw_units(form.name, form.cases, form.m, form.k // per_unit, form.a == "tf32")


def make_metadata(form: Form) -> NDArray[np.uint8]:
    """Return the metadata's register [warps, 1, 32 lanes, 4]; of a wgmma a case has four warps."""
    rows = make_units(form).reshape(-1, 16, make_units(form).shape[-1])
    return pack_metadata(rows, BITS[form.a], form.selector).view(np.uint8).reshape(-1, 1, 32, 4)


def make_inputs(form: Form) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8], int, int]:
    """Return what the kernel reads for A, B and C, and two descriptors."""
    a, b, c = make_matrices(form)
    cell = 8 if form.a == "f64" else 4
    if form.family == "mma":
        left = to_fragment(pack_rows(a, form.a), cell, rows_first=True)
        return (
            np.concatenate([left, make_metadata(form)], 1) if form.sparse else left,
            to_fragment(pack_rows(b, form.b), cell, rows_first=False),
            to_accumulator(c, form.d),
            0,
            0,
        )
    # A warp of the four has 16 rows: warps are cases of their own in the registers' arrays.
    warps = c.reshape(-1, 16, form.n)
    image_b = to_image(b, form.b, form.layout_b)
    if form.a_registers:
        raw_a = to_fragment(pack_rows(a, form.a).reshape(form.cases * 4, 16, -1), 4, rows_first=True)
        if form.sparse:
            raw_a = np.concatenate([raw_a, make_metadata(form)], 1)
        return raw_a, pad_image(image_b, "b"), to_accumulator(warps, form.d), 0, image_b.descriptor
    image_a = to_image(a, form.a, form.layout_a)
    left = pad_image(image_a, "a")
    if form.sparse:
        assert image_a.data.shape[1] <= IMAGE_BYTES["a"] - 512
        left[:, -512:] = make_metadata(form).reshape(form.cases, 512)
    return left, pad_image(image_b, "b"), to_accumulator(warps, form.d), image_a.descriptor, image_b.descriptor


def to_matrix(raw: NDArray[np.uint8], form: Form) -> NDArray[np.uint64]:
    """Return patterns [cases, m, n] of what the kernel wrote."""
    if form.family == "mma":
        return from_accumulator(raw, form)
    return from_accumulator(raw, form, 16).reshape(form.cases, form.m, form.n)


def reference(form: Form) -> NDArray[np.float64]:
    """Return A B + C in f64, [cases, m, n]: near the truth, or exact for integers."""
    a, b, c = make_matrices(form)
    with np.errstate(all="ignore"):
        left = to_values(a, form.a) * form.negate[0]
        if form.sparse:
            left = expand(left, make_units(form), form.k, 2 if BITS[form.a] == 4 else 1)
        right = to_values(b, form.b) * form.negate[1]
        if form.a == "b1":
            both = (a[:, :, None] ^ b[:, None]) if "xor" in form.flags else (a[:, :, None] & b[:, None])
            products: NDArray[np.float64] = both.sum(-1).astype(np.float64)
        else:
            products = left @ right.transpose(0, 2, 1)
        return products + to_values(c, form.d)


def _registers(prefix: str, count: int) -> str:
    return ", ".join(f"{prefix}{i}" for i in range(count))


def write_kernel(form: Form, index: int) -> str:
    """Return CUDA source of one instruction's kernel."""
    return _write_mma(form, index) if form.family == "mma" else _write_wgmma(form, index)


def _write_mma(form: Form, index: int) -> str:
    word, letter = {"f64": ("double", "d")}.get(form.a, ("unsigned", "r"))
    c_word, c_letter = {"f64": ("double", "d"), "f32": ("float", "f")}.get(form.d, ("unsigned", "r"))
    cell = 64 if form.a == "f64" else 32
    num_a, num_b = (rows * k * BITS[form.a] // (32 * cell) for rows, k in ((form.m, form.stored_k), (form.n, form.k)))
    num_x = num_a + bool(form.sparse)  # with the metadata
    num_c = form.m * form.n // (64 if form.d == "f16" else 32)
    operands = [
        ", ".join(f"%{i}" for i in range(first, first + num)) for first, num in ((0, num_c), (num_c, num_a), (num_c + num_x, num_b))
    ]
    flags = form.flags if form.a == "b1" else ""
    sat = ".satfinite" if "satfinite" in form.flags else ""
    tail = f", %{num_c + num_a}, {form.selector}" if form.sparse else ""
    text = f"mma{form.sparse}.sync.aligned.m{form.m}n{form.n}k{form.k}.row.col{sat}.{form.d}.{form.a}.{form.b}.{form.d}{flags}"
    return f"""
__global__ void k{index}(const {word}* a, const {word}* b, const {c_word}* c, {c_word}* d, unsigned long long, unsigned long long) {{
  {word} x[{num_x}], y[{num_b}];
  {c_word} z[{num_c}];
  const int lane = threadIdx.x, at = blockIdx.x;
  for (int i = 0; i < {num_x}; ++i) x[i] = a[(at * {num_x} + i) * 32 + lane];
  for (int i = 0; i < {num_b}; ++i) y[i] = b[(at * {num_b} + i) * 32 + lane];
  for (int i = 0; i < {num_c}; ++i) z[i] = c[(at * {num_c} + i) * 32 + lane];
  asm volatile("{text} {{{operands[0]}}}, {{{operands[1]}}}, {{{operands[2]}}}, {{{operands[0]}}}{tail};"
      : {", ".join(f'"+{c_letter}"(z[{i}])' for i in range(num_c))}
      : {", ".join([f'"{letter}"(x[{i}])' for i in range(num_x)] + [f'"{letter}"(y[{i}])' for i in range(num_b)])});
  for (int i = 0; i < {num_c}; ++i) d[(at * {num_c} + i) * 32 + lane] = z[i];
}}
"""


def _write_wgmma(form: Form, index: int) -> str:
    c_word, c_letter = ("float", "f") if form.d == "f32" else ("unsigned", "r")
    num_c = 16 * form.n // (64 if form.d == "f16" else 32)
    num_a = 4 if form.a_registers else 0
    num_x = num_a + bool(form.sparse)  # with the metadata
    first = "{" + ", ".join(f"%{num_c + i}" for i in range(num_a)) + "}" if num_a else f"%{num_c}"
    desc_b = num_c + max(num_a, 1)
    is_float = form.a in FLOATS
    tail = f", {form.negate[0]}, {form.negate[1]}" if is_float else ""
    if form.a in ("f16", "bf16"):
        tail += ("" if num_a else f", {int(form.layout_a[1] == 'mn')}") + f", {int(form.layout_b[1] == 'mn')}"
    sparse = f"%{desc_b + 1}, {form.selector}, " if form.sparse else ""
    text = f"wgmma.mma_async{form.sparse}.sync.aligned.m64n{form.n}k{form.k}.{form.d}.{form.a}.{form.b}{form.flags}"
    inputs = [f'"r"(x[{i}])' for i in range(num_a)] or ['"l"(left)']
    load_a = (
        f"unsigned x[{num_x}]; "
        f"for (int i = 0; i < {num_x}; ++i) x[i] = reinterpret_cast<const unsigned*>(a)[(warp * {num_x} + i) * 32 + lane];"
        if num_a
        else f"for (int i = threadIdx.x; i < {IMAGE_BYTES['a'] // 4}; i += 128) shared[i] = "
        f"reinterpret_cast<const unsigned*>(a)[blockIdx.x * {IMAGE_BYTES['a'] // 4} + i];"
    )
    if form.sparse and not num_a:
        at = f"(blockIdx.x + 1) * {IMAGE_BYTES['a'] // 4} - 128 + threadIdx.x"
        load_a += f" const unsigned x[1] = {{reinterpret_cast<const unsigned*>(a)[{at}]}};"
    metadata = f', "r"(x[{num_a}])' if form.sparse else ""
    return f"""
__global__ void k{index}(const void* a, const void* b, const {c_word}* c, {c_word}* d, unsigned long long left, unsigned long long right) {{
  __shared__ __align__(1024) unsigned shared[{(IMAGE_BYTES["a"] + IMAGE_BYTES["b"]) // 4}];
  const int lane = threadIdx.x % 32, warp = blockIdx.x * 4 + threadIdx.x / 32;
  {load_a}
  for (int i = threadIdx.x; i < {IMAGE_BYTES["b"] // 4}; i += 128)
    shared[{IMAGE_BYTES["a"] // 4} + i] = reinterpret_cast<const unsigned*>(b)[blockIdx.x * {IMAGE_BYTES["b"] // 4} + i];
  {c_word} z[{num_c}];
  for (int i = 0; i < {num_c}; ++i) z[i] = c[(warp * {num_c} + i) * 32 + lane];
  const unsigned long long base = __cvta_generic_to_shared(shared);
  left |= base >> 4;
  right |= (base + {IMAGE_BYTES["a"]}) >> 4;
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("{text} {{{", ".join(f"%{i}" for i in range(num_c))}}}, {first}, %{desc_b}, {sparse}1{tail};"
      : {", ".join(f'"+{c_letter}"(z[{i}])' for i in range(num_c))}
      : {", ".join(inputs)}, "l"(right){metadata});
  asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory");
  for (int i = 0; i < {num_c}; ++i) d[(warp * {num_c} + i) * 32 + lane] = z[i];
}}
"""


def write_source(forms: list[tuple[int, Form]]) -> str:
    """Return one CUDA file with the kernels of some forms and a function that starts one of them."""
    kernels = "".join(write_kernel(form, index) for index, form in forms)
    cases = ""
    for index, form in forms:
        pointers = ", ".join(f"decltype(arg<{i}>(k{index}))({name})" for i, name in enumerate("abcd"))
        threads = 32 if form.family == "mma" else 128
        cases += f"    case {index}: k{index}<<<{form.cases}, {threads}>>>({pointers}, left, right); break;\n"
    return f"""// Generated by tensor_corpus.py.
template <int I, class... A> struct Nth;
template <int I, class T, class... A> struct Nth<I, T, A...> : Nth<I - 1, A...> {{}};
template <class T, class... A> struct Nth<0, T, A...> {{ using Type = T; }};
template <int I, class... A> typename Nth<I, A...>::Type arg(void (*)(A...));
{kernels}
extern "C" int tensor_run(int index, const void* a, const void* b, const void* c, void* d,
                          unsigned long long left, unsigned long long right) {{
  switch (index) {{
{cases}    default: return -1;
  }}
  const cudaError_t launched = cudaGetLastError();
  return launched != cudaSuccess ? launched : cudaDeviceSynchronize();
}}
"""


def pack_results(corpus: list[Form], results: list[NDArray[np.uint64]]) -> dict[str, NDArray[Any]]:
    """Return arrays for a file: all result bits one after another, by width."""
    packed: dict[str, NDArray[Any]] = {"names": np.array([form.name for form in corpus])}
    for width in (16, 32, 64):
        mine = [r.ravel() for form, r in zip(corpus, results, strict=True) if BITS[form.d] == width]
        packed[f"bits{width}"] = np.concatenate([np.zeros(0, np.uint64), *mine]).astype(f"<u{width // 8}")
    return packed


def unpack_results(corpus: list[Form], file: Any) -> dict[str, NDArray[np.uint64]]:
    """Return patterns [cases, m, n] by name, the inverse of :func:`pack_results`."""
    assert [str(name) for name in file["names"]] == [form.name for form in corpus], "the corpus has changed since it was recorded"
    at = dict.fromkeys((16, 32, 64), 0)
    results = {}
    for form in corpus:
        width, count = BITS[form.d], form.cases * form.m * form.n
        bits = file[f"bits{width}"][at[width] : at[width] + count]
        at[width] += count
        results[form.name] = bits.astype(np.uint64).reshape(form.cases, form.m, form.n)
    return results
