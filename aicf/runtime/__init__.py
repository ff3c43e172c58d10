"""What runs plans: in host memory by the truth, or on a device by frozen kernels, step by step or as one graph."""

from aicf.runtime.checking import StepError, check_steps
from aicf.runtime.executor import Executor, make_executor
from aicf.runtime.profiling import StepTime

__all__ = ["Executor", "StepError", "StepTime", "check_steps", "make_executor"]
