"""The shapes that a survey tries for a kernel: which tiles of the problem are worked on at once.

A manifest's ``prior`` says which tile a block has and how many blocks the chip runs. That is not all that decides how time grows with the
sizes. Blocks may share a tile (they split its sums): fewer tiles are worked on at once. One block may work on several tiles in turn: more
are. Blocks of a cluster start together, so that a row of tiles that is left over costs as much as two. And a kernel may deal its steps of a
sum out evenly where a wave would not be full: what that wave loses is then what joining the parts costs, at most.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

# ``tile``: edges by size, ``slots``: tiles that are worked on at once, ``idle_us``: what a wave that is not full loses at most,
# ``least``: by size, the least edge among which the kernel looks for the tile's when it is launched.
Shape = Mapping[str, Any]

_SLOTS = (1.0, 0.125, 0.25, 0.5, 2.0)
_IDLE_US = (1.0, 2.0, 4.0, 8.0)


def list_shapes(interface: Mapping[str, Any], prior: Mapping[str, Any]) -> list[Shape]:
    """Return the shapes that a kernel may have, that of its ``prior`` first."""
    tile, slots = dict(prior["tile"]), float(prior["slots"])
    if not tile:
        return [{"tile": tile, "slots": slots}]
    summed = tile.keys() - _list_output_sizes(interface)
    whole = {name: edge for name, edge in tile.items() if name not in summed}
    dealt: list[Shape] = [{"tile": tile}]
    if summed:
        dealt += [{"tile": whole}, *({"tile": whole, "idle_us": us} for us in _IDLE_US)]
    found: list[Shape] = []
    for each, factor in itertools.product(dealt, _SLOTS):
        found.append({**each, "slots": slots * factor})
        for name in whole:
            pair = {**each["tile"], name: 2 * whole[name]}
            found.append({**each, "tile": pair, "slots": slots * factor / 2.0})
            found.append({**each, "tile": pair, "least": {name: whole[name]}, "slots": slots * factor})
    return found


def _list_output_sizes(interface: Mapping[str, Any]) -> set[str]:
    """Return the sizes along which some output lies."""
    outputs = [tensor for tensor in interface["tensors"] if tensor["role"] != "input"]
    return {size for tensor in outputs for row in tensor["shape"] for size in row["value"] if isinstance(size, str)}
