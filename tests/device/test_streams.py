"""Streams, events, capture and graphs, with real kernels."""

from __future__ import annotations

import gc
import math
import weakref

import numpy as np
import pytest

from device import Device, DeviceError
from device.cuda import share_stream

from .conftest import Kernels

NUM = 1000


def test_work_in_a_stream_runs_in_order(device: Device, kernels: Kernels) -> None:
    stream = device.create_stream()
    array = device.empty((NUM,))
    kernels.call("launch_fill", array.address, 3.0, NUM, stream.handle)
    kernels.call("launch_scale", array.address, 2.0, NUM, stream.handle)
    stream.synchronize()
    np.testing.assert_array_equal(array.copy_to_host(), np.full(NUM, 7.0, np.float32))


def test_a_kernel_leaves_what_lies_behind_its_range_alone(device: Device, kernels: Kernels) -> None:
    stream = device.create_stream()
    array = device.asarray(np.full(NUM, -1.0, np.float32))
    kernels.call("launch_fill", array.address, 5.0, NUM - 3, stream.handle)
    stream.synchronize()
    np.testing.assert_array_equal(array.copy_to_host(), [5.0] * (NUM - 3) + [-1.0] * 3)


def test_an_event_orders_two_streams(device: Device, kernels: Kernels) -> None:
    first, second = device.create_stream(), device.create_stream(non_blocking=False)
    assert first.handle != second.handle
    done = device.create_event(timing=False)
    array = device.empty((NUM,))
    kernels.call("launch_fill", array.address, 1.0, NUM, first.handle)
    first.record(done)
    second.wait(done)
    kernels.call("launch_scale", array.address, 4.0, NUM, second.handle)
    second.synchronize()
    assert (array.copy_to_host() == 5.0).all()


def test_events_measure_a_time_that_is_not_negative(device: Device, kernels: Kernels) -> None:
    stream, begin, end = device.create_stream(), device.create_event(), device.create_event()
    array = device.empty((NUM,))
    stream.record(begin)
    kernels.call("launch_fill", array.address, 1.0, NUM, stream.handle)
    stream.record(end)
    end.synchronize()
    elapsed = end.elapsed_us(begin)
    assert math.isfinite(elapsed)
    assert 0.0 <= elapsed < 60e6


def test_an_event_without_timing_has_no_time(device: Device) -> None:
    stream, begin, end = device.create_stream(), device.create_event(timing=False), device.create_event(timing=False)
    stream.record(begin)
    stream.record(end)
    stream.synchronize()
    with pytest.raises(DeviceError, match="cudaEventElapsedTime"):
        end.elapsed_us(begin)


def test_a_capture_runs_nothing_and_a_replay_runs_it(device: Device, kernels: Kernels) -> None:
    stream = device.create_stream()
    array = device.asarray(np.zeros(NUM, np.float32))
    with device.capture(stream) as graphs:
        kernels.call("launch_scale", array.address, 2.0, NUM, stream.handle)
        assert graphs == []
    (graph,) = graphs
    assert (array.copy_to_host() == 0.0).all()
    for _ in range(3):
        graph.launch(stream)
    stream.synchronize()
    assert (array.copy_to_host() == 7.0).all()


def test_a_graph_lists_its_kernels(device: Device, kernels: Kernels) -> None:
    stream = device.create_stream()
    array = device.empty((NUM,))
    with device.capture(stream) as graphs:
        kernels.call("queue_zero_fill", array.address, 4 * NUM, stream.handle)
        kernels.call("launch_fill", array.address, 2.0, NUM, stream.handle)
        kernels.call("launch_reverse", array.address, 96, 1, stream.handle)
    (graph,) = graphs
    assert graph.num_nodes == 3
    fill, reverse = graph.kernel_nodes
    assert "fill_kernel" in fill.name
    assert (fill.grid, fill.block, fill.dynamic_shared_bytes) == ((8, 1, 1), (128, 1, 1), 0)
    assert "reverse_kernel" in reverse.name
    assert (reverse.grid, reverse.block, reverse.dynamic_shared_bytes) == ((1, 1, 1), (96, 1, 1), 384)


def test_an_empty_capture_is_an_empty_graph(device: Device) -> None:
    stream = device.create_stream()
    with device.capture(stream) as graphs:
        pass
    assert (graphs[0].num_nodes, graphs[0].kernel_nodes) == (0, ())
    graphs[0].launch(stream)
    stream.synchronize()


