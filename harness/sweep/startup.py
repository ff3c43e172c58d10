"""What every sweep needs, started before anything else: it takes seconds, and needs no session.

This module imports next to nothing, so that the processes which measure start while their parent is still importing.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Self

from device import choose_device, open_device
from device.settings import read_settings
from device.toolchain import find_toolchain
from harness.processes.pool import Crew

if TYPE_CHECKING:
    from harness.discover import LoadedOp
    from harness.spec import Problem

# Measuring processes that take turns on a GPU: one has it, one is ready for it, one judges what came of its turn.
PER_GPU = 3


def prepare_process(device: str | None, op_folder: Path, problem_names: tuple[str, ...]) -> None:
    """Import what measures, open the device, and make the inputs: seconds in each measuring process."""
    from harness.sweep.worker import make_work

    if not open_device(device).is_emulated:  # what models needs no inputs
        make_work(op_folder, problem_names)


class Preparation:
    """Measuring processes that get ready, the device that opens here, and the op's binding and the timer's instruments that compile.

    No variant is measured without the binding, which takes as long as several variants. What is wrong with the device, the session says,
    which opens the same. ``problems`` are those to be measured, ``device`` as for :func:`device.open_device`. With
    ``starts_processes=False`` processes start when there is something to measure, if there is. A context manager: leaving it ends those
    that no sweep took.
    """

    def __init__(self, loaded: LoadedOp, problems: Sequence[Problem], device: str | None = None, *, starts_processes: bool = True) -> None:
        # More than there are cores would be in each other's way.
        num_workers = min(PER_GPU, read_settings().jobs) if starts_processes else 0
        self.crew = Crew(num_workers, prepare_process, (device, loaded.folder, tuple(p.name for p in problems)))
        pool = ThreadPoolExecutor(3)
        pool.submit(open_device, device)
        self._binding = pool.submit(_build_binding, loaded)
        pool.submit(_build_instruments, device)
        pool.shutdown(wait=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.crew.close()

    @property
    def binding(self) -> Path:
        """The op's binding; raises :class:`BuildError` where it does not compile."""
        return self._binding.result()


def _build_binding(loaded: LoadedOp) -> Path:
    from harness.build.binding import build_binding

    return build_binding(loaded, find_toolchain())


def _build_instruments(device: str | None) -> None:
    from harness.timing.instruments import build_instruments

    if choose_device(device).name == "cuda":
        build_instruments(find_toolchain())
