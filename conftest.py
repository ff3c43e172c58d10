"""What every test run of the project has: the workbench's fixtures, and the tests marked slow only where they are asked for.

``AICF_DEVICE`` chooses the device of the run: ``make test`` on a machine with a GPU is the test of the GPU, and
``AICF_DEVICE=emulated make test`` there tests the emulated device.
"""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import settings

from device import Device
from device.settings import SettingError, require_own_checkout
from harness.verify.plan import Effort

# What the fast tests prove, in flops or bytes moved of a problem.
FAST_LISTED_FLOPS = 1e6
FAST_EXTRA_FLOPS = 2e4
FAST_HIDDEN_FLOPS = 2e5
# What the slow ones prove on the emulated device: all that is listed, and on small problems what does not depend on size, which are values
# other than normal ones. `verify` and `promote` prove both.
SLOW_EXTRA_FLOPS = 2e5
SLOW_HIDDEN_FLOPS = 4e6
FAST_EXAMPLES = 25
# A slow test takes about as long as so many others.
SLOW_AS_MANY = 200

pytest_plugins = ["harness.pytest_plugin"]

# How long an example takes says how busy the machine is.
# What the continuous integration says of a commit is the same each time; elsewhere examples are drawn afresh.
settings.register_profile("aicf", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("aicf")

try:
    require_own_checkout()
except SettingError as error:
    raise pytest.UsageError(str(error)) from None


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--slow`` runs the tests that are left out otherwise, because they take half a minute or more."""
    parser.addoption("--slow", action="store_true", help="run the tests marked slow too")


@pytest.fixture(scope="session")
def thin(pytestconfig: pytest.Config, device: Device) -> Callable[[Effort], Effort]:
    """Make of a proof's effort what the tests spend on the emulated device: the other distributions on small problems alone.

    Without ``--slow`` the problems are small too. On a GPU the effort is as it was asked for.
    """
    if device.observer is None:
        return lambda effort: effort
    most = {"max_extra_flops": SLOW_EXTRA_FLOPS, "max_hidden_flops": SLOW_HIDDEN_FLOPS}
    if not pytestconfig.getoption("--slow"):
        most = {"max_listed_flops": FAST_LISTED_FLOPS, "max_extra_flops": FAST_EXTRA_FLOPS, "max_hidden_flops": FAST_HIDDEN_FLOPS}
    return lambda effort: replace(effort, **{name: min(getattr(effort, name), flops) for name, flops in most.items()})


@pytest.fixture(scope="session")
def by_tier(pytestconfig: pytest.Config) -> Callable[[int, int], int]:
    """Choose how much of something a test does: the first number in the fast tests, the second with ``--slow``."""
    is_slow = pytestconfig.getoption("--slow")
    return lambda fast, slow: slow if is_slow else fast


@pytest.fixture(scope="module")
def little_garbage() -> Iterator[None]:
    """Have collections of garbage look only at what this file's tests make: all that a run holds by then takes them a second each."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def _is_slow(item: pytest.Item) -> bool:
    """Say whether a test is marked slow, or is about a kernel that is not among the ``FAST_KERNELS`` of its file."""
    fast = getattr(getattr(item, "module", None), "FAST_KERNELS", None)
    kernel = item.callspec.params.get("kernel") if isinstance(item, pytest.Function) and hasattr(item, "callspec") else None
    return item.get_closest_marker("slow") is not None or (fast is not None and kernel is not None and kernel not in fast)


def pytest_configure(config: pytest.Config) -> None:
    """Search less for counter-examples in the fast tests, where a test does not say how much."""
    settings.register_profile("fast", settings.get_profile("aicf"), max_examples=FAST_EXAMPLES)
    if not config.getoption("--slow"):
        settings.load_profile("fast")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip the slow tests, unless asked for, and begin with the files that have most to do.

    Workers take file by file (`make test` keeps this order): one that had several slow tests left would be alone with them at the end.
    """
    is_slow_run, work = config.getoption("--slow"), Counter[Path]()
    for item in items:
        is_slow = _is_slow(item)
        if is_slow and not is_slow_run:
            item.add_marker(pytest.mark.skip(reason="slow: run with --slow"))
        work[item.path] += SLOW_AS_MANY if is_slow and is_slow_run else 1
    items.sort(key=lambda item: (-work[item.path], item.path))
