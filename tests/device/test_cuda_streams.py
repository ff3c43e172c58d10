"""Handing a stream of ours to CuPy, whichever way its version has for it."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from device.cuda import share_stream


class NewStream:
    """As of CuPy 14: by the stream protocol."""

    @classmethod
    def from_external(cls, other: Any) -> tuple[str, tuple[int, int]]:
        return "protocol", other.__cuda_stream__()


def refuse(_: int) -> None:
    raise DeprecationWarning("ExternalStream is deprecated")


def test_the_protocol_is_used_where_cupy_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(Stream=NewStream, ExternalStream=refuse)))
    assert share_stream(7) == ("protocol", (0, 7))


def test_an_older_cupy_takes_the_handle(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = SimpleNamespace(Stream=object, ExternalStream=lambda handle: ("handle", handle))
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))
    assert share_stream(7) == ("handle", 7)
