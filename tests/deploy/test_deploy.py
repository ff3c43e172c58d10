"""The deployed library: built by CMake from the frozen set, linked into a C++ program that runs without Python."""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from contract.layout import find_frozen_dir
from deploy.__main__ import summarize
from deploy.selection import select
from device.cubin import hash_machine_code
from device.toolchain import find_toolchain

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "cpp_mlp"
NETWORK = ROOT / "examples" / "cpp_network"
PATTERNS = ("naive__*", "row_in_registers__threads32_rows4*")
FAST_OPS = ("gemm_bias_act", "softmax")  # those of the network; the slow tests build a library of all
# Compiles the example's network of the library's kernels alone.
MAKE_NETWORK = """
import fnmatch, runpy, sys
from pathlib import Path
from aicf.registry import HwCaps, open_registry

registry = open_registry()
for op in ("gemm_bias_act", "softmax"):
    for kernel in registry.find_tables(op, HwCaps.parse("sm_90a")).kernels:
        if not any(fnmatch.fnmatch(kernel.name, pattern) for pattern in sys.argv[3:]):
            registry.refuse(op, kernel.manifest["seal"], "it is not in the library")
runpy.run_path(sys.argv[1])["main"](Path(sys.argv[2]))
"""


@dataclass(frozen=True)
class Built:
    """A library of some of the frozen kernels of some ops (none: of all) and a network, and the examples linked with it."""

    ops: tuple[str, ...]
    prefix: Path
    build: Path
    program: Path
    network: Path
    values: Path


def run(*command: object, cwd: Path = ROOT, timeout: float = 300) -> str:
    environ = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True, env=environ, timeout=timeout)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Built:
    ops = () if pytestconfig.getoption("--slow") else FAST_OPS
    folder = tmp_path_factory.mktemp("deploy")
    prefix, build = folder / "prefix", folder / "build"
    nvcc = find_toolchain().nvcc
    words = [f"-DCMAKE_INSTALL_PREFIX={prefix}", f"-DPython3_EXECUTABLE={sys.executable}", f"-DAICF_NVCC={nvcc}", "-DAICF_ARCHS=sm_90a"]
    values = folder / "values"
    make_network(values)
    words += [f"-DAICF_KERNELS={';'.join(PATTERNS)}", f"-DAICF_NETWORKS={values / 'mlp'}", f"-DAICF_OPS={';'.join(ops)}"]
    run("cmake", "-S", ROOT / "deploy", "-B", build, "-G", "Ninja", *words)
    run("ninja", "-C", build, "install")
    for example in (EXAMPLE, NETWORK):
        run("cmake", "-S", example, "-B", folder / example.name, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}")
        run("ninja", "-C", folder / example.name)
    return Built(ops, prefix, build, folder / "cpp_mlp" / "cpp_mlp", folder / "cpp_network" / "cpp_network", values)


def make_network(folder: Path) -> None:
    command = [sys.executable, "-c", MAKE_NETWORK, str(NETWORK / "make_network.py"), str(folder), *PATTERNS]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"AICF_DEVICE": "emulated"}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def list_symbols(archive: Path) -> set[str]:
    lines = run("nm", "-g", "--defined-only", archive).splitlines()
    return {line.split()[-1] for line in lines if len(line.split()) == 3}


@pytest.mark.slow
def test_the_library_has_the_calls_and_the_chosen_kernels_and_nothing_else(built: Built) -> None:
    expected = {"aicf_list_kernels"}
    for op in select(find_frozen_dir(), built.ops, ["sm_90a"], PATTERNS):
        expected |= {f"aicf_{op.name}{call}" for call in ("", "_choose", "_choose_on", "_workspace_bytes")}
        expected |= {symbol for k in op.kernels for symbol in k.manifest["entry_points"].values()}
    calls = re.findall(r"\b(aicf_network_\w+)\(", (ROOT / "deploy" / "aicf_network.h").read_text().partition("*/")[2])
    expected |= {"aicf_network_mlp", *calls}
    archive = built.prefix / "lib" / "libaicf_kernels.a"
    assert list_symbols(archive) == expected
    assert any("row_in_registers" in s for s in expected) and not any("wgmma" in s for s in expected)
    print(f"libaicf_kernels.a: {archive.stat().st_size} bytes, {len(expected)} symbols; cpp_mlp: {built.program.stat().st_size} bytes")


def test_the_build_says_which_ops_and_how_many_kernels_it_has(built: Built) -> None:
    lines = (built.build / "generated" / "summary.txt").read_text().splitlines()
    assert lines.pop(0).startswith("network mlp: 3 steps, 132608 bytes of weights, ")
    assert lines[-1] == summarize(select(find_frozen_dir(), built.ops, ["sm_90a"], PATTERNS)).splitlines()[-1]
    told = {line.partition(":")[0]: int(line.split()[1]) for line in lines[:-1]}
    chosen = {op.name: len(op.kernels) for op in select(find_frozen_dir(), built.ops, ["sm_90a"], PATTERNS)}
    assert told == chosen and f"{sum(chosen.values())} kernels" in lines[-1] and " for sm_90a, " in lines[0]


