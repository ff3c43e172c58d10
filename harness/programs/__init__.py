"""Folders of self-checking CUDA programs: find each, compile it as it is, run it on the emulated device, and judge what came of it."""

from __future__ import annotations

from harness.programs.build import BuildOptions, Built, build_program
from harness.programs.find import Program, find_programs
from harness.programs.run import RunOptions, Verdict, judge, run_program

__all__ = ["BuildOptions", "Built", "Program", "RunOptions", "Verdict", "build_program", "find_programs", "judge", "run_program"]
