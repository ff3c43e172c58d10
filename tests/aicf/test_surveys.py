"""Choices by surveys: the nearest problems correct the models, and lines that are off are refused by name."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aicf.errors import FrozenError
from aicf.registry import How, HwCaps, Problem, Registry, explain
from contract.frozen_set import FrozenOp
from contract.layout import find_frozen_dir

HOPPER = HwCaps(9, 0)
OP = "gemm_bias_act"
BFLOAT16 = {"dtype": "bfloat16", "b_layout": "nk", "act": "silu", "with_bias": True}


@pytest.fixture
def frozen() -> FrozenOp:
    """The project's kernels without a survey."""
    return replace(Registry().read(OP).frozen, surveys={})


def make_survey(frozen: FrozenOp) -> dict[str, Any]:
    """A survey whose weights are made up and which no problem sets right."""
    generator = random.Random(1)
    names = [name for name, kernel in frozen.kernels.items() if kernel.arch == "sm_90a"]
    weights = {name: [generator.uniform(2, 9), generator.uniform(0.1, 2), 1.1, generator.uniform(0.5, 1.5), 0.0] for name in names}
    return {"kind": "survey", "arch": "sm_90a", "device": "made up", "record": "none", "weights": weights, "groups": []}


@pytest.mark.parametrize("sizes", [{"M": 128, "N": 4096, "K": 4096}, {"M": 1024, "N": 1024, "K": 1024}, {"M": 4096, "N": 4096, "K": 4096}])
def test_what_was_measured_stands_in_for_another_activation(sizes: dict[str, int]) -> None:
    attributes = {"act": "gelu_tanh", "b_layout": "nk", "dtype": "bfloat16", "with_bias": True}
    measured = Registry().select(OP, Problem(sizes, attributes), HOPPER)
    other = explain(OP, Problem(sizes, attributes | {"act": "silu"}), HOPPER)
    assert measured.how is How.MEASURED and other.how in ("measured", "surveyed")
    predicted = {c.kernel: c.survey_us for c in other.candidates if c.survey_us is not None}
    legal = {c.kernel for c in other.candidates if c.dropped.startswith("is predicted")}
    assert predicted[measured.kernel] == pytest.approx(measured.predicted_us, rel=0.05)
    if other.how == "surveyed":  # a kernel that was not timed at these sizes may be predicted to be faster still
        assert not any(us < predicted[other.chosen] for name, us in predicted.items() if name in legal)


def test_a_near_problem_sets_the_model_right(frozen: FrozenOp) -> None:
    survey = make_survey(frozen)
    call = Problem({"M": 640, "N": 4000, "K": 4096}, BFLOAT16)
    first = Registry.holding(replace(frozen, surveys={"sm_90a": survey})).select(OP, call, HOPPER)
    assert first.how is How.SURVEYED and first.predicted_us is not None
    group = {"group": "bfloat16/nk_whole", "kernels": [first.kernel], "points": [[4096, 640, 4000, 3.0]]}
    second = Registry.holding(replace(frozen, surveys={"sm_90a": survey | {"groups": [group]}})).select(OP, call, HOPPER)
    assert second.kernel != first.kernel
    told = explain(OP, call, HOPPER, registry=Registry.holding(replace(frozen, surveys={"sm_90a": survey | {"groups": [group]}})))
    times = {c.kernel: c.survey_us for c in told.candidates}
    assert times[first.kernel] == pytest.approx(first.predicted_us * (1 + 3.0)), "at the very sizes nothing else counts"
    group["points"] = [[4096, 1280, 4000, 3.0]]
    told = explain(OP, call, HOPPER, registry=Registry.holding(replace(frozen, surveys={"sm_90a": survey | {"groups": [group]}})))
    times = {c.kernel: c.survey_us for c in told.candidates}
    say = (0.3 + 1.0) ** -2
    assert times[first.kernel] == pytest.approx(first.predicted_us * (1 + 3.0 * say / (1 + say)))
    assert f"predicted to take {times[first.kernel]:.4g} us" in {c.kernel: c.dropped for c in told.candidates}[first.kernel]
    loose = explain(
        OP, call, HOPPER, registry=Registry.holding(replace(frozen, surveys={"sm_90a": survey | {"groups": [group | {"loose": True}]}}))
    )
    says = (0.3 + 1.0 + 16.0) ** -2
    assert {c.kernel: c.survey_us for c in loose.candidates}[first.kernel] == pytest.approx(
        first.predicted_us * (1 + 3.0 * says / (1 + says))
    )


