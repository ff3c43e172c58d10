"""Launches of one variant whose failures become faults."""

from __future__ import annotations

from dataclasses import dataclass

from device.interface import Device, DeviceError, Stream
from harness.spec import Launchable
from harness.verify.case import Case
from harness.verify.findings import FaultKind, Tally, classify_report

# What a binding may raise for a launch: RuntimeError by contract (DeviceError is one), the others for arguments it refuses.
LAUNCH_ERRORS = (RuntimeError, TypeError, ValueError)


class DeviceLostError(RuntimeError):
    """The device no longer answers (a sticky CUDA error): only a new process gets it back."""


@dataclass(frozen=True)
class Launcher:
    """Launches a variant; what goes wrong goes into ``tally``."""

    device: Device
    launchable: Launchable
    tally: Tally

    def launch(self, case: Case, stream: Stream, check: str, distribution: str) -> bool:
        """Run once to its end. False (and a fault) when it failed; raises :class:`DeviceLostError` when the device went with it."""
        self.tally.num_launches += 1
        try:
            case.launch(self.launchable, stream)
            stream.synchronize()
        except LAUNCH_ERRORS as error:
            endless = self._find_endless_loops(check)
            for text in endless:
                self.tally.add(FaultKind.TIMEOUT, check, text, distribution)
            if not endless:
                self.tally.add(FaultKind.LAUNCH_ERROR, check, str(error), distribution)
            self.require_device(str(error))
            return False
        return True

    def _find_endless_loops(self, check: str) -> list[str]:
        """Return what the emulated device says of a launch that it ended because of a loop; the sanitizer's step takes all it says."""
        if self.device.observer is None or check == "sanitizer":
            return []
        return [r.text for r in self.device.observer.take_reports() if classify_report(r) is FaultKind.TIMEOUT]

    def require_device(self, reason: str) -> None:
        """Raise when the device still fails after its last error was taken."""
        self.device.take_last_error()
        try:
            self.device.synchronize()
        except DeviceError as error:
            raise DeviceLostError(reason) from error
