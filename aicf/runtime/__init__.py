"""What runs plans: NumPy in host memory, or frozen kernels on a device, step by step or as one graph."""

from aicf.runtime.checking import StepError, check_steps
from aicf.runtime.executor import Executor, MismatchError, has_states_of, make_executor
from aicf.runtime.profiling import StepTime

__all__ = ["Executor", "MismatchError", "StepError", "StepTime", "check_steps", "has_states_of", "make_executor"]
