"""Device code in shared objects: read by :mod:`device.cubin`, for the workbench and for the framework alike."""

from __future__ import annotations

from device.cubin import hash_host_code, hash_machine_code, read_machine_code, read_ptx

__all__ = ("hash_host_code", "hash_machine_code", "read_machine_code", "read_ptx")
