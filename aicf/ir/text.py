"""The text form of a graph, one line each for inputs, states, nodes, updates and outputs; it reads back as the same graph."""

from __future__ import annotations

import json
import re
from typing import Any

from aicf.errors import GraphError
from aicf.ir.graph import Graph, Node, State, Value
from aicf.opset import Attr, Type

_TYPE = r"(\w+)\[([\d,]*)\]"
_VALUE = rf"%(\d+): {_TYPE}"
_INPUT = re.compile(rf'input {_VALUE} (".*")')
_STATE = re.compile(rf'state {_VALUE} (".*?") (\w+)')
_NODE = re.compile(r"#(\d+) (.*?) ?= (\w+)\((.*?)\) (\{.*?\}) (\{.*\})")
_UPDATE = re.compile(r"update %(\d+) = %(\d+)")
_OUTPUT = re.compile(r"output (.*)")


def to_text(graph: Graph) -> str:
    """Return a graph as text."""
    lines = [f"graph {json.dumps(graph.name)}"]
    lines += [f"input {v}: {v.type} {json.dumps(name)}" for name, v in graph.inputs]
    lines += [f"state {s.value}: {s.value.type} {json.dumps(s.owner)} {s.role}" for s in graph.states]
    lines += [node_to_text(node) for node in graph.nodes]
    lines += [f"update {state} = {new}" for state, new in graph.updates]
    lines += [f"output {' '.join(map(str, graph.outputs))}"]
    return "\n".join(lines) + "\n"


def node_to_text(node: Node) -> str:
    """Return a node's line: number, outputs, op, inputs (``_`` for one that is left out), attributes, provenance."""
    outputs = ", ".join(f"{v}: {v.type}" for v in node.outputs)
    inputs = ", ".join("_" if v is None else str(v) for v in node.inputs)
    facts = {"owner": node.owner, "at": node.source, "of": node.differentiates, "from": list(node.origins)}
    kept = {key: value for key, value in facts.items() if value not in ("", None, [])}
    return f"#{node.id} {outputs} = {node.op}({inputs}) {json.dumps(dict(node.attrs))} {json.dumps(kept)}"


def parse(text: str) -> Graph:
    """Return the graph of a text; raises :class:`GraphError` naming the line that cannot be read."""
    values: dict[int, Value] = {}
    inputs, states, nodes, updates, outputs = [], [], [], [], []
    lines = text.splitlines()
    if not lines or not lines[0].startswith("graph "):
        raise GraphError('the text of a graph begins with its name: graph "..."')
    for number, line in enumerate(lines[1:], 2):
        try:
            if found := _INPUT.fullmatch(line):
                inputs.append((json.loads(found[4]), _read_value(values, found[1], found[2], found[3])))
            elif found := _STATE.fullmatch(line):
                states.append(State(_read_value(values, found[1], found[2], found[3]), json.loads(found[4]), found[5]))
            elif found := _NODE.fullmatch(line):
                nodes.append(_read_node(values, found))
            elif found := _UPDATE.fullmatch(line):
                updates.append((values[int(found[1])], values[int(found[2])]))
            elif found := _OUTPUT.fullmatch(line):
                outputs = [values[int(word.removeprefix("%"))] for word in found[1].split()]
            else:
                raise GraphError(f"line {number}: is not an input, state, node, update or output: {line}")
        except (KeyError, json.JSONDecodeError) as error:
            raise GraphError(f"line {number}: {error!r} cannot be read in: {line}") from error
    return Graph(json.loads(lines[0].removeprefix("graph ")), tuple(inputs), tuple(states), tuple(nodes), tuple(outputs), tuple(updates))


def _read_value(values: dict[int, Value], number: str, dtype: str, shape: str) -> Value:
    made = values[int(number)] = Value(int(number), Type(dtype, tuple(int(n) for n in shape.split(",") if n)))
    return made


def _read_node(values: dict[int, Value], found: re.Match[str]) -> Node:
    words = [word for word in found[4].split(", ") if word]
    inputs = tuple(None if word == "_" else values[int(word.removeprefix("%"))] for word in words)
    outputs = tuple(_read_value(values, *match.groups()) for match in re.finditer(_VALUE, found[2]))
    facts: dict[str, Any] = json.loads(found[6])
    attrs = {name: _read_attr(value) for name, value in json.loads(found[5]).items()}
    origins = tuple(facts.get("from", ()))
    return Node(int(found[1]), found[3], inputs, attrs, outputs, facts.get("owner", ""), facts.get("at", ""), facts.get("of"), origins)


def _read_attr(value: Any) -> Attr:
    made: Attr = tuple(value) if isinstance(value, list) else value
    return made
