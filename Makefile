# The commands of the project. `make` or `make help` lists them; everything runs in .venv, which the first use makes.
#
#   make op=gemm_bias_act bench
#   make op=softmax verify variant=warp_per_row device=emulated
#
# A line `target: ## text` appears in the help, `##@ text` is a heading in it.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory
.DELETE_ON_ERROR:

# What may be given on the command line.
op ?=
device ?=
target ?=
variant ?=
problem ?=
jobs ?=
prefix ?= build/prefix
args ?=
# Ops whose frozen kernels `make wheel` packs compiled.
kernels ?=
# Not empty: the tests marked slow too.
slow ?=
# An interpreter that has all requirements already (a container's, say): with it nothing is installed.
python ?=

VENV := .venv
STAMPS := $(VENV)/.stamps
RUN := $(if $(python),$(python),$(VENV)/bin/python)
CLANG_FORMAT := $(if $(python),clang-format,$(VENV)/bin/clang-format)
GPU := $(wildcard /dev/nvidia[0-9]* /dev/dxg)
CUDA := $(if $(GPU),cuda)
EMULATOR_SOURCES := $(shell find device/emulator -type f \( -name '*.cpp' -o -name '*.hpp' -o -name '*.h' -o -name '*.c' -o -name '*.txt' \
	-o -name '*.cmake' -o -name '*.py' -o -name '*.map' -o -name '*.in' \) -not -path '*/bench/*' -not -path '*/fuzz/*' 2>/dev/null)
CXX_FILES = $(shell git ls-files --cached --others --exclude-standard '*.cu' '*.cuh' '*.cpp' '*.hpp' '*.h' | grep -v -e /third_party/ -e /templates/ -e ^frozen/)
UV := $(shell command -v uv 2>/dev/null)
# What is imported is compiled afterwards, which is a small part of what is installed.
PIP_OPTIONS := --quiet --disable-pip-version-check --no-compile
PIP = $(if $(UV),$(UV) pip install --quiet --python $(VENV)/bin/python,$(VENV)/bin/python -m pip install $(PIP_OPTIONS))

ENV := $(if $(python),,$(STAMPS)/ready$(CUDA))
DEV_ENV := $(if $(python),,$(STAMPS)/ready$(CUDA) $(STAMPS)/dev)

export AICF_DEVICE := $(if $(device),$(device),$(AICF_DEVICE))
export AICF_TARGET := $(if $(target),$(target),$(AICF_TARGET))
export AICF_JOBS := $(if $(jobs),$(jobs),$(AICF_JOBS))

OPTIONS = $(foreach v,$(variant),--variant '$(v)') $(foreach p,$(problem),--problem '$(p)') $(args)

##@ One op: make op=NAME VERB [device=auto|cuda|emulated] [target=h200|h100|a100] [variant=…] [problem=…] [jobs=N] [args='…']
OP_VERBS := bench build compare inspect model new profile promote report show sweep verify
.PHONY: $(OP_VERBS)
bench: ## build, verify and compare the op's variants: times on a GPU, counts and a model elsewhere
build: ## compile the op's variants; unchanged ones are not compiled again
compare: ## the op against its peers, goal by goal; or variants, revisions, records (args='--base NAME' or '--against REV')
inspect: ## show a variant's source, PTX and SASS side by side, with what each line costs (args='--html FILE')
model: ## rank variants by modelled time, without a GPU (args='--validate FILE' evaluates the model on sweeps)
new: ## write a new op that builds, verifies and benches from the start (args='--kind elementwise|reduction|gemm')
profile: ## say what bounds a variant, where and why its warps wait, and what to try (on a GPU: Nsight Compute and compute-sanitizer)
promote: ## freeze the variants that are faster than what is frozen (args=--dry-run); docs/frozen.md
report: ## show the newest recorded figures of each variant (args='--run ID' for one run), and write a page with charts of all
show: ## show what the compiler made of a variant (args=--ptx, --sass or --log)
sweep: ## time a wide sample of the op's tunable space on a GPU, or rank it by the model (args='--strategy tpe --gpus 4')
verify: ## check every variant against the NumPy reference, under the sanitizer on the emulated device (there also args='--schedules N': N orders of blocks)
ifneq ($(filter $(OP_VERBS),$(MAKECMDGOALS)),)
ifeq ($(op),)
$(error which op? make op=NAME $(filter $(OP_VERBS),$(MAKECMDGOALS)); `make list` shows the ops)
endif
endif
$(filter-out show,$(OP_VERBS)): $(ENV)
	@$(RUN) -m harness $@ $(op) $(OPTIONS)
show: $(ENV)
	@$(RUN) -m harness show $(op) $(variant) $(args)

