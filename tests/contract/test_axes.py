"""Axes with names of an op's own: their order and parts, groups and buckets by name, and what fits nothing refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from contract.agreement import check_agreement
from contract.axes import Axes, name_bucket
from contract.errors import FrozenError
from harness.discover import find_op
from harness.errors import SpecError
from harness.spec.conditions import Axis
from tests.freezing import test_broken_documents as documents

CAUSAL = {"name": "causal", "part": "survey"}
HEADS = {"name": "heads", "part": "region"}


def test_an_op_with_common_axes_alone_has_all_four() -> None:
    axes = Axes.of([{"name": "region"}])
    assert (axes.names, axes.num_survey, axes.num_group) == (("dtypes", "layout", "epilogue", "region"), 2, 3)
    bucket = {"arch": "sm_90a", "region": "r", "epilogue": "e", "layout": "l", "dtypes": "d"}
    assert axes.name_group(bucket) == "d/l/e" and name_bucket(bucket) == "sm_90a/d/l/e/r"


def test_an_op_with_axes_of_its_own_has_these_alone() -> None:
    axes = Axes.of([{"name": "dtypes"}, CAUSAL, {"name": "epilogue"}, HEADS])
    assert (axes.names, axes.num_survey, axes.num_group) == (("dtypes", "causal", "epilogue", "heads"), 2, 3)
    bucket = {"arch": "sm_90a", "heads": "h", "epilogue": "e", "causal": "c", "dtypes": "d"}
    assert axes.name_group(bucket) == "d/c/e" and name_bucket(bucket) == "sm_90a/c/d/e/h"
    assert Axes.of([HEADS]).name_group({"arch": "sm_90a", "heads": "h"}) == "any", "all problems are of one group"


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ([{"name": "causal"}], "axis causal: must say its part, one of survey, group, region"),
        ([{"name": "dtypes", "part": "region"}], "axis dtypes: is of part survey, not region"),
        ([HEADS, CAUSAL], "axis causal, of part survey, must stand before heads, of part region"),
        ([{"name": "arch", "part": "group"}], "axis arch: every bucket has it already"),
        ([{"name": f"a{i}", "part": "group"} for i in range(9)], "9 axes; at most 8 are supported"),
    ],
)
def test_axes_that_cannot_stand_so_are_refused(axes: list[dict[str, str]], message: str) -> None:
    with pytest.raises(FrozenError, match=message):
        Axes.of(axes)
    op = find_op("softmax").op
    with pytest.raises(SpecError, match=f"op softmax: {message}"):
        replace(op, axes=tuple(Axis(axis["name"], {"all": ()}, axis.get("part")) for axis in axes))


def test_rows_must_name_the_ops_axes() -> None:
    names = [{"name": "n", "when": []}]
    description = documents.DESCRIPTION | {"axes": [CAUSAL | {"classes": names}, HEADS | {"classes": names}]}
    entry: dict[str, Any] = {"kind": "entry", "kernel": "k", "bucket": {"arch": "sm_90a", "causal": "n", "heads": "n"}}
    median = documents.MEDIAN | {"group": "n"}
    survey = documents.SURVEY | {"groups": [{"group": "n", "kernels": [], "points": []}]}
    check_agreement("here", [description, entry, median, survey], [])
    for rows, message in (
        ([entry | {"bucket": {"arch": "sm_90a", "causal": "n"}}], "entry k: its bucket has arch, causal, not arch, causal, heads"),
        ([median | {"group": "n/n"}], "group n/n is not a class of each of the 1 axes"),
        ([survey | {"groups": [{"group": "n/n", "kernels": [], "points": []}]}], "survey sm_90a: group n/n is not a class"),
    ):
        with pytest.raises(FrozenError, match=f"here: .*{message}"):
            check_agreement("here", [description, *rows], [])
