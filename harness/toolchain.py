"""The compilers: found by :mod:`device.toolchain`, for the workbench and for the framework alike."""

from __future__ import annotations

from device.toolchain import CUDA_RELEASE, Toolchain, find_toolchain

__all__ = ("CUDA_RELEASE", "Toolchain", "find_toolchain")
