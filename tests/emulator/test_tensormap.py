"""Tensor copies against the NumPy model: the recorded corpus, random maps, reductions, encoders' errors, and faults that are reported."""

from __future__ import annotations

import ctypes
import json
import threading
from collections.abc import Iterator
from ctypes import c_void_p
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .cuda_runtime import Runtime
from .kernels import build, kinds
from .tma_cases import OPERATIONS, TILE, encode_cases, reduction_cases
from .tma_device import MAP_BYTES, TensorDevice, TensorMapError, aligned_bytes
from .tma_model import (
    BF16,
    ELEMENT_BYTES,
    F16,
    F32,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Bytes,
    Copy,
    digest,
    element_offsets,
    load,
    make_corpus,
    make_inputs,
    random_im2col,
    random_tile,
    shared_offsets,
    store,
)

CHECKS = "all"
SOURCE = Path(__file__).with_name("tma.cu")
CORPUS = [(seed, copy) for seed, copy in enumerate(make_corpus()) if not copy.explores]


@pytest.fixture(scope="session")
def tma_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(SOURCE, tmp_path_factory.mktemp("tma"))


@pytest.fixture
def device(emulator: Runtime, tma_library: Path) -> Iterator[TensorDevice]:
    emulator.set_option("checks", CHECKS)
    yield TensorDevice(tma_library, emulator.library)
    emulator.set_option("schedule", "default")


@pytest.mark.parametrize("schedule", ["default", "random"])
def test_corpus(emulator: Runtime, device: TensorDevice, schedule: str) -> None:
    emulator.set_option("schedule", schedule)
    for seed, copy in CORPUS:
        tensor, image = make_inputs(copy, seed)
        after, all_came = device.load(copy, tensor, image)
        assert all_came and np.array_equal(after, load(copy, tensor, image)), copy
        if copy.can_store:
            assert np.array_equal(device.store(copy, tensor, image), store(copy, tensor, image)), copy
    assert not emulator.reports()


def test_model_agrees_with_a_gpu() -> None:
    """The digests were recorded on an H200 by ``tma_record.py``; the emulator is compared with the model."""
    goldens = json.loads(SOURCE.with_name("tma_goldens.json").read_text())
    corpus = {copy.name: (seed, copy) for seed, copy in enumerate(make_corpus())}
    assert len(goldens) >= 80
    for name, golden in goldens.items():
        seed, copy = corpus[name]
        tensor, image = make_inputs(copy, seed)
        assert digest(load(copy, tensor, image)) == golden["load"], name
        assert "store" not in golden or digest(store(copy, tensor, image)) == golden["store"], name


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(st.integers(1, 5), st.sampled_from((U8, U16, U32, I64, F16, BF16, F32)), st.integers(0, 3), st.booleans(), st.integers(0, 2**32))
def test_random_maps(emulator: Runtime, device: TensorDevice, rank: int, kind: int, swizzle: int, im2col: bool, seed: int) -> None:
    random = np.random.default_rng(seed)
    copy = random_im2col(random, "r", max(rank, 3), kind, swizzle) if im2col else random_tile(random, "r", rank, kind, swizzle)
    tensor, image = make_inputs(copy, seed)
    after, all_came = device.load(copy, tensor, image)
    assert all_came and np.array_equal(after, load(copy, tensor, image)), copy
    if copy.can_store:
        assert np.array_equal(device.store(copy, tensor, image), store(copy, tensor, image)), copy
    assert not emulator.reports()


