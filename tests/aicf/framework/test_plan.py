"""Plans: places and waits of random graphs held to the independent verifier, and the verifier held to plans that are wrong."""

from __future__ import annotations

import itertools
import json
import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import aicf
from aicf import Tensor, nn, optim
from aicf import functional as F
from aicf.errors import PlanError
from aicf.ir import Graph, Rewriter, Value
from aicf.opset import Type
from aicf.plan import Plan, Slot, Step, load_plan, make_plan, save_plan, verify
from aicf.plan.arena import align, place
from aicf.plan.schedule import Clocks, find_conflicts, find_lower_bound
from aicf.plan.verifier import find_faults
from aicf.runtime.host import HostExecutor
from tests.aicf.framework.random_graphs import make_dag, make_values
from tests.aicf.framework.test_passes import interpret


@pytest.mark.parametrize("num_streams", [1, 2, 4])
def test_plans_of_random_graphs_are_right(num_streams: int, by_tier: Callable[[int, int], int]) -> None:
    """10,000 random graphs over the three cases with the slow tests; one in 25 is run, in a random order that streams allow."""
    rng = random.Random(num_streams)
    for i in range(by_tier(200, 3334)):
        graph, streams = make_dag(rng, num_streams)
        plan = make_plan(graph, "numpy", streams=streams)
        verify(plan)
        assert plan.sizes["arena"] >= plan.lower_bound_bytes
        if i % 25 == 0:
            check_values(graph, plan, rng, i)


def check_values(graph: Graph, plan: Plan, rng: random.Random, seed: int) -> None:
    inputs, states = make_values(graph, seed)
    executor = HostExecutor(plan)
    executor.load_states(states)
    executor.put(inputs)
    run_in_any_order(executor, rng)
    found = [np.array(executor.view(slot)) for slot in (*plan.outputs, *(s.slot for s in plan.states))]
    for x, y in zip(found, interpret(graph, seed), strict=True):
        assert np.array_equal(x, y, equal_nan=True)


def run_in_any_order(executor: HostExecutor, rng: random.Random) -> None:
    """Run steps as streams might: each behind those before it on its stream and those that it waits for, else in a random order."""
    steps, done = executor.plan.steps, set()
    queues = {s: [i for i, step in enumerate(steps) if step.stream == s] for s in {step.stream for step in steps}}
    while any(queues.values()):
        ready = [q for q in queues.values() if q and all(j in done for j in steps[q[0]].waits)]
        i = rng.choice(ready).pop(0)
        op, arrays, attrs, outputs = executor._calls[i]
        for output, made in zip(outputs, op.evaluate(arrays, attrs), strict=True):
            output[...] = made
        done.add(i)


def make_example(num_streams: int, seed: int = 5) -> Plan:
    rng = random.Random(seed)
    while True:
        graph, streams = make_dag(rng, num_streams)
        plan = make_plan(graph, "numpy", streams=streams)
        shared = len({(s.region, s.offset) for step in plan.steps for s in step.outputs if s.region == "arena"})
        made = sum(s.region == "arena" for step in plan.steps for s in step.outputs)
        if made >= 5 and shared < made and (num_streams == 1 or any(step.waits for step in plan.steps)):
            return plan


def change(plan: Plan, index: int, make: Callable[[Step], Step]) -> Plan:
    return replace(plan, steps=tuple(make(step) if i == index else step for i, step in enumerate(plan.steps)))


def move(slot: Slot, offset: int) -> Slot:
    return replace(slot, offset=offset)


def drop_writer(plan: Plan) -> Plan:
    """Return the plan without the first step whose output a later one reads."""
    read = {slot.buffer for step in plan.steps for slot in step.reads}
    at = next(i for i, step in enumerate(plan.steps) if any(slot.buffer in read for slot in step.outputs))
    return replace(plan, steps=plan.steps[:at] + plan.steps[at + 1 :])


def test_every_buffer_in_one_place_is_found() -> None:
    plan = make_example(1)
    moved = tuple(
        replace(
            step,
            inputs=tuple(s if s is None or s.region != "arena" else move(s, 0) for s in step.inputs),
            outputs=tuple(s if s.region != "arena" else move(s, 0) for s in step.outputs),
        )
        for step in plan.steps
    )
    with pytest.raises(PlanError, match=r"share bytes while both are alive|over .* which it reads"):
        verify(replace(plan, steps=moved))


