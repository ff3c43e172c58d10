"""What is known to be valid is not checked again, and only that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contract import schemas
from contract.layout import PACKAGED_DIR
from contract.schemas import find_schema_fault, remember_valid


@pytest.fixture
def checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The documents that were held against a schema."""
    found: list[Any] = []
    check = schemas._find_fault

    def note(folder: Path, document: str, value: Any) -> str:
        found.append(value)
        return check(folder, document, value)

    monkeypatch.setattr(schemas, "_find_fault", note)
    monkeypatch.setattr(schemas, "_known", [])
    remember_valid(tmp_path)
    return found


def read_manifest() -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(next((PACKAGED_DIR / "softmax" / "kernels").iterdir()).read_text())
    return manifest


def test_a_valid_document_is_checked_once_also_by_later_processes(checked: list[Any], tmp_path: Path) -> None:
    manifest = read_manifest()
    assert [find_schema_fault("manifest", manifest) for _ in range(3)] == ["", "", ""]
    assert len(checked) == 1
    remember_valid(tmp_path)
    assert find_schema_fault("manifest", manifest) == ""
    assert len(checked) == 1
    (tmp_path / next(tmp_path.iterdir())).unlink()
    remember_valid(tmp_path)
    assert find_schema_fault("manifest", manifest) == ""
    assert len(checked) == 2


def test_what_is_wrong_is_never_known(checked: list[Any]) -> None:
    manifest = read_manifest()
    find_schema_fault("manifest", manifest)
    for wrong in (manifest | {"deterministic": "yes"}, manifest | {"more": 1}):
        assert find_schema_fault("manifest", wrong) != ""
        assert find_schema_fault("manifest", wrong) != ""
    assert find_schema_fault("tree", manifest) != ""  # valid as something else


def test_other_schemas_and_a_cache_that_cannot_be_written_are_no_matter(
    checked: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = read_manifest()
    find_schema_fault("manifest", manifest)
    folder = tmp_path / "schemas"
    folder.mkdir()
    for path in schemas.SCHEMA_DIR.iterdir():
        (folder / path.name).write_text(path.read_text())
    monkeypatch.setattr(schemas, "SCHEMA_DIR", folder)
    find_schema_fault("manifest", manifest)
    assert len(checked) == 2
    (tmp_path / "file").write_text("")
    remember_valid(tmp_path / "file" / "no folder")
    assert find_schema_fault("manifest", manifest) == "" == find_schema_fault("manifest", manifest)
    assert len(checked) == 3
