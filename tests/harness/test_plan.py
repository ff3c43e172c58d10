"""What a verification runs: listed problems, distributions where they are cheap, and sizes that the op does not list."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.spec import Problem
from harness.verify.plan import Effort, describe_plan, find_size, make_hidden_problems, make_plan
from tests.harness.toy_op import make_toy

SIZES = st.fixed_dictionaries({d: st.integers(1, 300) for d in "MNK"})


@settings(max_examples=40, deadline=None)
@given(st.lists(SIZES, min_size=1, max_size=6, unique_by=lambda s: tuple(s.values())), st.integers(0, 6))
def test_hidden_problems_are_new_bounded_and_the_same_every_time(sizes: list[dict[str, int]], count: int) -> None:
    op = make_toy(problems=tuple(Problem(s) for s in sizes))
    effort = Effort(num_hidden=count)
    hidden = make_hidden_problems(op, effort)
    assert len(hidden) <= count
    assert {p.name for p in hidden}.isdisjoint(p.name for p in op.problems)
    assert all(find_size(op, p) <= effort.max_hidden_flops for p in hidden)
    largest = {d: max(s[d] for s in sizes) for d in "MNK"}
    assert all(1 <= p.sizes[d] <= 2 * largest[d] for p in hidden for d in "MNK")
    assert [p.name for p in make_hidden_problems(op, effort)] == [p.name for p in hidden]


def test_attributes_and_padding_stay_with_the_problem() -> None:
    base = Problem({"M": 17, "N": 9, "K": 5}, {"bias": True}, {"A": 3, "Y": 5})
    (hidden,) = make_hidden_problems(make_toy(problems=(base,)), Effort(num_hidden=1))
    assert (dict(hidden.attributes), dict(hidden.padding)) == (dict(base.attributes), dict(base.padding))


def test_large_problems_run_on_normal_inputs_alone() -> None:
    op = make_toy(problems=(Problem({"M": 8, "N": 8, "K": 8}), Problem({"M": 400, "N": 400, "K": 400})))
    small, large = (s for s in make_plan(op, Effort()) if not s.hidden)
    limit = Effort(max_listed_flops=find_size(op, small.problem))
    assert [s.problem for s in make_plan(op, limit) if not s.hidden] == [small.problem]
    assert make_plan(op, limit, [large.problem.name])[0].problem == large.problem, "a problem that is named is run"
    assert small.distributions == ("uniform", "wide", "ties", "denormal", "nonfinite")
    assert large.distributions == ()
    text = describe_plan(op, make_plan(op, Effort()))
    assert text.startswith("2 problems on normal inputs, 1 of them also on uniform, wide, ties, denormal, nonfinite; ")


def test_named_problems_run_alone() -> None:
    op = make_toy()
    steps = make_plan(op, Effort(), ["M1_N1_K1"])
    assert [(s.problem.name, s.hidden) for s in steps] == [("M1_N1_K1", False)]


def test_an_op_with_only_large_problems_has_no_hidden_ones() -> None:
    assert make_hidden_problems(make_toy(problems=(Problem({"M": 4096, "N": 4096, "K": 4096}),)), Effort()) == []
