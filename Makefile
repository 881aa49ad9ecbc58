# The commands of a developer. `make serve` and `make test` install what they need into .venv;
# they need GNU make and Python 3.11 or newer.
#
#   make PYTHON=/path/to/python3 ...   use that Python (default: .ci/find-python chooses)
#   make test ARGS="-k stream"         pass options to pytest
#   make serve ARGS="--port 9000"      pass options to the server; TOKENIZER_... variables work too

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help serve test test-integration test-full reliability soak injection findings test-language-model test-course test-native test-arm test-pythons parity-full fuzz fuzz-python setup wheel check check-native format lock clean

VENV ?= .venv
PYTHON ?=
ARGS ?=
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

# `-n auto` counts physical cores; a virtual machine often reports half of its cores. `worksteal`
# gives each process neighbouring tests, which share their fixtures.
PYTEST := $(BIN)/python -m pytest -n logical --dist worksteal

# A test run starts hundreds of processes; without bytecode files each compiles every module again.
unexport PYTHONDONTWRITEBYTECODE

# The compiled engine, built if cargo exists. TOKENIZER_REQUIRE_NATIVE=1 makes a missing engine an
# error, for machines that must test both engines.
NATIVE := tokenizer_core/native
CARGO ?= cargo
CARGO_FILES := --locked --manifest-path $(NATIVE)/Cargo.toml

# Checking the fuzz targets needs no libFuzzer; naming one avoids compiling it for that.
LINT_FUZZ := CUSTOM_LIBFUZZER_PATH=none/libFuzzer.a \
	$(CARGO) clippy --locked --manifest-path $(NATIVE)/fuzz/Cargo.toml

# A change of one of these installs everything again.
REQUIREMENTS := pyproject.toml constraints.txt setup.py $(NATIVE)/Cargo.toml $(NATIVE)/Cargo.lock \
	tokenizer_core/_native.pyi $(NATIVE)/build.rs $(shell find $(NATIVE)/src -name '*.rs')

SAY_COMPILES = if command -v $(CARGO) >/dev/null; \
	then echo "compiling the native engine: one to two minutes on two cores, most of it the last crate"; \
	else echo "no $(CARGO): the service runs on the Python engine"; fi

# Installs the project. While it builds, pip prints nothing or everything: of everything, this shows what
# cargo compiles, and all of it if the installation fails.
INSTALL_LOG := $(VENV)/install.log
define install
{ $(BIN)/python -m pip --disable-pip-version-check --verbose install --constraint constraints.txt \
	--editable $(1) 2>&1 && echo installed; } | tee $(INSTALL_LOG) | grep --line-buffered -o 'Compiling .*'; \
	grep -qx installed $(INSTALL_LOG) || { cat $(INSTALL_LOG); exit 1; }
endef

# Stamps: each marks one completed stage of the set-up.
CREATED := $(VENV)/.stamp-created
RUNTIME := $(VENV)/.stamp-runtime
TOOLS := $(VENV)/.stamp-tools

# The Python fuzzer has its own folder: not every system has a wheel of it.
ATHERIS := $(VENV)/atheris

# So has Hugging Face's library: it needs a newer `regex`, and a test compares the two releases.
TRANSFORMERS := $(VENV)/transformers

# So has datatrove, which only an example needs.
DATATROVE := $(VENV)/datatrove

# So have the clients of other servers, which only their tests need.
SDKS := $(VENV)/sdks

# So has torch: it takes 5 GB, and only the example of a language model needs it.
TORCH := $(VENV)/torch

# Runs a command if cargo exists; otherwise prints a notice, and fails if the engine is required.
define with-cargo
if command -v $(CARGO) >/dev/null; then $(1); \
	elif [ "$${TOKENIZER_REQUIRE_NATIVE:-0}" != 0 ]; then echo "no $(CARGO)" >&2; exit 1; \
	else echo "skipped, there is no $(CARGO): $(1)"; fi
endef

help: ## show this
	@echo "usage: make TARGET"
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' Makefile | while IFS='|' read -r target text; do \
		printf '  %-19s %s\n' "$$target" "$$text"; done

serve: $(RUNTIME) ## start the service on 127.0.0.1:8000; it ends with this command
	@echo "starting the service"
	@exec $(BIN)/tokenizer serve --exit-with-parent $(ARGS)

