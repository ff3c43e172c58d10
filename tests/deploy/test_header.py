"""One C header for kernels of several revisions: a shared header may have grown by constants, an op's own by what its interface extends."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

from contract.layout import hash_value
from deploy.errors import DeployError
from deploy.header import make_header
from deploy.selection import DeployedOp

CODES = "/* Codes. */\nenum {{\n    AICF_A = 0,\n    AICF_B = 1{}\n}};\n"
GROWN = CODES.format(", /* the last of old */\n    AICF_C = 2")
STRUCT = '#include "common/codes.h"\ntypedef struct Params {{\n    void* x;\n    int64_t n;{}\n}} Params;\n'
OTHER = "typedef struct Pair {{\n    int a;{}\n}} Pair;\n"


@dataclass
class SealedKernel:
    """What is read of a frozen kernel."""

    name: str
    sources: dict[str, str]
    manifest: dict[str, str]

    def read_source(self, path: str) -> bytes:
        """The text of a sealed file."""
        return self.sources[path.removeprefix("sources/")].encode()


def make_op(name: str, *kernels: tuple[str, str], num_earlier: int = 0) -> DeployedOp:
    """An op of kernels with these codes and structs, of which the first ``num_earlier`` were sealed with an earlier interface."""
    interface = {"include": "op/params.h", "struct": "Params"}
    sealed = [
        SealedKernel(
            f"{name}_kernel{i}",
            {"common/codes.h": codes, "op/params.h": struct},
            {"interface": hash_value(interface) if i >= num_earlier else "earlier"},
        )
        for i, (codes, struct) in enumerate(kernels)
    ]
    return DeployedOp({"op": name, "interface": interface}, cast(Any, tuple(sealed)), (), (), ())


@pytest.mark.parametrize("grown_first", [False, True])
def test_a_header_that_grew_by_constants_is_taken_whole(grown_first: bool) -> None:
    struct = STRUCT.format("")
    ops = [make_op("old", (CODES.format(""), struct)), make_op("new", (GROWN, struct))]
    text = make_header(ops[::-1] if grown_first else ops)
    assert text.count("AICF_B = 1") == text.count("AICF_C = 2") == text.count("typedef struct Params {") == 1
    assert text.index("AICF_C = 2") < text.index("typedef struct Params {")


def test_of_an_op_that_grew_the_present_header_is_taken() -> None:
    earlier = STRUCT.format("").replace("void* x", "float* x").replace('#include "common', '#include "op/more.h"\n#include "common')
    longer = STRUCT.format("\n    const void* y;")
    op = make_op("op", (GROWN, earlier), (CODES.format(""), longer), num_earlier=1)
    cast(Any, op.kernels[0]).sources["op/more.h"] = "typedef struct Gone {} Gone;\n"
    text = make_header([op])
    assert text.count("const void* y;") == text.count("typedef struct Params {") == 1
    assert "float* x" not in text and "Gone" not in text
    assert text.count("AICF_C = 2") == 1  # shared headers are one for all
    # Where all are of the earlier one, of a kernel that is not in the library; where there is none, nobody has the present header.
    alone = replace(op, kernels=op.kernels[:1])
    assert make_header([replace(alone, header=op.kernels[1])]).count("const void* y;") == 1
    with pytest.raises(DeployError, match=r"^op: op_kernel0: sealed with an earlier C interface than the op has, and no frozen kernel"):
        make_header([alone])


@pytest.mark.parametrize("generated_first", [False, True])
def test_a_struct_that_is_generated_now_stands_for_one_that_was_written_by_hand(generated_first: bool) -> None:
    by_hand = STRUCT.format("")
    op = make_op("op", (CODES.format(""), by_hand), (CODES.format(""), '#include "op/params.h"\n'))
    hand, generated = op.kernels
    cast(Any, hand).sources["op/api.hpp"] = by_hand + "/* kept by hand */ int8_t of_old;\n"
    cast(Any, generated).sources |= {"op/api.hpp": '#include "op/params.h"\n', "op/params.h": by_hand}
    interface = op.interface | {"include": "op/api.hpp"}
    for kernel in op.kernels:
        kernel.manifest["interface"] = hash_value(interface)
    op = replace(op, description={"op": "op", "interface": interface}, kernels=op.kernels[::-1] if generated_first else op.kernels)
    text = make_header([op])
    assert text.count("typedef struct Params {") == 1 and "of_old" not in text


@pytest.mark.parametrize(
    ("codes", "struct", "named"),
    [
        (CODES.format("").replace("1", "2"), STRUCT.format(""), "common/codes.h"),  # another value
        (CODES.format(",\n    AICF_C"), STRUCT.format(""), "common/codes.h"),  # a constant whose value is not written
        (
            CODES.format(""),
            STRUCT.format("").replace("    void* x;", "    int64_t m;\n    void* x;"),
            "op/params.h",
        ),  # a field moves others
        (CODES.format("") + OTHER.format("\n    int b;"), STRUCT.format(""), "common/codes.h"),  # a field of what is no call's
    ],
)
def test_headers_that_mean_different_things_are_refused_by_name(codes: str, struct: str, named: str) -> None:
    with pytest.raises(DeployError, match=f"^{named} of new_kernel0 is not that of old_kernel0"):
        old = CODES.format("") + OTHER.format("") * ("Pair" in codes), STRUCT.format("")
        make_header([make_op("old", old), make_op("new", (codes, struct))])
