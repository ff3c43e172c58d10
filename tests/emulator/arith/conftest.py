"""The lane-arithmetic library, compiled as the engine compiles it."""

from __future__ import annotations

import pytest

from tests.emulator.arith.support import Lanes, build_library


@pytest.fixture(scope="session", params=["native"])
def lanes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Lanes:
    """The library for this machine; `test_every_level` modules also take it for the oldest level, which has no fused multiply-add."""
    return build_library(request.param, tmp_path_factory.mktemp(request.param))
