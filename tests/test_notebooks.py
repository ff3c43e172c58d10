"""The notebooks: kept without outputs, and each runs from top to bottom on published records, with no GPU and no database."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from harness.discover import find_op

ROOT = Path(__file__).resolve().parents[1]
# Kernels of gemm_bias_act of which no time of a GPU is published.
UNTIMED = frozenset(
    {
        "boxed_evenly",
        "rows",
        "streamk",
        "streamk_tf32",
        "tiny",
        "turned",
        "turned_evenly",
        "turned_evenly_tf32",
        "turned_pingpong",
        "turned_tf32",
    }
)
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def find_leftovers(notebook: Any) -> list[str]:
    """Return what an executed notebook keeps and git should not."""
    cells = [c for c in notebook.cells if c.cell_type == "code"]
    found = [f"cell {c.id}: outputs" for c in cells if c.outputs] + [
        f"cell {c.id}: a number" for c in cells if c.execution_count is not None
    ]
    found += [f"cell {c.id}: metadata" for c in notebook.cells if c.metadata]
    return found + [f"metadata: {key}" for key in notebook.metadata if key not in ("kernelspec", "language_info")]


def execute(notebook: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a notebook's cells in a kernel of this interpreter, which sees this checkout and no records but the published ones."""
    monkeypatch.setenv("AICF_RECORDS_URL", f"sqlite:///{folder / 'empty.sqlite'}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]))
    monkeypatch.setenv("IPYTHONDIR", str(folder / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(folder / "runtime"))
    client = NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    return client.execute()


def test_the_notebooks_are_there() -> None:
    assert [p.stem for p in NOTEBOOKS] == ["compare", "loose_kernel", "model_vs_measured", "plan", "rewriting", "roofline", "tile_sweep"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_is_kept_without_outputs(path: Path) -> None:
    assert find_leftovers(nbformat.read(path, as_version=4)) == []


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
@pytest.mark.filterwarnings("default")
def test_a_notebook_runs_on_published_records(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = execute(nbformat.read(path, as_version=4), tmp_path, monkeypatch)
    outputs = [o for c in done.cells if c.cell_type == "code" for o in c.outputs]
    assert [o.text for o in outputs if o.get("name") == "stderr"] == []
    assert any("image/svg+xml" in o.get("data", {}) for o in outputs), "a notebook shows pictures"
    if path.stem == "loose_kernel":
        check_candidates_are_proved(outputs)
    elif path.stem == "plan":
        check_a_plan_is_shown(outputs)
    elif path.stem == "rewriting":
        check_a_run_is_told(outputs)
    elif path.stem != "model_vs_measured":
        assert any("results published in profiles/" in o.get("text", "") for o in outputs)
    if path.stem == "roofline":
        check_every_kernel_is_drawn(outputs)
    assert find_leftovers(done), "what a run leaves behind is noticed"


def check_candidates_are_proved(outputs: list[Any]) -> None:
    """Check that every candidate of the loose kernel is right, that none of them was timed without a GPU, and that it becomes an op."""
    tables = [o["data"]["text/html"] for o in outputs if "per_thread" in o.get("data", {}).get("text/html", "")]
    assert tables and tables[0].count("<td>passed</td>") == 3
    text = "".join(o.get("text", "") for o in outputs)
    assert "op.py" in text and ("no time was measured" in text or "cold launches on the GPU" in text)


def check_a_plan_is_shown(outputs: list[Any]) -> None:
    """Check that both graphs and the arena are drawn, and that each step has a kernel and an error or a time."""
    assert sum("image/svg+xml" in o.get("data", {}) for o in outputs) == 3
    text = "".join(o.get("text", "") for o in outputs)
    assert "differentiate:" in text and "gemm_backward" in text and ("no time was measured" in text or " us " in text)


def check_a_run_is_told(outputs: list[Any]) -> None:
    """Check that the trajectory was carried over, a rollback was exact, rules were refused, and decisions were made and repeated."""
    text = "".join(o.get("text", "") for o in outputs)
    carried, reset = (float(text.split(f" {words}")[0].rsplit(maxsplit=1)[-1]) for words in ("carried over", "with moments reset"))
    assert carried <= 1e-4 < 1e-2 < reset
    assert "the same losses again: True" in text and "replayed: True" in text and "narrow: step 20, 0 rewrites" in text
    assert text.count(" rewrite Widen ") >= 1 and ("keep" in text or "roll back" in text)
    assert "CrossEntropy" in text and "changes the results by" in text and "rank=65" in text


def check_every_kernel_is_drawn(outputs: list[Any]) -> None:
    """Check that the legend of the roofline has each kernel, but for those that are said to have no time."""
    text = "".join(o.get("text", "") for o in outputs)
    untimed = set(text.split("kernels without a time: ")[1].splitlines()[0].split(", ")) - {"none"}
    picture = next(o["data"]["image/svg+xml"] for o in outputs if "image/svg+xml" in o.get("data", {}))
    drawn = {kernel.name for kernel in find_op("gemm_bias_act").op.kernels if f">{kernel.name}<" in "".join(picture)}
    assert untimed == UNTIMED and drawn == {k.name for k in find_op("gemm_bias_act").op.kernels} - untimed


@pytest.mark.filterwarnings("default")
def test_a_cell_that_fails_fails_the_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    liar = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("from harness import records\nrecords.load('transpose', 'store')")])
    with pytest.raises(CellExecutionError, match="no results of op transpose"):
        execute(liar, tmp_path, monkeypatch)
    assert sys.executable
