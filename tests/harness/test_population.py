"""Drawing problems: inside their ranges, the same on every machine, none that is listed, and each one a problem of the op."""

from __future__ import annotations

import json
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.compare.drawn.problems import describe_problem, draw_problems, identify, read_problem
from harness.discover import find_op, find_ops
from harness.spec import Group, LogRange, Op, Population, Problem, SpecError
from tests.harness.toy_op import make_toy

OPS = {name: find_op(name).op for name in find_ops()}
GROUP = Group("small", "small", {"M": LogRange(1, 64), "N": (8, 16), "K": lambda sizes: sizes["M"]}, ("numpy",), {"relu": (True,)})


def make_op(*groups: Group) -> Op:
    return make_toy(population=Population(groups or (GROUP,)))


@given(st.data(), st.integers(1, 1 << 20), st.integers(1, 1 << 24), st.integers(1, 64))
def test_a_size_is_within_its_range_and_a_whole_multiple(data: st.DataObject, low: int, span: int, multiple: int) -> None:
    high = low + span + multiple
    drawn = LogRange(low, high, multiple)
    size = drawn.pick(data.draw(st.floats(0, 1, exclude_max=True)))
    assert low <= size <= high and size % multiple == 0 and drawn.holds(size)


def test_a_range_is_even_over_the_logarithm_and_reaches_both_ends() -> None:
    sizes = [LogRange(1, 1024).pick(i / 4096) for i in range(4096)]
    assert (LogRange(1, 1024).pick(0.0), LogRange(1, 1024).pick(0.99999)) == (1, 1024)
    below = sum(s < 32 for s in sizes)
    assert 0.45 < below / len(sizes) < 0.55


@pytest.mark.parametrize("arguments", [(0, 5), (7, 6), (9, 15, 8)])
def test_a_range_that_holds_nothing_is_refused(arguments: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="LogRange"):
        LogRange(*arguments)


@pytest.mark.parametrize("name", OPS)
@given(seed=st.integers(0, 2**32))
def test_every_op_draws_problems_of_its_own_that_it_does_not_list(name: str, seed: int) -> None:
    op = OPS[name]
    assert op.population is not None
    listed = {identify(op, p) for p in op.problems}
    drawn = draw_problems(op, 20, seed)
    assert len({identify(op, d.problem) for d in drawn} - listed) == 20
    for d in drawn:
        op.check_problem(d.problem)
        for size, rule in d.group.sizes.items():
            if isinstance(rule, LogRange):
                assert rule.holds(d.problem.sizes[size])
            elif isinstance(rule, tuple):
                assert d.problem.sizes[size] in rule
        assert d.group.keep(d.problem.sizes)
        assert set(d.problem.padding.values()) <= {v for values in d.group.padding.values() for v in values}
        assert identify(op, read_problem(json.loads(json.dumps(describe_problem(d.problem))))) == identify(op, d.problem)


# Of the first 40 problems of seed 7: whoever changes a population or the way of drawing changes what earlier seeds meant.
GOLDEN = {
    "gemm_backward": "b485e3b39d77fa40",
    "gemm_bias_act": "6b4561ab8626a07a",
    "softmax": "3ee3b8515a5649a8",
    "transpose": "a25e25d0093a9bfd",
}


@pytest.mark.parametrize("name", [name for name, op in OPS.items() if op.population is not None])
def test_every_op_has_problems_for_a_page_of_many(name: str) -> None:
    """No group is exhausted by what a user would ask for."""
    assert len(draw_problems(OPS[name], 120, 1)) == 120


@pytest.mark.parametrize("name", GOLDEN)
def test_a_seed_means_the_same_problems_on_every_machine(name: str) -> None:
    names = "\n".join(d.problem.name for d in draw_problems(OPS[name], 40, 7))
    assert sha256(names.encode()).hexdigest()[:16] == GOLDEN[name]


def test_fewer_problems_are_the_first_of_more_and_meet_every_group() -> None:
    op = OPS["gemm_bias_act"]
    assert op.population is not None
    many = draw_problems(op, 60, 3)
    few = draw_problems(op, 14, 3)
    assert few == many[:14]
    assert {d.group.name for d in few} == {g.name for g in op.population.groups}


def test_groups_are_met_by_weight() -> None:
    heavy = Group("heavy", "heavy", {"M": LogRange(1, 999), "N": (8,), "K": (8,)}, (), weight=3)
    light = Group("light", "light", {"M": LogRange(1, 999), "N": (16,), "K": (8,)}, ())
    drawn = [d.group.name for d in draw_problems(make_op(heavy, light), 40, 1)]
    assert drawn.count("heavy") == 30


def test_a_group_that_is_added_moves_no_other_groups_problems() -> None:
    other = Group("other", "other", {"M": (3,), "N": LogRange(1, 500), "K": (4,)}, ())
    alone = [d.problem for d in draw_problems(make_op(), 6, 5)]
    beside = [d.problem for d in draw_problems(make_op(GROUP, other), 12, 5) if d.group.name == "small"]
    assert beside == alone


def test_sizes_follow_from_those_before_and_ties_are_held() -> None:
    assert all(d.problem.sizes["K"] == d.problem.sizes["M"] for d in draw_problems(make_op(), 10, 0))
    tied = [d.problem for d in draw_problems(OPS["gemm_backward"], 60, 0) if d.problem.attributes.get("with_w") is False]
    assert tied and all(p.sizes["N"] == p.sizes["K"] and p.attributes["with_dw"] is False for p in tied)


def test_a_group_that_is_exhausted_says_so_and_an_op_without_population_too() -> None:
    one = Group("one", "one", {"M": (5,), "N": (6,), "K": (7,)}, ())
    assert len(draw_problems(make_op(one), 1, 0)) == 1
    with pytest.raises(SpecError, match="group one: 2000 draws gave no new problem"):
        draw_problems(make_op(one), 2, 0)
    with pytest.raises(SpecError, match="no population to draw from"):
        draw_problems(make_toy(), 1, 0)


def test_a_listed_problem_is_never_drawn() -> None:
    op = make_toy(
        problems=(Problem({"M": 5, "N": 6, "K": 7}),), population=Population((Group("one", "", {"M": (5, 8), "N": (6,), "K": (7,)}, ()),))
    )
    assert [d.problem.sizes["M"] for d in draw_problems(op, 1, 0)] == [8]


@pytest.mark.parametrize(
    ("group", "text"),
    [
        (Group("g", "", {"M": (1,)}, (), {"nope": (1,)}), "attribute nope"),
        (Group("g", "", {"M": (1,)}, (), {"relu": (7,)}), "attribute relu"),
        (Group("g", "", {"M": (1,)}, (), padding={"B": (1,)}), "tensor B cannot have padded rows"),
    ],
)
def test_a_population_that_is_not_the_ops_is_refused(group: Group, text: str) -> None:
    with pytest.raises(SpecError, match=text):
        make_op(group)


def test_a_populations_names_are_identifiers_and_different() -> None:
    with pytest.raises(ValueError, match="use lower-case letters"):
        Group("Small rows", "", {}, ())
    with pytest.raises(ValueError, match="defined more than once"):
        Population((GROUP, GROUP))