def _reduced(kind: int, op: str, old: Bytes, new: Bytes) -> Bytes:
    """Return old combined with new, element by element; both are rows of bytes."""
    dtypes: dict[int, Any] = {
        U32: np.uint32,
        I32: np.int32,
        U64: np.uint64,
        I64: np.int64,
        F16: np.float16,
        F32: np.float32,
        BF16: np.uint16,
    }
    a, b = (np.ascontiguousarray(x).view(dtypes[kind])[:, 0] for x in (old, new))
    if kind == BF16:
        wide = {"add": np.add, "min": np.minimum, "max": np.maximum}[op](*((x.astype(np.uint32) << 16).view(np.float32) for x in (a, b)))
        bits = wide.view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16).view(np.uint8).reshape(old.shape)
    function: Any = {
        "add": np.add,
        "min": np.minimum,
        "max": np.maximum,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
        "inc": lambda x, y: np.where(x >= y, 0, x + 1),
        "dec": lambda x, y: np.where((x == 0) | (x > y), y, x - 1),
    }[op]
    return np.asarray(function(a, b)).astype(a.dtype).view(np.uint8).reshape(old.shape)


ANSWERS = json.loads(SOURCE.with_name("tma_answers.json").read_text())
ILLEGAL_INSTRUCTION = "715"


def test_reductions(emulator: Runtime, device: TensorDevice) -> None:
    """Against NumPy, and against what an H200 made of them; it has no bitwise ones of signed 64-bit numbers."""
    for name, copy, op, tensor, image in reduction_cases():
        if ANSWERS["reductions"][name] == ILLEGAL_INSTRUCTION:
            with pytest.raises(RuntimeError, match=ILLEGAL_INSTRUCTION):
                device.store(copy, tensor, image, op)
            assert kinds(emulator.reports()) == {"tensormap_invalid"}
            emulator.recover()
            continue
        lanes = np.arange(ELEMENT_BYTES[copy.type])
        to, source = element_offsets(copy), shared_offsets(copy)
        at = to[to >= 0][:, None] + lanes
        expected = tensor.copy()
        expected[at] = _reduced(copy.type, OPERATIONS[op], tensor[at], image[source[to >= 0][:, None] + lanes])
        assert digest(expected) == ANSWERS["reductions"][name]
        assert np.array_equal(device.store(copy, tensor, image, op), expected), name
    assert not emulator.reports()


def test_encoders_accept_and_refuse(device: TensorDevice) -> None:
    """As NVIDIA's driver does, but for null pointers, on which it would crash."""
    address = device.upload(np.zeros(1 << 16, np.uint8))
    codes = {name: device.encode_status(copy, address, **changes) for name, copy, changes in encode_cases(address)}
    device.free(address)
    unrecorded = {name: code for name, code in codes.items() if name not in ANSWERS["codes"]}
    assert unrecorded.pop("rank 1, null strides") == 0
    assert set(unrecorded.values()) == {1}
    assert {name: codes[name] for name in ANSWERS["codes"]} == ANSWERS["codes"]


def test_encoders_need_a_context_that_is_current(device: TensorDevice) -> None:
    """A thread whose first call asks for the device has none, nor one that looks the encoder up; 201 is CUDA_ERROR_INVALID_CONTEXT."""
    codes: list[int] = []

    def encode() -> None:
        device.runtime.cudaGetDevice(ctypes.byref(ctypes.c_int()))
        codes.append(device.encode_status(TILE, 256))
        device.runtime.cudaSetDevice(0)
        codes.append(device.encode_status(TILE, 256))

    thread = threading.Thread(target=encode)
    thread.start()
    thread.join()
    assert codes == [201, 0]


def test_cases_give_the_encoder_a_whole_map() -> None:
    """Wherever in a line of 64 bytes the allocator begins a buffer: of 64 that are alive at once, there is one in every place."""
    maps = [changes["map"] for _ in range(64) for name, _, changes in encode_cases(256) if name == "map aligned to 32"]
    assert {(made.nbytes, made.ctypes.data % 64) for made in maps} == {(MAP_BYTES, 32)}


def test_a_map_that_is_too_small_does_not_reach_the_encoder(device: TensorDevice) -> None:
    with pytest.raises(ValueError, match="a map of 112 bytes: the encoder writes 128"):
        device.encode_status(TILE, 256, map=aligned_bytes(MAP_BYTES - 16, 64))
    assert device.encode_status(TILE, 256, map=aligned_bytes(MAP_BYTES, 64)) == 0


