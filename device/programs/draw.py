"""Programs drawn from a public collection: folders of a git repository at one commit, spread over the collection's categories by a seed."""

from __future__ import annotations

import json
import random
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from itertools import zip_longest
from pathlib import Path

_CATEGORY = re.compile(r"^(?P<name>[\w.+-]+):\n(?:[ ]+.*\n)*?[ ]+categories: \[(?P<categories>[^\]]*)\]", re.MULTILINE)
_SIBLING = re.compile(rb"\.\./([\w.+-]+)/")
_SOURCES = {".cu", ".cuh", ".h", ".hpp", ".cpp"}
_MOST_ROUNDS = 3  # of folders that name folders


@dataclass(frozen=True)
class Draw:
    """What was drawn: of which commit of which repository, with which seed, which folders."""

    repository: str
    commit: str
    seed: int
    folders: tuple[str, ...]


def read_categories(text: str) -> dict[str, str]:
    """Return each benchmark's first category, of a YAML file with ``name:`` and below it ``categories: [a, b]``."""
    return {match["name"]: match["categories"].split(",")[0].strip() or "none" for match in _CATEGORY.finditer(text)}


def draw_folders(folders: Sequence[str], categories: Mapping[str, str], count: int, seed: int) -> list[str]:
    """Return ``count`` of the folders, from each category in turn; a folder ``src/adam-cuda`` is of the category of ``adam``."""
    groups: dict[str, list[str]] = {}
    for folder in sorted(folders):
        stem = folder.rpartition("/")[2]
        category = categories.get(stem, categories.get(stem.rpartition("-")[0], "none"))
        groups.setdefault(category, []).append(folder)
    source = random.Random(seed)
    for group in groups.values():
        source.shuffle(group)
    rounds = zip_longest(*(groups[name] for name in sorted(groups)))
    return [folder for each in rounds for folder in each if folder is not None][:count]


def draw_programs(repository: Path, name: str, pattern: str, count: int, seed: int, out: Path, *, shared: Sequence[str] = ()) -> Draw:
    """Draw ``count`` folders that match ``pattern`` from the newest commit, write them below ``out``, and return what was drawn.

    ``shared`` folders come with them, and so do neighbours that their files name (``../reduction-cuda/``). A file ``drawn.json`` says what
    is there.
    """
    commit = _git(repository, "rev-parse", "HEAD").decode().strip()
    tree = _git(repository, "ls-tree", "-r", "-d", "--name-only", "HEAD").decode().splitlines()
    present = set(tree)
    listing = "benchmarks.yaml"
    has_listing = listing in _git(repository, "ls-tree", "--name-only", "HEAD").decode().splitlines()
    categories = read_categories(_git(repository, "show", f"HEAD:{listing}").decode()) if has_listing else {}
    matching = [folder for folder in tree if fnmatch(folder, pattern) and folder.count("/") == pattern.count("/")]
    drawn = draw_folders(matching, categories, count, seed)
    out.mkdir(parents=True, exist_ok=True)
    done: set[str] = set()
    wanted = {*drawn, *(folder for folder in shared if folder in present)}
    for _ in range(_MOST_ROUNDS):
        for folder in sorted(wanted - done):
            _extract(repository, folder, out)
        done |= wanted
        wanted = {sibling for folder in done for sibling in _find_siblings(out / folder, folder)} & present - done
        if not wanted:
            break
    draw = Draw(name, commit, seed, tuple(sorted(drawn)))
    (out / "drawn.json").write_text(json.dumps(asdict(draw), indent=1) + "\n")
    return draw


def _find_siblings(folder: Path, name: str) -> set[str]:
    above = name.rpartition("/")[0]
    files = [path for path in folder.rglob("*") if path.is_file() and (path.suffix in _SOURCES or path.name == "Makefile")]
    return {f"{above}/{match.decode()}".lstrip("/") for path in files for match in _SIBLING.findall(path.read_bytes())}


def _extract(repository: Path, folder: str, out: Path) -> None:
    """Write a folder's files; one that the clone lacks (a partial clone's large data) is left out, and its program says so when it runs."""
    for row in _git(repository, "ls-tree", "-r", "-z", "HEAD", f"{folder}/").split(b"\0"):
        if not row:
            continue
        (mode, kind, blob), path = row.partition(b"\t")[0].split(), out / row.partition(b"\t")[2].decode()
        if kind != b"blob":
            continue
        content = subprocess.run(["git", "-C", str(repository), "cat-file", "blob", blob.decode()], capture_output=True, check=False)
        if content.returncode != 0:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if mode == b"120000":
            path.unlink(missing_ok=True)
            path.symlink_to(content.stdout.decode())
        else:
            path.write_bytes(content.stdout)


def _git(repository: Path, *arguments: str) -> bytes:
    return subprocess.run(["git", "-C", str(repository), *arguments], capture_output=True, check=True).stdout
