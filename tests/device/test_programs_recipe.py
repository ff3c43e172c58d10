"""What a program's own build file says of it, which arguments are cut, and how what is missing is named."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from device.programs import find_programs, judge
from device.programs.arguments import shorten_repeats
from device.programs.find import find_header
from device.programs.missing import explain, find_missing_header
from device.programs.recipe import choose_standard, read_recipe

MAIN = "int main() { return 0; }\n"
needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")

MAKEFILE = """
CC = nvcc
SIZE ?= 64
program = bin/app
sources = main.cu \\
  parts/part.cu
objects = $(sources:.cu=.o)
run: $(program)
\tOMP_NUM_THREADS=2 ./$(program) data/in.txt 128 --iterations 50 > out.txt 2>&1
$(program): $(objects)
\tmkdir -p bin && $(CC) -std=c++14 $(objects) -o $@ -lm -lcublas
%.o: %.cu
\t$(CC) -arch=sm_60 -std=c++14 -DSIZE=$(SIZE) -I ../shared -Xcompiler -Wall,-fopenmp -default-stream per-thread -O3 -c $< -o $@
"""


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@needs_make
def test_a_makefile_gives_sources_macros_headers_and_arguments(tmp_path: Path) -> None:
    write(tmp_path, {"app/Makefile": MAKEFILE, "app/main.cu": MAIN, "app/parts/part.cu": "", "app/other.cu": "", "shared/x.h": ""})
    (program,) = find_programs(tmp_path)
    recipe = program.recipe
    assert [path.name for path in program.helpers] == ["part.cu"]
    assert [path.name for path in program.spare] == ["other.cu"]
    assert recipe.flags == ("-DSIZE=64", "-Xcompiler=-fopenmp", "-default-stream=per-thread")
    assert recipe.includes == (tmp_path / "shared",)
    assert recipe.libraries == ("-lm", "-lcublas")
    assert recipe.arguments == ("data/in.txt", "128", "--iterations", "50")
    assert recipe.standard == "c++14"


@needs_make
@pytest.mark.parametrize("option", ["-maxrregcount=32", "-maxrregcount 32", "--maxrregcount=32"])
def test_a_limit_of_registers_is_no_option_of_the_host_compiler(tmp_path: Path, option: str) -> None:
    write(tmp_path, {"Makefile": f"app: main.cu\n\tnvcc -march=native {option} -o app main.cu\n", "main.cu": MAIN})
    (program,) = find_programs(tmp_path)
    assert program.recipe.flags == ("-Xcompiler=-march=native", option.replace(" ", "="))


@needs_make
def test_each_main_of_a_makefile_has_its_own_arguments(tmp_path: Path) -> None:
    rules = "".join(f"{name}: {name}.cu\n\tnvcc -o {name} {name}.cu\n" for name in "ab")
    write(tmp_path, {"Makefile": f"run: a b\n\t./b 2 > b.txt\n\t./a 1 2>&1 | tee a.txt\n{rules}", "a.cu": MAIN, "b.cu": MAIN})
    assert [program.recipe.arguments for program in find_programs(tmp_path)] == [("1",), ("2",)]


@needs_make
def test_a_makefile_above_the_main_may_name_sources_by_pattern(tmp_path: Path) -> None:
    text = "run: app\n\t./app in/data.txt\napp:\n\tnvcc -Isrc/part src/main/*.cpp src/part/*.cu -o app\n"
    write(tmp_path, {"Makefile": text, "src/main/main.cpp": MAIN, "src/part/a.cu": "__global__ void f() {}\n", "src/part/b.cu": ""})
    (program,) = find_programs(tmp_path)
    assert [path.name for path in program.helpers] == ["a.cu", "b.cu"]
    assert (program.recipe.arguments, program.folder) == (("in/data.txt",), tmp_path)


@needs_make
def test_a_makefile_beside_the_folder_of_the_main(tmp_path: Path) -> None:
    text = "app: main.o kernel.o\n\tnvcc main.o kernel.o -o app\nmain.o: ../common/main.cpp\n\tnvcc -c $< -o $@\n"
    kernels = {
        "src/kernel/Makefile": text + "kernel.o: kernel.cu\n\tnvcc -c $< -o $@\n",
        "src/kernel/kernel.cu": "__global__ void f() {}\n",
    }
    write(tmp_path, {**kernels, "src/other/Makefile": "app:\n\tnvcc other.cu -o app\n", "src/common/main.cpp": MAIN})
    (program,) = find_programs(tmp_path)
    assert [path.name for path in program.helpers] == ["kernel.cu"]
    assert program.folder == tmp_path / "src/kernel"


@needs_make
def test_a_makefile_takes_its_main_from_outside_the_folder(tmp_path: Path) -> None:
    makefile = "run: app\n\t./app 7\napp:\n\tnvcc ../wc-other/main.cpp wc.cu -o app\n"
    other = {"wc-other/main.cpp": MAIN, "wc-other/Makefile": "run: app\n\t./app 9\napp:\n\tclang++ main.cpp -o app\n"}
    write(tmp_path, {**other, "wc-cuda/Makefile": makefile, "wc-cuda/wc.cu": "__global__ void f() {}\n"})
    (program,) = find_programs(tmp_path / "wc-cuda")
    assert (program.main, [path.name for path in program.helpers]) == (tmp_path / "wc-other/main.cpp", ["wc.cu"])
    assert (program.recipe.arguments, program.folder) == (("7",), tmp_path / "wc-cuda")


@needs_make
def test_a_broken_makefile_says_nothing(tmp_path: Path) -> None:
    write(tmp_path, {"Makefile": "include nowhere.mk\n", "a.cu": MAIN})
    assert read_recipe(tmp_path / "a.cu", tmp_path).sources == ()


def test_a_cmake_file_gives_sources_standard_and_separate_compilation(tmp_path: Path) -> None:
    text = """
    set(PARTS src/part.cu)
    include_directories(../common)
    add_executable(app src/main.cpp ${PARTS})  # a comment (with brackets)
    target_compile_definitions(app PRIVATE WIDE=1)
    target_compile_features(app PRIVATE cxx_std_20)
    set_target_properties(app PROPERTIES CUDA_SEPARABLE_COMPILATION ON)
    """
    write(
        tmp_path, {"x/CMakeLists.txt": text, "x/src/main.cpp": "#include <cuda_runtime.h>\n" + MAIN, "x/src/part.cu": "", "common/c.h": ""}
    )
    (program,) = find_programs(tmp_path)
    assert [path.name for path in program.helpers] == ["part.cu"]
    assert program.recipe.flags == ("-DWIDE=1", "-rdc=true")
    assert program.recipe.includes == (tmp_path / "common",)
    assert program.recipe.standard == "c++20"


def test_only_counts_of_repetitions_are_cut() -> None:
    usage = 'printf("Usage: %s <rows> <max iterations> "\n "<repeat>\\n", argv[0]);'
    assert shorten_repeats(("512", "40", "1000"), usage) == ("512", "40", "1")
    assert shorten_repeats(("7", "100"), "int n = atoi(argv[1]); const int repeat = atoi(argv[2]);") == ("7", "1")
    assert shorten_repeats(("--size", "64", "--iterations", "50", "file.txt"), "") == ("--size", "64", "--iterations", "1", "file.txt")
    assert shorten_repeats(("image.ppm", "10000"), "const int iCycles = atoi(argv[2]);") == ("image.ppm", "1")
    assert shorten_repeats(("3", "100"), 'printf("Usage: %s <problem size> <number of passes>\\n", argv[0]);') == ("3", "1")
    assert shorten_repeats(("512",), "") == ("512",)


def test_the_newer_standard_is_taken() -> None:
    assert choose_standard("c++17", "c++11") == "c++17"
    assert choose_standard("c++17", "c++2a") == "c++2a"
    assert choose_standard("c++17", "") == "c++17"


def test_a_header_elsewhere_in_the_collection_is_found_by_its_whole_name(tmp_path: Path) -> None:
    write(tmp_path, {"far/lib/util.h": "", "near/lib/util.h": "", "near/other/util.h": "", "near/app/main.cu": MAIN})
    assert find_header(tmp_path, "lib/util.h", tmp_path / "near/app/main.cu") == tmp_path / "near"
    assert find_header(tmp_path, "absent.h", tmp_path / "near/app/main.cu") is None


@pytest.mark.parametrize(
    ("errors", "named"),
    [
        ("a.cu:1:10: fatal error: cublas_v2.h: No such file or directory", "needs cuBLAS: cublas_v2.h is not there"),
        ("a.o: undefined reference to `curandCreateGenerator'", "needs cuRAND's host library: curandCreateGenerator is not there"),
        ("/usr/bin/ld: cannot find -lGLEW: No such file", "needs a library that is not there: GLEW"),
        ("a.cu:1:10: fatal error: mine.h: No such file or directory", "needs a header that is not there: mine.h"),
        ('a.cu(3): error: identifier "x" is undefined', 'a.cu(3): error: identifier "x" is undefined'),
    ],
)
def test_what_is_missing_is_named(errors: str, named: str) -> None:
    assert explain(errors).splitlines()[0] == named
    assert bool(find_missing_header(errors)) == ("fatal error" in errors)


@pytest.mark.parametrize(
    ("status", "text", "verdict"),
    [
        (1, "Usage: ./app <n>\n", "waived"),
        (1, "error: cannot open file input.dat\n", "waived"),
        (0, "Usage hints follow\nPASSED\n", "pass"),
        (1, "cannot open file input.dat\nTest FAILED\n", "fail"),
        (0, "CUDA error: invalid argument\n", "fail"),
        (0, "CUDA error: no error\n", "ran"),
        (0, "cudaError: 0\n", "ran"),
    ],
)
def test_a_program_without_its_arguments_or_files_is_waived_and_an_error_of_cuda_is_none(status: int, text: str, verdict: str) -> None:
    assert judge("p", status, text, [], 0.1).status == verdict