def test_a_bucket_whose_winner_is_not_surveyed_is_decided_without_the_survey(frozen: FrozenOp) -> None:
    call = Problem({"M": 640, "N": 4000, "K": 4096}, BFLOAT16)
    survey = make_survey(frozen)
    tables = Registry.holding(frozen).find_tables(OP, HOPPER)
    winner = tables.core.find_bucket_winners(tables.core.ask(tables.interface.make_query(call)))
    assert winner.bit_count() == 1
    name = tables.kernels[winner.bit_length() - 1].name
    del survey["weights"][name]
    assert Registry.holding(replace(frozen, surveys={"sm_90a": survey})).select(OP, call, HOPPER).how is not How.SURVEYED
    kept = tuple(e for e in frozen.entries if e["kernel"] != name)
    without = replace(frozen, entries=kept, surveys={"sm_90a": survey})
    assert Registry.holding(without).select(OP, call, HOPPER).how is How.SURVEYED


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r["weights"].update({next(iter(r["weights"])): [1.0]}), r"weights/.*is too short"),
        (lambda r: r["weights"].update({next(iter(r["weights"])): [-1.0, 0, 0, 0, 0]}), r"weights/.*less than the minimum of 0"),
        (lambda r: r["weights"].update({next(iter(r["weights"])): [1.0] * 8}), r"weights/.*is too long"),
        (lambda r: r.update(shapes={next(iter(r["weights"])): {"tile": {"L": 8}, "slots": 1}}), r"survey sm_90a: shapes/.*L"),
        (
            lambda r: r.update(shapes={next(iter(r["weights"])): {"tile": {"M": 8}, "slots": 0}}),
            r"slots: .*less than or equal to the minimum",
        ),
        (lambda r: r["groups"][0]["points"][0].pop(), r"group .*: a point must have 3 sizes of at least 1 and \d+ errors"),
        (lambda r: [p.pop() for p in r["groups"][0]["points"]], r"group .*: a point must have 3 sizes of at least 1 and \d+ errors"),
        (lambda r: r["groups"][0]["points"][0].__setitem__(0, 0), r"survey: group .*: a point must have 3 sizes of at least 1"),
        (lambda r: r["groups"][0]["points"][0].__setitem__(4, "x"), r"groups/0/points/0/4: 'x' is not of type 'number'"),
        (lambda r: r.pop("record"), r"'record' is a required property"),
    ],
)
def test_a_survey_that_is_off_is_refused_by_name(tmp_path: Path, change: Callable[[dict[str, Any]], Any], message: str) -> None:
    folder = copy_frozen(tmp_path)
    index = folder / OP / "index.jsonl"
    rows = [json.loads(line) for line in index.read_text().splitlines()]
    change(next(r for r in rows if r["kind"] == "survey"))
    index.write_text("".join(json.dumps(r) + "\n" for r in rows))
    with pytest.raises(FrozenError, match=message):
        Registry(folder).select(OP, Problem({"M": 640, "N": 4000, "K": 4096}, BFLOAT16), HOPPER)


def copy_frozen(tmp_path: Path) -> Path:
    folder = tmp_path / "frozen"
    shutil.copytree(find_frozen_dir(), folder, ignore=shutil.ignore_patterns(".*"))
    return folder
