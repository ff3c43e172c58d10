"""Show which device, compilers, packages and settings are in use, and what is missing, with the remedy.

Exits with 3 if the workbench cannot run here.

\b
Examples:
  python -m harness doctor
  python -m harness doctor --device emulated --json
"""

from __future__ import annotations

from dataclasses import asdict

from harness.commands.options import AsJson, DeviceName
from harness.doctor import examine
from harness.errors import ExitCode
from harness.terminal.console import print_json


def run(device: DeviceName = None, json: AsJson = False) -> ExitCode:
    """Run the verb."""
    findings = examine(device)
    if json:
        print_json([asdict(f) for f in findings])
    else:
        width = max(len(f.subject) for f in findings)
        for f in findings:
            mark = {"ok": "ok     ", "missing": "MISSING", "optional": "absent "}[f.status]
            detail = f.detail.replace("\n", f"\n{'':8}{'':{width}}  ")
            print(f"{mark} {f.subject:{width}}  {detail}")
            if f.remedy:
                print(f"{'':8}{'':{width}}  -> {f.remedy}")
    return ExitCode.NOT_AVAILABLE if any(f.status == "missing" for f in findings) else ExitCode.DONE
