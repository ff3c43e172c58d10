"""Fixtures of the lean path's tests."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aicf.ops.extension import load_extension
from tests.aicf.lean_stub import FakeSpace, Stub, compile_c, load_fakes, register_fakes


@pytest.fixture(scope="session")
def fake_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c("fake_tensors.c", tmp_path_factory.mktemp("fakes"))


@pytest.fixture(scope="session")
def fake_space(fake_library: Path, tmp_path_factory: pytest.TempPathFactory) -> FakeSpace:
    """One type for all tests: types stay registered."""
    fakes = load_fakes(fake_library, tmp_path_factory.mktemp("space"))
    return FakeSpace(fakes, register_fakes(fakes))


@pytest.fixture
def fakes(fake_space: FakeSpace, stub: Stub, little_garbage: None) -> Iterator[FakeSpace]:
    """Fake tensors, honest and on the default stream at first; none is left when the test is over."""
    module: Any = fake_space.fakes
    before = module.count_alive()
    yield fake_space
    module.tell(0)
    module.set_stream(0)
    module.set_grad_enabled(True)
    stub.forget()
    gc.collect()
    assert module.count_alive() == before


@pytest.fixture(scope="session")
def stub_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c("stub_launch.c", tmp_path_factory.mktemp("stub"))


@pytest.fixture
def stub(stub_library: Path) -> Stub:
    return Stub(stub_library)


@pytest.fixture
def torch() -> Any:
    found = pytest.importorskip("torch", reason="PyTorch is not installed here: pip install torch")
    known = load_extension().register_type(found.Tensor, is_tracked="requires_grad", is_tracking=found.is_grad_enabled)
    if not known:
        pytest.skip(f"PyTorch {found.__version__} has no __dlpack_c_exchange_api__: 2.10 does")
    return found
