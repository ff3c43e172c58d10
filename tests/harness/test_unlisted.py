"""Problems drawn from an op: the same each time, within their limits, and with some of every stride, address and size."""

from __future__ import annotations

import math

import pytest

from harness.discover import find_op
from harness.spec import Problem, SpecError
from harness.verify.plan import THOROUGH, Effort, includes_proof, make_plan, make_pools
from harness.verify.unlisted import Deck, draw_problems, find_unit, make_generator
from harness.verify.unlisted_corners import draw_corner_problems
from harness.verify.unlisted_large import draw_large_problems
from tests.harness.toy_op import make_toy

SOFTMAX, GEMM = find_op("softmax").op, find_op("gemm_bias_act").op
OPS = pytest.mark.parametrize("op", [SOFTMAX, GEMM, find_op("transpose").op, find_op("gemm_backward").op], ids=lambda op: op.name)


def draw(op: object, seed: int = 0, count: int = 96) -> list[Problem]:
    return draw_problems(op, seed, count, 2.0**17, 8e6)  # type: ignore[arg-type]


@OPS
def test_draws_are_new_small_and_the_same_each_time(op: object) -> None:
    problems = draw(op)
    assert len(problems) > 80
    assert {p.name for p in problems}.isdisjoint(p.name for p in op.problems)  # type: ignore[attr-defined]
    assert all(op.cost(p).bytes_moved <= 2.0**17 and op.cost(p).flops <= 8e6 for p in problems)  # type: ignore[attr-defined]
    assert [p.name for p in problems] == [p.name for p in draw(op)]
    assert [p.name for p in problems] != [p.name for p in draw(op, seed=1)]


def test_a_few_draws_have_strides_and_addresses_of_every_sort() -> None:
    problems = draw(SOFTMAX, count=12)
    strides = [p.sizes["columns"] + p.padding.get("x", 0) for p in problems]
    paddings = [p.padding.get(name, 0) / p.sizes["columns"] for p in problems for name in ("x", "y")]
    assert any(s % 2 for s in strides) and any(s % 4 == 0 for s in strides)
    assert 0.0 in paddings and max(paddings) > 2.0
    for name in ("x", "y"):
        offsets = [p.offsets[name] for p in problems]
        assert any(o == 0 for o in offsets) and any(o % 4 for o in offsets) and any(o and o % 4 == 0 for o in offsets)


def test_one_in_four_is_aligned_in_every_tensor() -> None:
    def is_aligned(problem: Problem) -> bool:
        units = {t.name: find_unit(t, problem) for t in GEMM.tensors}
        rows = {t.name: t.resolve_shape(problem)[-1] for t in GEMM.tensors if t.present(problem) and t.can_pad_rows}
        strides = all((n + problem.padding.get(name, 0)) % units[name] == 0 for name, n in rows.items())
        return strides and all(offset % units[name] == 0 for name, offset in problem.offsets.items())

    problems = draw(GEMM)
    assert sum(map(is_aligned, problems)) >= len(problems) // 5


def test_a_deck_deals_each_number_before_any_comes_again() -> None:
    deck = Deck(make_generator(SOFTMAX, "test", 0), 5)
    assert all(sorted(deck.deal() for _ in range(5)) == [0, 1, 2, 3, 4] for _ in range(4))


@OPS
def test_large_problems_reach_the_benched_sizes_and_beyond_32_bit_indices(op: object) -> None:
    large = draw_large_problems(op, 0)  # type: ignore[arg-type]
    sizes = large.bench[0].sizes
    assert len(large.stretched) == len(large.beyond) == len(large.many) == len(sizes)
    assert {p.name for p in large.bench} == {p.name for p in op.select_problems("bench")}  # type: ignore[attr-defined]
    for name in sizes:
        most = max(p.sizes[name] for p in large.bench)
        assert max(p.sizes[name] for group in large.stretched for p in group) == 1 << (most.bit_length() - 1)
        assert max(p.sizes[name] for group in large.beyond for p in group) > most
        assert max(p.sizes[name] for group in large.many for p in group) > 2**17
    assert all(op.cost(p).bytes_moved <= 8e6 for group in large.many for p in group), "all blocks are run"  # type: ignore[attr-defined]

    def count_span(problem: Problem, tensor: object) -> int:
        shape = tensor.resolve_shape(problem)  # type: ignore[attr-defined]
        stride = shape[-1] + problem.padding.get(tensor.name, 0)  # type: ignore[attr-defined]
        return (math.prod(shape[:-1]) - 1) * stride + shape[-1]

    for problem in large.distant:
        padded = [t for t in op.tensors if problem.padding.get(t.name)]  # type: ignore[attr-defined]
        assert padded and all(count_span(problem, t) > 2**32 for t in padded)
        assert all(math.prod(t.resolve_shape(problem)) <= 1024 for t in padded)
    assert all(any(math.prod(t.resolve_shape(p)) > 2**32 for t in op.tensors if t.present(p)) for p in (*large.vast, *large.odd))  # type: ignore[attr-defined]
    rows = [p.sizes for p in large.odd]
    assert all(1021 in sizes.values() and 1024 not in sizes.values() for sizes in rows), "no access takes several elements"


