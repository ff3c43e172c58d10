"""Writing the folder of a new op from the templates beside this module.

The template is a working op (``y = act(x * scale + shift)``), so that a new one builds, verifies and benches before it is changed. In a
template ``@op@`` stands for the op's name and ``@Op@`` for its C++ type prefix; file names are templates too.
"""

from __future__ import annotations

import keyword
import re
import shutil
import tempfile
from pathlib import Path

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
_TEMPLATES = Path(__file__).parent / "templates" / "op"
_SUFFIX = ".template"


def create_op(name: str, ops_dir: Path | None = None) -> Path:
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
            for template in sorted(_TEMPLATES.glob(f"*{_SUFFIX}")):
                target = scratch / fill_template(template.name.removesuffix(_SUFFIX), name)
                target.write_text(fill_template(template.read_text(), name))
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
        raise SpecError(f"op name {name!r} is a word of {'C++' if name in _CPP_KEYWORDS else 'Python'}; choose another, e.g. {name}_op")
    if name in _RESERVED:
        raise SpecError(f"op name {name!r} is taken: ops/{name}/ holds what ops share")


def fill_template(text: str, name: str) -> str:
    """Put the op's name into a template's text."""
    camel = "".join(part.capitalize() for part in name.split("_"))
    return text.replace("@op@", name).replace("@Op@", camel)