def test_a_wait_that_is_left_out_is_found() -> None:
    """Each wait of a plan is needed: without it a read or a shared byte is out of order."""
    for seed in range(20):
        plan = make_example(2, seed)
        for i, step in enumerate(plan.steps):
            for j in step.waits:
                broken = change(plan, i, lambda s, j=j: replace(s, waits=tuple(w for w in s.waits if w != j)))
                assert list(find_faults(broken)), (seed, i, j)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda p: change(p, 0, lambda s: replace(s, waits=(3,))), "waits for step 3, which does not come before"),
        (lambda p: change(p, 0, lambda s: replace(s, outputs=(move(s.outputs[0], 2**20),))), "is not inside the"),
        (lambda p: change(p, 0, lambda s: replace(s, outputs=(move(s.outputs[0], 4),))), "is not aligned|not inside"),
        (lambda p: change(p, 0, lambda s: replace(s, outputs=(replace(s.outputs[0], region="nowhere"),))), "which does not exist"),
        (lambda p: drop_writer(p), "which nothing writes"),
        (lambda p: replace(p, steps=(*p.steps, p.steps[-1])), "has written"),
        (lambda p: change(p, 0, lambda s: replace(s, outputs=(p.inputs[0][1],))), "for callers to write|over"),
    ],
)
def test_a_wrong_plan_is_refused(make: Callable[[Plan], Plan], words: str) -> None:
    plan = make_example(1)
    with pytest.raises(PlanError, match=words):
        verify(make(plan))


def test_a_plan_reads_back_as_the_same(tmp_path: Path) -> None:
    for seed in range(20):
        plan = make_example(2, seed)
        save_plan(plan, tmp_path / "plan.json")
        loaded = load_plan(tmp_path / "plan.json")
        assert loaded == plan
        assert loaded.diff(plan) == []


def test_a_plan_that_was_saved_before_an_op_grew_means_what_it_meant(tmp_path: Path) -> None:
    """gemm_backward had no totals once: neither the input nor the attribute."""
    b = Rewriter(Graph("g", (), (), (), ()))
    dy, w, x = (Value(b.make_id(), Type("float32", shape)) for shape in ((4, 3), (3, 5), (4, 5)))
    b.graph = Graph("g", (("dy", dy), ("w", w), ("x", x)), (), (), ())
    plan = make_plan(b.finish(b.call("gemm_backward", (dy, w, x, None, None), {})), "numpy")
    save_plan(plan, tmp_path / "plan.json")
    document = json.loads((tmp_path / "plan.json").read_text())
    (step,) = document["steps"]
    assert step["inputs"].pop() is None and step["attrs"].pop("accumulate") is False
    (tmp_path / "plan.json").write_text(json.dumps(document))
    assert load_plan(tmp_path / "plan.json") == plan


@pytest.mark.parametrize("text", ["", "{}", '{"version": 99}', '{"version": 1}'])
def test_a_damaged_plan_is_refused_by_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(PlanError, match=r"plan\.json"):
        load_plan(tmp_path / "plan.json")


def make_liveness(rng: np.random.Generator, count: int) -> tuple[Clocks, list[int], list[list[int]], list[int]]:
    """Return buffers as a network's forward and backward pass have them: many short ones, and activations that wait for the way back."""
    clocks = Clocks(1)
    for _ in range(count):
        clocks.add(0, ())
    half, uses = count // 2, []
    for i in range(count):
        last = min(i + int(rng.integers(1, 4)), count - 1)
        uses.append([i, count - 1 - i] if i < half and i % 3 == 0 else [i, last])
    sizes = [align(int(2 ** rng.uniform(8, 22))) for _ in range(count)]
    return clocks, list(range(count)), uses, sizes


def test_the_arena_meets_the_lower_bound_in_time() -> None:
    clocks, writers, uses, sizes = make_liveness(np.random.default_rng(3), 2000)
    start = time.perf_counter()
    bound = find_lower_bound(clocks, writers, uses, sizes)
    spans = [max(u) - min(u) + 1 for u in uses]
    _, total = place(sizes, spans, find_conflicts(clocks, writers, uses), bound)
    elapsed = time.perf_counter() - start
    assert total <= 1.05 * bound
    assert elapsed <= 3.0  # 0.3 s where nothing else runs; the measured time is the benchmark's business


def test_an_arena_that_no_order_fits_is_searched_for() -> None:
    """The best of the three orders takes 11 % more than the bound here."""
    widths, rows = (455, 880, 30, 119, 661, 93, 186, 18, 263), 309
    layers = [layer for a, b in itertools.pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU())]
    model = nn.Sequential(*layers[:-1])
    batch = Tensor(np.zeros((rows, widths[0]), np.float32)), Tensor(np.zeros(rows, np.int64))
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    step = aicf.compile_step(model, lambda m, x, y: F.cross_entropy(m(x), y), optimizer, batch, amp="bfloat16")
    assert step.plan.sizes["arena"] <= 1.02 * step.plan.lower_bound_bytes
    verify(step.plan)
