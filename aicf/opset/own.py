"""The opset files of a project's own ops: each ``ops/<name>/opset.py`` binds ``OPS``, as the modules beside this one do."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import ModuleType

from aicf.errors import OpsetError
from aicf.opset.definition import OpDef

FILE = "opset.py"


@lru_cache(maxsize=16)
def read_opset_files(ops_dir: Path) -> Mapping[str, OpDef]:
    """Return the ops by name that the opset files below a folder ``ops`` define; each file is run once per process.

    Raises :class:`~aicf.errors.OpsetError` naming the file, and the line, for one that cannot be loaded, binds no ``OPS``, or defines an op
    that another one has.
    """
    found: dict[str, OpDef] = {}
    places: dict[str, Path] = {}
    # Hidden folders are ops that are just being written.
    for path in sorted(p for p in ops_dir.glob(f"*/{FILE}") if not p.parent.name.startswith(".")):
        for op in _load(path):
            if op.name in found:
                raise OpsetError(f"{path}: op {op.name} is defined in {places[op.name]} already; rename one of them")
            found[op.name], places[op.name] = op, path
    return found


def _load(path: Path) -> tuple[OpDef, ...]:
    # By hand: an import would leave compiled files in the project's folders.
    module = ModuleType(f"_aicf_opset_{path.parent.name}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses look their module up there
    try:
        exec(compile(path.read_bytes(), str(path), "exec", dont_inherit=True), vars(module))
    except Exception as error:
        raise OpsetError(f"{path}{_find_line(error, path)}: cannot be loaded: {type(error).__name__}: {error}") from error
    ops = getattr(module, "OPS", None)
    if not isinstance(ops, tuple) or not all(isinstance(op, OpDef) for op in ops):
        raise OpsetError(f"{path}: must bind OPS to a tuple of aicf.opset.OpDef")
    return ops


def _find_line(error: Exception, path: Path) -> str:
    if isinstance(error, SyntaxError) and error.lineno is not None:
        return f":{error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f":{lines[-1]}" if lines else ""
