"""Reading a disassembly: the instructions of each kernel with their source lines, and figures that can be had without a run.

The text is what ``nvdisasm -g -c`` prints. Which pipe an instruction goes to follows the CUDA binary utilities' instruction tables for
Hopper and NVIDIA's descriptions of the pipes in Nsight Compute's metrics guide (``inst_executed_pipe_*``).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

_KERNEL = re.compile(r"^\.text\.(\S+):$")
_LINE = re.compile(r'^\s*//## File "([^"]*)", line (\d+)')
_LABEL = re.compile(r"^(\.L_x?_?\d+):$")
_INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(?:(@!?U?P[T\d]+)\s+)?([A-Z][A-Z0-9_.]*)\s*(.*?)\s*;")
_TARGET = re.compile(r"`\((\.L_x?_?\d+)\)")
_OPERAND = re.compile(r"\b(U?[RP]\d+)\b")

_CLASSES: Mapping[str, tuple[str, ...]] = {
    "fp32": ("FFMA", "FADD", "FMUL", "FSWZADD"),
    "imad": ("IMAD",),
    "fp64": ("DFMA", "DADD", "DMUL", "DSETP", "DMNMX"),
    "fp16": ("HFMA2", "HADD2", "HMUL2", "HSETP2", "HSET2", "HMNMX2"),
    "tensor": ("HMMA", "HGMMA", "IMMA", "IGMMA", "DMMA", "QGMMA", "BGMMA", "BMMA", "QMMA"),
    "special": ("MUFU",),
    "conversion": ("F2I", "I2F", "F2F", "I2I", "FRND", "POPC", "FLO", "BREV"),
    "global": ("LDG", "STG", "LD", "ST", "ATOMG", "ATOM", "RED", "LDGSTS", "CCTL"),
    "shared": ("LDS", "STS", "ATOMS", "LDSM", "STSM"),
    "local": ("LDL", "STL"),
    "constant": ("LDC", "ULDC", "LDCU"),
    "bulk": ("UBLKCP", "UTMALDG", "UTMASTG", "UTMAREDG", "UTMAPF", "UBLKRED", "UBLKPF", "SYNCS"),
    "shuffle": ("SHFL", "VOTE", "VOTEU", "MATCH", "REDUX", "CREDUX"),
    "barrier": ("BAR", "DEPBAR", "LDGDEPBAR", "WARPSYNC", "MEMBAR", "ERRBAR", "WARPGROUP", "UCGABAR_ARV", "UCGABAR_WAIT", "ARRIVES"),
    "control": ("BRA", "EXIT", "BSSY", "BSYNC", "CALL", "RET", "BRX", "JMP", "BREAK", "NOP", "BMOV", "YIELD", "NANOSLEEP", "KILL", "BPT"),
}
_CLASS_OF = {opcode: name for name, opcodes in _CLASSES.items() for opcode in opcodes}
CLASSES = (*_CLASSES, "uniform", "integer")
_LOADS_LATE = frozenset({"LDG", "LD", "LDL"})
_NO_RESULT = frozenset({"STG", "ST", "STS", "STL", "RED", "LDGSTS", "STSM", "CCTL"})


@dataclass(frozen=True)
class SassInstruction:
    """One instruction: its offset in bytes, guard (``@!P0`` or empty), opcode with modifiers, operands, and source line (0: none)."""

    address: int
    guard: str
    opcode: str
    operands: str
    file: str = ""
    line: int = 0
    target: str = ""

    @property
    def base(self) -> str:
        """The opcode without modifiers: ``LDG`` of ``LDG.E.128``."""
        return self.opcode.split(".", 1)[0]

    @property
    def kind(self) -> str:
        """Which of :data:`CLASSES` it belongs to; what has no class of its own is ``uniform`` (U...) or ``integer``."""
        found = _CLASS_OF.get(self.base)
        if found is not None:
            return found
        return "uniform" if self.base.startswith("U") or self.base == "R2UR" else "integer"

    @property
    def width_bits(self) -> int:
        """Bits that a memory instruction moves for a thread, 0 for others. 32 where no modifier says otherwise."""
        if self.kind not in ("global", "shared", "local"):
            return 0
        for part in self.opcode.split(".")[1:]:
            if part in ("64", "128"):
                return int(part)
            if part in ("U8", "S8"):
                return 8
            if part in ("U16", "S16"):
                return 16
        return 32

    @property
    def source(self) -> str:
        """``kernels.cu:42``, or empty where the build has no line information."""
        return f"{self.file.rsplit('/', 1)[-1]}:{self.line}" if self.line else ""


@dataclass(frozen=True)
class SassKernel:
    """A kernel's instructions in order of address, and the address of each label."""

    name: str
    instructions: tuple[SassInstruction, ...]
    labels: Mapping[str, int]

    @cached_property
    def loops(self) -> tuple[tuple[int, int], ...]:
        """Address ranges (first, last) that a branch backward closes, in order; the branch to itself at a kernel's end is none."""
        found = []
        for inst in self.instructions:
            at = self.labels.get(inst.target, -1) if inst.target else -1
            if inst.base == "BRA" and 0 <= at < inst.address:
                found.append((at, inst.address))
        return tuple(sorted(found))

    def find_depth(self, address: int) -> int:
        """Return how many loops an address lies in."""
        return sum(first <= address <= last for first, last in self.loops)

    @property
    def mix(self) -> dict[str, int]:
        """Instructions by class, classes without any left out."""
        counts = Counter(i.kind for i in self.instructions if i.base != "NOP")
        return {name: counts[name] for name in CLASSES if counts[name]}

    @property
    def opcodes(self) -> dict[str, int]:
        """Instructions by base opcode, most frequent first."""
        return dict(Counter(i.base for i in self.instructions if i.base != "NOP").most_common())

    @property
    def widths(self) -> dict[str, int]:
        """Memory instructions by opcode and width: ``{"LDG.128": 4, "STS.32": 16}``."""
        counts = Counter(f"{i.base}.{i.width_bits}" for i in self.instructions if i.width_bits)
        return dict(sorted(counts.items()))

    @cached_property
    def stalls(self) -> tuple[Stall, ...]:
        """What each instruction waits for in a warp that runs alone: see :func:`find_stalls`."""
        return tuple(find_stalls(self))


