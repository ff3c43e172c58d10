"""Damaged PTX and damaged fat binaries are refused, never a crash: mutants of good ones, and what fuzzing found (``make fuzz``)."""

from __future__ import annotations

import ctypes
import random
import re

import pytest

from .cuda_runtime import PTX, Runtime
from .test_opcodes import CORPUS, corpus
from .test_runtime_fatbin import LZ4, ZSTD, container, entry

SUCCESS = 0
REFUSALS = {200, 209, 218, 222}  # invalid image, no image for the device, invalid PTX, unsupported PTX version
MUTANTS = 150


def load(runtime: Runtime, image: bytes) -> int:
    """Load and unload; the error code."""
    library = ctypes.c_void_p()
    keep = ctypes.create_string_buffer(image)
    code = runtime.code("cudaLibraryLoadData", ctypes.byref(library), keep, None, None, ctypes.c_uint(0), None, None, ctypes.c_uint(0))
    if code == SUCCESS:
        runtime.call("cudaLibraryUnload", library)
    return code


def mutate_words(text: str, rng: random.Random) -> str:
    """Delete, double, swap or replace a few words."""
    words = re.split(r"(\s+|[,;{}\[\]])", text)
    for _ in range(rng.randint(1, 4)):
        i, j = rng.randrange(len(words)), rng.randrange(len(words))
        action = rng.randrange(4)
        if action == 0:
            words[i] = ""
        elif action == 1:
            words[i] *= 2
        elif action == 2:
            words[i], words[j] = words[j], words[i]
        else:
            words[i] = rng.choice(
                ["%r99999", "-1", "0xffffffffffffffff", "{", "}", "[", ".b128", ".v4", "%tid.x", "|p", "_", '"', "0f7fc0"]
            )
    return "".join(words)


def mutate_bytes(image: bytes, rng: random.Random) -> bytes:
    """Change a few bytes behind the container's own header, whose sizes a caller answers for."""
    changed = bytearray(image)
    for _ in range(rng.randint(1, 6)):
        changed[rng.randrange(16, len(changed))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    return bytes(changed)


def test_mutants_of_ptx(emulator: Runtime) -> None:
    rng = random.Random(1)
    sources = [PTX if isinstance(PTX, str) else PTX.decode(), *(corpus.write_module([(i, CORPUS[i])]) for i in range(0, len(CORPUS), 211))]
    codes = [load(emulator, mutate_words(rng.choice(sources), rng).encode()) for _ in range(MUTANTS)]
    emulator.reports()
    assert set(codes) <= REFUSALS | {SUCCESS}
    assert SUCCESS in codes
    assert codes.count(SUCCESS) < MUTANTS / 2


@pytest.mark.parametrize("flags", [0x11, 0x11 | ZSTD, 0x11 | LZ4], ids=["plain", "zstd", "lz4"])
def test_mutants_of_fat_binaries(emulator: Runtime, flags: int) -> None:
    rng = random.Random(flags)
    text = PTX.encode() if isinstance(PTX, str) else PTX
    image = container(entry(text, flags=flags), entry(text, arch=90, flags=flags))
    assert load(emulator, image) == SUCCESS
    codes = [load(emulator, mutate_bytes(image, rng)) for _ in range(MUTANTS)]
    emulator.reports()
    assert set(codes) <= REFUSALS | {SUCCESS}
