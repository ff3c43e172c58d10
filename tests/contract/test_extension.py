"""Interfaces that grow: kernels sealed with an earlier one serve the calls that it knew, and no others."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from contract.extension import extend_description, find_earlier_calls, list_served_interfaces
from contract.layout import hash_value

Interface = dict[str, Any]


def _make_interface() -> Interface:
    either = [{"when": {"dtype": d}, "value": d} for d in ("bfloat16", "float16")]
    return {
        "include": "scale/api.hpp",
        "struct": "ScaleParams",
        "fields": [{"name": "x", "type": "pointer"}, {"name": "n", "type": "int64"}, {"name": "dtype", "type": "int32"}],
        "sizes": {"N": "n"},
        "attributes": [
            {"name": "dtype", "choices": ["bfloat16", "float16"], "codes": [1, 2], "default": "bfloat16", "field": "dtype"},
        ],
        "tensors": [
            {
                "name": "x",
                "role": "input",
                "field": "x",
                "stride": None,
                "dtype": either,
                "shape": [{"when": {}, "value": ["N"]}],
                "present": [{"when": {}, "value": True}],
            }
        ],
    }


def _add_choice(interface: Interface) -> None:
    dtype = interface["attributes"][0]
    dtype["choices"].append("float32")
    dtype["codes"].append(0)
    interface["tensors"][0]["dtype"].append({"when": {"dtype": "float32"}, "value": "float32"})


def _add_attribute(interface: Interface) -> None:
    interface["fields"].append({"name": "negate", "type": "int32"})
    interface["attributes"].append({"name": "negate", "choices": [False, True], "codes": [0, 1], "default": False, "field": "negate"})


def _add_tensor(interface: Interface) -> None:
    interface["fields"].append({"name": "bias", "type": "pointer"})
    interface["attributes"].append({"name": "with_bias", "choices": [False, True], "default": False, "present": "bias"})
    present = [{"when": {"with_bias": b}, "value": b} for b in (False, True)]
    interface["tensors"].append(interface["tensors"][0] | {"name": "bias", "field": "bias", "present": present})


@pytest.mark.parametrize(
    ("grow", "conditions"),
    [
        (lambda interface: None, []),
        (_add_choice, [{"attribute": "dtype", "in": ["bfloat16", "float16"]}]),
        (_add_attribute, [{"attribute": "negate", "in": [False]}]),
        (_add_tensor, [{"attribute": "with_bias", "in": [False]}]),
    ],
)
def test_what_is_added_is_what_earlier_calls_are_without(grow: Callable[[Interface], None], conditions: list[Any]) -> None:
    earlier, present = _make_interface(), _make_interface()
    grow(present)
    assert find_earlier_calls(earlier, present) == conditions
    if conditions:
        assert find_earlier_calls(present, earlier) is None


def _insert_field(interface: Interface) -> None:
    interface["fields"].insert(0, {"name": "y", "type": "pointer"})


def _move_code(interface: Interface) -> None:
    interface["attributes"][0]["codes"] = [2, 1]


def _change_default(interface: Interface) -> None:
    interface["attributes"][0]["default"] = "float16"


def _drop_choice(interface: Interface) -> None:
    interface["attributes"][0] |= {"choices": ["bfloat16"], "codes": [1]}


def _change_dtype(interface: Interface) -> None:
    interface["tensors"][0]["dtype"][1]["value"] = "float32"


def _change_role(interface: Interface) -> None:
    interface["tensors"][0]["role"] = "inout"


def _add_tensor_to_all(interface: Interface) -> None:
    _add_tensor(interface)
    interface["tensors"][1]["present"] = [{"when": {}, "value": True}]


def _add_size(interface: Interface) -> None:
    interface["sizes"]["M"] = "n"


@pytest.mark.parametrize(
    "change",
    [_insert_field, _move_code, _change_default, _drop_choice, _change_dtype, _change_role, _add_tensor_to_all, _add_size],
)
def test_what_means_something_else_is_no_extension(change: Callable[[Interface], None]) -> None:
    present = _make_interface()
    change(present)
    assert find_earlier_calls(_make_interface(), present) is None


def test_an_interface_that_grew_twice_serves_kernels_of_both() -> None:
    first = _make_interface()
    second = deepcopy(first)
    _add_choice(second)
    third = deepcopy(second)
    _add_attribute(third)
    description = {"interface": second, "extends": extend_description({"interface": first}, second)}
    description = {"interface": third, "extends": extend_description(description, third)}
    halves, plain = {"attribute": "dtype", "in": ["bfloat16", "float16"]}, {"attribute": "negate", "in": [False]}
    wanted = {hash_value(first): [halves, plain], hash_value(second): [plain], hash_value(third): []}
    assert list_served_interfaces(description) == wanted
    assert extend_description(description, third) == description["extends"]