def test_the_machine_code_in_the_library_is_what_was_sealed(built: Built) -> None:
    for op in select(find_frozen_dir(), built.ops, ["sm_90a"], PATTERNS):
        for kernel in op.kernels:
            found = hash_machine_code(built.build / "kernels" / f"{op.name}-{kernel.name}.o")
            assert found == kernel.manifest["build"]["machine_code"]["sm_90a"]


def run_example(built: Built, expected: Path) -> subprocess.CompletedProcess[str]:
    return run_program(built.program, expected)


def run_program(program: Path, *arguments: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "device", "run", str(program), *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_the_example_computes_what_is_expected(emulated_device: object, built: Built) -> None:
    done = run_example(built, EXAMPLE / "expected.txt")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2048 values, the worst off by" in done.stdout
    assert "softmax  row_in_registers__" in done.stdout


def test_the_example_notices_a_value_that_is_off(emulated_device: object, built: Built, tmp_path: Path) -> None:
    lines = (EXAMPLE / "expected.txt").read_text().splitlines()
    lines[1000] = repr(float(lines[1000]) + 2 * float(lines[0]))
    (tmp_path / "wrong.txt").write_text("\n".join(lines) + "\n")
    done = run_example(built, tmp_path / "wrong.txt")
    assert done.returncode == 1
    assert "cpp_mlp: y[31, 7] = " in done.stderr + done.stdout


def test_a_compiled_network_runs_in_cpp_with_the_bits_of_python(emulated_device: object, built: Built) -> None:
    done = run_program(built.network, built.values / "x.bin", built.values / "y.bin")
    assert done.returncode == 0, done.stdout + done.stderr
    for how in ("launch by launch", "as one graph"):
        assert f"{how}: 2048 values, the same bits" in done.stdout
    # Of the library's objects there are those of the network's kernels alone.
    plan = json.loads((built.values / "mlp" / "plan.json").read_text())
    launches = {line.split()[-1] for line in run("nm", built.network).splitlines() if "_launch__" in line}
    assert launches == {f"{step['op']}_launch__{step['kernel']}" for step in plan["steps"]}


def test_the_cpp_network_notices_a_bit_that_is_off(emulated_device: object, built: Built, tmp_path: Path) -> None:
    y = np.fromfile(built.values / "y.bin", np.float32)
    y[1000] = np.nextafter(y[1000], np.float32(1.0))
    y.tofile(tmp_path / "y.bin")
    done = run_program(built.network, built.values / "x.bin", tmp_path / "y.bin")
    assert done.returncode == 1
    assert "cpp_network: launch by launch: value 1000 is " in done.stderr + done.stdout


@pytest.mark.parametrize("name", ["program", "network"])
def test_the_program_needs_no_python(built: Built, name: str) -> None:
    needed = [line.split()[-1] for line in run("readelf", "-d", getattr(built, name)).splitlines() if "(NEEDED)" in line]
    assert any("libcudart.so.13" in name for name in needed)
    assert not any("python" in name for name in needed)


def test_pkg_config_names_what_a_program_needs(built: Built, tmp_path: Path) -> None:
    lines = dict(line.split(": ", 1) for line in (built.prefix / "lib/pkgconfig/aicf_kernels.pc").read_text().splitlines() if ": " in line)
    variables = dict(
        line.split("=", 1)
        for line in (built.prefix / "lib/pkgconfig/aicf_kernels.pc").read_text().splitlines()
        if "=" in line and ": " not in line
    )

    def expand(text: str) -> list[str]:
        for _ in range(3):
            for name, value in variables.items():
                text = text.replace(f"${{{name}}}", value)
        return shlex.split(text)

    body = "for (const char* const* name = aicf_list_kernels(); *name; ++name) puts(*name);"
    (tmp_path / "program.c").write_text(f"#include <aicf_kernels.h>\n#include <stdio.h>\nint main(void) {{ {body} }}\n")
    run(
        "gcc",
        "-std=c11",
        "-Wall",
        "-Werror",
        *expand(lines["Cflags"]),
        tmp_path / "program.c",
        "-o",
        tmp_path / "program",
        *expand(lines["Libs"]),
    )
    library = find_toolchain().cudart_library.parent
    done = subprocess.run([str(tmp_path / "program")], env=os.environ | {"LD_LIBRARY_PATH": str(library)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "softmax/row_in_registers__" in done.stdout and "wgmma" not in done.stdout


def test_the_expected_values_are_those_of_the_script() -> None:
    """But for the order of NumPy's sums, which is its BLAS's and the host's."""
    made = [float(line) for line in runpy.run_path(str(EXAMPLE / "make_expected.py"))["render"]().split()]
    kept = [float(line) for line in (EXAMPLE / "expected.txt").read_text().split()]
    assert len(made) == len(kept) and np.allclose(made, kept, rtol=1e-12, atol=0.0)


def test_a_changed_source_stops_the_build(built: Built, tmp_path: Path) -> None:
    frozen = tmp_path / "frozen"
    shutil.copytree(find_frozen_dir() / "softmax", frozen / "softmax")
    for source in (frozen / "softmax" / "revisions").glob("*/sources/softmax/kernels.cu"):
        source.write_text(source.read_text().replace("exp", "exq", 1))
    command = [sys.executable, "-m", "deploy", "--frozen", str(frozen), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "is not what was sealed" in done.stderr
