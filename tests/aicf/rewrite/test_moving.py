"""Units that move in device memory have the bits of those that move on the host; nothing goes through the host, and nothing is compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aicf import Tensor
from aicf.backends.cuda import CudaBackend
from aicf.rewrite import moving
from aicf.rewrite.records import Map
from contract.building import NotBuiltError, find_or_build, list_compiled, without_compiler
from device import Device

RNG = np.random.default_rng(0)


def draw_map(shape: tuple[int, ...], dim: int, units: int) -> Map:
    index = RNG.integers(0, shape[dim], units)
    counts = np.bincount(index, minlength=shape[dim])
    return Map("w", dim, tuple(index.tolist()), tuple((1.0 / counts[index]).tolist()))


@pytest.mark.parametrize(
    ("shape", "dim", "units"), [((12, 20), 0, 31), ((12, 20), 1, 33), ((7,), 0, 12), ((5, 1), 1, 3), ((1, 6), 0, 4), ((40, 9), 0, 3)]
)
def test_a_device_moves_units_with_the_bits_of_the_host(
    device: Device, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], dim: int, units: int
) -> None:
    values, mapping = RNG.normal(size=shape).astype(np.float32), draw_map(shape, dim, units)
    held = Tensor(values, backend="cuda")
    moving.Mover(mapping).take(held, mapping.scale_p)  # whatever is not in the cache is built

    def refuse(*args: Any) -> None:
        raise AssertionError("values went to the host")

    before = list_compiled()
    for factors in (None, mapping.scale_p):
        with monkeypatch.context() as patch:
            patch.setattr(CudaBackend, "to_host", refuse)
            made = moving.Mover(mapping).take(held, factors)
        assert made.backend.name == "cuda"
        expected = moving.take(values, mapping, factors)
        assert made.shape == expected.shape and made.numpy().tobytes() == expected.tobytes()
    assert list_compiled() == before


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_what_no_kernel_moves_goes_through_the_host(device: Device, dtype: str) -> None:
    values, mapping = RNG.normal(size=(4, 6)).astype(dtype), draw_map((4, 6), 1, 9)
    made = moving.Mover(mapping).take(Tensor(values, backend="cuda"), mapping.scale_p)
    assert made.backend.name == "numpy" and made.numpy().tobytes() == moving.take(values, mapping, mapping.scale_p).tobytes()


def test_without_kernels_in_the_cache_it_goes_through_the_host_and_says_so(
    device: Device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise NotBuiltError("embedding/x is not in the cache")

    monkeypatch.setattr(moving.Mover, "_take_there", refuse)
    values, mapping = RNG.normal(size=(4, 6)).astype(np.float32), draw_map((4, 6), 0, 9)
    made = moving.Mover(mapping).take(Tensor(values, backend="cuda"), None)
    np.testing.assert_array_equal(made.numpy(), moving.take(values, mapping, None))
    assert "w goes through host memory: embedding/x is not in the cache" in caplog.text


def test_the_compiler_is_barred_in_a_block_only(tmp_path: Any) -> None:
    class Kernel:
        op, name = "tiny", "one"

    with without_compiler(), without_compiler(), pytest.raises(NotBuiltError, match="tiny/one is not in the cache"):
        find_or_build(tmp_path / "x", Kernel(), lambda *_: None)  # type: ignore[arg-type]
    with pytest.raises(AttributeError, match=r"flags|manifest|source"):  # the compiler is asked, and the stand-in has nothing to compile
        find_or_build(tmp_path / "x", Kernel(), lambda *_: None)  # type: ignore[arg-type]


def test_indices_and_factors_of_a_map_are_brought_to_the_device_once(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    brought: list[int] = []
    bring = CudaBackend.from_host

    def note(backend: CudaBackend, values: Any) -> Any:
        brought.append(values.nbytes)
        return bring(backend, values)

    held, mapping = Tensor(RNG.normal(size=(12, 20)).astype(np.float32), backend="cuda"), draw_map((12, 20), 0, 31)
    mover = moving.Mover(mapping)
    monkeypatch.setattr(CudaBackend, "from_host", note)
    for _ in range(3):
        mover.take(held, None)
    assert brought == [31 * 8]