def test_work_outside_the_captured_stream_is_not_in_the_graph(device: Device, kernels: Kernels) -> None:
    stream, other = device.create_stream(), device.create_stream()
    array = device.asarray(np.zeros(NUM, np.float32))
    with device.capture(stream) as graphs:
        kernels.call("launch_fill", array.address, 9.0, NUM, other.handle)
    other.synchronize()
    assert graphs[0].num_nodes == 0
    assert (array.copy_to_host() == 9.0).all()


def test_a_call_that_breaks_the_capture_is_an_error(device: Device, kernels: Kernels) -> None:
    stream = device.create_stream()
    with pytest.raises(DeviceError) as caught, device.capture(stream):
        assert kernels.attempt("synchronize_device") == 900
    assert caught.value.code == 901
    device.take_last_error()
    _expect_a_usable_stream(device, kernels)


def test_an_exception_in_the_block_ends_the_capture_and_goes_on(device: Device, kernels: Kernels) -> None:
    stream = device.create_stream()
    with pytest.raises(KeyError, match="mine"), device.capture(stream):
        raise KeyError("mine")
    with device.capture(stream) as graphs:
        pass
    assert len(graphs) == 1
    _expect_a_usable_stream(device, kernels)


def test_a_second_capture_of_the_same_stream_is_refused(device: Device, kernels: Kernels) -> None:
    stream = device.create_stream()
    with pytest.raises(DeviceError, match="cudaStreamBeginCapture"), device.capture(stream), device.capture(stream):
        pass
    device.take_last_error()
    _expect_a_usable_stream(device, kernels)


def test_a_launch_that_cannot_be_is_the_last_error_once(device: Device, kernels: Kernels) -> None:
    stream = device.create_stream()
    array = device.empty((NUM,))
    invalid_value = 1  # what CUDA 13 answers to a block of 2048 threads; earlier ones said 9 (invalid configuration)
    assert kernels.attempt("launch_too_wide", array.address, stream.handle) == invalid_value
    assert device.take_last_error() == (0, "no error")
    _expect_a_usable_stream(device, kernels)


def _expect_a_usable_stream(device: Device, kernels: Kernels) -> None:
    stream = device.create_stream()
    array = device.empty((NUM,))
    kernels.call("launch_fill", array.address, 1.5, NUM, stream.handle)
    stream.synchronize()
    device.synchronize()
    assert (array.copy_to_host() == 1.5).all()


@pytest.mark.gpu
def test_a_graph_knows_kernels_that_another_library_loaded(cuda_device: Device) -> None:
    cupy = pytest.importorskip("cupy")
    kernel = cupy.RawKernel('extern "C" __global__ void mark(int* at) { at[threadIdx.x] = 7; }', "mark")
    at = cupy.zeros(32, cupy.int32)
    stream = cuda_device.create_stream()
    with cuda_device.capture(stream) as graphs, share_stream(stream.handle):
        kernel((1,), (32,), (at,))
    (node,) = graphs[0].kernel_nodes
    assert (node.name, node.grid, node.block) == ("mark", (1, 1, 1), (32, 1, 1))
    graphs[0].launch(stream)
    stream.synchronize()
    assert (at.get() == 7).all()


def test_a_capture_is_not_ended_by_garbage(device: Device, kernels: Kernels) -> None:
    """A buffer in a cycle becomes free whenever Python looks for cycles, and freeing is no call that a capture may hold."""
    stream, array = device.create_stream(), device.asarray(np.zeros(NUM, np.float32))
    lost: dict[str, object] = {"buffer": device.allocate(1 << 20)}
    lost["itself"] = lost
    freed = weakref.ref(lost["buffer"])
    before = gc.get_threshold()
    try:
        with device.capture(stream) as graphs:
            del lost
            gc.set_threshold(1, 1, 1)
            kernels.call("launch_fill", array.address, 3.0, NUM, stream.handle)
            kept = [[i] for i in range(100)]
            assert freed() is not None and len(kept) == 100
    finally:
        gc.set_threshold(*before)
    assert gc.isenabled()
    gc.collect()
    assert freed() is None
    graphs[0].launch(stream)
    stream.synchronize()
    np.testing.assert_array_equal(array.copy_to_host(), np.full(NUM, 3.0, np.float32))
