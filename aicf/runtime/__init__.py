"""What runs plans: in host memory by the truth, or on a device by frozen kernels, step by step or as one graph."""

from aicf.runtime.executor import Executor, make_executor

__all__ = ["Executor", "make_executor"]
