"""The framework's extension is compiled when it is first needed, or it is said what is missing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from aicf.ops.extension import build_extension
from device import UnavailableError


def test_the_extension_without_a_compiler_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(UnavailableError, match=r"compiled once by g\+\+.*apt-get install g\+\+"):
        build_extension(tmp_path)
