"""Times of frozen kernels beside each other, which here a made-up clock gives, and what recorded ones say of the choices."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from contract.calls import Problem
from contract.decision import open_core
from contract.frozen_set import extend_op, load_kernels, read_op
from contract.index import read_index
from contract.structs import make_params
from device import DeviceError
from device.cudart import MEMCPY_DEVICE_TO_HOST
from device.runtime import RuntimeDevice
from harness.discover import find_op
from harness.errors import FrozenUseError
from harness.spec import SpecError
from harness.surveys.candidates import open_candidates
from harness.surveys.drawing import draw_unmeasured, make_filter
from harness.surveys.fitting import ask
from harness.surveys.page import describe_regret, make_page
from harness.surveys.published_regret import ESTIMATED, HELD_OUT, judge_published, read_published_times
from harness.surveys.records import find_folder, make_times_document, name_gpu
from harness.surveys.regret import Summary, choose, find_regret
from harness.surveys.timing import FrozenKernels, Launches, Operands, time_problems


@dataclass(frozen=True)
class MadeUpSubject:
    place: int
    launch: Callable[[Any], None]


class MadeUpTimer:
    """Says that the kernels of a problem take 1, 2, 3, ... us, in their order, and launches each once."""

    def __init__(self, device: RuntimeDevice) -> None:
        self._stream = device.create_stream()
        self._count = 0

    def prepare(self, launch: Callable[[Any], None], mode: Any) -> MadeUpSubject:
        launch(self._stream)
        self._stream.synchronize()
        self._count += 1
        return MadeUpSubject(self._count, launch)

    def warm_up(self, subjects: Any) -> None:
        pass

    def run_rounds(self, subjects: Any, num_rounds: int) -> Any:
        first = min(s.place for s in subjects)
        times = np.array([[s.place - first + 1.0] * 2 for s in subjects])
        return SimpleNamespace(times_us=np.broadcast_to(times, (num_rounds, *times.shape)))


# A kernel of softmax for short rows, and those for any: tests share what must be compiled.
SHORT_ROWS = "row_in_registers__threads8_rows16_vectors4_"
ANY_ROWS = "naive"


def build_some(device: RuntimeDevice, op: str, *prefixes: str) -> FrozenKernels:
    """Return the frozen kernels of an op whose names begin so: the others need not be compiled for what is asked here."""
    return FrozenKernels(device, load_kernels(read_index(read_op(op).folder), lambda entry: entry["kernel"].startswith(prefixes)))


def test_problems_are_drawn_from_the_population_and_none_was_measured() -> None:
    for op in ("gemm_bias_act", "softmax"):
        core = open_core(read_op(op), "sm_90a")
        queries = draw_unmeasured(find_op(op).op, core, 20, seed=3)
        assert len({(q.sizes, q.values, *q.strides.items()) for q in queries}) == 20
        asked = [core.ask(q) for q in queries]
        assert op != "softmax" or any(q.strides["x"] != q.by_size["columns"] for q in queries)
        assert not any(core.list_exact_times(each) for each in asked) and all(each.legal for each in asked)
        assert [q.sizes for q in draw_unmeasured(find_op(op).op, core, 20, seed=3)] == [q.sizes for q in queries]


def test_only_such_problems_are_drawn_as_are_asked_for() -> None:
    op, core = find_op("gemm_bias_act").op, open_core(read_op("gemm_bias_act"), "sm_90a")
    keeps = make_filter(op, ["dtype=float32", "M=12..300", "K=..4096"])
    queries = draw_unmeasured(op, core, 5, 3, keeps)
    assert len(queries) == 5 and {dict(q.attributes)["dtype"] for q in queries} == {"float32"}
    assert all(12 <= q.by_size["M"] <= 300 and q.by_size["K"] <= 4096 for q in queries)
    assert draw_unmeasured(op, core, 2, 3, make_filter(op, ["N=100000"])) == []


@pytest.mark.slow
def test_regret_is_of_the_chosen_kernel_against_all_that_serve(device: RuntimeDevice) -> None:
    op = find_op("transpose").op
    sizes = ((3, 40), (5, 300), (2, 9000))
    whole = open_core(read_op("transpose"), "sm_90a")
    chosen = {choose(whole, {"sizes": {"rows": r, "columns": c}, "attributes": {}})[0] for r, c in sizes}
    kernels = build_some(device, "transpose", *chosen, "elements__bm64_bn32_", "tall__")
    queries = [kernels.core.interface.make_query(Problem({"rows": r, "columns": c})) for r, c in sizes]
    assert 1 < len(kernels.calls) < len(read_op("transpose").kernels)
    timer: Any = MadeUpTimer(device)
    rows = time_problems(op, kernels, timer, queries, 60.0)
    assert [row["sizes"]["rows"] for row in rows] == [3, 5, 2]
    for row, query in zip(rows, queries, strict=True):
        legal = kernels.core.ask(query).legal
        assert set(row["times_us"]) == {name for i, name in enumerate(kernels.core.table.kernels) if legal >> i & 1}
        assert row["best"] == min(row["times_us"], key=row["times_us"].get)
        assert row["regret"] == row["times_us"][row["chosen"]] / row["times_us"][row["best"]] - 1
        assert row["chosen"] == choose(kernels.core, row)[0] and len(row["times_us"]) > 1
    assert len({len(row["times_us"]) for row in rows}) == 2, "one kernel serves the first alone"
    assert Summary.of([row["regret"] for row in rows]).max == max(row["regret"] for row in rows)
    document = make_times_document(device, "transpose", 1, 3, kernels.core.table.kernels, rows, {})
    assert "3 problems that nothing was measured on" in "\n".join(describe_regret([document]))
    assert time_problems(op, kernels, timer, queries, -1.0) == []


@pytest.mark.slow  # variants are compiled, and frozen kernels
def test_variants_are_timed_beside_frozen_kernels_where_they_serve(device: RuntimeDevice) -> None:
    frozen = load_kernels(read_index(read_op("softmax").folder), lambda entry: entry["kernel"].startswith((SHORT_ROWS, ANY_ROWS)))
    assert open_candidates(frozen, []).calls == {}
    candidates = open_candidates(frozen, ["naive/threads64", "row_in_registers/threads8_rows16_vectors4"])
    kernels = FrozenKernels(device, frozen, candidates.calls)
    queries = [kernels.core.interface.make_query(Problem({"rows": 40, "columns": columns})) for columns in (40, 4000)]
    timer: Any = MadeUpTimer(device)
    short, long = time_problems(find_op("softmax").op, kernels, timer, queries, 60.0)
    assert short["times_us"].keys() - kernels.calls.keys() == {"naive/threads64", "row_in_registers/threads8_rows16_vectors4"}
    assert long["times_us"].keys() - kernels.calls.keys() == {"naive/threads64"}
    assert {short["chosen"], short["best"]} <= kernels.calls.keys() and short["regret"] >= 0.0
    document = make_times_document(device, "softmax", 1, 2, kernels.core.table.kernels, [short, long], candidates.code_hashes)
    assert set(document["code_hashes"]) == set(candidates.calls) and all(len(code) == 64 for code in document["code_hashes"].values())


def test_what_cannot_be_called_like_the_frozen_kernels_is_no_candidate() -> None:
    frozen = read_op("softmax")
    description = {**frozen.description, "interface": {**frozen.interface, "struct": "AnotherParams"}}
    with pytest.raises(FrozenUseError, match="softmax: its interface neither is that of its frozen kernels"):
        open_candidates(replace(frozen, description=description), ["naive"])
    with pytest.raises(SpecError, match="nonsense"):
        open_candidates(frozen, ["nonsense"])


def test_frozen_kernels_serve_the_calls_of_an_interface_that_extends_theirs() -> None:
    frozen = read_op("softmax")
    present = deepcopy(dict(frozen.interface))
    present["fields"].append({"name": "negate", "type": "int32"})
    present["attributes"].append({"name": "negate", "choices": [False, True], "codes": [0, 1], "default": False, "field": "negate"})
    extended = extend_op(frozen, present)
    assert extended is not None and extend_op(frozen, frozen.interface) is frozen
    assert all(kernel.manifest["domain"][-1] == {"attribute": "negate", "in": [False]} for kernel in extended.kernels.values())
    assert all(row["attributes"]["negate"] is False for row in extended.medians) and len(extended.medians) == len(frozen.medians) > 0
    earlier, core = open_core(frozen, "sm_90a"), open_core(extended, "sm_90a")
    for rows, columns in ((3, 40), (500, 4000), (20, 70000)):
        problem = Problem({"rows": rows, "columns": columns})
        before, asked = earlier.ask(earlier.interface.make_query(problem)), core.ask(core.interface.make_query(problem))
        assert asked.legal == before.legal and core.decide(asked, asked.legal) == earlier.decide(before, before.legal)
        asked = core.ask(core.interface.make_query(Problem(problem.sizes, {"negate": True})))
        assert asked.legal == 0, "no kernel knows the attribute"


def test_operands_are_filled_where_they_are_said_to_lie(device: RuntimeDevice) -> None:
    op = find_op("embedding").op
    core = open_core(read_op("embedding"), "sm_90a")
    query = core.interface.make_query(
        Problem({"count": 200, "vocabulary": 3, "width": 8}, {"index_dtype": "int64", "dtype": "float16"}, {"table": 11})
    )
    with Operands(op, device) as operands:
        places = operands.place(core, query, seed=1)
        assert len(places) == 8 and len({address for place in places for address in place.values()}) == 8 * len(places[0])
        for place in (places[0], places[-1]):
            read = np.zeros(200, np.int64), np.zeros(2 * 11 + 8, np.float16)
            for out, name in zip(read, ("indices", "table"), strict=True):
                device.cudart.call("cudaMemcpy", out.ctypes.data, place[name], out.nbytes, MEMCPY_DEVICE_TO_HOST)
            assert set(read[0]) == {0, 1, 2} and len(set(read[1])) > 25
        (large,) = operands.place(core, core.interface.make_query(Problem({"count": 3, "vocabulary": 300000, "width": 64})), seed=1)
        assert large["table"] % 256 == 0


@pytest.mark.slow
def test_problems_with_strides_are_asked_about_as_they_were_timed(device: RuntimeDevice) -> None:
    """A record without them was taken for rows that follow each other: other kernels are the fastest there."""
    op = find_op("softmax").op
    kernels = build_some(device, "softmax", SHORT_ROWS, ANY_ROWS)
    queries = [kernels.core.interface.make_query(Problem({"rows": 40, "columns": 40}, {}, {"x": pad})) for pad in (40, 41)]
    timer: Any = MadeUpTimer(device)
    rows = json.loads(json.dumps(time_problems(op, kernels, timer, queries, 60.0)))
    assert [row["strides"] for row in rows] == [{}, {"x": 41}]
    for row, query in zip(rows, queries, strict=True):
        assert ask(kernels.core, row).struct.call.strides[:] == kernels.core.ask(query).struct.call.strides[:]


def test_a_record_is_named_after_its_gpu() -> None:
    assert [name_gpu(n) for n in ("NVIDIA H200", "NVIDIA H100 80GB HBM3", "Emulated sm_90a (CPU)")] == ["h200", "h100", "emulated"]


def test_a_kernel_that_refuses_a_launch_is_named(device: RuntimeDevice) -> None:
    kernels = build_some(device, "softmax", SHORT_ROWS)
    query = kernels.core.interface.make_query(Problem({"rows": 2, "columns": 8}))
    params = make_params(kernels.core.interface.row, query.by_size, query.attributes, {}, query.strides)
    with pytest.raises(DeviceError, match=r"a_kernel: x: null pointer"):
        Launches(device, "a_kernel", next(iter(kernels.calls.values())), [params])


@pytest.mark.slow
def test_the_page_is_the_records() -> None:
    assert (find_folder() / "h200.md").read_text() == make_page(find_folder())


@pytest.mark.slow
def test_what_recorded_times_say_is_what_is_committed() -> None:
    committed = json.loads((find_folder() / "recorded-regret-gemm_bias_act.json").read_text())["rows"]
    for row in committed:
        times = row["times_us"]
        assert row["best"] == min(times, key=times.get)
        for key in (*HELD_OUT, *ESTIMATED):
            assert row[key]["regret"] == find_regret(times, row[key]["chosen"])
    frozen = read_op("gemm_bias_act")
    published = read_published_times(find_folder().parent, frozen)
    assert judge_published(find_op("gemm_bias_act").op, frozen, "sm_90a", published) == committed
