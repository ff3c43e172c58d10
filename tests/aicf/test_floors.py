"""The rooms of ``aicf`` that are data or pure know no device; ``tests/test_import_law.py`` holds the floors."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_import_law import imported_modules

ROOT = Path(__file__).resolve().parents[2] / "aicf"
PURE = ("opset", "ir", "passes", "plan", "modes", "autograd", "nn", "optim", "frontends", "data", "state")
FILES = [path for room in PURE for path in [*ROOT.glob(f"{room}.py"), *sorted(ROOT.glob(f"{room}/**/*.py"))]]


def find_devices(source: str) -> list[str]:
    return [name for _, name in imported_modules(source) if name.split(".")[0] == "device"]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_pure_room_knows_no_device(path: Path) -> None:
    assert find_devices(path.read_text()) == []


def test_every_pure_room_is_there() -> None:
    assert {path.relative_to(ROOT).parts[0].removesuffix(".py") for path in FILES} == set(PURE)


@pytest.mark.parametrize("source", ["from device import open_device", "def f():\n    import device.settings"])
def test_a_liar_is_caught(source: str) -> None:
    assert len(find_devices(source)) == 1
