"""How a network was compiled, as text and pictures: what each pass did, and the plan."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from aicf.ir import draw_graph
from aicf.train.compiled import Compiled
from aicf.train.program import load


def is_network(word: str) -> bool:
    """Return whether a word names a network, as :func:`find_network` takes it, rather than an op."""
    return ".py:" in word or Path(word).is_dir()


def find_network(word: str) -> Compiled:
    """Return a compiled network: ``FILE.py:NAME``, a function without arguments that returns one (or one itself), or a saved folder.

    Raises ValueError naming the word where there is none, and what the file or the function raises.
    """
    name, mark, attribute = word.rpartition(":")
    if not mark or Path(word).is_dir():
        return load(word)
    path = Path(name)
    if not path.is_file():
        raise ValueError(f"{word!r}: there is no file {name}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, attribute):
        raise ValueError(f"{word!r}: {name} has no {attribute!r}")
    found = getattr(module, attribute)
    if not isinstance(found, Compiled):
        found = found() if callable(found) else found
    if not isinstance(found, Compiled):
        raise ValueError(f"{word!r} is {type(found).__name__}; it must be, or return, what aicf.compile or aicf.compile_step returned")
    return found


def explain_network(network: Compiled, pictures: Path | None = None) -> list[str]:
    """Return what each pass did and the plan, a line each; SVG pictures of graphs and arena go into a folder where one is named."""
    lines = [str(entry) for entry in network.log] or ["a saved network: its passes ran where it was compiled"]
    lines += ["", *network.plan.to_lines()]
    if pictures is None:
        return lines
    pictures.mkdir(parents=True, exist_ok=True)
    drawn = {"recorded": network.recorded, "compiled": network.graph}
    files = []
    for name, graph in drawn.items():
        if graph is not None:
            files.append(pictures / f"{name}.svg")
            files[-1].write_text(draw_graph(graph))
    files.append(pictures / "arena.svg")
    network.plan.draw(files[-1])
    return [*lines, "", f"pictures: {', '.join(map(str, files))}"]
