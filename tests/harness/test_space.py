"""The space of tunables: what is in it, and what a sample of it holds."""

from __future__ import annotations

from harness.spec import Constraint, Kernel, Problem, Tunable
from harness.sweep.space import list_space, order_grid, sample_space, select_sweep_problems
from tests.harness.toy_op import make_toy

KERNEL = Kernel(
    "grid",
    "for the test",
    (Tunable("a", (1, 2, 4), "rows"), Tunable("b", (1, 2, 3, 5), "columns")),
    (Constraint("even", "a * b must be even", lambda t: t["a"] * t["b"] % 2 == 0),),
    ({"a": 4, "b": 5},),
)


def test_the_space_is_every_binding_that_the_constraints_allow() -> None:
    found = {(v.tunables["a"], v.tunables["b"]) for v in list_space(KERNEL)}
    assert found == {(a, b) for a in (1, 2, 4) for b in (1, 2, 3, 5) if a * b % 2 == 0}
    assert all(KERNEL.bind(v.tunables) == v for v in list_space(KERNEL))


def test_a_sample_holds_the_listed_variants_and_grows_by_adding() -> None:
    op = make_toy(kernels=(KERNEL, Kernel("plain", "no tunables")))
    small, large = sample_space(op, 1), sample_space(op, 4)
    assert set(op.variants) == set(small) < set(large)
    for kernel in op.kernels:
        size = sum(1 for _ in list_space(kernel))
        assert sum(v.kernel == kernel.name for v in large) == min(size, max(4, len(kernel.variants)))
    assert len(set(large)) == len(large)
    assert sample_space(op, 4) == large


def test_a_grid_begins_with_what_is_listed_and_mixes_the_rest() -> None:
    large = Kernel("large", "for the test", (Tunable("n", tuple(range(64)), "how many"),), (), ({"n": 7}, {"n": 3}))
    op = make_toy(kernels=(KERNEL, large))
    grid = order_grid(op)
    assert grid[:3] == op.variants
    assert sorted(v.name for v in grid) == sorted(v.name for kernel in op.kernels for v in list_space(kernel))
    halves = grid[3:35], grid[35:]
    assert all(8 < sum(v.kernel == "large" and v.tunables["n"] < 32 for v in half) < 24 for half in halves)
    assert order_grid(op) == grid


def test_a_sweep_takes_its_own_problems_or_those_of_bench() -> None:
    sizes = {"M": 16, "N": 16, "K": 16}
    marked = [
        Problem({**sizes, "M": m}, suites=frozenset(suites.split())) for m, suites in enumerate(("verify", "bench", "bench sweep"), 1)
    ]
    assert select_sweep_problems(make_toy(problems=tuple(marked))) == (marked[2],)
    assert select_sweep_problems(make_toy(problems=tuple(marked[:2]))) == (marked[1],)
    assert select_sweep_problems(make_toy(problems=tuple(marked)), [marked[0].name]) == (marked[0],)
