"""Inputs of a training step that are read in another dtype alone: they are cast as they come in, where they would be copied otherwise."""

from __future__ import annotations

from aicf.ir import Graph, Node
from aicf.opset.chains import is_copy


def find_intake(graph: Graph) -> dict[int, Node]:
    """Return the casts that bring inputs in, by the inputs' ids.

    What infers has its inputs as they are given: programs without Python copy them in.
    """
    if not graph.updates:
        return {}
    uses, kept = graph.find_uses(), graph.find_kept()
    found = {}
    for _, value in graph.inputs:
        readers = uses.get(value.id, [])
        if len(readers) != 1 or value.id in kept or not is_copy(readers[0].op, readers[0].inputs, readers[0].attrs):
            continue
        made = readers[0].outputs[0]
        if value.type.is_float and made.type.is_float and made.type.shape == value.type.shape and made.id not in kept:
            found[value.id] = readers[0]
    return found
