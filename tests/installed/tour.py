"""Where each command of the documentation is run: on pages that a test follows from top to bottom, beside them, or in a test of its own."""

from __future__ import annotations

from tests.installed.pages import DOCS, Section

# A wheel into an environment is what the test that follows the pages begins with.
INSTALL = "pip install '.[workbench]'"
# Followed in this order, the first two in one project.
PAGES = tuple(DOCS / name for name in ("index.md", "kernel.md", "sanitizer.md"))
# Followed by a test of its own, in another project.
NEW_OP = Section(DOCS / "adding-an-op.md", "From nothing to frozen")
# What other pages ask of AICF's own ops is asked of the project's op, behind the pages.
BESIDE = (
    "aicf promote scale_shift --variant scalar/threads128 --dry-run",  # first: it wants a tree without changes
    "aicf bench scale_shift --device emulated",
    "aicf explain scale_shift n=1000",
    "aicf inspect scale_shift --variant scalar/threads128 --html page.html",
    "aicf model scale_shift --per-kernel 1",
    "aicf model scale_shift --variant scalar/threads128 --problem 'n65536*'",
    "aicf new another",
    "aicf show scale_shift scalar/threads128 --sass",
)
# Tests that run the rest: for want of a GPU some see it refused, or call what the verb calls.
_PROGRAMS = "tests/test_site.py::test_programs_of_a_folder_are_found_and_run"
ELSEWHERE = {
    "frozen verify": "tests/freezing/test_tour.py::test_the_road_from_a_new_variant_to_a_cpp_program_and_back",
    "sweep --save": "tests/harness/test_cluster.py::test_what_makes_no_sense_is_refused",
    "model --validate": "tests/harness/test_model_validation.py::test_report_and_points_round_trip",
    "survey measure --out": "tests/surveys/test_fitting.py::test_wrong_use_of_the_verb_is_one_message",
    "survey measure --out --where": "tests/surveys/test_timing.py::test_only_such_problems_are_drawn_as_are_asked_for",
    "survey fit": "tests/surveys/test_fitting.py::test_the_verb_fits_and_writes_nothing",
    "survey adopt": "tests/surveys/test_fitting.py::test_a_survey_comes_and_goes_with_the_history",
    "compare --drawn --publish": "tests/harness/test_drawn.py::test_drawn_problems_are_timed_recorded_and_published",
    "promote --library --recorded": "tests/freezing/test_library.py::test_the_verb_adopts_from_a_record_or_says_why_not",
    "promote --dry-run --population": "tests/freezing/test_population.py::test_the_verb_proves_what_is_needed_and_nothing_else",
    "promote --population": "tests/freezing/test_population.py::test_what_drawn_problems_need_passes_all_gates",
    "python scripts/run_programs.py": _PROGRAMS,
    "python scripts/run_programs.py --list": _PROGRAMS,
    "python scripts/run_programs.py --checks --filter --jobs --json --timeout": _PROGRAMS,
}
