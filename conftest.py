"""What every test run of the project has: the workbench's fixtures, and the tests marked slow only where they are asked for.

``AICF_DEVICE`` chooses the device of the run: ``make test`` on a machine with a GPU is the test of the GPU, and
``AICF_DEVICE=emulated make test`` there tests the emulated device.
"""

from __future__ import annotations

import pytest

from device.settings import SettingError, require_own_checkout

pytest_plugins = ["harness.pytest_plugin"]

try:
    require_own_checkout()
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
