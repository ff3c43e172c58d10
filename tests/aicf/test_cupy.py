"""Frozen ops on CuPy's arrays."""

from __future__ import annotations

import pytest

import aicf.ops
from device import Device

pytestmark = pytest.mark.gpu


def test_arrays_in_arrays_out_on_the_current_stream(cuda_device: Device) -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed here: pip install cupy-cuda13x")
    x = cupy.random.standard_normal((128, 1000), dtype=cupy.float32)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.get_current_stream().synchronize()
    with stream:
        for _ in range(2):
            y = aicf.ops.softmax(x)
    stream.synchronize()
    assert isinstance(y, cupy.ndarray)
    e = cupy.exp(x - x.max(axis=1, keepdims=True))
    assert float(abs(y - e / e.sum(axis=1, keepdims=True)).max()) < 1e-6
