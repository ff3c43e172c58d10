"""GPUs that kernels are built for and modelled on.

Sources: NVIDIA H100 and H200 data sheets and the *H100 Tensor Core GPU Architecture* white paper; NVIDIA A100 white paper; the CUDA C++
Programming Guide 13.0, table "Technical Specifications per Compute Capability". Peaks are at the boost clock, dense, and no kernel
reaches them. What the L2 delivers: 5120 bytes a clock (A100 white paper); 4472 on Hopper (W. Luo et al., "Benchmarking and dissecting the
Nvidia Hopper GPU architecture via microbenchmarking", arXiv 2402.13499).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from harness.spec import SpecError

_KIB = 1024
_MIB = 1024 * _KIB


@dataclass(frozen=True)
class Target:
    """One GPU: how to compile for it, its limits, and its peak rates (``peak_flops`` by the units of :class:`harness.spec.Cost`)."""

    name: str
    arch: int
    virtual_arch: str
    real_arch: str
    num_sms: int
    clock_mhz: float
    peak_flops: Mapping[str, float]
    dram_bytes_per_s: float
    l2_bytes_per_s: float
    l2_bytes: int
    shared_per_sm_bytes: int
    shared_per_block_bytes: int
    registers_per_sm: int = 65536
    max_threads_per_sm: int = 2048
    max_blocks_per_sm: int = 32
    l1_bytes: int = 256 * _KIB  # one array for L1 and shared memory

    @property
    def gencode(self) -> str:
        """The value of nvcc's ``-gencode``: machine code for this GPU, and the PTX that the emulated device runs."""
        return f"arch={self.virtual_arch},code=[{','.join(dict.fromkeys((self.real_arch, self.virtual_arch)))}]"

    @property
    def has_machine_code(self) -> bool:
        """Whether kernels get machine code beside their PTX."""
        return self.real_arch != self.virtual_arch

    def without_machine_code(self) -> Target:
        """Return the target for what only the emulated device runs: PTX, and no ptxas, which can take as long as the rest."""
        return replace(self, real_arch=self.virtual_arch)


def _hopper(name: str, dram_bytes_per_s: float, l2_bytes: int) -> Target:
    return Target(
        name=name,
        arch=90,
        virtual_arch="compute_90a",
        real_arch="sm_90a",
        num_sms=132,
        clock_mhz=1980.0,
        # fp32: 132 SMs x 128 lanes x 2 x 1.98 GHz; fp64: half of it; tensor rates from the data sheet, dense.
        peak_flops=MappingProxyType(
            {"fp32": 66.9e12, "fp64": 33.5e12, "fp16": 133.8e12, "tf32_tensor": 494.7e12, "bf16_tensor": 989.4e12, "fp8_tensor": 1978.9e12}
        ),
        dram_bytes_per_s=dram_bytes_per_s,
        l2_bytes_per_s=8.2e12,
        l2_bytes=l2_bytes,
        shared_per_sm_bytes=228 * _KIB,
        shared_per_block_bytes=227 * _KIB,
    )


TARGETS: Mapping[str, Target] = MappingProxyType(
    {
        "h200": _hopper("h200", 4.8e12, 60 * _MIB),
        "h100": _hopper("h100", 3.35e12, 50 * _MIB),
        "a100": Target(
            name="a100",
            arch=80,
            virtual_arch="compute_80",
            real_arch="sm_80",
            num_sms=108,
            clock_mhz=1410.0,
            peak_flops=MappingProxyType({"fp32": 19.5e12, "fp64": 9.7e12, "fp16": 78e12, "tf32_tensor": 156e12, "bf16_tensor": 312e12}),
            dram_bytes_per_s=2.039e12,
            l2_bytes_per_s=7.2e12,
            l2_bytes=40 * _MIB,
            shared_per_sm_bytes=164 * _KIB,
            shared_per_block_bytes=163 * _KIB,
            l1_bytes=192 * _KIB,
        ),
    }
)


def find_target(name: str) -> Target:
    """Return the target of that name, or raise :class:`SpecError` with the names there are."""
    if name not in TARGETS:
        raise SpecError(f"unknown target {name!r}; known targets: {', '.join(TARGETS)}")
    return TARGETS[name]
