"""Records of networks that others have trained: ONNX files, the data they were trained on, and the losses that were logged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from aicf.frontends import onnx
from aicf.rewrite.induce.features import find_features
from aicf.rewrite.induce.patterns import Patterns, find_patterns
from aicf.rewrite.induce.problems import Problem
from aicf.rewrite.induce.records import Record
from aicf.rewrite.induce.training import find_scale


def read_onnx_patterns(path: Path | str, inputs: int) -> Patterns:
    """Return the patterns of an ONNX model of one input, rows of floating numbers.

    Raises what :func:`aicf.frontends.onnx` raises, and ValueError for a model that does not take such rows.
    """
    try:
        return find_patterns(onnx(path), inputs)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: does not take rows of {inputs} numbers as its one input: {error}") from error


def read_records(path: Path | str) -> list[Record]:
    """Return the records that a file of JSON lines names, one line per trained model; files are looked for beside it.

    A line has ``model`` (an ONNX file), ``data`` (a file of NumPy's ``savez`` with ``x`` and ``y``), ``loss`` (mean squared error or
    cross-entropy on rows held out, in the units of ``y``), and may have ``family``, ``seed`` and ``curve`` (training losses). Losses are
    divided by that of the best constant. Raises ValueError naming a line that cannot be read.
    """
    folder, made = Path(path).parent, []
    problems: dict[str, tuple[Problem, dict[str, float]]] = {}
    for number, text in enumerate(Path(path).read_text().splitlines(), 1):
        try:
            line = json.loads(text)
            made.append(_read_line(line, folder, problems))
        except (KeyError, TypeError, ValueError, OSError) as error:
            raise ValueError(f"{path}:{number}: {error!r} where a line with model, data and loss was expected") from error
    return made


def _read_line(line: dict[str, Any], folder: Path, problems: dict[str, tuple[Problem, dict[str, float]]]) -> Record:
    name = str(line["data"])
    if name not in problems:
        with np.load(folder / name) as arrays:
            problem = Problem.of(arrays["x"], arrays["y"], name, str(line.get("family", name)))
        problems[name] = problem, find_features(problem)
    problem, features = problems[name]
    scale, patterns = find_scale(problem), read_onnx_patterns(folder / str(line["model"]), problem.inputs)
    curve = tuple(float(v) / scale for v in line.get("curve", ()))
    seed, loss = int(line.get("seed", 0)), float(line["loss"]) / scale
    return Record(problem.name, problem.family, features, str(line["model"]), patterns, loss, curve, seed, is_text=False)
