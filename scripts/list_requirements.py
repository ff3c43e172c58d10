"""Print the requirements of parts of the project, one a line, for the Makefile.

A part is ``build``, ``base`` (all that a checkout runs on), or the name of an extra.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path


def list_requirements(parts: list[str]) -> list[str]:
    """Return the requirements of the named parts of ``pyproject.toml``, in order; raises KeyError for a part that it does not have."""
    with (Path(__file__).resolve().parents[1] / "pyproject.toml").open("rb") as file:
        document = tomllib.load(file)
    project = document["project"]
    known = {
        # An install without build isolation needs the build backend and its tools in the environment.
        "build": [*document["build-system"]["requires"], "cmake>=3.27", "ninja>=1.11"],
        "base": [*project["dependencies"], *project["optional-dependencies"]["workbench"]],
        **project["optional-dependencies"],
    }
    return [requirement for part in parts for requirement in known[part]]


if __name__ == "__main__":
    print("\n".join(list_requirements(sys.argv[1:])))
