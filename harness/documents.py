"""JSON that others wrote: read so that whatever is wrong with it is one kind of error."""

from __future__ import annotations

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """Return what a JSON document says; raises ValueError where it is none, or nested deeper than a reader can follow."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply: no program wrote this") from None
