"""The lane-arithmetic library, compiled as the engine compiles it."""

from __future__ import annotations

import pytest

from tests.emulator.arith.support import Lanes, build_library


@pytest.fixture(scope="session")
def built() -> dict[str, Lanes]:
    """Libraries compiled so far, by ``-march``."""
    return {}


@pytest.fixture(scope="session", params=["native"])
def lanes(request: pytest.FixtureRequest, built: dict[str, Lanes], tmp_path_factory: pytest.TempPathFactory) -> Lanes:
    """The library for this machine; a module may ask for other levels by indirect parametrisation."""
    march: str = request.param
    if march not in built:
        built[march] = build_library(march, tmp_path_factory.mktemp(march))
    return built[march]
