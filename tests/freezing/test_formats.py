"""An index of a later format, or one that no program wrote, is told as such by both readers of the frozen set."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from aicf.errors import FrozenError as AicfFrozenError
from contract.frozen_set import read_op
from device.settings import find_project_root
from harness.errors import FrozenError
from harness.freezing.store.index import read_frozen_op
from harness.freezing.store.verify import check_op


@pytest.fixture
def frozen_dir(tmp_path: Path) -> Path:
    for name in ("softmax", "schema"):
        shutil.copytree(find_project_root() / "frozen" / name, tmp_path / name)
    return tmp_path


def test_an_index_of_a_later_format_is_recognised_whatever_its_other_lines_say(frozen_dir: Path) -> None:
    index = frozen_dir / "softmax" / "index.jsonl"
    rows = [json.loads(line) for line in index.read_text().splitlines()]
    later = [{"kind": "verdict", "who": "a later version"}, *(r | {"schema": 2} if r["kind"] == "op" else r for r in rows)]
    index.write_text("".join(json.dumps(row) + "\n" for row in later))
    message = "is of format 2, and this version reads format 1: use the version"
    with pytest.raises(FrozenError, match=message):
        read_frozen_op(frozen_dir, "softmax")
    (finding, *_) = check_op(frozen_dir, "softmax")
    assert finding.kind == "schema" and message in finding.detail
    with pytest.raises(AicfFrozenError, match=message):
        read_op("softmax", frozen_dir)


def test_a_deeply_nested_index_is_unreadable_and_no_traceback(frozen_dir: Path) -> None:
    index = frozen_dir / "softmax" / "index.jsonl"
    index.write_text("[" * 100_000 + "\n")
    with pytest.raises(FrozenError, match="line 1: is nested too deeply"):
        read_frozen_op(frozen_dir, "softmax")
    with pytest.raises(AicfFrozenError, match="line 1: is nested too deeply"):
        read_op("softmax", frozen_dir)
