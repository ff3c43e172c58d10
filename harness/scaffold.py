"""Writing the folder of a new op from the templates beside this module.

Each kind of op is a working one, so that a new op builds, verifies and benches before it is changed. The kinds share one set of Jinja
templates (``templates/op/*.template``), which are filled with the kind's tensors and sizes; what is a kind's own (its kernels, how they are
launched, its maths, its problems) is in a folder of its name. Marks are ``@{ value }@`` and ``@% statement %@``: C++ and Python have none.
"""

from __future__ import annotations

import keyword
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import jinja2

from device.settings import find_project_root
from harness.build.store import full_disk_as_error
from harness.spec import SpecError

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}\Z")
_RESERVED = frozenset({"common"})
# The lower-case keywords of C++20: an op's name is also its C++ namespace.
_CPP_KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class compl concept const
    consteval constexpr constinit const_cast continue co_await co_return co_yield decltype default delete do double dynamic_cast else
    enum explicit export extern false float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr
    operator or or_eq private protected public register reinterpret_cast requires return short signed sizeof static static_assert
    static_cast struct switch template this thread_local throw true try typedef typeid typename union unsigned using virtual void
    volatile wchar_t while xor xor_eq
    """,
    )
)
TEMPLATES = Path(__file__).parent / "templates"
_SUFFIX = ".template"


class KindName(StrEnum):
    """What a new op begins as."""

    ELEMENTWISE = "elementwise"
    REDUCTION = "reduction"
    GEMM = "gemm"


@dataclass(frozen=True)
class _Tensor:
    """A tensor of a kind: its shape by names of sizes, and which of these no tensor before it has."""

    name: str
    shape: tuple[str, ...]
    new_sizes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Kind:
    """What the shared templates are filled with. The last tensor is the output; ``kernels`` are ideas by name."""

    name: KindName
    formula: str
    what: str
    tensors: tuple[_Tensor, ...]
    tunable: str
    kernels: Mapping[str, str] = field(default_factory=dict)

    @property
    def sizes(self) -> tuple[str, ...]:
        """The names of sizes, in the order in which tensors name them."""
        return tuple(dict.fromkeys(size for tensor in self.tensors for size in tensor.shape))

    @property
    def output(self) -> _Tensor:
        """The output."""
        return self.tensors[-1]


_KINDS = {
    kind.name: kind
    for kind in (
        _Kind(
            KindName.ELEMENTWISE,
            "Y = act(X * scale + shift)",
            "elementwise",
            (_Tensor("x", ("n",), ("n",)), _Tensor("scale", ("n",)), _Tensor("shift", ("n",)), _Tensor("y", ("n",))),
            "threads",
            {"scalar": "a thread per element", "vector": "a thread per four elements, 16-byte accesses"},
        ),
        _Kind(
            KindName.REDUCTION,
            "Y = act(sum of X over its columns)",
            "a value per row",
            (_Tensor("x", ("rows", "columns"), ("rows", "columns")), _Tensor("y", ("rows",))),
            "threads",
            {
                "thread_per_row": "a thread per row",
                "warp_per_row": "a warp per row: neighbouring lanes read neighbouring elements",
                "block_per_row": "a block per row: long rows have more threads",
            },
        ),
        _Kind(
            KindName.GEMM,
            "C = act(A B)",
            "a product of matrices",
            (_Tensor("a", ("M", "K"), ("M", "K")), _Tensor("b", ("K", "N"), ("N",)), _Tensor("c", ("M", "N"))),
            "tile",
            {"naive": "a thread per element of C", "smem_tiled": "tiles of A and B are read once a block, into shared memory"},
        ),
    )
}


def find_kind(name: str) -> KindName:
    """Return the kind of that name; raises :class:`SpecError` with those that there are."""
    if name not in list(KindName):
        raise SpecError(f"--kind {name}: must be one of {', '.join(KindName)}")
    return KindName(name)


def create_op(name: str, kind: KindName = KindName.ELEMENTWISE, ops_dir: Path | None = None) -> Path:
    """Write ``ops/<name>/`` whole or not at all, and return it. Raises :class:`SpecError` for a name that cannot be an op's."""
    parent = find_project_root() / "ops" if ops_dir is None else ops_dir
    check_op_name(name)
    folder = parent / name
    if folder.exists():
        raise SpecError(f"{folder} exists already; choose another name, or remove it first")
    with full_disk_as_error(parent):
        parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=parent, prefix=f".{name}-"))
        try:
            for file_name, text in fill_templates(name, kind).items():
                (scratch / file_name).write_text(text)
            scratch.chmod(0o755)
            scratch.rename(folder)
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise
    return folder


def check_op_name(name: str) -> None:
    """Raise :class:`SpecError` unless ``name`` can be a folder, a C identifier and part of a Python module's name."""
    if not _NAME.match(name) or "__" in name:
        raise SpecError(
            f"op name {name!r}: use lower-case letters, digits and single underscores, starting with a letter, at most 63 characters"
        )
    if keyword.iskeyword(name) or name in _CPP_KEYWORDS:
        raise SpecError(f"op name {name!r} is a keyword of {'C++' if name in _CPP_KEYWORDS else 'Python'}; choose another, e.g. {name}_op")
    if name in _RESERVED:
        raise SpecError(f"op name {name!r} is taken: ops/{name}/ holds what ops share")


def fill_templates(name: str, kind: KindName) -> dict[str, str]:
    """Return the text of each file of a new op by its name."""
    camel = "".join(part.capitalize() for part in name.split("_"))
    found = fill_folder("op", {"op": name, "camel": camel, "kind": _KINDS[kind], "has_opset": True})
    # pytest wants a name of its own for each file of tests.
    return {f"test_{name}.py" if file_name == "test.py" else file_name: text for file_name, text in found.items()}


def render_test(name: str) -> dict[str, str]:
    """Return the text of an op's own test by its name."""
    template = open_templates(TEMPLATES / "op").get_template(f"test.py{_SUFFIX}")
    return {f"test_{name}.py": template.render(name_packages() | {"op": name, "has_opset": False})}


def fill_folder(folder: str, values: Mapping[str, Any]) -> dict[str, str]:
    """Return the text of each template of a folder, filled, by its name without the suffix."""
    environment = open_templates(TEMPLATES / folder)
    names = sorted(path.name for path in (TEMPLATES / folder).glob(f"*{_SUFFIX}"))
    return {name.removesuffix(_SUFFIX): environment.get_template(name).render(name_packages() | dict(values)) for name in names}


def name_packages() -> dict[str, str]:
    """Return what the workbench's packages are imported as: installed they have other names than in a checkout."""
    return {"harness": __name__.rpartition(".")[0], "device": find_project_root.__module__.rpartition(".")[0]}


def open_templates(folder: Path) -> jinja2.Environment:
    """Return the templates of a folder, with marks that neither C++ nor Python has."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        variable_start_string="@{",
        variable_end_string="}@",
        block_start_string="@%",
        block_end_string="%@",
        comment_start_string="@#",
        comment_end_string="#@",
    )
