"""The library's one C header: the ops' contracts, flattened from the sealed ``api.hpp`` and its includes, and the calls."""

from __future__ import annotations

import re
from collections.abc import Sequence

from contract.kernels import FrozenKernel
from contract.layout import SOURCES
from deploy.errors import DeployError
from deploy.selection import DeployedOp, list_with_header

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"[^\n]*\n', re.MULTILINE)
# A constant with a value of its own, which shifts no other.
_CONSTANT = re.compile(r"AICF_\w+ = -?\d+|#define AICF_\w+ .+")
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)

_PREAMBLE = """\
/* The AICF kernel library: frozen kernels behind one call an op. Generated; do not edit.
 *
 * A call chooses a kernel by the problem's sizes, attributes, addresses and strides, from what was measured; docs/frozen.md says how.
 * Calls allocate nothing, wait for nothing, keep no state, are thread-safe, and can be captured into CUDA graphs. Pointers in a Params
 * struct are device addresses. Link with -laicf_kernels -lcudart -lm. */
#ifndef AICF_KERNELS_H_
#define AICF_KERNELS_H_

struct CUstream_st; /* cudaStream_t points to it */
"""
_TYPES = """
#ifdef __cplusplus
extern "C" {
#endif

/* What a caller asks of a kernel beyond the problem. NULL in its place asks for nothing. */
typedef struct AicfPreferences {
    int32_t deterministic;       /* not 0: the same bits on every run */
    int64_t max_workspace_bytes; /* below 0: no limit */
} AicfPreferences;

enum {
    AICF_BY_MEASUREMENT = 1, /* the fastest at these very sizes and attributes */
    AICF_BY_SURVEY = 2,      /* the least time predicted from a survey of all kernels */
    AICF_BY_NEIGHBOUR = 3,   /* the fastest at the nearest sizes that were measured */
    AICF_BY_PRIOR = 4,       /* the least estimate from the chip's peak rates: nothing near was measured */
    AICF_BY_FALLBACK = 5     /* nothing else serves the problem */
};

typedef struct AicfChoice {
    const char* kernel;      /* its name in the frozen set; static */
    double predicted_us;     /* measured, or estimated as `how` says; below 0: nothing is known */
    size_t workspace_bytes;  /* device memory that a launch wants */
    int32_t how;             /* AICF_BY_... */
    int32_t deterministic;   /* not 0: the same bits on every run */
    int32_t capture_safe;    /* not 0: may be captured into a CUDA graph */
} AicfChoice;

/* Names of all kernels of this library, `op/kernel`, ended by NULL. */
const char* const* aicf_list_kernels(void);
"""
_OP = """
/* {op}: chooses a kernel for the current device, says what workspace it wants, and queues it on a stream.
 * AICF_UNSUPPORTED where no kernel of the library serves the problem; the reason says why not. */
AicfStatus aicf_{op}_choose(const {struct}* params, const AicfPreferences* preferences, AicfChoice* choice);
AicfStatus aicf_{op}_workspace_bytes(const {struct}* params, const AicfPreferences* preferences, size_t* bytes);
AicfStatus aicf_{op}(const {struct}* params, const AicfPreferences* preferences, void* workspace, size_t workspace_bytes,
                     struct CUstream_st* stream);
/* The same choice for an architecture by name ("sm_90a"); asks no device. */
AicfStatus aicf_{op}_choose_on(const char* arch, const {struct}* params, const AicfPreferences* preferences, AicfChoice* choice);
"""
_END = """
#ifdef __cplusplus
}
#endif
#endif /* AICF_KERNELS_H_ */
"""


def make_header(ops: Sequence[DeployedOp]) -> str:
    """Return the text of ``aicf_kernels.h``; raises :class:`DeployError` where kernels were sealed with different contracts."""
    headers: dict[str, tuple[str, str]] = {}
    for op in ops:
        _flatten_op(op, headers)
    texts = [f"\n/* {'-' * 100} {name} */\n{_INCLUDE.sub('', text)}" for name, (_, text) in headers.items()]
    calls = [_OP.format(op=op.name, struct=op.interface["struct"]) for op in ops]
    return "".join([_PREAMBLE, *texts, _TYPES, *calls, _END])


def _flatten_op(op: DeployedOp, headers: dict[str, tuple[str, str]]) -> None:
    """Add the headers of an op's kernels, of its own those of the present interface alone.

    Kernels of an earlier one that this extends, which the index vouches for, take a pointer to the longer struct. Where all are, the header
    is that of a kernel which is not in the library. An interface that was written by hand once and is generated now is in the header that
    includes what was generated.
    """
    include = str(op.interface["include"])
    kernels = (*op.kernels, *([op.header] if op.header else []))
    having = {kernel.name for kernel in list_with_header(kernels, op.interface)}
    if not having:
        names = ", ".join(kernel.name for kernel in op.kernels)
        raise DeployError(f"{op.name}: {names}: sealed with an earlier C interface than the op has, and no frozen kernel has its header")
    for kernel in kernels:
        _flatten(kernel, include, headers, left_out="" if kernel.name in having else f"{op.name}/")


def _flatten(kernel: FrozenKernel, name: str, headers: dict[str, tuple[str, str]], left_out: str) -> None:
    """Add a header after those that it includes: each once in the whole library, in the fullest of its revisions.

    Those in the folder ``left_out``, where that is not "", are not added; what they include is.
    """
    text = kernel.read_source(f"{SOURCES}/{name}").decode()
    for included in _INCLUDE.findall(text):
        _flatten(kernel, included, headers, left_out)
    if left_out and name.startswith(left_out):
        return
    other, known = headers.setdefault(name, (kernel.name, text))
    if _extends(known, text):
        return
    if not _extends(text, known):
        raise DeployError(f"{name} of {kernel.name} is not that of {other}, and one library cannot hold both: promote the older one again")
    headers[name] = (kernel.name, text)


def _extends(longer: str, shorter: str) -> bool:
    """Say whether a header is another one with no more than constants added."""
    wanted = iter([*_list_lines(shorter), ""])
    line = next(wanted)
    for have in _list_lines(longer):
        if have == line:
            line = next(wanted)
        elif not _CONSTANT.fullmatch(have):
            return False
    return line == ""


def _list_lines(text: str) -> list[str]:
    """Return the lines that are not blank, without comments and the commas at their ends."""
    lines = (" ".join(line.split()).rstrip(",") for line in _COMMENT.sub(" ", text).splitlines())
    return [line for line in lines if line]
