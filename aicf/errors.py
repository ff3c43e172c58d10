"""The framework's own errors; each message says what is wrong, where, and what to do."""

from __future__ import annotations

from contract.errors import FrozenError, NotFrozenError

__all__ = ("FrozenError", "LaunchError", "NotFrozenError", "SelectionError")


class SelectionError(LookupError):
    """No frozen kernel serves the problem, or none has what is preferred; the message says why each was dropped."""


# cudaErrorInvalidDeviceFunction, ...InvalidKernelImage, NoKernelImageForDevice, InvalidPtx, JitCompilerNotFound, UnsupportedPtxVersion,
# JitCompilationDisabled, LaunchOutOfResources: nothing has run, and nothing is broken.
_REFUSED_AT_LOAD = frozenset({98, 200, 209, 218, 221, 222, 223, 701})


class LaunchError(RuntimeError):
    """A kernel refused its parameters, or a CUDA call in its launcher failed; ``cuda_code`` is that call's ``cudaError_t``, 0 without."""

    def __init__(self, message: str, cuda_code: int = 0) -> None:
        super().__init__(message)
        self.cuda_code = cuda_code

    @property
    def is_refused_at_load(self) -> bool:
        """Whether the device cannot load the kernel's code: another kernel may do."""
        return self.cuda_code in _REFUSED_AT_LOAD


class ChainError(RuntimeError):
    """The kernel of a fused chain that is not frozen cannot be built here; its parts may be frozen."""


class GradientError(RuntimeError):
    """A backward pass that cannot be made: its graph was freed, or what it needs was changed in place."""


class RecordError(RuntimeError):
    """A recorded function does what a replay would not do again; the message names the user's source line."""


class UnsupportedError(LookupError):
    """Calls that a backend has no kernel for, or that a front end cannot import; the message lists all of them by name and place."""


class GraphError(ValueError):
    """A graph that breaks a rule of validity; the message names the rule and the node."""


class OpsetError(ValueError):
    """An opset file of a project's own that cannot be loaded, or defines what there is already; the message names file and line."""


class StateError(RuntimeError):
    """A state that cannot be written or read; the message names the file, and says what stands."""


class PlanError(ValueError):
    """A plan that cannot be right: buffers that overlap while both are alive, reads of what nothing wrote, or a damaged file."""


class RewriteError(RuntimeError):
    """A rewrite that cannot be made; the message says why, and nothing has changed."""
