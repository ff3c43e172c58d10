"""One C header for kernels of several revisions: a shared header may have grown by constants and last fields, and by nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest

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

    def read_source(self, path: str) -> bytes:
        """The text of a sealed file."""
        return self.sources[path.removeprefix("sources/")].encode()


def make_op(name: str, codes: str, struct: str = STRUCT.format("")) -> DeployedOp:
    """An op of one kernel."""
    kernel = cast(Any, SealedKernel(f"{name}_kernel", {"common/codes.h": codes, "op/params.h": struct}))
    return DeployedOp({"op": name, "interface": {"include": "op/params.h", "struct": "Params"}}, (kernel,), (), (), ())


@pytest.mark.parametrize("grown_first", [False, True])
def test_a_header_that_grew_by_constants_is_taken_whole(grown_first: bool) -> None:
    ops = [make_op("old", CODES.format("")), make_op("new", GROWN)]
    text = make_header(ops[::-1] if grown_first else ops)
    assert text.count("AICF_B = 1") == text.count("AICF_C = 2") == text.count("typedef struct Params {") == 1
    assert text.index("AICF_C = 2") < text.index("typedef struct Params {")


@pytest.mark.parametrize("grown_first", [False, True])
def test_params_that_grew_behind_all_other_fields_are_taken_whole(grown_first: bool) -> None:
    longer = STRUCT.format("\n    const void* y; /* new */\n    int64_t ldx, ldy;")
    ops = [make_op("old", CODES.format("")), make_op("new", CODES.format(""), longer)]
    text = make_header(ops[::-1] if grown_first else ops)
    assert text.count("int64_t ldx, ldy;") == text.count("typedef struct Params {") == 1


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
    with pytest.raises(DeployError, match=f"^{named} of new_kernel is not that of old_kernel"):
        make_header([make_op("old", CODES.format("") + OTHER.format("") * ("Pair" in codes)), make_op("new", codes, struct)])
