"""Memory of work on the default stream: what is freed is used again, unless somebody may still use it elsewhere."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from device import Device, DeviceError
from device.cudart import ERROR_MEMORY_ALLOCATION, Cudart
from device.layout import find_row_major
from device.pool import Pool, find_class
from device.runtime import RuntimeDevice

LAYOUT = find_row_major((100,), np.dtype(np.float32))


@pytest.fixture
def runtime(device: Device, little_garbage: None) -> Iterator[RuntimeDevice]:
    """The device, with an empty pool that keeps memory."""
    assert isinstance(device, RuntimeDevice)
    gc.collect()
    if device.observer is not None:
        assert device.observer.enabled()[0] == ()
    device.pool.trim()
    yield device
    device.pool.trim()


@given(st.integers(1, 1 << 40))
def test_a_class_holds_a_size_and_wastes_less_than_a_quarter(size: int) -> None:
    found = find_class(size)
    assert found % 512 == 0
    assert found == find_class(found)
    assert size <= found <= max(512, size * 5 // 4 + 512)


def test_freed_memory_is_used_again(runtime: RuntimeDevice) -> None:
    first = runtime.empty_queued(LAYOUT)
    at = first.queued_address
    del first
    assert runtime.pool.kept_bytes == 512
    again = runtime.empty_queued(find_row_major((128,), np.dtype(np.float32)))
    assert (again.queued_address, runtime.pool.kept_bytes) == (at, 0)


def test_an_array_holds_its_memory_through_views(runtime: RuntimeDevice) -> None:
    first = runtime.empty_queued(LAYOUT)
    first.copy_from_host(np.arange(100, dtype=np.float32))
    view = first.reshaped(find_row_major((10, 10), np.dtype(np.float32)))
    del first
    assert runtime.empty_queued(LAYOUT).queued_address != view.queued_address
    np.testing.assert_array_equal(view.copy_to_host(), np.arange(100, dtype=np.float32).reshape(10, 10))


def test_copies_to_and_from_the_host_lend_nothing(runtime: RuntimeDevice) -> None:
    array = runtime.empty_queued(LAYOUT)
    array.copy_from_host(np.ones(100, np.float32))
    assert array.copy_to_host().sum() == 100
    assert array.buffer.read(0, 4).view(np.float32)[0] == 1
    assert not array.buffer.is_lent


@pytest.mark.parametrize("of_buffer", [False, True])
def test_memory_whose_address_somebody_has_goes_back_to_the_device(runtime: RuntimeDevice, of_buffer: bool) -> None:
    array = runtime.empty_queued(LAYOUT)
    assert (array.buffer.address if of_buffer else array.address) == array.queued_address
    del array
    assert runtime.pool.kept_bytes == 0


def test_a_pool_keeps_no_more_than_it_may(runtime: RuntimeDevice) -> None:
    size = 2 << 20
    pool = Pool(runtime.cudart, limit_bytes=2 * size)
    blocks = [pool.take(size) for _ in range(3)]
    for address, taken in blocks:
        pool.give(address, taken, False)
    assert pool.kept_bytes == 2 * size
    pool.trim()
    assert pool.kept_bytes == 0


def test_threads_share_no_block(runtime: RuntimeDevice) -> None:
    pool = Pool(runtime.cudart, limit_bytes=1 << 20)
    held: set[int] = set()

    def work(_: int) -> None:
        for _ in range(500):
            address, size = pool.take(512)
            assert address not in held
            held.add(address)
            held.remove(address)
            pool.give(address, size, False)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    assert 512 <= pool.kept_bytes <= 4 * 512
    pool.trim()


def test_a_freed_block_is_refused(runtime: RuntimeDevice) -> None:
    block = runtime.allocate_queued(64)
    block.free()
    block.free()
    with pytest.raises(DeviceError, match="freed"):
        block.read()
    assert runtime.pool.kept_bytes == 512


class _FullDevice(Cudart):
    """A runtime whose memory is enough for so many allocations."""

    def __init__(self, room: int) -> None:
        self.room = room

    def create_handle(self, name: str, *args: object) -> int:
        if self.room == 0:
            raise DeviceError(f"{name}: out of memory", ERROR_MEMORY_ALLOCATION)
        self.room -= 1
        return 4096 * (self.room + 1)

    def call_quietly(self, name: str, *args: object) -> None:
        assert name == "cudaFree"
        self.room += 1


def test_where_memory_runs_out_what_is_kept_is_given_back() -> None:
    pool = Pool(_FullDevice(2), limit_bytes=1 << 20)
    blocks = [pool.take(512) for _ in range(2)]
    with pytest.raises(DeviceError, match="out of memory"):
        pool.take(512)
    pool.give(*blocks[0], False)
    assert pool.take(4096)[1] == 4096
    assert pool.kept_bytes == 0


def test_an_address_that_is_asked_for_during_a_copy_is_lent(runtime: RuntimeDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    block = runtime.allocate_queued(64)
    call = runtime.cudart.call

    def copy_while_another_thread_asks(name: str, *args: object) -> None:
        call(name, *args)
        assert block.address == block.queued_address

    monkeypatch.setattr(runtime.cudart, "call", copy_while_another_thread_asks)
    block.read()
    assert block.is_lent


def test_a_block_of_no_class_is_not_kept(runtime: RuntimeDevice) -> None:
    pool = Pool(runtime.cudart, limit_bytes=1 << 20)
    pool.keep(False)
    address, size = pool.take(400)
    pool.keep(True)
    pool.give(address, size, False)
    assert pool.kept_bytes == 0


def test_checks_see_each_allocation(runtime: RuntimeDevice) -> None:
    observer = runtime.observer
    if observer is None:
        pytest.skip("a GPU has no checks")
    runtime.empty_queued(LAYOUT)
    assert runtime.pool.kept_bytes == 512
    observer.enable(("memcheck",), counters=False)
    try:
        assert runtime.pool.kept_bytes == 0
        array = runtime.empty_queued(LAYOUT)
        at = array.queued_address
        assert any((a["address"], a["size_bytes"]) == (at, 400) for a in observer.list_allocations())
        del array
        assert not any(a["address"] == at for a in observer.list_allocations())
    finally:
        observer.enable((), counters=False)
