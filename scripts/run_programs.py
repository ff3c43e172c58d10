"""Run the self-checking CUDA programs of a folder on the emulated device, and print which pass, fail, or use what is not supported.

python scripts/run_programs.py FOLDER [--jobs N] [--timeout S] [--checks all] [--filter GLOB] [--json FILE]
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from device.programs.cli import main

if __name__ == "__main__":
    sys.exit(main())