##@ The workbench
.PHONY: deploy doctor example frozen list notebook
deploy: $(ENV) ## build libaicf_kernels.a with header, CMake package and pkg-config file into prefix=build/prefix [op=…] [args='-DAICF_ARCHS=sm_90a']
	@mkdir -p build
	@PATH="$(abspath $(VENV)/bin):$$PATH" cmake -S deploy -B build/deploy -G Ninja -DCMAKE_INSTALL_PREFIX="$(abspath $(prefix))" \
		-DPython3_EXECUTABLE="$$(command -v $(RUN))" -DAICF_OPS="$(op)" $(args) > build/deploy.log || { cat build/deploy.log; exit 1; }
	@PATH="$(abspath $(VENV)/bin):$$PATH" ninja -C build/deploy install | grep -v -e Installing -e Up-to-date
	@cat build/deploy/generated/summary.txt
	@for library in $(prefix)/lib*/libaicf_kernels.*; do echo "$$library: $$(numfmt --to=iec-i --suffix=B "$$(stat -c %s "$$library")")"; done

example: deploy ## build examples/cpp_mlp, a C++ program without Python, against that library, and run it on this machine's device
	@PATH="$(abspath $(VENV)/bin):$$PATH" cmake -S examples/cpp_mlp -B build/cpp_mlp -G Ninja -DCMAKE_PREFIX_PATH="$(abspath $(prefix))" > build/example.log \
		|| { cat build/example.log; exit 1; }
	@PATH="$(abspath $(VENV)/bin):$$PATH" ninja -C build/cpp_mlp
	@ls -l build/cpp_mlp/cpp_mlp
	@$(if $(GPU),,$(RUN) -m device run )build/cpp_mlp/cpp_mlp examples/cpp_mlp/expected.txt
frozen: $(ENV) ## list the frozen kernels; args=verify rebuilds and checks them
	@$(RUN) -m harness frozen $(or $(args),list) $(op)
doctor list: $(ENV)
	@$(RUN) -m harness $@ $(if $(filter list,$@),$(op)) $(args)
doctor: ## say what was found on this machine, what is missing, and the remedy
list: ## list the ops, or with op=NAME its kernels, variants and problems

notebook: $(ENV) $(if $(python),,$(STAMPS)/notebook) ## open the notebooks in Jupyter: sweeps, rooflines, comparisons, the model; without a GPU, from published records
	cd notebooks && $(if $(python),$(python),$(abspath $(VENV))/bin/python) -m jupyterlab $(args)

##@ The project
.PHONY: clean distclean docs env format fuzz help lint sanitize stress test wheel
env: $(ENV) ## make the environment and build the emulator

# In workers: one that dies is named with its test, and the others go on; files in the order that conftest.py gives. One more than there are
# cores, since tests wait too, for processes that they start and for sleepers; five at most, of 3 GB each. A GPU is for one process at a time.
# Dask leaves threads behind, so that its tests are apart, beside the others. All run, also after a failure.
WORKERS := $(if $(filter cuda,$(AICF_DEVICE)),,-n $$(($$(nproc) < 4 ? $$(nproc) + 1 : 5)) --dist loadfile --no-loadscope-reorder)
# Threads of BLAS that wait for work keep the cores from the workers.
ONE_THREAD := $(if $(WORKERS),OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1)
CLUSTER_TESTS := tests/harness/test_cluster.py
# Bytecode is kept, whatever the environment says: tests start hundreds of processes that import the project, and all workers import all tests.
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(ONE_THREAD) $(RUN) -m pytest $(if $(slow),--slow)
# Workers begin together: of a fresh checkout each would compile all tests, and what they import, for itself.
COMPILE_TESTS := [ -f build/tests-compiled ] || { $(PYTEST) --collect-only -qq > /dev/null || true; touch build/tests-compiled; }
test: $(DEV_ENV) ## run the tests (slow=1: also those marked slow; args='-k name' and the like go to pytest)
ifneq ($(strip $(args)),)
	$(RUN) -m pytest $(if $(slow),--slow) $(args)
else ifeq ($(WORKERS),)
	@status=0; for part in --ignore=$(CLUSTER_TESTS) $(CLUSTER_TESTS); do $(PYTEST) $$part || status=$$?; done; exit $$status
else
	@mkdir -p build; status=0; $(PYTEST) $(CLUSTER_TESTS) > build/cluster-tests.log 2>&1 & cluster=$$!; \
	trap 'kill $$cluster 2>/dev/null || true' EXIT; trap 'exit 130' INT TERM; \
	$(COMPILE_TESTS); $(PYTEST) $(WORKERS) --ignore=$(CLUSTER_TESTS) || status=$$?; wait $$cluster || status=$$?; cat build/cluster-tests.log; exit $$status
