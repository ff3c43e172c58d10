"""Fat binaries and the start-up code that nvcc writes: every compression, choice of PTX, several units, wrong images."""

from __future__ import annotations

import ctypes
import re
import struct
import subprocess
from collections.abc import Callable
from ctypes import byref, c_char_p, c_float, c_int, c_uint, c_void_p
from pathlib import Path

import numpy as np
import pytest
import zstandard

from .cuda_runtime import Runtime, run_isolated
from .kernels import find_nvcc
from .test_runtime_zstd import lz4_block

SOURCE = Path(__file__).with_name("runtime_kernels.cu")
INVALID_IMAGE, NO_IMAGE = 200, 209
ZSTD, LZ4 = 0x8000, 0x2000
SPECIFIC = {"": 0, "a": 0x100000, "f": 0x200000}
BOTH = "arch=compute_90a,code=[sm_90a,compute_90a]"


def ptx(name: str, target: str = "sm_80") -> bytes:
    return f".version 8.0\n.target {target}\n.address_size 64\n.visible .entry {name}()\n{{\n    ret;\n}}\n".encode()


def entry(text: bytes, arch: int = 80, flags: int = 0x11, kind: int = 1) -> bytes:
    """One entry of a fat binary, its payload compressed as the flags say."""
    plain = text + b"\0"
    payload = zstandard.compress(plain) if flags & ZSTD else lz4_block(plain) if flags & LZ4 else plain
    packed = len(payload) if flags & (ZSTD | LZ4) else 0
    payload += bytes(-len(payload) % 8)
    header = struct.pack("<HHIQIIHHIIIQQQ", kind, 0x101, 64, len(payload), packed, 0, 0, 8, arch, 0, 0, flags, 0, len(plain))
    assert len(header) == 64
    return header + payload


def container(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def load(cuda: Runtime, image: bytes) -> tuple[int, list[str]]:
    """The error of loading, and the names of the kernels."""
    library, count = c_void_p(), c_uint()
    keep = ctypes.create_string_buffer(image)
    code = cuda.code("cudaLibraryLoadData", byref(library), keep, None, None, c_uint(0), None, None, c_uint(0))
    if code:
        return code, []
    cuda.call("cudaLibraryGetKernelCount", byref(count), library)
    kernels = (c_void_p * count.value)()
    cuda.call("cudaLibraryEnumerateKernels", kernels, count, library)
    names = []
    for kernel in kernels:
        name = c_char_p()
        cuda.call("cudaFuncGetName", byref(name), c_void_p(kernel))
        names.append((name.value or b"").decode())
    cuda.call("cudaLibraryUnload", library)
    return 0, names


@pytest.mark.parametrize("flags", [0x11, 0x11 | ZSTD, 0x11 | LZ4], ids=["plain", "zstd", "lz4"])
def test_compressions(emulator: Runtime, flags: int) -> None:
    assert load(emulator, container(entry(ptx("k"), flags=flags))) == (0, ["k"])


@pytest.mark.parametrize(
    ("entries", "chosen"),
    [
        ([(80, ""), (90, "")], "k90"),
        ([(90, ""), (80, "")], "k90"),
        ([(90, ""), (90, "a")], "k90a"),
        ([(80, ""), (100, "")], "k80"),
        ([(80, ""), (100, "a")], "k80"),
        ([(80, ""), (89, "a")], "k80"),
        ([(120, ""), (100, "a"), (100, ""), (103, "f")], "k100"),
        ([(120, "a"), (100, "a"), (100, "f")], "k100f"),
        ([(120, "a")], "k120a"),
    ],
)
def test_the_best_ptx_is_chosen(emulator: Runtime, entries: list[tuple[int, str]], chosen: str) -> None:
    packed = [entry(ptx(f"k{arch}{suffix}", f"sm_{arch}{suffix}"), arch, 0x11 | SPECIFIC[suffix]) for arch, suffix in entries]
    assert load(emulator, container(*packed)) == (0, [chosen])
    found = [(r["kind"], r["severity"]) for r in emulator.reports()]
    assert found == ([("foreign_target", "note")] if int(chosen[1:].rstrip("af")) > 90 else [])


def test_what_holds_no_ptx_for_the_target(emulator: Runtime) -> None:
    assert load(emulator, container(entry(b"\x7fELF", 90, kind=2), entry(b"\x7fELF", 100, kind=2))) == (NO_IMAGE, [])
    assert "machine code for sm_90, machine code for sm_100" in emulator.message()
    assert "-gencode" in emulator.message()
    assert [r["kind"] for r in emulator.reports()] == ["load_error"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda image: image[:16] + b"\x01\x00\x01\x01\xff\xff\xff\x7f" + image[24:],
        lambda image: image[:24] + struct.pack("<Q", 1 << 40) + image[32:],
        lambda image: image[:80] + bytes(20) + image[100:],
        lambda image: image[:72] + struct.pack("<Q", 1 << 50) + image[80:],
        lambda image: image[:4] + struct.pack("<HHQ", 1, 16, 40) + image[16:],
    ],
    ids=["header size", "payload size", "zstd frame", "plain size", "cut"],
)
def test_damaged_containers(emulator: Runtime, damage: Callable[[bytes], bytes]) -> None:
    image = damage(container(entry(ptx("k"), flags=0x11 | ZSTD)))
    assert load(emulator, image)[0] == INVALID_IMAGE
    assert emulator.message()


