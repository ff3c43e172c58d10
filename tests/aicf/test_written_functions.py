"""The functions that are written for ops: names and defaults of a document are never run as code."""

from __future__ import annotations

import inspect
from types import SimpleNamespace

import pytest

from aicf.ops.functions import write_function
from contract.errors import FrozenError


@pytest.mark.parametrize("name", ["x=1):\n    print()\n    def f(x", "class", "", "a b", "x,"])
def test_no_name_of_a_document_is_run_as_code(name: str) -> None:
    """Even if no schema had looked at it."""
    signature = SimpleNamespace(op="tiny", inputs=((name, False),), options=(), interface=SimpleNamespace(tensors=()))
    with pytest.raises(FrozenError, match="cannot be the name of a function or of an argument"):
        write_function(signature, print, print)  # type: ignore[arg-type]


def test_a_default_is_a_value_and_not_a_text() -> None:
    class Trap:
        def __repr__(self) -> str:
            return "open('/tmp/ran', 'w')"

    option = {"name": "act", "default": Trap(), "choices": []}
    signature = SimpleNamespace(op="tiny", inputs=(("x", False), ("bias", True)), options=(option,), interface=SimpleNamespace(tensors=()))
    function = write_function(signature, lambda *values: values, print)  # type: ignore[arg-type]
    assert list(inspect.signature(function).parameters) == ["x", "bias", "act"]
    assert function(1) == (1, None, option["default"])
    assert function(1, 2, act="relu") == (1, 2, "relu") and function.__name__ == "tiny"
    with pytest.raises(TypeError, match=r"tiny\(\) missing 1 required positional argument: 'x'"):
        function()
