"""Folders of self-checking CUDA programs: find each, compile it unchanged, run it on the emulated device, and judge the outcome."""

from __future__ import annotations

from device.programs.build import BuildOptions, Built, build_program
from device.programs.find import Program, find_programs
from device.programs.verdicts import RunOptions, Verdict, judge, run_program

__all__ = ["BuildOptions", "Built", "Program", "RunOptions", "Verdict", "build_program", "find_programs", "judge", "run_program"]
