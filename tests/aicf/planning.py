"""Plans for a device of which no kernel is compiled: for tests of what a plan has, not of what it computes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from aicf.backends.frozen import FrozenCalls
from aicf.registry.handles import KernelHandle


def _read_workspace(handle: KernelHandle) -> int:
    """Return the most workspace that the kernel was seen to want, which its manifest has; its launcher is not asked."""
    return int(handle.frozen.manifest["workspace"]["max_bytes"])


@contextmanager
def without_kernels() -> Iterator[None]:
    """In the block, passes, selection and places are those of the device, and no kernel is built, not even to be asked what it wants."""
    with (
        patch.object(FrozenCalls, "build", lambda self, calls: []),
        patch.object(KernelHandle, "workspace_bytes", property(_read_workspace)),
    ):
        yield
