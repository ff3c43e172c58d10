"""The zstd and LZ4 decoders on their own: against the reference compressor, and on damaged input."""

from __future__ import annotations

import ctypes
import subprocess
from ctypes import c_char_p, c_long, c_size_t
from pathlib import Path
from random import Random

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .cuda_runtime import ROOT

RUNTIME = ROOT / "device/emulator/src/runtime"
HARNESS = """
#include "lz4_decode.hpp"
#include "zstd_decode.hpp"
extern "C" long decode_zstd(const uint8_t* source, size_t size, size_t most, char* out, char* error) {
    std::string plain, reason;
    if (!aicf::emu::zstd_decode(source, size, most, &plain, &reason)) {
        error[reason.copy(error, 199)] = 0;
        return -1;
    }
    plain.copy(out, plain.size());
    return static_cast<long>(plain.size());
}
extern "C" long decode_lz4(const uint8_t* source, size_t size, size_t plain_bytes, char* out) {
    std::string plain;
    if (!aicf::emu::lz4_decode(source, size, plain_bytes, &plain)) return -1;
    plain.copy(out, plain.size());
    return static_cast<long>(plain.size());
}
"""


class Decoder:
    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        self._library.decode_zstd.restype = self._library.decode_lz4.restype = c_long

    def zstd(self, data: bytes, most: int) -> bytes | str:
        """The content, or the reason why there is none."""
        out, error = ctypes.create_string_buffer(most + 1), ctypes.create_string_buffer(200)
        count = self._library.decode_zstd(c_char_p(data), c_size_t(len(data)), c_size_t(most), out, error)
        return out.raw[:count] if count >= 0 else error.value.decode()

    def lz4(self, data: bytes, size: int) -> bytes | None:
        out = ctypes.create_string_buffer(size + 1)
        count = self._library.decode_lz4(c_char_p(data), c_size_t(len(data)), c_size_t(size), out)
        return out.raw[:count] if count >= 0 else None


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    folder = tmp_path_factory.mktemp("decoder")
    (folder / "harness.cpp").write_text(HARNESS)
    sources = [str(folder / "harness.cpp"), str(RUNTIME / "zstd_decode.cpp"), str(RUNTIME / "lz4_decode.cpp")]
    flags = ["-std=c++20", "-O1", "-shared", "-fPIC", "-fsanitize=undefined", "-fno-sanitize-recover", f"-I{RUNTIME}"]
    done = subprocess.run(["g++", *flags, *sources, "-o", str(folder / "decoder.so")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Decoder(folder / "decoder.so")


TEXT = (RUNTIME / "graph_api.cpp").read_bytes()


@st.composite
def contents(draw: st.DrawFn) -> bytes:
    """Bytes of several characters: noise, runs, text with long matches, few symbols."""
    kind = draw(st.integers(0, 4))
    if kind == 0:
        return draw(st.binary(max_size=2000))
    if kind == 1:
        return bytes([draw(st.integers(0, 255))]) * draw(st.integers(0, 300_000))
    if kind == 2:
        begin = draw(st.integers(0, len(TEXT)))
        return TEXT[begin : begin + draw(st.integers(0, 40_000))]
    random = Random(draw(st.integers(0, 2**32)))
    if kind == 3:
        return bytes(random.choices(b"abcdefgh", weights=[50, 20, 10, 5, 3, 2, 1, 1], k=random.randrange(20_000)))
    pieces = [TEXT[(at := random.randrange(len(TEXT))) : at + random.randrange(60)] for _ in range(random.randrange(500))]
    return b"".join(pieces)


def compress(data: bytes, level: int, checksum: bool, sized: bool) -> bytes:
    return zstandard.ZstdCompressor(level=level, write_checksum=checksum, write_content_size=sized).compress(data)


RELAXED = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@RELAXED
@given(data=contents(), level=st.sampled_from([-5, 1, 3, 9, 19]), checksum=st.booleans(), sized=st.booleans())
def test_whatever_is_compressed_comes_back(decoder: Decoder, data: bytes, level: int, checksum: bool, sized: bool) -> None:
    assert decoder.zstd(compress(data, level, checksum, sized), len(data)) == data


@RELAXED
@given(
    data=contents(),
    level=st.sampled_from([1, 3, 19]),
    edits=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=4),
    cut=st.floats(0, 1),
)
def test_damage_gives_an_error_or_other_bytes_and_never_a_crash(
    decoder: Decoder, data: bytes, level: int, edits: list[tuple[float, int]], cut: float
) -> None:
    damaged = bytearray(compress(data, level, True, True))
    for place, byte in edits:
        damaged[int(place * len(damaged))] = byte
    damaged = damaged[: max(4, int(cut * len(damaged)))] if cut < 0.5 else damaged
    decoder.zstd(bytes(damaged), len(data) + 100)


def test_reasons(decoder: Decoder) -> None:
    good = compress(TEXT, 3, True, True)
    assert decoder.zstd(b"", 10) == "the input ends early"
    assert decoder.zstd(b"PK\x03\x04", 10) == "it does not begin with zstd's magic number"
    assert decoder.zstd(good[:-1], len(TEXT)) == "the input ends early"
    assert decoder.zstd(good, len(TEXT) - 1) == "the frame is larger than it may be"
    assert decoder.zstd(compress(TEXT, 3, True, False), len(TEXT) - 1) == "the content is longer than it may be"
    assert decoder.zstd(good[:-4] + bytes(4), len(TEXT)) == "the checksum does not match"
    assert decoder.zstd(b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc" + good, len(TEXT)) == TEXT


def lz4_block(data: bytes) -> bytes:
    """A simple LZ4 compressor: matches of four bytes and more found by their first four."""
    out, at, anchor, seen = bytearray(), 0, 0, {}

    def length(value: int) -> bytes:
        return b"" if value < 15 else bytes([255] * ((value - 15) // 255) + [(value - 15) % 255])

    def sequence(literals: bytes, offset: int, match: int) -> bytes:
        token = min(len(literals), 15) << 4 | (min(match - 4, 15) if match else 0)
        tail = offset.to_bytes(2, "little") + length(match - 4) if match else b""
        return bytes([token]) + length(len(literals)) + literals + tail

    while at + 4 <= len(data):
        key = data[at : at + 4]
        found, seen[key] = seen.get(key), at
        if found is None or at - found > 65535:
            at += 1
            continue
        match = 4
        while at + match < len(data) and data[found + match] == data[at + match]:
            match += 1
        out += sequence(data[anchor:at], at - found, match)
        at = anchor = at + match
    return bytes(out + sequence(data[anchor:], 0, 0))


@RELAXED
@given(data=contents())
def test_lz4_comes_back(decoder: Decoder, data: bytes) -> None:
    packed = lz4_block(data[:30_000])
    assert decoder.lz4(packed, len(data[:30_000])) == data[:30_000]


@RELAXED
@given(packed=st.binary(max_size=300), size=st.integers(0, 5000))
def test_lz4_never_crashes(decoder: Decoder, packed: bytes, size: int) -> None:
    found = decoder.lz4(packed, size)
    assert found is None or len(found) == size
