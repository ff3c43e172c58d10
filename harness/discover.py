"""Finding ops by path: every folder ``ops/<name>/`` with an ``op.py`` is an op; nothing is registered anywhere."""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from device.settings import find_project_root, suggest
from harness.spec import Op, Peer, SpecError
from harness.spec.callables import find_place


@dataclass(frozen=True)
class LoadedOp:
    """An op and the folder it was read from. ``include_dir`` is the folder that op sources name in ``#include "common/..."``.

    ``generated`` are the headers that were made of the op, by path, once they were asked for.
    """

    op: Op
    folder: Path
    generated: dict[str, str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def include_dir(self) -> Path:
        """The ops folder."""
        return self.folder.parent

    @property
    def spec_hash(self) -> str:
        """Hash of the op's description: problems, reference and tolerance are in force only together with it."""
        return hash_description({path.name: path.read_bytes() for path in find_description(self.folder)})


def hash_description(files: Mapping[str, bytes]) -> str:
    """Hash the files that describe an op, by name."""
    digest = sha256()
    for name, content in sorted(files.items()):
        digest.update(name.encode() + b"\0" + content)
    return digest.hexdigest()


def find_description(folder: Path) -> list[Path]:
    """Return the files that describe the op: ``op.py`` and what it may import from beside it, neither peers, tests nor the opset file."""
    return sorted(p for p in folder.glob("*.py") if p.name not in ("opset.py", "peers.py") and not p.name.startswith(("test_", "peer_")))


def find_ops(ops_dir: Path | None = None) -> dict[str, Path]:
    """Return the folder of every op by name, sorted."""
    root = find_project_root() / "ops" if ops_dir is None else ops_dir
    # Hidden folders are ops that are just being written.
    return {path.parent.name: path.parent for path in sorted(root.glob("*/op.py")) if not path.parent.name.startswith(".")}


def find_op(name: str, ops_dir: Path | None = None) -> LoadedOp:
    """Load an op by name; raises :class:`SpecError` that lists the ops there are."""
    folders = find_ops(ops_dir)
    if name not in folders:
        there = ", ".join(folders) or "none; make op=NAME new writes one"
        raise SpecError(f"unknown op {name!r}{suggest(name, folders)} (ops here: {there})")
    return LoadedOp(load_op(folders[name]), folders[name])


def load_op(folder: Path) -> Op:
    """Run ``op.py`` of a folder and return its ``OP``; raises :class:`SpecError` saying what is wrong with it."""
    module = _run_module(folder, "op")
    op = getattr(module, "OP", None)
    if not isinstance(op, Op):
        raise SpecError(f"{folder / 'op.py'}: must bind OP to a harness.spec.Op")
    if op.name != folder.name:
        raise SpecError(f"{folder / 'op.py'}: the op is named {op.name!r}, its folder {folder.name!r}; they must agree")
    return op


def load_peers(folder: Path) -> tuple[Peer, ...]:
    """Return ``PEERS`` of the op's ``peers.py``, none where there is no such file."""
    if not (folder / "peers.py").is_file():
        return ()
    return tuple(_run_module(folder, "peers").PEERS)


# An op's description may name the workbench as a checkout does (`harness.spec`) or as an installed one (`aicf.harness.spec`), so that
# ops, and what was sealed of them, go from one to the other. Each is read as the name that this code has.
_OWN = __name__.rpartition(".")[0]
_OTHER = "aicf.harness" if _OWN == "harness" else "harness"
_PACKAGE = "_aicf_ops_"


class _OpLoader(importlib.machinery.SourceFileLoader):
    """Loads a module of an op. It keeps no compiled files: sealed sources are loaded too, and a file beside them nobody sealed."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return _compile(path, self.get_data(path))


@lru_cache(maxsize=256)
def _compile(path: str, source: bytes) -> CodeType:
    """Compile a module of an op, in a process once: an op is loaded again wherever it is asked for."""
    tree = ast.parse(source, path)
    # Most name nothing that has another name here.
    for node in ast.walk(tree) if _OTHER.encode() in source else ():
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            node.module = _name_as_here(node.module)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                alias.name = _name_as_here(alias.name) if alias.asname else alias.name
    code = compile(tree, path, "exec", dont_inherit=True)
    assert isinstance(code, CodeType)
    return code


class _OpFinder(importlib.abc.MetaPathFinder):
    """Finds what an op's description imports from beside it."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith(_PACKAGE) or not path:
            return None
        file = Path(path[0], f"{fullname.rpartition('.')[2]}.py")
        return _make_spec(fullname, file) if file.is_file() else None


def _name_as_here(name: str) -> str:
    return _OWN + name.removeprefix(_OTHER) if name == _OTHER or name.startswith(f"{_OTHER}.") else name


def _make_spec(name: str, path: Path) -> importlib.machinery.ModuleSpec | None:
    return importlib.util.spec_from_file_location(name, path, loader=_OpLoader(name, str(path)))


def _run_module(folder: Path, stem: str) -> ModuleType:
    """Run a file of the folder as a module of a package, so that ``from .space import KERNELS`` finds the file beside it."""
    path = folder / f"{stem}.py"
    package = f"{_PACKAGE}{folder.name}"
    if not any(isinstance(finder, _OpFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _OpFinder())
    # Of another revision, or of another copy of the project, perhaps.
    for stale in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
        if stale != package or getattr(sys.modules[stale], "__path__", None) != [str(folder)]:
            del sys.modules[stale]
    sys.modules.setdefault(package, _make_package(package, folder))
    name = f"{package}.{stem}"
    spec = _make_spec(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise SpecError(f"{path}: no such file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up there
    try:
        spec.loader.exec_module(module)
    except SpecError:
        raise
    except Exception as error:
        place = find_place(error.__traceback__, folder)
        raise SpecError(f"{path} cannot be loaded: {type(error).__name__}: {error}{f'{chr(10)}  {place}' if place else ''}") from error
    return module


def _make_package(name: str, folder: Path) -> ModuleType:
    package = ModuleType(name)
    package.__path__ = [str(folder)]
    return package
