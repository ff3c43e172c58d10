"""The sources that a kernel is sealed with."""

from __future__ import annotations

import os
import re
from pathlib import Path

from harness.build.generate import generate_sources
from harness.discover import LoadedOp, find_description
from harness.errors import FrozenError

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)


def collect_sources(loaded: LoadedOp) -> dict[str, bytes]:
    """Return everything that a kernel of the op is made of and judged by, by path below the sources' folder.

    These are ``launcher.cu``, ``pybind.cpp`` and what all bindings share, with all they include of the project, what is generated for them,
    and the op's description.
    """
    found: dict[str, bytes] = {}
    generated = {name: text.encode() for name, text in generate_sources(loaded).items()}
    waiting = [loaded.folder / "launcher.cu", loaded.folder / "pybind.cpp", *find_description(loaded.folder)]
    while waiting:
        path = waiting.pop()
        name = os.path.relpath(path, loaded.include_dir)
        if name in found:
            continue
        if name.startswith(".."):
            raise FrozenError(f"{path} lies outside {loaded.include_dir}: the sources of a frozen kernel lie below it")
        found[name] = generated[name] if name in generated else path.read_bytes()
        if path.suffix == ".py":
            continue
        if name == "common/op_module.hpp":
            waiting.append(path.with_suffix(".cpp"))
        for include in _INCLUDE.findall(found[name].decode()):
            places = (path.parent / include, loaded.include_dir / include)
            # What is in neither place is the compiler's own.
            waiting += [Path(os.path.normpath(p)) for p in places if p.is_file() or (p == places[1] and include in generated)][:1]
    return dict(sorted(found.items()))