def test_of_an_op_of_many_sizes_some_are_stretched_in_each_way_and_most_in_one() -> None:
    op = find_op("strided_copy").op
    large = draw_large_problems(op, 0)
    assert (len(large.stretched), len(large.beyond), len(large.many)) == (3, 3, 3)
    # What no problem has is small in all that are drawn: the largest is the one that is stretched.
    benched = {name: max(p.sizes[name] for p in large.bench) for name in large.bench[0].sizes}
    beyond = [name for group in large.beyond for name in benched if group and all(p.sizes[name] >= benched[name] for p in group)]
    many = [name for group in large.many for name in benched if group and all(p.sizes[name] > 2**17 for p in group)]
    assert beyond and many and set(beyond).isdisjoint(many)


def test_only_where_results_are_places_is_one_searched_for_beyond_the_whole_numbers_of_fp32() -> None:
    found = draw_large_problems(find_op("reduce").op, 0).searches
    assert found and all(dict(p.attributes)["reduction"] == "argmax" for group in found for p in group)
    assert draw_large_problems(find_op("strided_copy").op, 0).searches == [], "integers that are moved are no places"


@OPS
def test_corners_are_special_in_one_thing(op: object) -> None:
    groups = draw_corner_problems(op, 0, 2.0**17, 8e6)  # type: ignore[arg-type]
    assert groups == draw_corner_problems(op, 0, 2.0**17, 8e6)  # type: ignore[arg-type]
    assert all(op.cost(p).bytes_moved <= 2.0**17 and op.cost(p).flops <= 8e6 for group in groups for p in group)  # type: ignore[attr-defined]
    ragged, whole, *off = groups
    for p in (*ragged, *whole):
        assert len(set(p.sizes.values())) == 1 and max(p.sizes.values()) >= 16 and not p.offsets
    assert all(size % 8 == 0 for p in whole for size in p.sizes.values()) and any(size % 2 for p in ragged for size in p.sizes.values())
    tensors = op.tensors  # type: ignore[attr-defined]
    assert len(off) == 2 * len(tensors)
    for group, tensor, is_half in zip(off, (*tensors, *tensors), [False] * len(tensors) + [True] * len(tensors), strict=True):
        assert group and all(p.offsets.keys() == {tensor.name} and not p.padding for p in group)
        assert all((p.offsets[tensor.name] * 2 % find_unit(tensor, p) == 0) is is_half for p in group if find_unit(tensor, p) > 2)


def test_only_the_larger_effort_draws() -> None:
    assert make_pools(SOFTMAX, Effort())[0].steps == ()
    corners = 2 + 2 * len(SOFTMAX.tensors)
    assert [pool.count for pool in make_pools(SOFTMAX, THOROUGH)] == [12, *[1] * corners, *[1] * 6, 3, 1, 1, 1]
    wholes = [pool.steps[0].whole for pool in make_pools(SOFTMAX, THOROUGH) if pool.steps[0].large]
    assert wholes == [False] * 4 + [True] * 2 + [False] * 4, "one for each size, all of whose blocks are run"
    assert all(s.hidden for pool in make_pools(SOFTMAX, THOROUGH) for s in pool.steps)


def test_a_drawn_problem_can_be_named_to_repeat_a_finding() -> None:
    wanted = make_pools(SOFTMAX, THOROUGH)[0].steps[3].problem
    (step,) = make_plan(SOFTMAX, THOROUGH, [wanted.name])
    assert step.problem == wanted
    with pytest.raises(SpecError, match="no problem 'rows0'"):
        make_plan(SOFTMAX, THOROUGH, ["rows0"])


def test_a_smaller_proof_is_no_larger_one() -> None:
    assert (Effort().proof, THOROUGH.proof) == ("listed", "drawn")
    assert Effort(num_drawn=12).proof == "listed"
    assert includes_proof({"proof": "drawn"}, "drawn") and includes_proof({"proof": "drawn"}, "listed")
    assert includes_proof({}, "listed") and not includes_proof({}, "drawn") and not includes_proof({"proof": "listed"}, "drawn")


def test_offsets_belong_to_a_problem_and_its_name() -> None:
    problem = Problem({"M": 2, "N": 3, "K": 4}, {}, {"A": 1}, offsets={"A": 3, "Y": 0})
    assert problem.name == "M2_N3_K4-pad_A=1-at_A=3"
    with pytest.raises(SpecError, match="offset A=-1: must not be negative"):
        Problem({"M": 2}, offsets={"A": -1})
    with pytest.raises(SpecError, match="offset of unknown tensor Q"):
        make_toy(problems=(Problem({"M": 2, "N": 3, "K": 4}, offsets={"Q": 1}),))
