"""Properties, sanitizer and counters as the rest of the project sees them."""

from __future__ import annotations

import numpy as np
import pytest

from device import Device, Observer
from device.emulated import EmulatorObserver

from .conftest import Kernels


@pytest.fixture
def observer(emulated_device: Device) -> EmulatorObserver:
    found = emulated_device.observer
    assert isinstance(found, EmulatorObserver)
    found.take_reports()
    found.take_counters()
    return found


def test_properties_are_whole(device: Device) -> None:
    facts = device.properties
    assert facts.warp_size == 32
    assert facts.compute_capability >= (8, 0)
    assert facts.runtime_version // 1000 == 13
    assert facts.uuid.startswith("GPU-")
    assert len(facts.uuid) == 40
    for name in ("num_sms", "l2_bytes", "memory_bytes", "clock_khz", "driver_version", "registers_per_sm", "max_threads_per_sm"):
        assert getattr(facts, name) > 0, name
    assert facts.shared_per_block_optin_bytes <= facts.shared_per_sm_bytes
    assert ("emulated" in facts.name.lower()) == device.is_emulated
    assert (device.observer is not None) == device.is_emulated


def test_the_emulated_device_has_the_h200s_numbers(emulated_device: Device) -> None:
    facts = emulated_device.properties
    assert facts.compute_capability == (9, 0)
    assert facts.num_sms == 132
    assert facts.shared_per_block_optin_bytes == 232448
    assert facts.max_threads_per_sm == 2048


def test_checks_and_counters_are_off_at_first_and_back_after_the_block(observer: EmulatorObserver) -> None:
    assert observer.enabled() == ((), False)
    with observer.observe(counters=True):
        assert observer.enabled() == (Observer.CHECKS, True)
        with observer.observe(["racecheck"]):
            assert observer.enabled() == (("racecheck",), False)
        assert observer.enabled() == (Observer.CHECKS, True)
    assert observer.enabled() == ((), False)
    with pytest.raises(KeyError), observer.observe():
        raise KeyError
    assert observer.enabled() == ((), False)


def test_unknown_checks_and_options_are_refused(observer: EmulatorObserver) -> None:
    with pytest.raises(ValueError, match="unknown check speedcheck; there are: memcheck"):
        observer.enable(["speedcheck"], counters=False)
    with pytest.raises(ValueError, match="fast"):
        observer.set_option("schedule", "fast")
    with pytest.raises(ValueError, match="colour"):
        observer.set_option("colour", "red")
    with pytest.raises(ValueError, match="no option 'colour'"):
        observer.get_option("colour")


def test_options_are_kept(observer: EmulatorObserver) -> None:
    before = observer.get_option("schedule")
    observer.set_option("schedule", "reversed")
    assert observer.get_option("schedule") == "reversed"
    observer.set_option("schedule", before)


def test_a_clean_kernel_has_no_findings(emulated_device: Device, observer: EmulatorObserver, kernel_library: object) -> None:
    kernels = Kernels(kernel_library)  # type: ignore[arg-type]
    array, stream = emulated_device.empty((96,)), emulated_device.create_stream()
    with observer.observe():
        kernels.call("launch_reverse", array.address, 96, 1, stream.handle)
        stream.synchronize()
    assert observer.take_reports() == []
    np.testing.assert_array_equal(array.copy_to_host(), np.arange(96, dtype=np.float32)[::-1])


def test_a_race_is_reported_once_with_its_place(emulated_device: Device, observer: EmulatorObserver, kernel_library: object) -> None:
    kernels = Kernels(kernel_library)  # type: ignore[arg-type]
    array, stream = emulated_device.empty((96,)), emulated_device.create_stream()
    with observer.observe(["racecheck"]):
        kernels.call("launch_reverse", array.address, 96, 0, stream.handle)
        stream.synchronize()
    reports = observer.take_reports()
    assert any("race" in report.kind for report in reports)
    report = next(r for r in reports if "race" in r.kind)
    assert "reverse_kernel" in report.kernel
    assert "kernels.cu" in report.source
    assert report.count >= 1
    assert observer.take_reports() == []


def test_counters_count_each_launch(emulated_device: Device, observer: EmulatorObserver, kernel_library: object) -> None:
    kernels = Kernels(kernel_library)  # type: ignore[arg-type]
    array, stream = emulated_device.empty((1000,)), emulated_device.create_stream()
    with observer.observe((), counters=True):
        kernels.call("launch_fill", array.address, 1.0, 1000, stream.handle)
        kernels.call("launch_scale", array.address, 1.0, 1000, stream.handle)
        stream.synchronize()
    kernels.call("launch_fill", array.address, 1.0, 1000, stream.handle)
    stream.synchronize()
    fill, scale = observer.take_counters()
    assert "fill_kernel" in fill.kernel
    assert (fill.grid, fill.block) == ((8, 1, 1), (128, 1, 1))
    assert fill.counts["warps"] == 32
    assert fill.counts["global_store_bytes"] == 4000
    assert fill.counts["global_load_bytes"] == 0
    assert scale.counts["global_load_bytes"] == 4000
    assert observer.take_counters() == []


def test_live_allocations_are_listed(emulated_device: Device, observer: EmulatorObserver) -> None:
    buffer = emulated_device.allocate(12345)
    assert any(a["address"] == buffer.address and a["size_bytes"] == 12345 for a in observer.list_allocations())
    buffer.free()
    assert not any(a["address"] == buffer.address for a in observer.list_allocations())
