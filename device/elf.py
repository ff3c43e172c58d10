"""What an executable needs from the CUDA runtime, read from its ELF headers (System V ABI, chapters 4 and 5)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

_MAGIC = b"\x7fELF"
_CLASS_64, _LITTLE_ENDIAN = 2, 1
_SECTION_DYNAMIC = 6
_TAG_NEEDED = 1
_FATBIN_SECTIONS = frozenset({".nv_fatbin", ".nvFatBinSegment", "__nv_relfatbin"})
# A string of NVIDIA's runtime itself: in a program that links it statically, and in none that loads it.
_STATIC_MARK = b"libcuda.so.1\x00"


@dataclass(frozen=True)
class Section:
    """One section header: what the reader below looks at."""

    name: str
    kind: int
    link: int
    offset: int
    size: int


@dataclass(frozen=True)
class Executable:
    """The libraries that an executable or shared library needs, and whether CUDA code and a CUDA runtime are inside it."""

    path: Path
    needed: tuple[str, ...]
    has_device_code: bool
    has_static_runtime: bool

    @property
    def cudart(self) -> str | None:
        """The CUDA runtime that it needs, by SONAME (``libcudart.so.13``)."""
        return next((name for name in self.needed if name.startswith("libcudart.so")), None)


def read_executable(path: Path) -> Executable | None:
    """Read a 64-bit little-endian ELF file; None when the file is something else (a script, say) or its headers are damaged."""
    data = path.read_bytes()
    if len(data) < 64 or data[:4] != _MAGIC or data[4] != _CLASS_64 or data[5] != _LITTLE_ENDIAN:
        return None
    try:
        sections = _read_sections(data)
        needed = _read_needed(data, sections)
    except (struct.error, IndexError, ValueError):
        return None
    has_code = any(section.name in _FATBIN_SECTIONS for section in sections)
    loads_runtime = any(name.startswith("libcudart.so") for name in needed)
    return Executable(path, needed, has_code, has_code and not loads_runtime and _STATIC_MARK in data)


def _read_sections(data: bytes) -> list[Section]:
    table, entry_bytes, count, names_index = (*struct.unpack_from("<Q", data, 40), *struct.unpack_from("<HHH", data, 58))
    rows = [struct.unpack_from("<IIQQQQII", data, table + i * entry_bytes) for i in range(count)]
    names = rows[names_index][4] if rows else 0
    return [Section(_text_at(data, names + row[0]), row[1], row[6], row[4], row[5]) for row in rows]


def _read_needed(data: bytes, sections: list[Section]) -> tuple[str, ...]:
    for section in sections:
        if section.kind == _SECTION_DYNAMIC:
            strings = sections[section.link].offset
            entries = struct.iter_unpack("<qQ", data[section.offset : section.offset + section.size // 16 * 16])
            return tuple(_text_at(data, strings + value) for tag, value in entries if tag == _TAG_NEEDED)
    return ()


def _text_at(data: bytes, offset: int) -> str:
    return data[offset : data.index(b"\x00", offset)].decode("utf-8", "replace")