def test_no_image_at_all(emulator: Runtime) -> None:
    assert load(emulator, b"\x7fELF" + bytes(100))[0] == INVALID_IMAGE


# Programs built by nvcc.


@pytest.fixture(scope="session")
def build(emulator_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Compile ``runtime_kernels.cu`` with more options; the same options are compiled once."""
    folder = tmp_path_factory.mktemp("programs")

    def compile_program(*options: str, gencode: str = BOTH) -> Path:
        path = folder / (re.sub(r"\W+", "_", " ".join((*options, gencode))) + ".so")
        if not path.exists():
            command = [find_nvcc(), "-shared", "-Xcompiler", "-fPIC", "-std=c++20", "-O3", "-cudart", "none", "-gencode", gencode, *options]
            done = subprocess.run(
                [*command, "-Xlinker", str(emulator_library), str(SOURCE), "-o", str(path)], capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
        return path

    return compile_program


def run_saxpy(cuda: Runtime, program: ctypes.CDLL, a: float, stream: int = 0) -> None:
    x, y = np.arange(300, dtype=np.float32), np.ones(300, np.float32)
    x_address, y_address = cuda.alloc(x), cuda.alloc(y)
    scale = c_float(3.0)
    assert program.set_scale(scale) == 0
    assert program.launch_saxpy(c_int(300), c_float(a), c_void_p(x_address), c_void_p(y_address), c_void_p(stream)) == 0
    np.testing.assert_array_equal(cuda.read(y_address, 300, np.float32), a * 3 * x + 1)
    for address in (x_address, y_address):
        cuda.call("cudaFree", address)


@pytest.mark.parametrize("mode", ["none", "speed", pytest.param("balance", marks=pytest.mark.slow), "size"])
def test_programs_with_every_compression(emulator: Runtime, build: Callable[..., Path], mode: str) -> None:
    program = ctypes.CDLL(str(build(f"--compress-mode={mode}", "-lineinfo")))
    run_saxpy(emulator, program, 4.0)


def test_arguments_of_many_shapes(emulator: Runtime, build: Callable[..., Path]) -> None:
    program = ctypes.CDLL(str(build("--compress-mode=none", "-lineinfo")))
    out = emulator.alloc(np.zeros(2))
    assert program.launch_unpack(c_void_p(out)) == 0
    assert list(emulator.read(out, 2, np.float64)) == [2.5, 37.0]


def test_symbols_attributes_and_managed_variables(emulator: Runtime, build: Callable[..., Path]) -> None:
    program = ctypes.CDLL(str(build("--compress-mode=none", "-lineinfo")))
    before, after, registers, blocks = c_int(), c_int(), c_int(), c_int()
    assert program.count_launches(byref(before)) == 0
    run_saxpy(emulator, program, 1.0)
    assert program.count_launches(byref(after)) == 0
    assert after.value == before.value + 1
    assert program.registers(byref(registers)) == 0
    assert program.occupancy(byref(blocks)) == 0
    assert blocks.value == 8
    assert program.read_managed() == 5


def test_registers_are_those_of_the_machine_code(emulator: Runtime, build: Callable[..., Path]) -> None:
    path = build("--compress-mode=none", "-lineinfo")
    usage = subprocess.run(
        [find_nvcc(), "-cubin", "-arch=sm_90a", "-O3", "-std=c++20", "-Xptxas", "-v", str(SOURCE), "-o", "/dev/null"],
        capture_output=True,
        text=True,
        check=False,
    )
    expected = re.search(r"unpack.*?Used (\d+) registers", usage.stderr, re.DOTALL)
    assert expected is not None, usage.stderr
    registers = c_int()
    assert ctypes.CDLL(str(path)).registers(byref(registers)) == 0
    assert registers.value == int(expected[1])


def test_two_programs_with_the_same_kernel_names(emulator: Runtime, build: Callable[..., Path]) -> None:
    first = ctypes.CDLL(str(build("--compress-mode=none", "-lineinfo")))
    second = ctypes.CDLL(str(build("--compress-mode=speed", "-lineinfo")))
    run_saxpy(emulator, first, 2.0)
    run_saxpy(emulator, second, 5.0)
    run_saxpy(emulator, first, 7.0)


def test_the_per_thread_default_stream(emulator: Runtime, build: Callable[..., Path]) -> None:
    run_saxpy(emulator, ctypes.CDLL(str(build("--default-stream", "per-thread"))), 3.0)


def test_machine_code_alone_says_what_to_do(emulator: Runtime, build: Callable[..., Path]) -> None:
    program = ctypes.CDLL(str(build(gencode="arch=compute_90a,code=sm_90a")))
    assert program.launch_unpack(c_void_p(0)) == NO_IMAGE
    assert "runs PTX only" in emulator.message()
    assert program.launch_unpack(c_void_p(0)) == NO_IMAGE
    assert [r["kind"] for r in emulator.reports()] == ["load_error"]


def test_a_captured_launch_names_its_function(emulator: Runtime, build: Callable[..., Path]) -> None:
    program = ctypes.CDLL(str(build("--compress-mode=none", "-lineinfo")))
    program.function_address.restype = c_void_p
    name = c_char_p()
    emulator.call("cudaFuncGetName", byref(name), c_void_p(program.function_address()))
    assert b"unpack" in (name.value or b"")


def test_loading_and_unloading_a_program(emulator: Runtime, build: Callable[..., Path], runtime_library: Path) -> None:
    path = build("--compress-mode=none", "-lineinfo")
    body = (
        "import _ctypes\n"
        f"program = ctypes.CDLL({str(path)!r})\nout = cuda.alloc(np.zeros(2))\nprint(program.launch_unpack(c_void_p(out)))\n"
        "allocations = len(json.loads(cuda.library.aicfEmulatorAllocations()))\n"
        "_ctypes.dlclose(program._handle)\nprint(len(json.loads(cuda.library.aicfEmulatorAllocations())) < allocations)\n"
        f"program = ctypes.CDLL({str(path)!r})\nprint(program.launch_unpack(c_void_p(out)), cuda.read(out, 2, np.float64)[0])\n"
    )
    done = run_isolated(runtime_library, body)
    assert done.stdout.split() == ["0", "True", "0", "2.5"], done.stderr
