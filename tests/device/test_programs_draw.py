"""Programs drawn from a repository: over categories, the same for a seed, with what they name and what is there."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from device.programs.draw import draw_folders, draw_programs, read_categories

LISTING = """# A collection
adam:
  categories: [analysis, ml]
  models: [cuda, hip]
bfs:
  models: [cuda]
  # before its categories
  categories: [graph, other]
fft:
  categories: [signal]
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "collection"
    for name, text in {
        "benchmarks.yaml": LISTING,
        "src/adam-cuda/main.cu": '#include "../bfs-cuda/graph.h"\nint main() {}\n',
        "src/bfs-cuda/main.cu": "int main() {}\n",
        "src/bfs-cuda/graph.h": "#pragma once\n",
        "src/bfs-hip/main.cu": "int main() {}\n",
        "src/fft-cuda/main.cu": "int main() {}\n",
        "src/include/timer.h": "#pragma once\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "src/fft-cuda/data.txt").symlink_to("../include/timer.h")
    for command in (["init", "-q"], ["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "all"]):
        subprocess.run(["git", "-C", str(root), *command], check=True)
    return root


def test_categories_are_read() -> None:
    assert read_categories(LISTING) == {"adam": "analysis", "bfs": "graph", "fft": "signal"}


def test_every_category_has_its_turn_and_a_seed_draws_the_same() -> None:
    folders = [f"src/a{i}-cuda" for i in range(20)] + ["src/b-cuda"]
    categories = {f"a{i}": "many" for i in range(20)} | {"b": "one"}
    for seed in range(5):
        drawn = draw_folders(folders, categories, 3, seed)
        assert "src/b-cuda" in drawn
        assert drawn == draw_folders(folders, categories, 3, seed)
    assert len({tuple(draw_folders(folders, categories, 3, seed)) for seed in range(5)}) > 1
    assert len(draw_folders(folders, categories, 100, 0)) == 21


def test_drawn_folders_come_with_what_they_name(repository: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    draw = draw_programs(repository, "them/collection", "src/*-cuda", 3, 1, out, shared=["src/include", "src/absent"])
    assert draw.folders == ("src/adam-cuda", "src/bfs-cuda", "src/fft-cuda")
    assert json.loads((out / "drawn.json").read_text())["commit"] == draw.commit
    assert len(draw.commit) == 40
    assert (out / "src/include/timer.h").is_file() and not (out / "src/bfs-hip").exists()
    assert (out / "src/fft-cuda/data.txt").is_symlink()
    alone = tmp_path / "alone"
    assert draw_programs(repository, "", "src/*-cuda", 1, 1, alone).folders == ("src/adam-cuda",)
    assert (alone / "src/bfs-cuda/graph.h").is_file()
    assert not (alone / "src/fft-cuda").exists()
