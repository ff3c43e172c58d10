"""Which programs a folder holds: every source with a ``main``, and what belongs to it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SOURCE_SUFFIXES = (".cu", ".cpp", ".cc", ".cxx", ".c")
# Folders beside or above a program where projects of this kind keep their headers.
INCLUDE_FOLDERS = ("", "include", "inc", "common", "Common", "common/inc", "Common/inc", "common/include", "utils", "src")
_MAIN = re.compile(r"^[ \t]*(?:extern\s+\"C\"\s+)?(?:int|void|auto|signed)\s+main\s*\(", re.MULTILINE)
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*\"([^\"]+)\"", re.MULTILINE)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"", re.DOTALL)
_DEVICE_CODE = re.compile(r"<<<|__global__|cuda_runtime|\bcuda[A-Z]\w+\s*\(|\bcu[A-Z]\w+\s*\(|thrust/|cub/")


@dataclass(frozen=True)
class Program:
    """One program: the source with its ``main``, the other sources of its folder that may belong to it, and the folders of headers."""

    name: str
    main: Path
    helpers: tuple[Path, ...]
    includes: tuple[Path, ...]

    @property
    def folder(self) -> Path:
        """The folder of the program's sources, which is its working directory."""
        return self.main.parent


def find_programs(root: Path) -> list[Program]:
    """Return the programs at or below ``root``, by path.

    A folder with one ``main`` is one program of all its sources; with several, each is a program of one source. What another
    source includes (``#include "kernel.cu"``) is no source of its own.
    """
    root = root.resolve()
    if root.is_file():
        return [_make_program(root, (), root.parent)]
    programs: list[Program] = []
    for folder in sorted({path.parent for path in _list_sources(root)}):
        programs += _find_in_folder(folder, root)
    return programs


def _find_in_folder(folder: Path, root: Path) -> list[Program]:
    texts = {path: _read(path) for path in sorted(folder.iterdir()) if path.suffix in SOURCE_SUFFIXES and path.is_file()}
    included = {(path.parent / name).resolve() for path, text in texts.items() for name in _INCLUDE.findall(text)}
    code = {path: _COMMENT.sub(" ", text) for path, text in texts.items()}
    mains = [path for path in texts if path not in included and _MAIN.search(code[path])]
    helpers = tuple(path for path in texts if path not in included and path not in mains)
    if len(mains) == 1 and _uses_cuda(mains[0], code):
        return [_make_program(mains[0], helpers, root)]
    return [_make_program(path, (), root) for path in mains if path.suffix == ".cu" or _DEVICE_CODE.search(code[path])]


def _uses_cuda(main: Path, code: dict[Path, str]) -> bool:
    return main.suffix == ".cu" or any(_DEVICE_CODE.search(text) for text in code.values())


def _make_program(main: Path, helpers: tuple[Path, ...], root: Path) -> Program:
    places = [main.parent]
    while places[-1] not in (root, places[-1].parent):
        places.append(places[-1].parent)
    places += list(root.parents)[:3]  # a part of a collection still finds the collection's headers
    includes = [place / name for place in places for name in INCLUDE_FOLDERS]
    name = str(main.relative_to(root)) if main.is_relative_to(root) else main.name
    return Program(name, main, helpers, tuple(dict.fromkeys(folder for folder in includes if folder.is_dir())))


def _list_sources(root: Path) -> Iterator[Path]:
    for path in root.rglob("*"):
        if path.suffix in SOURCE_SUFFIXES and path.is_file() and not any(part.startswith(".") for part in path.relative_to(root).parts):
            yield path


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
