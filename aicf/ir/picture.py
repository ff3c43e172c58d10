"""A graph as a picture: nodes in rows by the longest way from an input, forward, backward and update in colours of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import PurePath

from aicf.ir.graph import Graph, Node

_WIDTH, _HEIGHT, _ACROSS, _DOWN, _MARGIN = 150, 34, 172, 66, 24
_COLOURS = {"input": "#eeeeee", "forward": "#c7dbef", "backward": "#f8d7b0", "update": "#cfe8c8"}
_SWEEPS = 4


def draw_graph(graph: Graph) -> str:
    """Return an SVG image of a graph: a box per node and per input, an arrow per value that a node reads from another.

    A box says op and owner; where the pointer rests on it, types, attributes and source line. States are told in the boxes that read them.
    """
    ranks = _find_ranks(graph)
    rows = _order(graph, ranks)
    places = {key: (_MARGIN + x * _ACROSS, _MARGIN + y * _DOWN) for y, row in enumerate(rows) for x, key in enumerate(row)}
    owners = {s.value.id: f"{s.owner} ({s.role})" for s in graph.states}
    updates = _find_updates(graph)
    parts = [_draw_edge(places[source], places[target], value) for source, target, value in _list_edges(graph)]
    for name, value in graph.inputs:
        parts.append(_draw_box(places[-1 - value.id], name, str(value.type), "input", f"input {name}: {value.type}"))
    for node in graph.nodes:
        kind = "backward" if node.differentiates is not None else "update" if node.id in updates else "forward"
        whose = node.owner or next((owners[v.id] for v in node.inputs if v is not None and v.id in owners), "")
        parts.append(_draw_box(places[node.id], _name(node), whose, kind, _describe(node, owners)))
    size = (max(x for x, _ in places.values()) + _WIDTH + _MARGIN, max(y for _, y in places.values()) + _HEIGHT + 2 * _MARGIN)
    legend = "".join(
        f'<rect x="{_MARGIN + i * 90}" y="{size[1] - 18}" width="12" height="12" fill="{colour}" stroke="#777"/>'
        f'<text x="{_MARGIN + i * 90 + 17}" y="{size[1] - 8}">{kind}</text>'
        for i, (kind, colour) in enumerate(_COLOURS.items())
    )
    head = '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
    head += '<path d="M0,0 L8,4 L0,8 z" fill="#777"/></marker></defs>'
    box = f'viewBox="0 0 {size[0]} {size[1]}" width="{size[0]}" height="{size[1]}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box} font-family="sans-serif" font-size="11">{head}{"".join(parts)}{legend}</svg>\n'


def _list_edges(graph: Graph) -> list[tuple[int, int, str]]:
    """Return (source, target, what flows); nodes by id, inputs by -1 - the value's id."""
    sources = {v.id: -1 - v.id for _, v in graph.inputs} | {v.id: node.id for node in graph.nodes for v in node.outputs}
    return [
        (sources[v.id], node.id, f"{v}: {v.type}")
        for node in graph.nodes
        for v in dict.fromkeys(v for v in node.inputs if v is not None)
        if v.id in sources
    ]


def _find_ranks(graph: Graph) -> dict[int, int]:
    ranks = {-1 - v.id: 0 for _, v in graph.inputs}
    before: dict[int, list[int]] = {}
    for source, target, _ in _list_edges(graph):
        before.setdefault(target, []).append(source)
    for node in graph.nodes:
        ranks[node.id] = max((ranks[s] + 1 for s in before.get(node.id, ())), default=0)
    return ranks


def _order(graph: Graph, ranks: Mapping[int, int]) -> list[list[int]]:
    """Return the rows, each ordered by the mean place of its neighbours (Sugiyama, Tagawa and Toda 1981, the barycentre method)."""
    rows: list[list[int]] = [[] for _ in range(max(ranks.values(), default=0) + 1)]
    for key, rank in ranks.items():
        rows[rank].append(key)
    near: dict[int, list[int]] = {}
    for source, target, _ in _list_edges(graph):
        near.setdefault(source, []).append(target)
        near.setdefault(target, []).append(source)
    for _ in range(_SWEEPS):
        place = {key: x for row in rows for x, key in enumerate(row)}
        rows = [sorted(row, key=lambda key: _mean([place[n] for n in near.get(key, ())], place[key])) for row in rows]
    return rows


def _mean(values: Sequence[int], default: float) -> float:
    return sum(values) / len(values) if values else default


def _find_updates(graph: Graph) -> set[int]:
    """Return the nodes that only the new values of states need."""
    producers = graph.find_producers()
    needed, open_values = set(), [v.id for v in graph.outputs]
    while open_values:
        node = producers.get(open_values.pop())
        if node is not None and node.id not in needed:
            needed.add(node.id)
            open_values += [v.id for v in node.inputs if v is not None]
    return {node.id for node in graph.nodes if node.id not in needed}


def _name(node: Node) -> str:
    function = node.attrs.get("function")
    return f"{node.op} {function}" if isinstance(function, str) else node.op


def _describe(node: Node, owners: Mapping[int, str]) -> str:
    read = [f"{v}: {v.type}" + (f" {owners[v.id]}" if v.id in owners else "") for v in node.inputs if v is not None]
    made = [f"{v}: {v.type}" for v in node.outputs]
    attrs = ", ".join(f"{name}={value}" for name, value in node.attrs.items())
    place = f"#{node.id} {node.op} {node.owner} {PurePath(node.source).name}".rstrip()
    return "\n".join([place, *(f"reads {text}" for text in read), *(f"makes {text}" for text in made), *([attrs] if attrs else [])])


def _shorten(text: str, most: int = 24) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _draw_box(place: tuple[int, int], first: str, second: str, kind: str, title: str) -> str:
    x, y = place
    return (
        f'<g><rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="4" fill="{_COLOURS[kind]}" stroke="#777"/>'
        f'<text x="{x + _WIDTH / 2}" y="{y + 14}" text-anchor="middle" font-weight="bold">{escape(_shorten(first))}</text>'
        f'<text x="{x + _WIDTH / 2}" y="{y + 27}" text-anchor="middle" fill="#555">{escape(_shorten(second))}</text>'
        f"<title>{escape(title)}</title></g>"
    )


def _draw_edge(source: tuple[int, int], target: tuple[int, int], value: str) -> str:
    x1, y1, x2, y2 = source[0] + _WIDTH / 2, source[1] + _HEIGHT, target[0] + _WIDTH / 2, target[1]
    bend = min((y2 - y1) / 2, _DOWN / 2)
    return (
        f'<path d="M{x1:.0f},{y1} C{x1:.0f},{y1 + bend:.0f} {x2:.0f},{y2 - bend:.0f} {x2:.0f},{y2 - 2}" fill="none" stroke="#999" '
        f'marker-end="url(#tip)"><title>{escape(value)}</title></path>'
    )
