"""docs/workbench.md: its kernels are written as files, and its Python runs from top to bottom."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "workbench.md"
BLOCK = re.compile(r"^```(python|c\+\+ title=\"(\S+)\")\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_the_page_runs_as_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AICF_RECORDS_URL", f"sqlite:///{tmp_path / 'records.sqlite'}")
    monkeypatch.setenv("AICF_DEVICE", "emulated")
    space: dict[str, object] = {"ops_dir": tmp_path / "ops"}
    blocks = BLOCK.findall(PAGE.read_text())
    assert len(blocks) >= 4
    for number, (_, name, text) in enumerate(blocks):
        if name:
            Path(name).write_text(text)
            continue
        # A file, since a function's source is read from there.
        path = tmp_path / f"block{number}.py"
        path.write_text(text)
        exec(compile(text, str(path), "exec"), space)
    said = capsys.readouterr().out
    assert "unknown variant" in said or "tilde" in said, "the error that the page shows"
    assert said.count("passed") == 3 and "no time was measured" in said
    assert "row_sums/threads" in said
    assert (tmp_path / "ops" / "row_sums" / "op.py").is_file()
