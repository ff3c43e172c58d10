"""Joining cubins into one for the disassembler, which needs most of a second to start and a tenth of that per kernel.

What it looks at is kept: code with its relocations and attributes, lines, symbols. Layout: ELF64 (TIS *ELF Specification* 1.2). A kernel
``K`` of a cubin is the section ``.text.K``, whose ``sh_info`` holds the index of the symbol ``K``, found by comparing cubins of nvcc 13.0.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

from device.toolchain import BuildError

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_SYMTAB, _STRTAB, _RELA = 2, 3, 4
_RESERVED = 0xFF00  # section numbers from here on have meanings of their own
_LINES = ".debug_line"
_ATTRIBUTES = ".nv.info."


@dataclass(frozen=True)
class _Section:
    name: str
    kind: int
    flags: int
    link: int
    info: int
    align: int
    entry: int
    content: bytes


@dataclass(frozen=True)
class _Symbol:
    name: str
    info: int
    other: int
    section: int
    value: int
    size: int


def _read_text(table: bytes, at: int) -> str:
    return table[at : table.index(b"\0", at)].decode()


def _read_elf(image: bytes) -> tuple[list[_Section], list[_Symbol]]:
    if image[:4] != b"\x7fELF":
        raise BuildError("device code is not an ELF file")
    head = _HEADER.unpack_from(image)
    rows = [_SECTION.unpack_from(image, head[6] + i * head[11]) for i in range(head[12])]
    names = image[rows[head[13]][4] :]
    sections = [
        # 8: SHT_NOBITS, which has a size and no content
        _Section(_read_text(names, r[0]), r[1], r[2], r[6], r[7], r[8], r[9], b"" if r[1] == 8 else image[r[4] : r[4] + r[5]])
        for r in rows
    ]
    table = next(s for s in sections if s.kind == _SYMTAB)
    texts = sections[table.link].content
    symbols = [_Symbol(_read_text(texts, s[0]), *s[1:]) for s in _SYMBOL.iter_unpack(table.content)]
    return sections, symbols


class _Strings:
    def __init__(self) -> None:
        self.content = bytearray(b"\0")

    def add(self, text: str) -> int:
        at = len(self.content)
        self.content += text.encode() + b"\0"
        return at


class _Joined:
    """The ELF file in the making."""

    def __init__(self) -> None:
        self.sections = [_Section("", 0, 0, 0, 0, 0, 0, b"")]
        self.symbols = [_Symbol("", 0, 0, 0, 0, 0)]
        self.lines = bytearray()
        self.line_relocations = bytearray()

    def add(self, image: bytes, prefix: str) -> None:
        """Take in the kernels of a cubin, their names with a prefix."""
        sections, symbols = _read_elf(image)
        code = {i: s for i, s in enumerate(sections) if s.name.startswith(".text.")}
        place = {old: len(self.sections) + i for i, old in enumerate(code)}
        first = len(self.symbols)
        for symbol in symbols[1:]:
            number = symbol.section if symbol.section >= _RESERVED else place.get(symbol.section, 0)
            name = symbol.name.replace(".text.", f".text.{prefix}", 1) if symbol.name.startswith(".text.") else prefix + symbol.name
            self.symbols.append(replace(symbol, name=name, section=number))

        def move(relocations: bytes, by: int) -> bytes:
            """Relocations as they are in the file that is made: of its symbols, and ``by`` bytes further."""
            moved = (
                (at + by, ((info >> 32) + first - 1 << 32) | info & 0xFFFFFFFF, more)
                for at, info, more in _RELOCATION.iter_unpack(relocations)
            )
            return b"".join(_RELOCATION.pack(*row) for row in moved)

        for kernel in code.values():
            # Lower 24 bits: the symbol; the rest says how many registers there are.
            info = kernel.info & 0xFF000000 | (kernel.info & 0xFFFFFF) + first - 1
            self.sections.append(replace(kernel, name=kernel.name.replace(".text.", f".text.{prefix}", 1), info=info))
        for section in sections:
            if section.name.startswith(_ATTRIBUTES):  # where it exits, among others, which is labelled
                name = section.name.replace(_ATTRIBUTES, f"{_ATTRIBUTES}{prefix}", 1)
                self.sections.append(replace(section, name=name, info=place[section.info]))
            if section.kind != _RELA:
                continue
            if section.info in place:
                name = section.name.replace(".text.", f".text.{prefix}", 1)
                self.sections.append(replace(section, name=name, info=place[section.info], content=move(section.content, 0)))
            elif sections[section.info].name == _LINES:
                self.line_relocations += move(section.content, len(self.lines))
        self.lines += b"".join(s.content for s in sections if s.name == _LINES)

    def write(self, like: bytes) -> bytes:
        """Return the file, with what the ELF header of ``like`` says of the machine."""
        names, texts = _Strings(), _Strings()
        rows = [(texts.add(s.name) if s.name else 0, s.info, s.other, s.section, s.value, s.size) for s in self.symbols]
        # Local symbols come before the others in a file by the book; a disassembler does not mind.
        symbols_at = len(self.sections)
        table = b"".join(_SYMBOL.pack(*row) for row in rows)
        plain = [
            _Section(".symtab", _SYMTAB, 0, symbols_at + 1, 1, 8, _SYMBOL.size, table),
            _Section(".strtab", _STRTAB, 0, 0, 0, 1, 0, bytes(texts.content)),
            _Section(_LINES, 1, 0, 0, 0, 1, 0, bytes(self.lines)),
            _Section(f".rela{_LINES}", _RELA, 0x40, symbols_at, symbols_at + 2, 8, _RELOCATION.size, bytes(self.line_relocations)),
        ]
        linked = [
            replace(s, link=symbols_at) if s.kind == _RELA or s.name.startswith((".text.", _ATTRIBUTES)) else s for s in self.sections
        ]
        sections = [*linked, *plain]
        numbers = [names.add(s.name) if s.name else 0 for s in [*sections, _Section(".shstrtab", _STRTAB, 0, 0, 0, 1, 0, b"")]]
        sections.append(_Section(".shstrtab", _STRTAB, 0, 0, 0, 1, 0, bytes(names.content)))
        body, headers = bytearray(_HEADER.size), []
        for number, s in zip(numbers, sections, strict=True):
            body += b"\0" * (-len(body) % max(s.align, 1))
            headers.append(_SECTION.pack(number, s.kind, s.flags, 0, len(body), len(s.content), s.link, s.info, s.align, s.entry))
            body += s.content
        body += b"\0" * (-len(body) % 8)
        head = list(_HEADER.unpack_from(like))
        head[5], head[6], head[9], head[10] = 0, len(body), 0, 0  # no program headers
        head[12], head[13] = len(sections), len(sections) - 1
        _HEADER.pack_into(body, 0, *head)
        return bytes(body) + b"".join(headers)


def join_cubins(images: Sequence[bytes], prefixes: Sequence[str]) -> bytes:
    """Return one cubin with the kernels of all, each name behind its cubin's prefix. It is for reading: it lacks what running it needs.

    Raises :class:`BuildError` where one is not an ELF file.
    """
    joined = _Joined()
    for image, prefix in zip(images, prefixes, strict=True):
        joined.add(image, prefix)
    return joined.write(images[0])
