"""How a program's own Makefile or CMakeLists.txt builds and runs it: macros, folders of headers, sources, the C++ standard, arguments.

``make`` is asked what it would do (``make -n``) and its answer is read; of CMake's language the few commands that name such things are.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

SOURCE_SUFFIXES = (".cu", ".cpp", ".cc", ".cxx", ".c")
_COMPILERS = re.compile(r"(?:nvcc|nvc\+\+|g\+\+|gcc|cc|c\+\+|clang|clang\+\+)(?:-\d+)?")
_KEPT_FLAGS = re.compile(
    r"-D.+|-U.+|-rdc=true|--relocatable-device-code=true|-dc|-?-use_fast_math|-?-fmad=.*|-?-default-stream=.+|-?-maxrregcount=.+"
)
_KEPT_HOST_FLAGS = re.compile(r"-fopenmp|-pthread|-f[\w=+-]+|-m[\w=.-]+|-D.+")
_DROPPED_HOST_FLAGS = re.compile(r"-fPIC|-fsanitize.*|-fdiagnostics.*|-m(?:tune|cpu).*")
_STANDARD = re.compile(r"--?std[= ](?:c|gnu)\+\+(\w+)")
_REDIRECTION = re.compile(r"(?:(?<=\s)[0-9]?|&)(?:>>?|<)(?:&[0-9]|\s*[^\s;|&]+)")
_DIRECTORY = re.compile(r"make(?:\[\d+\])?: Entering directory [`'\"](.*)['\"]")
_MAKE_SECONDS = 20
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
# Options that take the next word as their value.
_WITH_VALUE = frozenset(
    [
        "-I",
        "-isystem",
        "-D",
        "-U",
        "-o",
        "-L",
        "-x",
        "-std",
        "--std",
        "-include",
        "-arch",
        "-gencode",
        "-ccbin",
        "-Xptxas",
        "-Xlinker",
        "-default-stream",
        "--default-stream",
        "-maxrregcount",
        "--maxrregcount",
    ]
)
_ORDER = ("98", "03", "11", "0x", "14", "1y", "17", "1z", "20", "2a", "23")


@dataclass(frozen=True)
class Recipe:
    """What a build file says of one program; empty where it says nothing. ``folder`` is the one in which it runs the program."""

    flags: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    includes: tuple[Path, ...] = ()
    sources: tuple[Path, ...] = ()
    arguments: tuple[str, ...] = ()
    standard: str = ""
    folder: Path | None = None


@dataclass
class _Command:
    """One call of a compiler."""

    sources: list[Path] = field(default_factory=list)
    objects: list[Path] = field(default_factory=list)
    output: Path | None = None
    flags: list[str] = field(default_factory=list)
    libraries: list[str] = field(default_factory=list)
    includes: list[Path] = field(default_factory=list)
    standard: str = ""
    compiles_only: bool = False


def list_make_sources(folder: Path) -> list[Path]:
    """Return the sources that the folder's Makefile compiles, in its order; none without a Makefile."""
    if not any((folder / name).is_file() for name in _MAKEFILES):
        return []
    return list(dict.fromkeys(source for command in _ask_make(folder)[0] for source in command.sources))


def read_recipe(main: Path, top: Path, build: Path | None = None) -> Recipe:
    """Return what the nearest build file says of the program whose ``main`` this is.

    That is the Makefile of the folder ``build``, where it is given and names the program. Else it is looked for from ``main`` up to the
    folder ``top``, then in folders beside that of ``main``: theirs may name ``../common/main.cpp``.
    """
    if build is not None and (recipe := _from_make(main, build)) is not None:
        return recipe
    folder = main.parent
    while True:
        for name in _MAKEFILES:
            if (folder / name).is_file() and (recipe := _from_make(main, folder)) is not None:
                return recipe
        if (folder / "CMakeLists.txt").is_file() and (recipe := _from_cmake(main, folder)) is not None:
            return recipe
        if folder in (top, folder.parent):
            break
        folder = folder.parent
    if main.parent == top:
        return Recipe()
    beside = (
        path
        for name in _MAKEFILES
        for path in sorted(main.parent.parent.glob(f"*/{name}"))
        if main.name in path.read_text(errors="replace")
    )
    return next((recipe for path in beside if (recipe := _from_make(main, path.parent)) is not None), Recipe())


