"""What a tensor copy does, in NumPy: which element of the tensor each byte of the box in shared memory is.

Source of the rules: PTX ISA, "Tensors" (tiled and im2col mode, interleave, swizzling modes), and the CUDA driver API's tensor maps.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

U8, U16, U32, I32, U64, I64, F16, F32, F64, BF16, F32_FTZ, TF32, TF32_FTZ = range(13)
ELEMENT_BYTES = (1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4)
FLOATS = (F16, F32, F64, BF16, F32_FTZ, TF32, TF32_FTZ)
# The constant that out-of-bounds elements get in place of zero.
NAN_FILL = {2: 0x7FF7, 4: 0x7FF77FF7, 8: 0x7FF77FF77FF77FF7}


@dataclass(frozen=True)
class Copy:
    """One tensor copy: the tensor map, the box, and where both sides lie."""

    name: str
    type: int
    dims: tuple[int, ...]  # elements, innermost first
    strides: tuple[int, ...]  # bytes, of dimensions 1 and up
    box: tuple[int, ...]  # elements; im2col: (channels, pixels)
    at: tuple[int, ...]  # coordinates
    steps: tuple[int, ...] = ()  # element strides; empty: all one
    interleave: int = 0
    swizzle: int = 0
    fill: int = 0
    lower: tuple[int, ...] = ()  # im2col: corners of the pixel box in W, H, D
    upper: tuple[int, ...] = ()
    offsets: tuple[int, ...] = ()  # im2col: of the filter tap
    shared: int = 0  # offset of the box from an address that is a multiple of 1024
    explores: bool = False  # the model does not claim to know the result
    extra: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def is_im2col(self) -> bool:
        return bool(self.lower)

    @property
    def can_store(self) -> bool:
        """Stores have no negative coordinates, and are not tested in im2col mode."""
        return not self.is_im2col and min(self.at) >= 0

    @property
    def element_bytes(self) -> int:
        return ELEMENT_BYTES[self.type]

    @property
    def all_steps(self) -> tuple[int, ...]:
        return self.steps or (1,) * len(self.dims)

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements that the box has in shared memory, innermost first."""
        if self.is_im2col:
            return self.box
        steps = (1, *self.all_steps[1:])  # without interleave, dimension 0 has no step
        return tuple(-(-b // s) for b, s in zip(self.box, steps, strict=True))

    @property
    def box_bytes(self) -> int:
        return int(np.prod(self.shape)) * self.element_bytes

    @property
    def row_pitch(self) -> int:
        """Bytes from one row of the box to the next in shared memory: a swizzle wants its whole span."""
        return max(self.shape[0] * self.element_bytes, (0, 32, 64, 128)[self.swizzle])

    @property
    def shared_bytes(self) -> int:
        return self.box_bytes // (self.shape[0] * self.element_bytes) * self.row_pitch

    @property
    def tensor_bytes(self) -> int:
        last = sum((d - 1) * s for d, s in zip(self.dims[1:], self.strides, strict=True))
        return last + self.dims[0] * (16 * self.interleave or self.element_bytes)


def element_offsets(copy: Copy) -> NDArray[np.int64]:
    """Byte offset in the tensor of each element of the box, flat in the order of shared memory; -1 where it is out of bounds."""
    return _pixels(copy) if copy.is_im2col else _tile(copy)


def _tile(copy: Copy) -> NDArray[np.int64]:
    steps = (1, *copy.all_steps[1:])
    strides = (copy.element_bytes, *copy.strides)
    shape = copy.shape[::-1]
    total: NDArray[np.int64] = np.zeros(shape, np.int64)
    inside: NDArray[np.bool_] = np.ones(shape, bool)
    for i in range(len(copy.dims)):
        index = copy.at[i] + np.arange(copy.shape[i], dtype=np.int64) * steps[i]
        view = [1] * len(shape)
        view[len(shape) - 1 - i] = -1
        total = total + (index * strides[i]).reshape(view)
        inside = inside & ((index >= 0) & (index < copy.dims[i])).reshape(view)
    return np.where(inside, total, -1).reshape(-1)


def _pixels(copy: Copy) -> NDArray[np.int64]:
    channels, pixels = copy.box
    rank = len(copy.dims)
    strides = (copy.element_bytes, *copy.strides)
    steps = copy.all_steps
    spatial = list(range(1, rank - 1))
    at = list(copy.at)
    out = np.full((pixels, channels), -1, np.int64)
    for pixel in range(pixels):
        where = [0, *(at[i] + copy.offsets[i - 1] for i in spatial), at[rank - 1]]
        inside = all(0 <= where[i] < copy.dims[i] for i in range(1, rank))
        channel = copy.at[0] + np.arange(channels, dtype=np.int64)
        if inside:
            base = sum(where[i] * strides[i] for i in range(1, rank))
            fits = (channel >= 0) & (channel < copy.dims[0])
            out[pixel] = np.where(fits, base + channel * strides[0], -1)
        for i in spatial:  # on to the next pixel of the pixel box, row by row
            at[i] += steps[i]
            if at[i] < copy.dims[i] + copy.upper[i - 1]:
                break
            at[i] = copy.lower[i - 1]
        else:
            at[rank - 1] += 1
    return out.reshape(-1)


def swizzled(offset: NDArray[np.int64], mode: int) -> NDArray[np.int64]:
    """Where a byte lies whose place would be `offset` without swizzle; `offset` counts from a multiple of 1024."""
    if mode == 0:
        return offset
    bits = {1: 1, 2: 3, 3: 7}[mode]
    return offset ^ ((offset >> 7 & bits) << 4)


def shared_offsets(copy: Copy) -> NDArray[np.int64]:
    """Offset of each element of the box in the shared-memory image, in the order of :func:`element_offsets`."""
    index = np.arange(int(np.prod(copy.shape)), dtype=np.int64)
    plain = copy.shared + index // copy.shape[0] * copy.row_pitch + index % copy.shape[0] * copy.element_bytes
    return swizzled(plain, copy.swizzle)


def load(copy: Copy, tensor: Bytes, image: Bytes) -> Bytes:
    """Return the shared-memory image after the copy of a box of `tensor` into it."""
    out = image.copy()
    size = copy.element_bytes
    source = element_offsets(copy)
    fill = NAN_FILL[size] if copy.fill and copy.type in FLOATS else 0
    padding = np.frombuffer(int(fill).to_bytes(size, "little"), np.uint8)
    lanes = np.arange(size)
    values = np.where(source[:, None] >= 0, tensor[np.maximum(source, 0)[:, None] + lanes], padding)
    out[shared_offsets(copy)[:, None] + lanes] = flush(copy.type, values)
    return out


def flush(kind: int, values: Bytes) -> Bytes:
    """What loads make of 32-bit floats: tf32 keeps 10 bits of the mantissa. An H200 flushes nothing, whatever the type is called."""
    if kind not in (TF32, TF32_FTZ):
        return values
    bits = np.ascontiguousarray(values).view(np.uint32)
    magnitude = bits & 0x7FFFFFFF
    rounded = (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)  # to nearest, ties away from zero
    bits = np.where(magnitude > 0x7F800000, np.uint32(0x7FFFE000), np.where(magnitude < 0x7F800000, rounded, bits)).astype(np.uint32)
    return bits.view(np.uint8).reshape(values.shape)


def store(copy: Copy, tensor: Bytes, image: Bytes) -> Bytes:
    """Return the tensor after the copy of a box of shared memory into it; what is out of bounds is left out.

    But whole units of 16 bytes are written: the last one of a row may reach into the padding that follows it.
    """
    out = tensor.copy()
    lanes = np.arange(copy.element_bytes)
    unit = 16 // copy.element_bytes
    to, source = (x.reshape(-1, unit) for x in (element_offsets(copy), shared_offsets(copy)))
    whole = to[:, :1] + np.arange(unit) * copy.element_bytes  # a unit is out of bounds, or begins within
    inside = (to[:, :1] >= 0) & (whole < copy.tensor_bytes)
    to = whole
    out[to[inside][:, None] + lanes] = image[source[inside][:, None] + lanes]
    return out


def digest(values: Bytes) -> str:
    return hashlib.sha256(values.tobytes()).hexdigest()[:32]


def make_inputs(copy: Copy, seed: int) -> tuple[Bytes, Bytes]:
    """Return a tensor and a shared-memory image for the copy, of random bytes."""
    random = np.random.default_rng(seed)
    image_bytes = (copy.shared + copy.shared_bytes + 1023) // 1024 * 1024 + 1024
    tensor = random.integers(0, 256, copy.tensor_bytes, np.uint8)
    image: Bytes = random.integers(0, 256, image_bytes, np.uint8)
    return tensor, image


def _strides(random: np.random.Generator, dims: tuple[int, ...], size: int) -> tuple[int, ...]:
    """Strides of a tensor with a little padding, multiples of 16."""
    strides = []
    step = dims[0] * size
    for extent in dims[1:]:
        step = (step + 15) // 16 * 16 + 16 * int(random.integers(0, 2))
        strides.append(step)
        step *= extent
    return tuple(strides)


def random_tile(random: np.random.Generator, name: str, rank: int, kind: int, swizzle: int) -> Copy:
    """Return a tile copy whose box may lie partly or wholly outside of the tensor."""
    size = ELEMENT_BYTES[kind]
    unit = 16 // size
    inner_most = {0: 256, 1: 32, 2: 64, 3: 128}[swizzle]
    inner = min(int(random.integers(1, inner_most // 16 + 1)) * unit, 256 // unit * unit)
    most = (256, 32, 12, 6, 4)[rank - 1]
    box = (inner, *(int(random.integers(1, most + 1)) for _ in range(rank - 1)))
    while np.prod(box) * size > 48 * 1024:
        box = (box[0], *(max(1, b // 2) for b in box[1:]))
    dims = tuple(max(1, int(b * random.uniform(0.6, 2.2))) for b in box)
    steps = (1, *(int(random.integers(1, 9)) if random.random() < 0.2 else 1 for _ in range(rank - 1)))
    at = tuple(
        int(random.integers(-b, d + 2)) if random.random() < 0.5 else int(random.integers(0, d)) for b, d in zip(box, dims, strict=True)
    )
    at = (at[0] // unit * unit, *at[1:])  # the first coordinate is a multiple of 16 bytes
    fill = int(kind in FLOATS and random.random() < 0.4)
    shared = 128 * int(random.integers(0, 8))
    return Copy(name, kind, dims, _strides(random, dims, size), box, at, steps, swizzle=swizzle, fill=fill, shared=shared)


def random_im2col(random: np.random.Generator, name: str, rank: int, kind: int, swizzle: int) -> Copy:
    """Return an im2col copy: a pixel box with halo, steps, and an offset of a filter tap."""
    size = ELEMENT_BYTES[kind]
    unit = 16 // size
    inner_most = {0: 128, 1: 32, 2: 64, 3: 128}[swizzle]
    channels = int(random.integers(1, inner_most // 16 + 1)) * unit
    spatial = rank - 2
    dims = (channels * int(random.integers(1, 3)), *(int(random.integers(5, 10)) for _ in range(spatial)), int(random.integers(1, 4)))
    lower = tuple(int(random.integers(-2, 1)) for _ in range(spatial))
    upper = tuple(int(random.integers(-3, 1)) for _ in range(spatial))
    steps = (1, *(int(random.integers(1, 3)) for _ in range(spatial)), 1)
    at = (
        int(random.integers(0, 2)) * channels,
        *(int(random.integers(low, d + up)) for low, up, d in zip(lower, upper, dims[1:], strict=False)),
        int(random.integers(0, dims[-1])),
    )
    offsets = tuple(int(random.integers(0, 3)) for _ in range(spatial))
    pixels = int(random.integers(1, 65))
    box = (channels, pixels)
    return Copy(name, kind, dims, _strides(random, dims, size), box, at, steps, swizzle=swizzle, lower=lower, upper=upper, offsets=offsets)


def make_corpus(seed: int = 7) -> list[Copy]:
    """Return the recorded copies: every rank, type and swizzle, and both modes; and a few whose result the recording is to tell."""
    random = np.random.default_rng(seed)
    kinds = (U8, U16, U32, I32, U64, I64, F16, F32, F64, BF16)
    copies = []
    for rank in (1, 2, 3, 4, 5):
        for swizzle in range(4):
            for repeat in range(8):
                kind = kinds[int(random.integers(0, len(kinds)))]
                copies.append(random_tile(random, f"tile{rank}d_s{swizzle}_{repeat}", rank, kind, swizzle))
    for rank in (3, 4, 5):
        for swizzle in range(4):
            for repeat in range(5):
                kind = (U8, U16, F16, F32)[int(random.integers(0, 4))]
                copies.append(random_im2col(random, f"im2col{rank}d_s{swizzle}_{repeat}", rank, kind, swizzle))
    copies += [Copy(f"nan{kind}", kind, (32, 4), (256,), (16, 6), (24, -1), fill=1) for kind in FLOATS[:4]]
    # The inner box is narrower than the swizzle's span.
    copies += [Copy(f"narrow{s}", U16, (64, 64), (128,), (8, 40), (8, 3), swizzle=s, shared=256) for s in range(4)]
    copies += [Copy(f"convert{kind}", kind, (64, 8), (256,), (64, 8), (0, 0), explores=True) for kind in (F32_FTZ, TF32, TF32_FTZ)]
    return [*copies, *_interleaved()]


def _interleaved() -> list[Copy]:
    """Copies of interleaved tensors: slices of 16 or 32 bytes of channels; dimensions W (and H, D), C, N."""
    three = Copy("interleaved", U16, (20, 24, 4), (320, 320 * 8), (8, 8, 2), (0, 0, 0), interleave=1, explores=True)
    changes: dict[str, dict[str, Any]] = {f"box{n}": {"box": (8, n, 2)} for n in (4, 8, 9, 24)}
    changes |= {f"at{n}": {"at": (0, n, 0), "box": (8, 24, 1)} for n in (-1, 1, 2, 3, 8)}
    changes |= {"left": {"at": (-2, 0, 0)}, "right": {"at": (16, 0, 0)}, "below": {"at": (0, 0, 3)}, "step": {"steps": (2, 1, 1)}}
    changes |= {"few": {"dims": (20, 3, 4), "box": (8, 24, 1)}, "one": {"dims": (20, 1, 4)}, "two": {"dims": (20, 2, 4), "at": (0, 1, 0)}}
    changes |= {"swizzle3": {"swizzle": 3, "box": (16, 16, 2)}}
    changes |= {"u8": {"type": U8, "box": (16, 32, 1)}, "f32": {"type": F32, "box": (4, 8, 1), "fill": 1, "at": (18, 0, 0)}}
    copies = [replace(three, name=f"interleaved {name}", **change) for name, change in changes.items()]
    wide = replace(three, strides=(640, 640 * 8), interleave=2, swizzle=1)
    copies += [replace(wide, name=f"interleaved 32 box{n}", box=(8, n, 2)) for n in (16, 48)]
    four = replace(three, dims=(20, 6, 24, 2), strides=(320, 1920, 1920 * 8), box=(8, 3, 16, 2), at=(1, 1, 0, 0))
    copies += [replace(four, name="interleaved 4d"), replace(four, name="interleaved 4d slice", at=(1, 1, 1, 0))]
    return copies
