"""Fixtures of several of the workbench's tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.records.database import Records


@pytest.fixture(scope="session")
def empty_records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty database: all migrations of another would take as long as many a test."""
    path = tmp_path_factory.mktemp("records") / "empty.sqlite"
    Records(f"sqlite:///{path}").close()
    return path


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_records: Path) -> Iterator[Records]:
    """An empty database, which is the one that ``AICF_RECORDS_URL`` names."""
    path = tmp_path / "own.sqlite"
    shutil.copyfile(empty_records, path)
    url = f"sqlite:///{path}"
    monkeypatch.setenv("AICF_RECORDS_URL", url)
    found = Records(url)
    yield found
    found.close()
