"""Which programs a folder holds: every source with a ``main``, and what belongs to it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import lru_cache
from pathlib import Path

from device.programs.recipe import SOURCE_SUFFIXES, Recipe, list_make_sources, read_recipe

# Folders beside or above a program where projects of this kind keep their headers.
INCLUDE_FOLDERS = ("", "include", "inc", "common", "Common", "common/inc", "Common/inc", "common/include", "utils", "src")
_MAIN = re.compile(
    r"^[ \t]*(?:extern\s+\"C\"\s+)?(?:static\s+)?(?:int|(?:std::)?int32_t|void|auto|signed)\s+(?:\w+\s+)?main\s*\(", re.MULTILINE
)
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*\"([^\"]+)\"", re.MULTILINE)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"", re.DOTALL)
_HEADER_SUFFIXES = (".h", ".hpp", ".cuh", ".hxx", ".hh", ".inl", ".inc", ".cu", ".cpp", ".cc", ".c")
_DEVICE_CODE = re.compile(r"<<<|__global__|cuda_runtime|\bcuda[A-Z]\w+\s*\(|\bcu[A-Z]\w+\s*\(|thrust/|cub/")


@dataclass(frozen=True)
class Program:
    """One program: the source with its ``main``, the other sources that belong to it, and the folders of headers.

    ``spare`` are sources near it that may define what is missing; ``top`` is the collection's folder; ``recipe`` is what its own build file
    says.
    """

    name: str
    main: Path
    helpers: tuple[Path, ...]
    includes: tuple[Path, ...]
    spare: tuple[Path, ...] = ()
    top: Path = Path()
    recipe: Recipe = field(default_factory=Recipe)

    @property
    def folder(self) -> Path:
        """The program's working directory: where its build file runs it, else the folder of its sources."""
        return self.recipe.folder or self.main.parent


def find_programs(root: Path, pattern: str = "*") -> list[Program]:
    """Return the programs at or below ``root`` whose path matches the glob ``pattern``, by path.

    A folder with one ``main`` is one program of all its sources; with several, each is a program of one source. What another
    source includes (``#include "kernel.cu"``) is no source of its own.
    """
    root = root.resolve()
    if root.is_file():
        return [_make_program(root, (), (), root.parent)]
    programs: list[Program] = []
    for folder in sorted({path.parent for path in _list_sources(root)}):
        found = _find_in_folder(folder, root, pattern)
        programs += found or _find_by_makefile(folder, root, pattern)
    return programs


def find_header(top: Path, name: str, near: Path) -> Path | None:
    """Return the folder below ``top`` from which ``#include "name"`` finds a file: the one that shares most of its path with ``near``."""
    suffix = f"/{name.removeprefix('./')}"
    folders = [Path(str(path).removesuffix(suffix)) for path in _index_headers(top).get(Path(name).name, ()) if str(path).endswith(suffix)]
    return max(folders, key=lambda folder: len(set(folder.parents) & set(near.parents)), default=None)


@lru_cache(maxsize=8)
def _index_headers(top: Path) -> dict[str, list[Path]]:
    index: dict[str, list[Path]] = {}
    for path in top.rglob("*"):
        if path.suffix in _HEADER_SUFFIXES:
            index.setdefault(path.name, []).append(path)
    return index


def _find_in_folder(folder: Path, root: Path, pattern: str) -> list[Program]:
    texts = {path: _read(path) for path in sorted(folder.iterdir()) if path.suffix in SOURCE_SUFFIXES and path.is_file()}
    included = {(path.parent / name).resolve() for path, text in texts.items() for name in _INCLUDE.findall(text)}
    code = {path: _COMMENT.sub(" ", text) for path, text in texts.items()}
    mains = [path for path in texts if path not in included and _MAIN.search(code[path])]
    others = tuple(path for path in texts if path not in included and path not in mains)
    programs = []
    for main in (path for path in mains if fnmatch(str(path), pattern)):
        helpers = others if len(mains) == 1 else ()
        program = _make_program(main, helpers, tuple(path for path in others if path not in helpers), root)
        if main.suffix == ".cu" or any(_DEVICE_CODE.search(code.get(path) or _read(path)) for path in (main, *program.helpers)):
            programs.append(program)
    return programs


def _find_by_makefile(folder: Path, root: Path, pattern: str) -> list[Program]:
    """Return the programs of a folder without a ``main`` whose Makefile takes one from outside ``root`` (``../other/main.cpp``)."""
    outside = [path for path in list_make_sources(folder) if not path.is_relative_to(root) and path.is_file()]
    mains = [path for path in outside if fnmatch(str(path), pattern) and _MAIN.search(_COMMENT.sub(" ", _read(path)))]
    return [_make_program(main, (), (), root, folder) for main in mains]


def _make_program(main: Path, helpers: tuple[Path, ...], spare: tuple[Path, ...], root: Path, build: Path | None = None) -> Program:
    places = [main.parent]
    while places[-1] not in (root, places[-1].parent):
        places.append(places[-1].parent)
    top = next((place for place in (root, *root.parents) if (place / ".git").exists()), root)
    recipe = read_recipe(main, top, build)
    if recipe.sources:
        spare = tuple(path for path in (*helpers, *spare) if path not in recipe.sources)
        helpers = tuple(path for path in recipe.sources if path != main)
    places += list(root.parents)[:3]  # a part of a collection still finds the collection's headers
    includes = [*recipe.includes, *(place / name for place in places for name in INCLUDE_FOLDERS)]
    name = str(main.relative_to(root)) if main.is_relative_to(root) else main.name
    return Program(name, main, helpers, tuple(dict.fromkeys(folder for folder in includes if folder.is_dir())), spare, top, recipe)


def _list_sources(root: Path) -> Iterator[Path]:
    for path in root.rglob("*"):
        if path.suffix in SOURCE_SUFFIXES and path.is_file() and not any(part.startswith(".") for part in path.relative_to(root).parts):
            yield path


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
