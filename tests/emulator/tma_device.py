"""Runs tensor copies of :mod:`tma_model` on a device: the emulator, or a GPU through NVIDIA's runtime."""

from __future__ import annotations

import ctypes
from ctypes import c_int, c_uint, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

if __package__:
    from .tma_model import Bytes, Copy
else:
    from tma_model import Bytes, Copy


MAP_BYTES = 128  # of a CUtensorMap


class TensorMapError(RuntimeError):
    """The encoder refused a map."""


def aligned_bytes(size: int, alignment: int) -> Bytes:
    """Return an array whose address is a multiple of `alignment`."""
    raw = np.zeros(size + alignment, np.uint8)
    skip = -raw.ctypes.data % alignment
    return raw[skip : skip + size]


def _array(values: tuple[int, ...], dtype: type) -> NDArray[Any]:
    return np.array(values or (0,), dtype)


class TensorDevice:
    """The functions of ``tma.cu``, and device memory through the runtime that it is linked with."""

    def __init__(self, library: Path, runtime: ctypes.CDLL) -> None:
        self.library = ctypes.CDLL(str(library), mode=ctypes.RTLD_LOCAL)
        self.runtime = runtime

    def check(self, status: int, what: str) -> None:
        if status != 0:
            raise RuntimeError(f"{what} returned {status}")

    def upload(self, values: Bytes) -> int:
        address = c_void_p()
        self.check(self.runtime.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(values.nbytes)), "cudaMalloc")
        self.check(self.runtime.cudaMemcpy(address, c_void_p(values.ctypes.data), ctypes.c_size_t(values.nbytes), c_int(1)), "cudaMemcpy")
        return address.value or 0

    def download(self, address: int, size: int) -> Bytes:
        out = np.zeros(size, np.uint8)
        self.check(self.runtime.cudaMemcpy(c_void_p(out.ctypes.data), c_void_p(address), ctypes.c_size_t(size), c_int(2)), "cudaMemcpy")
        return out

    def free(self, *addresses: int) -> None:
        for address in addresses:
            self.runtime.cudaFree(c_void_p(address))

    def encode_status(self, copy: Copy, base: int, out: Bytes | None = None, **changes: Any) -> int:
        """Return the encoder's CUresult; `changes` are raw arguments to use in place of the copy's (``None``: a null pointer).

        Raises ValueError for a map of less than :data:`MAP_BYTES`: the encoder, which knows no size, would write behind it.
        """
        values: dict[str, Any] = {
            "map": aligned_bytes(MAP_BYTES, 64) if out is None else out,
            "type": copy.type,
            "rank": len(copy.dims),
            "address": base,
            "dims": _array(copy.dims, np.uint64),
            "strides": _array(copy.strides, np.uint64),
            "box": _array(copy.box, np.uint32),
            "lower": _array(copy.lower, np.int32),
            "upper": _array(copy.upper, np.int32),
            "channels": copy.box[0],
            "pixels": copy.box[-1],
            "steps": _array(copy.all_steps, np.uint32),
            "interleave": copy.interleave,
            "swizzle": copy.swizzle,
            "promotion": 0,
            "fill": copy.fill,
        }
        assert changes.keys() <= values.keys()
        values.update(changes)
        if values["map"] is not None and values["map"].nbytes < MAP_BYTES:
            raise ValueError(f"a map of {values['map'].nbytes} bytes: the encoder writes {MAP_BYTES}")

        def pointer(name: str) -> c_void_p:
            value = values[name]
            return c_void_p(value.ctypes.data if isinstance(value, np.ndarray) else value)

        head = (
            pointer("map"),
            c_int(values["type"]),
            c_uint(values["rank"]),
            c_void_p(values["address"]),
            pointer("dims"),
            pointer("strides"),
        )
        tail = (pointer("steps"), *(c_int(values[name]) for name in ("interleave", "swizzle", "promotion", "fill")))
        if copy.is_im2col:
            box = (pointer("lower"), pointer("upper"), c_uint(values["channels"]), c_uint(values["pixels"]))
            return int(self.library.encode_im2col(*head, *box, *tail))
        return int(self.library.encode_tiled(*head, pointer("box"), *tail))

    def encode(self, copy: Copy, address: int) -> Bytes:
        out = aligned_bytes(MAP_BYTES, 64)
        if status := self.encode_status(copy, address, out):
            raise TensorMapError(f"CUresult {status}")
        return out

    def load(self, copy: Copy, tensor: Bytes, image: Bytes, announced: int | None = None) -> tuple[Bytes, bool]:
        """Return the shared-memory image after the load, and whether all announced bytes came."""
        source, box, flag = self.upload(tensor), self.upload(image), self.upload(np.zeros(4, np.uint8))
        try:
            made = self.encode(copy, source)
            at, offsets = _array(copy.at, np.int32), _array(copy.offsets, np.uint16)
            status = self.library.run_load(
                c_void_p(made.ctypes.data),
                len(copy.dims),
                int(copy.is_im2col),
                c_void_p(at.ctypes.data),
                c_void_p(offsets.ctypes.data),
                c_uint(copy.shared),
                c_uint(copy.box_bytes if announced is None else announced),
                c_void_p(box),
                c_uint(image.nbytes),
                c_void_p(flag),
            )
            self.check(status, "the launch")
            self.check(self.runtime.cudaDeviceSynchronize(), "the load")
            return self.download(box, image.nbytes), not self.download(flag, 4).any()
        finally:
            self.free(source, box, flag)

    def store(self, copy: Copy, tensor: Bytes, image: Bytes, op: int = -1) -> Bytes:
        """Return the tensor after a store (or reduction `op`) of the box in the image."""
        target, box = self.upload(tensor), self.upload(image)
        try:
            made = self.encode(copy, target)
            at = _array(copy.at, np.int32)
            arguments = (c_void_p(at.ctypes.data), c_uint(copy.shared), c_void_p(box), c_uint(image.nbytes), c_int(op))
            self.check(self.library.run_store(c_void_p(made.ctypes.data), len(copy.dims), *arguments), "the launch")
            self.check(self.runtime.cudaDeviceSynchronize(), "the store")
            return self.download(target, tensor.nbytes)
        finally:
            self.free(target, box)
