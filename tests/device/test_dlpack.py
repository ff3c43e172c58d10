"""DLPack: who may share memory with whom."""

from __future__ import annotations

import numpy as np
import pytest

from device import Device


def test_numpy_gets_a_host_copy_where_it_asks_for_one(device: Device) -> None:
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    array = device.asarray(values)
    copy = np.from_dlpack(array, device="cpu")
    np.testing.assert_array_equal(copy, values)
    array.copy_from_host(values + 1)
    np.testing.assert_array_equal(copy, values)


def test_emulated_memory_is_not_passed_off_as_anything_else(emulated_device: Device) -> None:
    array = emulated_device.asarray(np.zeros(4, np.float32))
    assert array.__dlpack_device__() == (12, 0)
    with pytest.raises(BufferError, match="host copy"):
        np.from_dlpack(array)
    with pytest.raises(BufferError, match="host copy"):
        array.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="without a copy"):
        array.__dlpack__(dl_device=(1, 0), copy=False)
    with pytest.raises(BufferError, match="no stream"):
        array.__dlpack__(dl_device=(1, 0), stream=1)


@pytest.mark.gpu
def test_cupy_shares_gpu_memory(cuda_device: Device) -> None:
    import cupy

    array = cuda_device.asarray(np.arange(12, dtype=np.float32).reshape(3, 4))
    for shared in (cupy.asarray(array), cupy.from_dlpack(array)):
        assert shared.data.ptr == array.address
        np.testing.assert_array_equal(cupy.asnumpy(shared), array.copy_to_host())
    cupy.asarray(array)[1, 2] = 99.0
    cupy.cuda.Device().synchronize()
    assert array.copy_to_host()[1, 2] == 99.0
