"""Fixtures of several of the workbench's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.records.database import Records


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Records]:
    """An empty database, which is the one that ``AICF_RECORDS_URL`` names."""
    url = f"sqlite:///{tmp_path / 'own.sqlite'}"
    monkeypatch.setenv("AICF_RECORDS_URL", url)
    found = Records(url)
    yield found
    found.close()
