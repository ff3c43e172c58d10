"""What only the emulated device tells of its launches: the sanitizer's findings, and exact counts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Report:
    """One finding of the emulated device's sanitizer.

    ``kind`` is one of the words in ``device/emulator/README.md`` (``out_of_bounds_write``, ``shared_race``, ...). ``text`` is the whole
    message for people; the other fields are for programs. ``count`` is how often the same finding occurred at the same place.
    ``inlined_at`` lists the calls that were inlined, from that of the function that ``source`` is in outwards; ``copies`` the PTX lines of
    other copies of the place, which unrolling made, that the finding stands for as well; ``kernel_name`` is ``kernel`` demangled;
    ``launched_at`` the host's call that launched it, where that is C++ (``step at prog.cu:42, called from main at prog.cu:57``), else "".
    """

    kind: str
    severity: str
    text: str
    kernel: str = ""
    ptx_line: int = 0
    source: str = ""
    block: tuple[int, int, int] = (0, 0, 0)
    thread: tuple[int, int, int] = (0, 0, 0)
    address: int = 0
    count: int = 1
    kernel_name: str = ""
    inlined_at: tuple[str, ...] = ()
    copies: tuple[int, ...] = ()
    launched_at: str = ""


@dataclass(frozen=True)
class LaunchCounters:
    """Exact counts of one emulated launch, at PTX level. ``counts`` maps the counter names of ``device/emulator/README.md`` to values."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    counts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class LineCounters:
    """The counts of one PTX line that are not zero. ``source`` is ``kernels.cu:42``, or empty where the build has no line information."""

    ptx_line: int
    source: str
    function: str
    instruction: str
    counts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class KernelLines:
    """A kernel's counts by PTX line, in the order of the lines, summed over ``launches`` launches."""

    kernel: str
    launches: int
    lines: tuple[LineCounters, ...] = ()

    def by_source(self) -> dict[str, dict[str, int]]:
        """Return the counts summed by source line; lines with no known source come under the empty name."""
        totals: dict[str, dict[str, int]] = {}
        for line in self.lines:
            sums = totals.setdefault(line.source, {})
            for name, value in line.counts.items():
                sums[name] = sums.get(name, 0) + value
        return totals


class Observer(ABC):
    """Sanitizer and counters of an emulated device. Checks and counters are off unless switched on."""

    CHECKS: tuple[str, ...] = ("memcheck", "initcheck", "synccheck", "racecheck", "streamcheck")

    @contextmanager
    def observe(self, checks: Sequence[str] | None = None, *, counters: bool = False) -> Iterator[Observer]:
        """Switch the named checks (all when None) and the counters on for the block, and back to what they were after it."""
        before = self.enabled()
        self.enable(self.CHECKS if checks is None else tuple(checks), counters=counters)
        try:
            yield self
        finally:
            self.enable(before[0], counters=before[1])

    @abstractmethod
    def enable(self, checks: Sequence[str], *, counters: bool) -> None:
        """Run exactly these checks from now on."""

    @abstractmethod
    def enabled(self) -> tuple[tuple[str, ...], bool]:
        """Return the checks in force and whether counters are on."""

    @contextmanager
    def use_options(self, values: Mapping[str, str]) -> Iterator[Observer]:
        """Set the options for the block, and back to what they were after it; raises ValueError with the reason when one cannot be."""
        before = {name: self.get_option(name) for name in values}
        try:
            for name, value in values.items():
                self.set_option(name, value)
            yield self
        finally:
            for name, value in before.items():
                self.set_option(name, value)

    @abstractmethod
    def get_option(self, name: str) -> str:
        """Return an option's value; raises ValueError when there is no such option."""

    @abstractmethod
    def set_option(self, name: str, value: str) -> None:
        """Set an option of the emulator (``workers``, ``schedule``, ``seed``, ...); raises ValueError with the reason when it cannot be."""

    @abstractmethod
    def take_reports(self) -> list[Report]:
        """Return the findings since the last call, and forget them."""

    @abstractmethod
    def take_counters(self) -> list[LaunchCounters]:
        """Return one entry per launch since the last call, and forget them."""

    def find_written(self, address: int, size_bytes: int) -> list[tuple[int, int]]:
        """Return which of the bytes from ``address`` on were written since they were allocated: [begin, end) offsets, ascending."""
        raise NotImplementedError

    def forget_written(self, address: int) -> None:
        """Let nothing be written of the allocation that begins at an address; its bytes stay. Raises ValueError where there is none."""
        raise NotImplementedError

    def clear_error(self) -> None:
        """Forget an error that has ended the context; memory, streams and modules stay as they are."""
        raise NotImplementedError

    def lines(self) -> list[KernelLines]:
        """Return the counts by PTX line of each kernel that was counted since the last call, and forget them."""
        return []
