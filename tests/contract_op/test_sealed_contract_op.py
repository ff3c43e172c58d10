"""A generated op in the frozen set: what is generated is sealed, builds without the workbench, and is called by the index alone."""

from __future__ import annotations

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from contract.agreement import check_agreement
from contract.schemas import find_schema_fault
from device import Device
from device.toolchain import find_toolchain
from harness.build.generate import generate_sources
from harness.build.interface import describe_interface, read_api
from harness.discover import LoadedOp, load_op
from harness.freezing.gates.interface_calls import find_wrong_call
from harness.freezing.seal.manifest import list_flags, name_kernel
from harness.freezing.seal.rebuild import prove_sealed
from harness.freezing.seal.sources import collect_sources
from harness.targets import find_target
from harness.testing import OpUnderTest

UNDER_TEST = OpUnderTest(Path(__file__).parent / "ops" / "blend", has_machine_code=True)
LOADED = UNDER_TEST.loaded
HONEST = LOADED.op.find_kernel("honest").bind({"threads": 64})
GENERATED = {"blend/params.h", "blend/contract.hpp", "blend/entry_points.hpp"}


def test_generated_headers_are_sealed_and_build_alone(tmp_path: Path) -> None:
    sources = collect_sources(LOADED)
    assert set(sources) >= GENERATED | {"blend/api.hpp", "blend/op.py", "common/contract.hpp", "common/domain.hpp", "common/op_module.cpp"}
    toolchain, target = find_toolchain(), find_target("h200")
    (build,) = UNDER_TEST.build([HONEST], "h200").values()
    flags = list_flags(LOADED, HONEST, target)
    assert "-DAICF_THREADS=64" in flags and "-DAICF_DOMAIN=D_C_1_64_1_1_3_1" in flags and not any(f.startswith("-I") for f in flags)
    manifest = {
        "kernel": name_kernel(LOADED, HONEST, target, sources),
        "arch": "sm_90a",
        "build": {
            "source": "sources/blend/launcher.cu",
            "flags": [*flags, "-DAICF_VARIANT=x"],
            "gencode": target.gencode,
            "machine_code": {"sm_90a": build.code_hash},
        },
    }
    assert prove_sealed(manifest, sources, toolchain, tmp_path) == ""
    # Sealed sources hold what was generated, and nothing is generated for them again.
    folder = tmp_path / manifest["kernel"] / "sources" / "blend"
    assert generate_sources(LoadedOp(load_op(folder), folder)) == {}
    assert (folder / "params.h").read_text() == generate_sources(LOADED)["blend/params.h"]


def test_a_change_of_op_py_alone_changes_what_is_built() -> None:
    names = {name for name, _ in next(iter(UNDER_TEST.build([HONEST]).values())).sources}
    assert names >= GENERATED


@pytest.fixture(scope="module")
def interface() -> dict[str, Any]:
    return describe_interface(LOADED.op, read_api(LOADED))


def test_the_interface_is_one_that_the_index_allows(interface: dict[str, Any]) -> None:
    row = {"kind": "op", "schema": 1, "op": "blend", "interface": interface, "axes": [], "cost": None, "ties": []}
    assert find_schema_fault("index", row) == ""
    check_agreement("blend", [row], [])
    tensors = {t["name"]: t for t in interface["tensors"]}
    assert (tensors["state"]["role"], tensors["x"]["strides"]) == ("inout", ["x_stride0", "x_stride1", "x_stride2", None])
    assert interface["scalars"] == [{"name": "decay", "field": "decay", "type": "float32", "default": 0.5, "low": 0.0, "high": 1.0}]
    assert interface["derived"] == [{"name": "P", "formula": "(S - R) // step + 1"}]


@pytest.mark.parametrize("lie", ["", "scalar", "strides", "codes"])
def test_a_kernel_is_called_by_the_index_alone(device: Device, interface: dict[str, Any], lie: str) -> None:
    told = copy.deepcopy(interface)
    if lie == "scalar":
        del told["scalars"]
    elif lie == "strides":
        next(t for t in told["tensors"] if t["name"] == "y")["strides"] = ["y_stride1", "y_stride0", "y_stride2", "y_stride3"]
    elif lie == "codes":
        next(a for a in told["attributes"] if a["name"] == "step")["codes"] = [1, 1, 1]
    (build,) = UNDER_TEST.build([HONEST]).values()
    session: Any = SimpleNamespace(loaded=LOADED, device=device)
    fault = find_wrong_call(session, build, UNDER_TEST.open([HONEST])(HONEST), told)
    assert bool(fault) is bool(lie), fault
    device.take_last_error()
