"""What a selection costs: ``pytest tests/aicf/test_selection_cost.py --benchmark-enable``; in the test run each is only called once.

The aims are 5 us where the same problem was asked before and 50 us for a new one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from aicf.registry import HwCaps, KernelHandle, Problem, Registry

HOPPER = HwCaps(9, 0)
BFLOAT16 = {"dtype": "bfloat16", "b_layout": "nk", "act": "silu", "with_bias": True}
SPREAD = (64, 256, 1024, 4096, 16384)


@pytest.fixture(scope="module")
def registry() -> Registry:
    """The project's kernels without their survey, with times of all of them on 125 made-up problems of one group, more than any op has."""
    registry = Registry()
    read = registry.read("gemm_bias_act")
    attributes = {a["name"]: a["default"] for a in read.frozen.interface["attributes"]} | BFLOAT16
    tables = registry.find_tables("gemm_bias_act", HOPPER)
    asked = tables.core.ask(tables.interface.make_query(next(draw_problems())))
    group = tables.core.table.names.axes.name_group(tables.core.find_classes(asked))
    facts = {"mode": "cold", "arch": "sm_90a", "attributes": attributes, "group": group}
    medians: list[dict[str, Any]] = []
    for m, n, k in itertools.product(SPREAD, SPREAD, SPREAD):
        for i, kernel in enumerate(read.frozen.kernels):
            row = {"problem": f"M{m}_N{n}_K{k}", "sizes": {"M": m, "N": n, "K": k}, "kernel": kernel, "median_us": 1.0 + i}
            medians.append(facts | row)
    filled = Registry.holding(replace(read.frozen, medians=tuple(medians), surveys={}))
    filled.select("gemm_bias_act", next(draw_problems()), HOPPER)
    return filled


def draw_problems() -> Iterator[Problem]:
    """Yield problems that were not asked before."""
    for n in itertools.count(4096, 8):
        yield Problem({"M": 1000, "N": n, "K": 4096}, BFLOAT16)


def test_select_on_a_repeat(benchmark: Any, registry: Registry) -> None:
    problem = next(draw_problems())
    assert benchmark(lambda: registry.select("gemm_bias_act", problem, HOPPER)).how == "near"


def test_select_on_a_new_problem(benchmark: Any, registry: Registry) -> None:
    assert time_new_problems(benchmark, registry, draw_problems()).how == "near"


def test_select_on_a_new_problem_by_the_survey(benchmark: Any) -> None:
    assert time_new_problems(benchmark, Registry(), draw_problems()).how == "surveyed"


def test_select_on_a_new_problem_that_nothing_was_measured_near(benchmark: Any, registry: Registry) -> None:
    """Then an estimate is made for every winner that serves the call."""
    bare = Registry.holding(replace(registry.read("gemm_bias_act").frozen, medians=()))
    problems = (Problem(p.sizes, BFLOAT16 | {"b_layout": "kn"}) for p in draw_problems())
    bare.select("gemm_bias_act", next(problems), HOPPER)
    assert time_new_problems(benchmark, bare, problems).how == "prior"


def time_new_problems(benchmark: Any, registry: Registry, problems: Iterator[Problem]) -> KernelHandle:
    """Return the last answer."""
    handle: KernelHandle = benchmark.pedantic(
        lambda problem: registry.select("gemm_bias_act", problem, HOPPER),
        setup=lambda: ((next(problems),), {}),
        rounds=2000,
        warmup_rounds=100,
    )
    return handle
