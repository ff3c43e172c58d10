"""The generated dispatcher decides as docs/frozen.md says on ops that are made up: a dozen sizes, strides of all dimensions, any costs."""

from __future__ import annotations

import ctypes
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from contract.kernels import FrozenKernel
from contract.layout import SOURCES, hash_value
from contract.structs import Status, make_params
from deploy.dispatch import make_dispatcher
from deploy.errors import DeployError
from deploy.selection import DeployedOp
from tests.contract.chooser import choose
from tests.contract.made_up_sets import ARCH, MadeUpSet, draw_call, draw_set
from tests.deploy.dispatchers import Choice, Preferences, build_dispatcher

ROOT = Path(__file__).resolve().parents[2]
TYPES = {"pointer": "const void*", "int64": "int64_t", "int32": "int32_t"}
NUM_SETS, NUM_CALLS = 30, 100


class MadeUpKernel(FrozenKernel):
    """A kernel whose sealed headers are made of its op's interface."""

    def read_source(self, name: str) -> bytes:
        if name.endswith("common/status.h"):
            return (ROOT / "ops" / "common" / "status.h").read_bytes()
        assert name.startswith(f"{SOURCES}/made_up")
        interface = self.manifest["described"]
        fields = "".join(f"    {TYPES[f['type']]} {f['name']};\n" for f in interface["fields"])
        struct = interface["struct"]
        return f'#include <stddef.h>\n#include "common/status.h"\ntypedef struct {struct} {{\n{fields}}} {struct};\n'.encode()


def deploy(made: MadeUpSet, number: int) -> DeployedOp:
    """Return a made-up set as an op of a library, under a name of its own."""
    name = f"made_up{number}"
    interface = made.description["interface"] | {"struct": f"MadeUp{number}Params", "include": f"{name}/api.hpp"}
    kernels = []
    for kernel, manifest in sorted(made.manifests.items()):
        facts = {
            "op": name,
            "entry_points": {call: f"{name}_{call}__{kernel}" for call in ("supports", "workspace_bytes", "launch")},
            "workspace": {"kind": "none", "max_bytes": 0},
            "capture_safe": True,
            "build": {"flags": [], "gencode": "arch=compute_90a,code=sm_90a", "source": "sources/x.cu", "toolchain": {"nvcc": "13.0.88"}},
            "files": {},
            "interface": hash_value(interface),
            "described": interface,
        }
        kernels.append(MadeUpKernel(manifest | facts, Path("/nowhere")))
    description = made.description | {"op": name, "interface": interface}
    surveys = (made.survey,) if made.survey else ()
    return DeployedOp(description, tuple(kernels), tuple(made.entries), tuple(made.medians), surveys)


def test_the_generated_dispatcher_decides_as_described_on_made_up_ops(tmp_path: Path) -> None:
    generator = random.Random(22)
    sets = [draw_set(generator) for _ in range(NUM_SETS)]
    ops = [deploy(made, i) for i, made in enumerate(sets)]
    library = build_dispatcher(tmp_path, ops)
    seen: Counter[int] = Counter()
    for made, op in zip(sets, ops, strict=True):
        function = getattr(library, f"aicf_{op.name}_choose_on")
        function.restype = Status
        for _ in range(NUM_CALLS):
            call, choice = draw_call(generator, made), Choice()
            params = make_params(op.interface, call.sizes, call.attributes, call.addresses, call.strides)
            for wished, refused in ((None, []), (Preferences(1, -1), [n for n, m in made.manifests.items() if not m["deterministic"]])):
                expected = choose(made.rows, made.manifests, ARCH, call, refused)
                wishes = None if wished is None else ctypes.byref(wished)
                status = function(ARCH.encode(), ctypes.byref(params), wishes, ctypes.byref(choice))
                found = (choice.kernel.decode(), choice.how) if status.code == 0 else (None, 0)
                assert found == expected, (call, status.read_reason())
                seen[expected[1]] += 1
    assert min(seen[step] for step in range(6)) > 20, seen


def test_an_interface_that_the_dispatcher_cannot_read_is_refused_by_name() -> None:
    op = deploy(draw_set(random.Random(1)), 0)
    interface = op.interface

    def change(**facts: object) -> DeployedOp:
        return replace(op, description={**op.description, "interface": {**interface, **facts}})

    fields = [f | {"type": "float64"} if f["name"] == "ldx" else f for f in interface["fields"]]
    with pytest.raises(DeployError, match="made_up0: interface: ldx is a float64; sizes, attributes and strides must be int64 or int32"):
        make_dispatcher([change(fields=fields)])
    tensors = [t | {"strides": ["w0", None, None]} if t["name"] == "w" else t for t in interface["tensors"]]
    with pytest.raises(DeployError, match="the strides of w are not one for each dimension but the last"):
        make_dispatcher([change(tensors=tensors)])