test: $(TOOLS) ## run the tests that need no other process: minutes
	$(PYTEST) --ignore=tests/integration -m "not slow and not thorough" $(ARGS)

test-integration: $(TOOLS) $(TRANSFORMERS) $(DATATROVE) $(SDKS) test-native ## run the tests with servers, other programs and whole corpora
	$(PYTEST) --hypothesis-profile=ci -m "(integration or thorough) and not slow" $(ARGS)

test-full: $(TOOLS) $(TRANSFORMERS) $(DATATROVE) $(SDKS) test-native ## run all tests, also whole matrices: hours, before a release
	$(PYTEST) --hypothesis-profile=full $(ARGS)

reliability: $(TOOLS) ## run the rows of bad input and the promises; ARGS="-k row_07" runs one
	$(PYTEST) -p tests.reliability.names -m "row or promise" $(ARGS)

test-language-model: $(TOOLS) $(TORCH) ## install torch (5 GB, minutes) and run the tests that need it
	PYTHONPATH=$(abspath $(TORCH)) $(PYTEST) -m torch $(ARGS)

test-course: $(TOOLS) $(TORCH) ## run the public tests of CS336's assignment; COURSE=folder
	PYTHONPATH=$(abspath $(TORCH)) $(BIN)/python tests/course/run.py $(COURSE) $(ARGS)

injection: $(TOOLS) ## type control tokens into every field of a chat and every route, print the table
	$(BIN)/python -m pytest -n 0 -q -s tests/security/test_injection.py $(ARGS)