def choose_standard(first: str, second: str) -> str:
    """Return the newer of two standards as in ``c++17``; "" is the oldest."""
    place = {name: i for i, name in enumerate(_ORDER)}
    return max(first, second, key=lambda text: place.get(text.removeprefix("c++"), -1))


def _from_make(main: Path, folder: Path) -> Recipe | None:
    commands, runs = _ask_make(folder)
    own = next((c for c in commands if main in c.sources), None)
    if own is None:
        return None
    by_object = {(c.output or c.sources[0].with_suffix(".o")).name: c for c in commands if c.compiles_only and c.sources}
    link = own
    if own.compiles_only:
        name = (own.output or main.with_suffix(".o")).name
        link = next((c for c in commands if not c.compiles_only and any(o.name == name for o in c.objects)), own)
    parts = [own, link, *(by_object[o.name] for o in link.objects if o.name in by_object)]
    sources = dict.fromkeys(source for part in parts for source in part.sources if source.is_file())
    output = link.output or folder / "a.out"
    arguments: tuple[str, ...] = next((args for program, args in runs if program.name == output.name), ())
    return Recipe(
        flags=tuple(dict.fromkeys(flag for part in parts for flag in part.flags)),
        libraries=tuple(dict.fromkeys(name for part in parts for name in part.libraries)),
        includes=tuple(dict.fromkeys(path for part in parts for path in part.includes if path.is_dir())),
        sources=tuple(sources),
        arguments=arguments,
        standard=own.standard,
        folder=folder,
    )