def test_replaced_address(emulator: Runtime, device: TensorDevice) -> None:
    tensor, image = make_inputs(TILE, 3)
    first, second = device.upload(np.zeros_like(tensor)), device.upload(tensor)
    made = device.encode(TILE, first)
    assert device.library.replace_address(c_void_p(made.ctypes.data), c_void_p(second)) == 0
    device.encode = lambda copy, base: made  # type: ignore[method-assign]
    after, _ = device.load(TILE, tensor, image)
    assert np.array_equal(after, load(TILE, tensor, image)) and not emulator.reports()
    device.free(first, second)


def _faulty(emulator: Runtime, action: Any) -> list[dict[str, Any]]:
    with pytest.raises(RuntimeError):
        action()
    reports = emulator.reports()
    emulator.recover()
    return reports


def test_garbage_is_no_tensor_map(emulator: Runtime, device: TensorDevice) -> None:
    tensor, image = make_inputs(TILE, 3)
    whole = device.encode

    def changed(copy: Copy, base: int) -> Bytes:
        made = whole(copy, base)
        made[20] ^= 1
        return made

    for make, text in ((lambda copy, base: np.zeros(128, np.uint8), "no tensor map"), (changed, "changed by ordinary stores")):
        device.encode = make  # type: ignore[method-assign]
        reports = _faulty(emulator, lambda: device.load(TILE, tensor, image))
        assert [r for r in reports if r["kind"] == "tensormap_invalid" and text in str(r["text"])]


def test_wrong_number_of_bytes(emulator: Runtime, device: TensorDevice) -> None:
    tensor, image = make_inputs(TILE, 3)
    assert not device.load(TILE, tensor, image, announced=TILE.box_bytes + 16)[1], "the kernel's wait gives up, as on a GPU"
    assert kinds(emulator.reports()) == {"global_race_same_value", "shared_race"}, "it then reads what is still being copied"
    reports = _faulty(emulator, lambda: device.load(TILE, tensor, image, announced=TILE.box_bytes - 16))
    assert "mbarrier_overflow" in kinds(reports)


def test_tensor_larger_than_its_memory(emulator: Runtime, device: TensorDevice) -> None:
    tensor, image = make_inputs(TILE, 3)
    inside = replace(TILE, dims=(64, 32, 9))  # a slice more than there is
    assert device.load(inside, tensor, image)[1] and not emulator.reports()  # the box does not touch it
    reports = _faulty(emulator, lambda: device.load(replace(inside, at=(0, 0, 6)), tensor, image))
    assert "out_of_bounds_read" in kinds(reports)
    reports = _faulty(emulator, lambda: device.store(replace(inside, at=(0, 0, 6)), tensor, image))
    assert "out_of_bounds_write" in kinds(reports)


@pytest.mark.parametrize("at", [(1, 0, 0), (0, -1, 0)])
def test_coordinates_that_end_a_kernel_on_a_gpu(emulator: Runtime, device: TensorDevice, at: tuple[int, ...]) -> None:
    """A first coordinate that is no multiple of 16 bytes, and a negative one of a store."""
    tensor, image = make_inputs(TILE, 3)
    reports = _faulty(emulator, lambda: device.store(replace(TILE, at=at), tensor, image))
    assert "tensormap_invalid" in kinds(reports)


def test_misaligned_destination(emulator: Runtime, device: TensorDevice) -> None:
    tensor, image = make_inputs(TILE, 3)
    reports = _faulty(emulator, lambda: device.load(replace(TILE, shared=64), tensor, image))
    assert "misaligned_access" in kinds(reports)


def test_refused_map_is_an_error_of_the_test(device: TensorDevice) -> None:
    with pytest.raises(TensorMapError):
        device.encode(replace(TILE, box=(32, 300, 4)), 256)
