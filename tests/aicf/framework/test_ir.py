"""Graphs: the text form, the diff, and every rule of validity with a graph that breaks it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicf.errors import GraphError
from aicf.ir import RULES, Graph, Node, Rewriter, State, Value, check, diff, parse, to_text
from aicf.opset import Type
from tests.aicf.framework.random_graphs import make_dag, make_network

T = Type("float32", (2, 3))
X, P, M = Value(0, T), Value(1, T), Value(2, T)
Y, Z = Value(3, T), Value(5, T)
ADD = Node(4, "Elementwise", (X, P), {"function": "add"}, (Y,), "layer", "user.py:3")
NEG = Node(6, "Elementwise", (Y,), {"function": "neg"}, (Z,), differentiates=4, origins=(4,))
STATES = (State(P, "layer.weight", "parameter"), State(M, "layer.weight", "exp_avg"))
GOOD = Graph("good", (("x", X),), STATES, (ADD, NEG), (Z,), ((P, Z),))

BROKEN = {
    "define_before_use": [
        replace(GOOD, nodes=(NEG, ADD)),
        replace(GOOD, outputs=(Value(9, T),)),
        replace(GOOD, updates=((P, Value(9, T)),)),
    ],
    "define_once": [
        replace(GOOD, nodes=(ADD, replace(NEG, outputs=(Y,))), outputs=(Y,), updates=()),
        replace(GOOD, nodes=(ADD, replace(NEG, id=4))),
    ],
    "agree_on_types": [
        replace(GOOD, nodes=(ADD, replace(NEG, outputs=(Value(5, Type("float32", (3,))),)))),
        replace(GOOD, nodes=(ADD, replace(NEG, inputs=(Value(3, Type("float64", (2, 3))),)))),
        replace(GOOD, nodes=(replace(ADD, inputs=(X,)), NEG)),
    ],
    "know_every_op": [
        replace(GOOD, nodes=(ADD, replace(NEG, op="Elementwisely"))),
        replace(GOOD, nodes=(ADD, replace(NEG, attrs={"function": "neg", "axis": 1}))),
    ],
    "own_each_state_once": [
        replace(GOOD, states=(*STATES, State(Value(7, T), "layer.weight", "parameter"))),
        replace(GOOD, states=(STATES[0], State(M, "other", "exp_avg"))),
        replace(GOOD, states=(STATES[0], State(M, "", "control"))),
    ],
    "update_states_only": [
        replace(GOOD, updates=((X, Z),)),
        replace(GOOD, updates=((P, Z), (P, Y))),
        replace(
            GOOD,
            states=(State(Value(1, T), "p", "parameter"), State(Value(8, Type("int64", ())), "n", "control")),
            updates=((Value(8, Type("int64", ())), Z),),
        ),
    ],
    "differentiate_backwards": [
        replace(GOOD, nodes=(replace(ADD, differentiates=6), NEG)),
        replace(GOOD, nodes=(ADD, replace(NEG, differentiates=6))),
    ],
}


def test_a_good_graph_is_valid() -> None:
    check(GOOD)


def test_every_rule_has_a_graph_that_breaks_it() -> None:
    assert set(BROKEN) == {rule.__name__ for rule in RULES}


@pytest.mark.parametrize(("rule", "graph"), [(rule, graph) for rule, graphs in BROKEN.items() for graph in graphs])
def test_a_graph_that_breaks_a_rule_is_refused_by_that_rule(rule: str, graph: Graph) -> None:
    with pytest.raises(GraphError, match=f"breaks {rule}"):
        check(graph)


def test_nodes_that_were_found_sound_are_kept_by_copies_and_a_changed_one_is_checked() -> None:
    rewriter = Rewriter(GOOD)
    assert all(rewriter.copy(node) is node for node in GOOD.nodes) and rewriter.finish() == GOOD
    sound: dict[int, Node] = {}
    check(GOOD, "", sound)
    assert set(map(id, GOOD.nodes)) == set(sound)
    for graph in (*BROKEN["agree_on_types"], *BROKEN["know_every_op"]):
        with pytest.raises(GraphError):
            check(graph, "", sound)
        assert len(sound) == 2


@given(st.integers(0, 10**9))
@settings(max_examples=100, deadline=None)
def test_text_reads_back_as_the_same_graph(seed: int) -> None:
    graph = make_network(seed)
    check(graph)
    assert parse(to_text(graph)) == graph
    assert to_text(parse(to_text(graph))) == to_text(graph)


def test_text_keeps_strange_names_and_numbers() -> None:
    graph = replace(
        GOOD,
        name='a "quoted" name',
        inputs=(('x "y" % (', X),),
        nodes=(
            replace(ADD, source="C:\\dir with ) {space}:3", owner='a.{"b"}'),
            NEG,
            Node(9, "Full", (), {"value": float("inf"), "dtype": "float32", "shape": ()}, (Value(10, Type("float32", ())),)),
        ),
    )
    assert parse(to_text(graph)) == graph


@pytest.mark.parametrize(
    "text", ["", "nonsense", 'graph "g"\nwhat is this', 'graph "g"\noutput %7', 'graph "g"\n#1 %2: float32[] = Full() {bad} {}']
)
def test_text_that_cannot_be_read_names_the_line(text: str) -> None:
    with pytest.raises(GraphError, match=r"line|begins"):
        parse(text)


def test_a_diff_has_what_changed_and_nothing_else() -> None:
    other = replace(GOOD, nodes=(ADD, replace(NEG, attrs={"function": "tanh"})), outputs=(Y,))
    lines = diff(GOOD, other)
    assert [line[:4] for line in lines] == ["- #6", "+ #6", "- ou", "+ ou"]
    assert diff(GOOD, GOOD) == []


def test_random_dags_are_valid() -> None:
    import random

    for seed in range(50):
        check(make_dag(random.Random(seed), 2)[0])


def test_the_pictures_of_the_documentation_are_what_is_drawn(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[3]
    subprocess.run([sys.executable, root / "scripts" / "draw_framework.py", "--to", tmp_path], cwd=root, check=True)
    for made in sorted(tmp_path.iterdir()):
        kept = root / "docs" / "pictures" / made.name
        assert kept.read_text() == made.read_text(), f"{kept} is out of date: python scripts/draw_framework.py"
