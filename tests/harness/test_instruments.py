"""The timing instruments on the device of this test run: they are queued, they hold what comes after them, and they read the clocks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from device import Device
from harness.timing.batches import Mode
from harness.timing.instruments import CudaInstruments, Stamps
from harness.timing.timer import Timer


@pytest.fixture
def tools(device: Device) -> Iterator[CudaInstruments]:
    opened = CudaInstruments(limit_s=0.02)
    yield opened
    opened.close()


def test_stamps_give_time_and_place(device: Device, tools: CudaInstruments) -> None:
    stream = device.create_stream()
    tools.release()
    for i in range(3):
        tools.launch_nothing(stream)
        tools.stamp(stream, i)
    stream.synchronize()
    stamps = tools.read_stamps(3)
    assert (np.diff(stamps.nanoseconds.astype(np.int64)) >= 0).all()
    assert (stamps.sm < device.properties.num_sms).all()
    assert tools.read_clocks_mhz(2).shape == (2,)
    tools.reset_persisting_cache()
    with pytest.raises(ValueError, match="places for stamps"):
        tools.stamp(stream, 5000)


def test_a_hold_that_nobody_releases_ends_by_itself_and_says_so(device: Device, tools: CudaInstruments) -> None:
    stream = device.create_stream()
    ticket = tools.hold(stream)
    tools.stamp(stream, 0)
    stream.synchronize()
    assert tools.has_expired(ticket) and not tools.has_expired(ticket + 1)
    tools.release()


def test_clocks_come_from_neighbours_on_the_same_multiprocessor() -> None:
    stamps = Stamps(
        np.array([1000, 3000, 9000, 9500], np.uint64), np.array([0, 1000, 2000, 2000], np.uint64), np.array([4, 4, 5, 5], np.uint64)
    )
    assert stamps.find_clocks_mhz().tolist() == pytest.approx([2000.0, np.nan, np.nan], nan_ok=True)


@pytest.mark.gpu
def test_a_held_stream_keeps_the_host_out_of_the_samples(cuda_device: Device) -> None:
    """An empty kernel behind an event takes a few microseconds, however long the host needs to queue it."""
    timer = Timer(cuda_device)
    try:
        subject = timer.prepare(timer._tools.launch_nothing, Mode.COLD)
        batch = timer.run_rounds([subject, subject], 8)
        assert 0.5 < np.median(batch.times_us) < 10
        assert 100 < np.nanmedian(batch.clocks_mhz) < 1.05 * cuda_device.properties.clock_khz / 1000
        assert 0.5 < timer.empty_launch_us < 10
    finally:
        timer.close()
