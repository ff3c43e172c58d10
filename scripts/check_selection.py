"""Puts selection and calls from Python to the test on a GPU.

python scripts/check_selection.py overhead --out FOLDER            what a selection and a call cost on the host, beside PyTorch's
python scripts/check_selection.py survey gemm_bias_act --out FOLDER   times of all frozen kernels on drawn problems
python scripts/check_selection.py adopt gemm_bias_act FILE...     models fitted to such times, into the index; needs no GPU
python scripts/check_selection.py regret gemm_bias_act --out FOLDER   the chosen kernel against all frozen ones, on problems never measured
python scripts/check_selection.py recorded                         the choices held against times that are published; needs no GPU
python scripts/check_selection.py host                             the project's benchmarks of selections and calls; needs no GPU
python scripts/check_selection.py report                           profiles/selection/h200.md, from the records beside it
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "profiles" / "selection"))

import running

if __name__ == "__main__":
    running.run(str(__doc__))