# Clocks until a result can be used, by class, rounded. Luo et al., "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture"
# (arXiv 2402.13499), and Abdelkhalik et al., "Demystifying the Nvidia Ampere Architecture" (arXiv 2208.11174); uniform, constant and
# predicate are judgements.
_RESULT_CLOCKS: Mapping[str, int] = {
    "fp32": 4,
    "imad": 4,
    "integer": 5,
    "fp16": 5,
    "fp64": 8,
    "uniform": 8,
    "special": 20,
    "conversion": 14,
    "shared": 29,
    "shuffle": 24,
    "constant": 20,
    "tensor": 33,
}
_PREDICATE_CLOCKS = 12
_ISSUE_CLOCKS = 1


@dataclass(frozen=True)
class Stall:
    """``clocks`` from the issue of the instruction before to this one's, global memory left out; whether it waits for a global load."""

    clocks: int
    waits_for_global: bool


def find_stalls(kernel: SassKernel) -> Iterator[Stall]:
    """Walk through a kernel in order of address as a single warp would, an instruction a clock, waiting where an operand is not ready.

    Results of what came before a label are taken as ready, since where code was jumped to from is not known; global loads are not.
    """
    leaders = set(kernel.labels.values())
    ready: dict[str, int] = {}
    from_global: set[str] = set()
    now = 0
    for inst in kernel.instructions:
        if inst.address in leaders:
            ready.clear()
        names = _OPERAND.findall(inst.operands)
        written = _find_written(inst, names)
        read = set(names[1:] if written else names) | set(_OPERAND.findall(inst.guard))
        if inst.width_bits > 32 and not written and names:
            read |= set(_expand(names[-1], inst.width_bits))
        waits = bool(from_global & read)
        if waits:
            from_global.clear()  # what was asked for before it has come too, or nearly
        issue = max([now + _ISSUE_CLOCKS, *(ready.get(name, 0) for name in read)])
        yield Stall(issue - now, waits)
        now = issue
        for name in written:
            from_global.discard(name)
            if inst.base in _LOADS_LATE:
                from_global.add(name)
            else:
                ready[name] = now + (_PREDICATE_CLOCKS if "P" in name else _RESULT_CLOCKS.get(inst.kind, 4))


def _find_written(inst: SassInstruction, names: list[str]) -> list[str]:
    """Return the registers and predicates that an instruction writes, by its form: its first operand, and those behind it."""
    if not names or inst.kind in ("control", "barrier", "bulk") or inst.base in _NO_RESULT:
        return []
    wide = inst.width_bits if inst.width_bits > 32 else 64 if ".WIDE" in inst.opcode or inst.kind == "fp64" else 0
    wide = 128 if inst.base in ("HMMA", "IMMA", "DMMA") else wide
    return _expand(names[0], wide) if wide and "P" not in names[0] else names[:1]


def _expand(register: str, width_bits: int) -> list[str]:
    prefix = register.rstrip("0123456789")
    number = int(register[len(prefix) :])
    return [f"{prefix}{number + i}" for i in range(max(1, width_bits // 32))]


def parse_sass(text: str) -> list[SassKernel]:
    """Read what ``nvdisasm -g -c`` (or ``-gi -c``) printed; an inlined instruction has the line of the innermost function."""
    kernels: list[SassKernel] = []
    name = ""
    instructions: list[SassInstruction] = []
    labels: dict[str, int] = {}
    waiting: list[str] = []
    file, line = "", 0
    chain = False  # within the lines of one inlining chain

    def finish() -> None:
        if name and instructions:
            kernels.append(SassKernel(name, tuple(instructions), dict(labels)))

    for row in text.splitlines():
        if match := _INSTRUCTION.match(row):
            chain = False
            address = int(match[1], 16)
            labels.update(dict.fromkeys(waiting, address))
            waiting.clear()
            target = _TARGET.search(match[4])
            instructions.append(SassInstruction(address, match[2] or "", match[3], match[4], file, line, target[1] if target else ""))
        elif match := _LINE.match(row):
            if not chain:
                file, line = match[1], int(match[2])
            chain = "inlined at" in row
        elif match := _LABEL.match(row):
            waiting.append(match[1])
        elif match := _KERNEL.match(row):
            finish()
            name, instructions, labels, waiting, file, line = match[1], [], {}, [], "", 0
    finish()
    return kernels
