"""The lane-arithmetic library, compiled as the engine compiles it."""

from __future__ import annotations

import pytest

from tests.emulator.arith.support import LIBRARY, Lanes, build_library
from tests.sharing import make_once


@pytest.fixture(scope="session")
def built() -> dict[str, Lanes]:
    """Libraries compiled so far, by ``-march``."""
    return {}


@pytest.fixture(scope="session", params=["native"])
def lanes(request: pytest.FixtureRequest, built: dict[str, Lanes], tmp_path_factory: pytest.TempPathFactory) -> Lanes:
    """The library for this machine; a module may ask for other levels by indirect parametrisation."""
    march: str = request.param
    if march not in built:
        folder = make_once(tmp_path_factory, f"arith-{march}", lambda folder: build_library(march, folder))
        built[march] = Lanes(folder / LIBRARY)
    return built[march]