endif

lint: $(DEV_ENV) ## check style and types: ruff, mypy, clang-format
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(CLANG_FORMAT) --dry-run --Werror $(CXX_FILES)

# Instrumented code needs the sanitizers' runtime first in the process, which Python does not bring; our own fault handler goes before theirs.
sanitize: $(DEV_ENV) ## run the emulated device's tests on a build that checks itself (AddressSanitizer, UndefinedBehaviorSanitizer)
	PATH="$(abspath $(VENV)/bin):$$PATH" cmake -S device/emulator -B build/sanitize -G Ninja -DCMAKE_BUILD_TYPE=Release \
		-DAICF_ENGINE_LEVELS=v3 -DAICF_SANITIZE=address,undefined
	PATH="$(abspath $(VENV)/bin):$$PATH" ninja -C build/sanitize
	AICF_DEVICE=emulated AICF_EMULATOR_LIBRARY=$(abspath build/sanitize/libcudart.so.13) \
		ASAN_OPTIONS=detect_leaks=0:handle_segv=0:use_sigaltstack=0 UBSAN_OPTIONS=print_stacktrace=1 \
		LD_PRELOAD="$$(g++ -print-file-name=libasan.so):$$(g++ -print-file-name=libubsan.so)" $(RUN) -m pytest -p tests.sanitized --capture=sys tests/emulator tests/device $(args)

stress: $(ENV) ## run CUB's and Thrust's algorithms on the emulated device with 1, 2 and 4 host threads, for half an hour (args='--seconds 60')
	$(RUN) tests/stress/run.py $(args)

fuzz: $(DEV_ENV) ## fuzz the readers of PTX and fat binaries (guided by coverage where there is clang; args='--minutes 5')
	PATH="$(abspath $(VENV)/bin):$$PATH" $(RUN) device/emulator/fuzz/run.py $(args)

format: $(DEV_ENV) ## rewrite the sources in the project's style
	$(RUN) -m ruff check --fix-only .
	$(RUN) -m ruff format .
	$(CLANG_FORMAT) -i $(CXX_FILES)

wheel: $(ENV) ## build the wheel, with all x86-64 levels of the emulated device, and the sdist into dist/; kernels=all|'OP …': a wheel of compiled kernels too
	@env -u MAKEFLAGS -u MAKELEVEL PATH="$(abspath $(VENV)/bin):$$PATH" $(RUN) -c "from scikit_build_core import build; build.build_sdist('dist'); build.build_wheel('dist')"
	@$(if $(kernels),PATH="$(abspath $(VENV)/bin):$$PATH" $(RUN) scripts/pack_kernels.py --out dist $(filter-out all,$(kernels)))
	@ls -l dist

docs: $(ENV) $(if $(python),,$(STAMPS)/docs) ## build the documentation as a site into build/site; a warning is an error
	@NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs --quiet build --strict
	@echo build/site/index.html

clean: ## remove what was built and cached; records and the environment stay
	rm -rf build dist .aicf/cache .benchmarks .hypothesis .mypy_cache .pytest_cache .ruff_cache $(STAMPS)/project $(STAMPS)/imports* $(STAMPS)/ready*
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean ## remove the environment too
	rm -rf $(VENV)

help: ## show this list
	@if [ -t 1 ]; then bold=$$'\e[1m'; name=$$'\e[36m'; off=$$'\e[0m'; else bold=; name=; off=; fi; \
	awk -v bold="$$bold" -v name="$$name" -v off="$$off" ' \
		/^##@ / { printf "\n%s%s%s\n", bold, substr($$0, 5), off; next } \
		/^[a-z]+:.*## / { split($$0, part, /:.*## /); printf "  %s%-10s%s %s\n", name, part[1], off, part[2] }' $(firstword $(MAKEFILE_LIST))

# The environment, in steps that are each done again only when their input changes.