findings: ## run the findings about other libraries, each in packages of its own
	@for finding in findings/*.sh; do echo "== $$finding"; sh "$$finding" || exit 1; done

soak: $(TOOLS) ## put every kind of load on a server for ten minutes, check for leaks; ARGS="--minutes 60"
	$(BIN)/python -m tests.integration.reliability.soak $(ARGS)

test-native: ## run the engine's tests in Rust
	@$(call with-cargo,$(CARGO) test $(CARGO_FILES) --no-default-features --quiet)

# The linker and the emulator are Debian's gcc-aarch64-linux-gnu and qemu-user.
ARM := aarch64-unknown-linux-gnu
ARM_LINKER := aarch64-linux-gnu-gcc
ARM_TOOLS := CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=$(ARM_LINKER) \
	CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu"

test-arm: ## lint the engine for aarch64 and run its tests in Rust under qemu; every character too
	@for tool in $(CARGO) rustc $(ARM_LINKER) qemu-aarch64; do \
		command -v $$tool >/dev/null || { echo "skipped, there is no $$tool"; exit 0; }; done; \
	if [ ! -d "$$(rustc --print target-libdir --target $(ARM))" ]; then \
		echo "skipped, Rust lacks the target: rustup target add $(ARM)"; exit 0; fi; \
	$(CARGO) clippy $(CARGO_FILES) --target $(ARM) --no-default-features --all-targets --quiet -- -D warnings && \
	$(ARM_TOOLS) $(CARGO) test $(CARGO_FILES) --target $(ARM) --no-default-features --lib --quiet -- --include-ignored

test-pythons: ## run `make test` on each of Python 3.11, 3.12 and 3.13 that is found
	@for version in 3.11 3.12 3.13; do \
		if python=$$(.ci/find-python $$version 2>/dev/null); then \
			echo "== Python $$version: $$python"; \
			$(MAKE) --no-print-directory VENV=.venv-$$version PYTHON="$$python" test || exit 1; \
		else \
			echo "== Python $$version: skipped, none found"; \
		fi; \
	done

parity-full: $(TOOLS) ## compare public vocabularies with their libraries, six of them on whole corpora
	$(PYTEST) -k whole_corpus tests/integration/parity $(ARGS)

fuzz: $(TOOLS) ## fuzz the compiled engine; ARGS="--seconds 600 encode" for longer, for one target
	$(BIN)/python $(NATIVE)/fuzz/run.py $(ARGS)

fuzz-python: $(TOOLS) $(ATHERIS) ## fuzz what reads files and requests; ARGS="--seconds 600 manifest"
	@PYTHONPATH=$(ATHERIS) $(BIN)/python -m tests.fuzz.run $(ARGS)

setup: $(TOOLS) ## build .venv with everything the other targets need
	@echo "ready: $$($(BIN)/python --version) in $(VENV)"; $(BIN)/tokenizer --version | sed -n '/engine/p'

wheel: $(CREATED) ## build the package with the compiled engine into dist/, for machines without Rust
	@rm -rf build dist
	TOKENIZER_REQUIRE_NATIVE=1 $(PIP) wheel --no-deps --wheel-dir dist .
	@ls dist/*.whl

check: $(TOOLS) check-native ## lint, formatting, types, imports that only go down, the blocking client
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	@if $(BIN)/python -c 'import tokenizer_core._native' 2>/dev/null; \
		then $(BIN)/python -m mypy.stubtest --mypy-config-file pyproject.toml tokenizer_core._native; \
		else echo "skipped, the compiled engine is not built: its stub against it"; fi
	$(BIN)/lint-imports
	$(BIN)/python -m tests.tokenizer_client.make_client --check

check-native: $(CREATED) ## formatting, lints and layers of the compiled engine
	$(BIN)/python $(NATIVE)/check_rooms.py
	@$(call with-cargo,$(CARGO) fmt --manifest-path $(NATIVE)/Cargo.toml --check)
	@$(call with-cargo,$(CARGO) clippy $(CARGO_FILES) --all-targets --quiet -- -D warnings)
	@$(call with-cargo,$(CARGO) fmt --manifest-path $(NATIVE)/fuzz/Cargo.toml --check)
	@$(call with-cargo,$(LINT_FUZZ) --quiet -- -D warnings)

format: $(TOOLS) ## reformat the code and apply the lint's safe fixes
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	@$(call with-cargo,$(CARGO) fmt --manifest-path $(NATIVE)/Cargo.toml)

lock: ## choose the newest versions pyproject.toml allows and write constraints.txt
	.ci/lock constraints.txt

clean: ## remove what the targets made; artifacts/ and corpora stay
	rm -rf .venv .venv-3.* .venv-lock-* *.egg-info build dist
	rm -rf $(NATIVE)/target $(NATIVE)/fuzz/target tokenizer_core/_native*.so
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find app tokenizer_client tokenizer_core tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

$(CREATED):
	@python="$(PYTHON)"; [ -n "$$python" ] || python=$$(.ci/find-python) || exit 1; \
	echo "setting up $(VENV) with $$python"; \
	"$$python" -m venv --clear $(VENV) || { \
		echo "could not make $(VENV); Debian and Ubuntu need: sudo apt-get install python3-venv" >&2; \
		exit 1; }
	@touch $@

$(RUNTIME): $(CREATED) $(REQUIREMENTS)
	@echo "installing the packages of the service"; $(SAY_COMPILES)
	@$(call install,'.[service]')
	@touch $@

$(TOOLS): $(CREATED) $(REQUIREMENTS)
	@echo "installing the packages of the service, the tests and the checks"; $(SAY_COMPILES)
	@$(PIP) install --upgrade 'pip>=25.1' # the first with dependency groups
	@$(call install,'.[service]' --group dev)
	@touch $(RUNTIME) $@

$(ATHERIS): $(CREATED) tests/fuzz/requirements.txt
	@$(PIP) install --upgrade --target $@ --requirement tests/fuzz/requirements.txt
	@touch $@

$(TRANSFORMERS): $(CREATED) tests/parity/requirements.txt
	@$(PIP) install --no-deps --upgrade --target $@ --requirement tests/parity/requirements.txt
	@touch $@

$(DATATROVE): $(CREATED) tests/integration/end_to_end/requirements.txt
	@$(PIP) install --no-deps --upgrade --target $@ \
		--requirement tests/integration/end_to_end/requirements.txt
	@touch $@

$(SDKS): $(CREATED) tests/integration/sdks/requirements.txt
	@$(PIP) install --no-deps --upgrade --target $@ \
		--requirement tests/integration/sdks/requirements.txt
	@touch $@

$(TORCH): $(CREATED) tests/course/requirements.txt constraints.txt
	@echo "installing torch into $@: 5 GB"
	@$(PIP) install --upgrade --target $@ --constraint constraints.txt \
		--requirement tests/course/requirements.txt
	@touch $@
