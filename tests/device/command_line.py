"""``python -m device`` called in this process: it does the same with its arguments, and Python need not start for each of many runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from unittest.mock import patch

import pytest

from device.__main__ import main

Run = Callable[..., subprocess.CompletedProcess[str]]


def call_device(capfd: pytest.CaptureFixture[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Return exit code and output of ``python -m device ARGUMENTS``, those of the program that it runs among them."""
    capfd.readouterr()
    with patch.object(sys, "argv", ["device", *arguments]), pytest.raises(SystemExit) as end:
        main()
    out, err = capfd.readouterr()
    code = end.value.code
    assert code is None or isinstance(code, int)
    return subprocess.CompletedProcess(arguments, code or 0, out, err)
