"""Reading a variant's shared object without CUDA tools: its PTX, and a hash of its machine code.

The layout of the ``.nv_fatbin`` section was found by decoding what nvcc 13.0 writes: a container (magic 0xBA55ED50, header and payload
size) holds entries of kind 1 (PTX) and 2 (ELF), each with a header size and payload size. The ELF inside is plain ELF64 (TIS *ELF
Specification* 1.2).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from device.toolchain import BuildError

_CONTAINER_MAGIC = 0xBA55ED50
_KIND_PTX, _KIND_ELF = 1, 2
_FLAGS_COMPRESSED = 0x2000 | 0x8000
# What the machine executes and what it reads as constants; debug lines and notes vary with comments and paths.
_CODE_SECTIONS = (".text.", ".nv.constant", ".nv.global.init", ".nv.shared", ".rodata")


def read_ptx(library: Path) -> str:
    """Return the PTX text embedded in a shared object that was built with ``--compress-mode=none``."""
    texts = [payload.rstrip(b"\0").decode() for kind, payload in _find_images(library) if kind == _KIND_PTX]
    if not texts:
        raise BuildError(f"{library} holds no PTX")
    return "\n".join(texts)


def read_machine_code(library: Path) -> list[bytes]:
    """Return the ELF images (cubins) embedded in a shared object."""
    return [payload for kind, payload in _find_images(library) if kind == _KIND_ELF]


def hash_machine_code(library: Path) -> str:
    """Hash code and constants of every kernel, so that two builds with the same machine code have the same hash."""
    digest = sha256()
    for kind, payload in _find_images(library):
        if kind == _KIND_ELF:
            for name, content in sorted(_read_sections(payload)):
                if name.startswith(_CODE_SECTIONS):
                    digest.update(name.encode() + b"\0" + content)
    return digest.hexdigest()


def hash_host_code(object_file: Path) -> str:
    """Hash the host's code of an object file that is not linked yet: sizes of grids and blocks are constants in it, addresses are not.

    Nor are names: what is in no namespace is called by its source's path, and entry points by their kernel.
    """
    digest = sha256()
    for content in sorted(content for name, content in _read_sections(object_file.read_bytes()) if name.startswith(".text")):
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()


def _find_images(library: Path) -> Iterator[tuple[int, bytes]]:
    content = library.read_bytes()
    for name, section in _read_sections(content):
        if name == ".nv_fatbin":
            yield from _read_containers(section, library)


def _read_containers(data: bytes, library: Path) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 16 <= len(data):
        magic, _, header, size = struct.unpack_from("<IHHQ", data, at)
        if magic != _CONTAINER_MAGIC:
            at += 8  # containers are aligned, with padding between them
            continue
        entry, end = at + header, at + header + size
        while entry < end:
            kind, entry_header, payload = struct.unpack_from("<HxxIQ", data, entry)
            flags = struct.unpack_from("<Q", data, entry + 40)[0]
            if flags & _FLAGS_COMPRESSED:
                raise BuildError(f"{library} was built with compressed device code; build with --compress-mode=none")
            yield kind, data[entry + entry_header : entry + entry_header + payload]
            entry += entry_header + payload
        at = end


def _read_sections(elf: bytes) -> list[tuple[str, bytes]]:
    if elf[:4] != b"\x7fELF":
        raise BuildError("device code is not an ELF file")
    offset = struct.unpack_from("<Q", elf, 40)[0]
    size, count, names_at = struct.unpack_from("<HHH", elf, 58)
    headers = [struct.unpack_from("<IIQQQQ", elf, offset + i * size) for i in range(count)]
    names = elf[headers[names_at][4] :]
    sections = []
    for name, kind, _, _, start, length in headers:
        text = names[name : names.index(b"\0", name)].decode()
        sections.append((text, b"" if kind == 8 else elf[start : start + length]))  # 8: SHT_NOBITS
    return sections
