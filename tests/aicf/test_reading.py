"""What is wrong in the frozen set is found when it is read, and named by file and field."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aicf.errors import FrozenError
from aicf.registry import HwCaps, Problem, Registry
from aicf.registry.reading import find_frozen_dir, hash_value, list_ops, read_op
from tests.freezing.frozen_sets import OP, write_frozen_set

KERNEL = "plain__threads32__00000001"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    frozen = write_frozen_set(tmp_path_factory.mktemp("written"))
    shutil.copytree(find_frozen_dir() / "schema", frozen / "schema")
    return frozen


@pytest.fixture
def frozen_dir(written: Path, tmp_path: Path) -> Path:
    shutil.copytree(written, tmp_path / "frozen")
    return tmp_path / "frozen"


def edit_manifest(frozen_dir: Path, change: Callable[[dict[str, Any]], Any], *, seal: bool = True) -> None:
    """Change a manifest; sealed anew, also in the index, it differs in nothing but the change."""
    path = frozen_dir / OP / KERNEL / "manifest.json"
    manifest = json.loads(path.read_text())
    old = manifest["seal"]
    change(manifest)
    if seal:
        manifest["seal"] = hash_value({k: v for k, v in manifest.items() if k != "seal"})
        index = frozen_dir / OP / "index.jsonl"
        index.write_text(index.read_text().replace(old, manifest["seal"]))
    path.write_text(json.dumps(manifest))


def edit_row(frozen_dir: Path, kind: str, change: Callable[[dict[str, Any]], Any]) -> None:
    index = frozen_dir / OP / "index.jsonl"
    rows = [json.loads(line) for line in index.read_text().splitlines()]
    change(next(row for row in rows if row["kind"] == kind))
    index.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_whole_set_is_read(frozen_dir: Path) -> None:
    op = read_op(OP, frozen_dir)
    assert list(op.kernels) == [KERNEL, "plain__threads64__00000002"]
    assert [m["median_us"] for m in op.medians] == [2.5, 2.5]
    assert Registry(frozen_dir).select(OP, Problem({"n": 64}), HwCaps(9, 0)).kernel == KERNEL


def test_the_projects_own_set_is_read() -> None:
    assert list_ops()
    for op in list_ops():
        assert read_op(op).kernels


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.pop("domain"), r"manifest.json: 'domain' is a required property"),
        (lambda m: m["prior"].update(slots=0), r"manifest.json: prior/slots: 0 is less than the minimum of 1"),
        (lambda m: m["domain"].append({"size": "n"}), r"manifest.json: domain/2: "),
        (lambda m: m.update(schema=2), r"manifest.json: schema: is of format 2, and this version reads format 1"),
        (
            lambda m: m.update(kernel="plain__threads32__00000009"),
            r"manifest.json: kernel: it says that it is of tiny/plain__threads32__0+9",
        ),
        (lambda m: m.update(interface="0" * 64), r"manifest.json: interface: it is not the C interface that index.jsonl describes"),
    ],
)
def test_a_manifest_is_held_against_schema_name_and_interface(frozen_dir: Path, change: Any, message: str) -> None:
    edit_manifest(frozen_dir, change)
    with pytest.raises(FrozenError, match=rf"{KERNEL}/{message}"):
        read_op(OP, frozen_dir)


def test_a_manifest_that_was_edited_is_not_what_was_sealed(frozen_dir: Path) -> None:
    edit_manifest(frozen_dir, lambda m: m.update(deterministic=False), seal=False)
    with pytest.raises(FrozenError, match=r"manifest.json: seal: the manifest is not what was sealed"):
        read_op(OP, frozen_dir)


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("median", lambda r: r.update(median_us=0), r"index.jsonl: line \d: median_us: 0 is less than or equal to the minimum of 0"),
        ("entry", lambda r: r["bucket"].pop("arch"), r"index.jsonl: line \d: bucket: 'arch' is a required property"),
        ("entry", lambda r: r.update(role="best"), r"index.jsonl: line \d: role: 'best' is not one of"),
        ("entry", lambda r: r.update(kind="note"), r"index.jsonl: line \d: kind: must be one of op, entry, median, survey, is 'note'"),
        ("op", lambda r: r.update(op="other"), r"index.jsonl: must have one line of kind op, for tiny"),
        ("op", lambda r: r.update(schema=9), r"index.jsonl: line \d: schema: is of format 9"),
    ],
)
def test_a_line_of_the_index_is_held_against_its_schema(frozen_dir: Path, kind: str, change: Any, message: str) -> None:
    edit_row(frozen_dir, kind, change)
    with pytest.raises(FrozenError, match=message):
        read_op(OP, frozen_dir)


def test_what_is_missing_or_no_json_is_named(frozen_dir: Path) -> None:
    with pytest.raises(FrozenError, match=r"op 'conv' is not frozen; there are: tiny"):
        read_op("conv", frozen_dir)
    index = frozen_dir / OP / "index.jsonl"
    index.write_text(index.read_text() + "{\n")
    with pytest.raises(FrozenError, match=r"index.jsonl: line \d: is no JSON"):
        read_op(OP, frozen_dir)
    index.write_text(index.read_text().removesuffix("{\n"))
    (frozen_dir / OP / KERNEL / "manifest.json").unlink()
    with pytest.raises(FrozenError, match=rf"{KERNEL}/manifest.json: cannot be read: .*the index names this kernel"):
        read_op(OP, frozen_dir)


def test_missing_schemas_are_named(frozen_dir: Path) -> None:
    (frozen_dir / "schema" / "index.schema.json").unlink()
    with pytest.raises(FrozenError, match=r"schema: the schemas cannot be read"):
        read_op(OP, frozen_dir)
