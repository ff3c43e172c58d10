"""Fixtures that every test of the project and of the ops may use: the device of this test run.

A process has one device, so a test run has one too: ``AICF_DEVICE`` chooses it, and ``make test`` on a machine with a GPU is the test of
the GPU. ``AICF_DEVICE=emulated make test`` there tests the emulated device.
"""

from __future__ import annotations

import pytest

from device import Device, choose_device, open_device
from device.settings import SettingError, require_own_checkout

pytest_plugins = ["harness.pytest_plugin"]

try:
    require_own_checkout()
    CHOICE = choose_device()
except SettingError as error:
    raise pytest.UsageError(str(error)) from None


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--slow`` runs the tests that are left out otherwise, because they take half a minute or more."""
    parser.addoption("--slow", action="store_true", help="run the tests marked slow too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip the tests marked slow, unless asked for."""
    if not config.getoption("--slow"):
        for item in items:
            if item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.skip(reason="slow: run with --slow"))


@pytest.fixture(scope="session", params=[CHOICE.name])
def device() -> Device:
    """The device of this test run; its name is in the test's id."""
    return open_device(CHOICE.name)


@pytest.fixture(scope="session")
def emulated_device() -> Device:
    """The emulated device, for what only it has. It is part of the project: where it cannot be opened, tests fail."""
    if CHOICE.name != "emulated":
        pytest.skip("this test run has a GPU: AICF_DEVICE=emulated tests the emulated device")
    return open_device("emulated")


@pytest.fixture(scope="session")
def cuda_device() -> Device:
    """An NVIDIA GPU, for what only it has."""
    if CHOICE.name != "cuda":
        pytest.skip(f"no GPU in this test run: {CHOICE.reason}")
    return open_device("cuda")
