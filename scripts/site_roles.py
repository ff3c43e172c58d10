"""Roles of reStructuredText in docstrings, as the site's pages show them: ``:func:`~aicf.grad``` is code."""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":[a-z]+:`~?([^`]+)`")


class Roles(griffe.Extension):
    """Writes the roles of all docstrings as code."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Rewrite a package's docstring."""
        self.on_object(obj=pkg)

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite an object's docstring."""
        if obj.docstring is not None:
            obj.docstring.value = _ROLE.sub(r"`\1`", obj.docstring.value)
