"""What a selection returns: one frozen kernel for one problem, with what a caller must know to launch it, and why it was chosen."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from aicf.errors import LaunchError
from aicf.kernels.external import LibraryKernel
from aicf.kernels.library import KernelLibrary, compile_chain, is_loaded, load_chain, load_kernel
from contract.building import NotBuiltError, build_kernel, without_compiler
from contract.calls import Interface, Query
from contract.decision import How
from contract.expressions.tree import Chain
from contract.kernels import FrozenKernel
from contract.structs import make_params

# Apart from each other, and multiples of whatever a kernel may ask for.
_STAND_IN_BITS = 56
# The seals of kernels that were in the cache when this process looked.
_found: set[str] = set()


@dataclass(frozen=True, slots=True)
class KernelHandle:
    """A frozen kernel chosen for a problem.

    ``how`` is the step of the decision that found it and ``reason`` says so in words; ``predicted_us`` is a measured time or an estimate
    (None for a fallback). ``alignment_bytes`` is what addresses must be multiples of, by tensor, where that is more than an element.
    ``deterministic``: the same bits on every run; ``capture_safe``: the launch may be captured into a CUDA graph. With a ``chain`` of the
    caller's own, ``frozen`` is the engine of whose sources its kernel is built. With a ``library`` of others, that is what runs, and
    ``frozen`` is the kernel that it stands for.
    """

    op: str
    kernel: str
    arch: str
    how: How
    reason: str
    predicted_us: float | None
    deterministic: bool
    capture_safe: bool
    alignment_bytes: Mapping[str, int]
    query: Query = field(repr=False)
    frozen: FrozenKernel = field(repr=False)
    interface: Interface = field(repr=False)
    chain: Chain | None = field(default=None, repr=False)
    library: LibraryKernel | None = field(default=None, repr=False)

    @property
    def seal(self) -> str:
        """What names the kernel: the seal of its manifest, or the hash of the engine's and the chain, or what names the library."""
        if self.library is not None:
            return self.library.seal
        seal = str(self.frozen.manifest["seal"])
        return seal if self.chain is None else sha256(f"{seal} {self.chain.key}".encode()).hexdigest()

    @property
    def workspace_bytes(self) -> int:
        """Device memory that a launch wants. Where the kernel has to be asked, this builds and loads it."""
        if self.library is None and self.frozen.manifest["workspace"]["kind"] == "none":
            return 0
        # A null pointer says that a tensor is no part of the call: one whose address nobody knows yet gets one that no kernel minds.
        layouts, known = self.interface.find_layouts(self.query.values), self.query.addresses
        addresses = {layout.name: known.get(layout.name) or (i + 1) << _STAND_IN_BITS for i, layout in enumerate(layouts)}
        return self.load().ask_workspace(self.make_params(addresses))

    @property
    def is_loaded(self) -> bool:
        """Whether the kernel is loaded, and stays so; of a library nobody knows."""
        return self.library is None and is_loaded(self.frozen, self.chain)

    @property
    def is_built(self) -> bool:
        """Whether the kernel is loaded, in the cache, or installed; nothing is compiled. A library was opened when it was chosen."""
        if self.library is not None:
            return True
        if self.seal not in _found:
            try:
                with without_compiler():
                    self.build()
            except NotBuiltError:
                return False
            _found.add(self.seal)
        return True

    def build(self) -> None:
        """Build the kernel unless it is in the cache; from any thread, and without a device. Raises as :meth:`load`."""
        if self.library is not None:
            return
        if self.chain is None:
            build_kernel(self.frozen)
        else:
            compile_chain(self.frozen, self.chain)

    def load(self) -> KernelLibrary:
        """Build the kernel from its sealed sources, unless it is in the cache, and load it. The device must be open.

        Raises :class:`~aicf.errors.FrozenError`, :class:`~device.toolchain.BuildError` or :class:`~device.UnavailableError`.
        """
        if self.library is not None:
            return self.library.load()
        return load_kernel(self.frozen) if self.chain is None else load_chain(self.frozen, self.chain)

    def make_params(self, addresses: Mapping[str, int]) -> ctypes.Structure:
        """Return the op's C struct for this problem. A tensor without an address gets NULL."""
        query, layouts = self.query, self.interface.find_layouts(self.query.values)
        present = {layout.name: addresses[layout.name] for layout in layouts if layout.name in addresses}
        return make_params(self.interface.row, query.by_size, query.attributes, present, query.strides, query.scalars)

    def launch(self, addresses: Mapping[str, int], *, stream: int = 0, workspace: int = 0) -> None:
        """Queue the kernel on a stream (a ``cudaStream_t`` as a number): no allocation, no synchronisation.

        ``addresses`` are the device addresses of all tensors of the call, ``workspace`` that of ``workspace_bytes`` bytes. Raises
        ValueError naming a tensor whose address is missing or misaligned, and :class:`~aicf.errors.LaunchError`.
        """
        for layout in self.interface.find_layouts(self.query.values):
            address, step = addresses.get(layout.name, 0), self.alignment_bytes.get(layout.name, 1)
            if address == 0:
                raise ValueError(f"{self.op}: the address of {layout.name} is missing")
            if address % step:
                raise ValueError(f"{self.op}: address of {layout.name} = {address:#x}: {self.kernel} needs a multiple of {step} bytes")
        if workspace == 0 and (wanted := self.workspace_bytes) > 0:
            raise LaunchError(f"{self.op}: {self.kernel} wants {wanted} bytes of workspace, got none")
        self.load().launch(self.make_params(addresses), workspace, stream)
