"""A plugin for a run under AddressSanitizer: NVIDIA's compiler cannot run beneath the sanitizer's runtime, so it is started without it.

Everything else keeps it: whatever loads the instrumented library needs the runtime first in its process.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

_start = subprocess.Popen.__init__


def _start_compiler_bare(self: subprocess.Popen[Any], args: Any, *rest: Any, **options: Any) -> None:
    words = [os.fspath(word) for word in ([args] if isinstance(args, str | os.PathLike) else args)]
    if Path(words[0]).name == "nvcc" or words[1:4] == ["-m", "device", "compile"]:
        inherited = options.get("env") or os.environ
        options["env"] = {name: value for name, value in inherited.items() if name != "LD_PRELOAD"}
    _start(self, args, *rest, **options)


subprocess.Popen.__init__ = _start_compiler_bare  # type: ignore[method-assign,assignment]
