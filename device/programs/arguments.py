"""Arguments that only set how often a measurement is repeated: on the emulated device, once is enough."""

from __future__ import annotations

import re

_REPEATS = re.compile(
    r"repe[ta]|repetition|n?iter(?:s|ations?)?\b|num_?iter|loop|trial|runs?\b|nreps?\b|times? to run|cycles\b|passes\b", re.IGNORECASE
)
_NOT_REPEATS = re.compile(r"max|solver|step", re.IGNORECASE)
_USAGE = re.compile(r"Usage[^;]*", re.IGNORECASE)
_PLACEHOLDER = re.compile(r"<([^<>]*)>|\[([^\[\]]*)\]")
_ASSIGNED = re.compile(r"(\w+)\s*=\s*(?:\(\w+\)\s*)?(?:std::)?(?:atoi|atol|atoll|stoi|stol|strtol|strtoul)\s*\(\s*argv\s*\[\s*(\d+)\s*\]")


def shorten_repeats(arguments: tuple[str, ...], source: str) -> tuple[str, ...]:
    """Return the arguments with 1 for each number that ``source`` (the program's text) calls a count of repetitions.

    What an argument is called is taken from the usage message's ``<placeholders>``, from ``name = atoi(argv[i])``, and from the option
    before it (``--repeat 100``).
    """
    names = {int(index): name for name, index in _ASSIGNED.findall(source)}
    usage = _USAGE.search(source)
    if usage is not None:
        placeholders = [first or second for first, second in _PLACEHOLDER.findall(re.sub(r"\"\s*\"|argv\s*\[\s*0\s*\]", "", usage[0]))]
        if len(placeholders) == len(arguments):
            names = dict(enumerate(placeholders, 1)) | names
    short = list(arguments)
    for i, argument in enumerate(arguments, 1):
        option = arguments[i - 2].lstrip("-") if i > 1 and arguments[i - 2].startswith("-") else ""
        name = option or names.get(i, "")
        if argument.isdigit() and int(argument) > 1 and _REPEATS.search(name) and not _NOT_REPEATS.search(name):
            short[i - 1] = "1"
    return tuple(short)
