"""Warnings of one run: of the same kind and about the same kernels, one is told, and the others are counted."""

from __future__ import annotations

import functools
import logging
import math
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

_LOGGERS = ("aicf.rewrite", "aicf.train")
_Method = TypeVar("_Method", bound=Callable[..., Any])


class Warned(logging.Filter):
    """Lets the first warning of a kind pass, and the 10th, the 100th and so on with their number; in force inside ``with``.

    A kind is the text before names are put in; the last of these says which kernels it is about. ``counts`` has both.
    """

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[tuple[str, str]] = Counter()
        self._depth = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is told; counts it if it is a warning."""
        if record.levelno != logging.WARNING or not isinstance(record.args, tuple) or not record.args:
            return True
        kind = record.msg, str(record.args[-1])
        self.counts[kind] += 1
        count = self.counts[kind]
        if count == 1:
            return True
        record.msg = f"{record.msg} ({count} times by now)"
        return math.log10(count).is_integer()

    def __enter__(self) -> Warned:
        self._depth += 1
        if self._depth == 1:
            for name in _LOGGERS:
                logging.getLogger(name).addFilter(self)
        return self

    def __exit__(self, *raised: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            for name in _LOGGERS:
                logging.getLogger(name).removeFilter(self)


def tell_once(method: _Method) -> _Method:
    """Make a method of an object that has its ``warned`` tell each warning once."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        with self.warned:
            return method(self, *args, **kwargs)

    return call  # type: ignore[return-value]