@lru_cache(maxsize=4096)
def _ask_make(folder: Path) -> tuple[tuple[_Command, ...], tuple[tuple[Path, tuple[str, ...]], ...]]:
    """Return the calls of compilers that ``make run`` (else ``make``) would make, and the programs that it would start."""
    if shutil.which("make") is None:
        return (), ()
    environment = {**os.environ, "LC_ALL": "C", "MAKEFLAGS": "", "MAKELEVEL": ""}
    text = ""
    for goal in (["run"], []):
        try:
            done = subprocess.run(
                ["make", "-n", "-B", "-i", "-w", *goal],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=_MAKE_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return (), ()
        text = done.stdout
        if any(_COMPILERS.search(line) for line in text.splitlines()):
            break
    commands: list[_Command] = []
    runs: list[tuple[Path, tuple[str, ...]]] = []
    place = folder
    for line in text.replace("\\\n", " ").splitlines():
        if entered := _DIRECTORY.match(line):
            place = Path(entered[1])
            continue
        for words in _split(line):
            if _COMPILERS.fullmatch(Path(words[0]).name):
                commands.append(_read_command(words[1:], place))
            elif "/" in words[0]:
                runs.append((place / words[0], tuple(words[1:])))
    return tuple(commands), tuple(runs)


def _split(line: str) -> Iterator[list[str]]:
    """Yield the commands of a line of shell, each as words; assignments before a command and redirections after it are left out."""
    try:
        lexer = shlex.shlex(_REDIRECTION.sub(" ", line), posix=True, punctuation_chars="();<>|&")
        lexer.whitespace_split = True
        tokens = list(lexer)
    except ValueError:
        return
    words: list[str] = []
    for token in [*tokens, ";"]:
        if token and set(token) <= set(";|&()"):
            while words and (re.match(r"\w+=", words[0]) or words[0] in ("time", "env", "exec")):
                words.pop(0)
            if words:
                yield words
            words = []
        else:
            words.append(token)


def _read_command(words: list[str], place: Path) -> _Command:
    command = _Command()
    rest = iter(words)
    for word in rest:
        if word in _WITH_VALUE:
            value = next(rest, "")
            word = f"-I{value}" if word == "-isystem" else f"{word}{'=' * (len(word) > 2)}{value}"
        if word.startswith("-I"):
            path = (place / word[2:]).resolve()
            if not (path / "cuda_runtime.h").exists():
                command.includes.append(path)
        elif word in ("-Xcompiler", "--compiler-options") or word.startswith(("-Xcompiler=", "--compiler-options=")):
            value = word.partition("=")[2] or next(rest, "")
            for part in re.split(r"[,\s]+", value):
                _keep_host_flag(command, part)
        elif standard := _STANDARD.fullmatch(word):
            command.standard = f"c++{standard[1]}"
        elif word == "-c" or word in ("-dc", "--device-c"):
            command.compiles_only = True
            if word != "-c":
                command.flags.append("-rdc=true")
        elif word.startswith("-o") and len(word) > 2 and not word.startswith("-opt"):
            command.output = (place / word[2:]).resolve()
        elif re.fullmatch(r"-l\w[\w+.-]*", word):
            command.libraries.append(word)
        elif _KEPT_FLAGS.fullmatch(word):
            command.flags.append(word)
        elif word.startswith("-"):
            _keep_host_flag(command, word)
        elif word.endswith(SOURCE_SUFFIXES):
            command.sources += _expand(place, word)
        elif word.endswith((".o", ".obj")):
            command.objects.append((place / word).resolve())
    return command


def _expand(place: Path, word: str) -> list[Path]:
    """Return the files that a word of shell names; itself where it has no pattern or nothing matches."""
    has_pattern = bool(set(word) & set("*?[")) and not word.startswith("/")
    found = sorted(place.glob(word)) if has_pattern else []
    return [path.resolve() for path in found or [place / word]]


def _keep_host_flag(command: _Command, word: str) -> None:
    if _KEPT_HOST_FLAGS.fullmatch(word) and not _DROPPED_HOST_FLAGS.fullmatch(word):
        command.flags.append(word if word.startswith("-D") else f"-Xcompiler={word}")


def _from_cmake(main: Path, folder: Path) -> Recipe | None:
    text = re.sub(r"#[^\n]*", "", (folder / "CMakeLists.txt").read_text(errors="replace"))
    places = dict.fromkeys(("CMAKE_CURRENT_SOURCE_DIR", "CMAKE_SOURCE_DIR", "PROJECT_SOURCE_DIR", "CMAKE_CURRENT_LIST_DIR"), str(folder))
    for name, value in re.findall(r"\bset\s*\(\s*(\w+)\s+([^()]*)\)", text, re.IGNORECASE):
        places[name] = value

    def expand(words: str) -> list[str]:
        for _ in range(4):
            words = re.sub(r"\$\{(\w+)\}", lambda m: places.get(m[1], ""), words)
        return [word for word in words.replace('"', " ").split() if word not in ("PUBLIC", "PRIVATE", "INTERFACE", "SYSTEM", "BEFORE")]

    def calls(command: str) -> list[list[str]]:
        return [expand(words) for words in re.findall(rf"\b{command}\s*\(([^()]*)\)", text, re.IGNORECASE)]

    target = ""
    sources: tuple[Path, ...] = ()
    for name, *words in (call for call in [*calls("add_executable"), *calls("cuda_add_executable")] if call):
        paths = tuple((folder / word).resolve() for word in words if word.endswith(SOURCE_SUFFIXES))
        if main in paths:
            target, sources = name, tuple(path for path in paths if path.is_file())
            break
    if not target:
        return None

    def own(command: str) -> list[str]:
        return [word for call in calls(command) if call and call[0] == target for word in call[1:]]

    words = [word for call in calls("include_directories") for word in call] + own("target_include_directories")
    includes = dict.fromkeys((folder / word).resolve() for word in words if "$" not in word)
    macros = [f"-D{word.removeprefix('-D')}" for word in own("target_compile_definitions") if "$" not in word]
    macros += [word for call in calls("add_definitions") for word in call if word.startswith("-D")]
    if re.search(r"CUDA_SEPARABLE_COMPILATION\s+ON", text, re.IGNORECASE):
        macros.append("-rdc=true")
    standards = re.findall(r"(?:CXX|CUDA)_STANDARD\s+(\d+)|(?:cxx|cuda)_std_(\d+)|-std=c\+\+(\d+)", text)
    newest = ""
    for found in standards:
        newest = choose_standard(newest, f"c++{''.join(found)}")
    return Recipe(tuple(macros), (), tuple(path for path in includes if path.is_dir()), sources, (), newest)