# The interpreter's own pip fills the environment, where it can: unpacking the bundled one first takes as long as all of the build tools.
$(STAMPS)/python:
	@command -v g++ >/dev/null || { echo "g++ is missing: install it first (Debian, Ubuntu: apt install g++; Fedora: dnf install gcc-c++)" >&2; exit 3; }
	@echo "making $(VENV)"
	@if [ -n "$(UV)" ]; then $(UV) venv --quiet --allow-existing --python '>=3.11' $(VENV); else \
		for candidate in python3 python3.14 python3.13 python3.12 python3.11; do \
			if command -v $$candidate >/dev/null && $$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then found=$$candidate; break; fi; \
		done; \
		[ -n "$${found:-}" ] || { echo "Python 3.11 or newer is missing; python3 is: $$(python3 --version 2>/dev/null || echo not there)" >&2; exit 3; }; \
		if $$found -m venv --without-pip $(VENV) 2>/dev/null && $$found -m pip --python $(VENV)/bin/python --version >/dev/null 2>&1; then :; \
		else $$found -m venv $(VENV) || { echo "python's venv module does not work (Debian, Ubuntu: apt install python3-venv)" >&2; exit 3; }; fi; \
	fi
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/tools: | $(STAMPS)/python
	@$(VENV)/bin/python scripts/list_requirements.py build > $(STAMPS)/tools.txt
	@if [ -n "$(UV)" ] || $(VENV)/bin/python -c 'import pip' 2>/dev/null; then $(PIP) -r $(STAMPS)/tools.txt; else \
		"$$($(VENV)/bin/python -c 'import sys; print(sys._base_executable)')" -m pip --python $(VENV)/bin/python install $(PIP_OPTIONS) pip -r $(STAMPS)/tools.txt; fi
	@touch $@

# What a fresh checkout needs does not wait for each other: packages are fetched, the emulated device is compiled, and the op's kernels are
# as soon as their compiler is there. The verb finds them built, and says what does not compile. What it imports is compiled once, here:
# in an environment that keeps no bytecode every start would do it anew.
# Without a GPU `bench` takes a part of a large op by itself.
FIRST_LOOK := $(if $(filter bench,$(MAKECMDGOALS)),$(if $(GPU)$(filter --all,$(args)),,--first-look))
KERNELS := $(if $(op),$(if $(filter bench build verify,$(MAKECMDGOALS)),$(STAMPS)/kernels))
$(STAMPS)/ready$(CUDA): pyproject.toml scripts/list_requirements.py $(EMULATOR_SOURCES) | $(STAMPS)/tools
	@$(MAKE) -j3 FIRST_LOOK=$(FIRST_LOOK) $(STAMPS)/imports$(CUDA) $(STAMPS)/project $(KERNELS)
	@touch $@

$(STAMPS)/imports$(CUDA): $(STAMPS)/base$(CUDA) scripts/compile_imports.py
	@env -u PYTHONDONTWRITEBYTECODE $(VENV)/bin/python scripts/compile_imports.py
	@touch $@

$(STAMPS)/kernels: $(STAMPS)/base$(CUDA) always
	@$(RUN) -m harness build $(op) $(foreach v,$(variant),--variant '$(v)') $(FIRST_LOOK) > /dev/null || true

$(STAMPS)/base$(CUDA): pyproject.toml scripts/list_requirements.py | $(STAMPS)/tools
	@echo "installing requirements$(if $(CUDA), for the GPU too): the CUDA compiler comes as wheels, with no driver"
	@$(VENV)/bin/python scripts/list_requirements.py base $(CUDA) > $(STAMPS)/base.txt
	@$(PIP) -r $(STAMPS)/base.txt
	@touch $@

always:

# Neither make's jobs nor its options are the compiler's.
$(STAMPS)/project: pyproject.toml $(EMULATOR_SOURCES) | $(STAMPS)/tools
	@echo "building the emulated device"
	@env -u MAKEFLAGS -u MAKELEVEL $(PIP) --no-build-isolation --no-deps --editable .
	@touch $@

$(STAMPS)/notebook: pyproject.toml scripts/list_requirements.py | $(STAMPS)/ready$(CUDA)
	@echo "installing JupyterLab"
	@$(VENV)/bin/python scripts/list_requirements.py notebook > $(STAMPS)/notebook.txt
	@$(PIP) -r $(STAMPS)/notebook.txt
	@touch $@

$(STAMPS)/docs: pyproject.toml scripts/list_requirements.py | $(STAMPS)/ready$(CUDA)
	@echo "installing MkDocs"
	@$(VENV)/bin/python scripts/list_requirements.py docs > $(STAMPS)/docs.txt
	@$(PIP) -r $(STAMPS)/docs.txt
	@touch $@

$(STAMPS)/dev: pyproject.toml scripts/list_requirements.py | $(STAMPS)/ready$(CUDA)
	@echo "installing the tools for tests and style"
	@$(VENV)/bin/python scripts/list_requirements.py dev > $(STAMPS)/dev.txt
	@$(PIP) -r $(STAMPS)/dev.txt
	@$(VENV)/bin/python scripts/list_requirements.py cutlass > $(STAMPS)/cutlass.txt
	@$(PIP) --no-deps -r $(STAMPS)/cutlass.txt
	@$(VENV)/bin/python -W ignore -m compileall -q -j 0 $(VENV)/lib > /dev/null || true # warnings in other people's sources are not for tests
	@touch $@
