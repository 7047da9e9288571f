# `make help` lists the targets.
.DEFAULT_GOAL := help
.PHONY: help tools setup build man dist demo test test-all test-fakes test-gpu gpu-bundle test-peers test-report test-faults test-python wheel bench reproduce fuzz lint clean

# $(call need,program,how to install it): stops with one line where the program is missing.
need = $(if $(shell command -v $(1) 2>/dev/null),,$(error $(1) is missing: $(2)))

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 22

# The virtual environment of the Python package, made again when the pinned versions change.
python_env := target/python/env

$(python_env)/ready: python/tests/requirements.txt
	@:$(call need,python3,install Python 3.9 or later (Debian and Ubuntu: sudo apt-get install python3 python3-venv))
	python3 -m venv --clear $(python_env)
	$(python_env)/bin/pip install --quiet --disable-pip-version-check --only-binary :all: -r $<
	touch $@

tools:
	@:$(call need,cargo,install Rust as https://rustup.rs says)
	@:$(call need,c++,install a C++ compiler (Debian and Ubuntu: sudo apt-get install g++))
	@:$(call need,python3,install Python 3 (Debian and Ubuntu: sudo apt-get install python3))

setup: tools ## put libtorch into libtorch/: link an installed PyTorch 2.11.0, or fetch it (635 MB, once)
	@python3 scripts/libtorch.py

build: setup ## build target/release/gsplit
	cargo build --release

man: $(if $(GSPLIT),,build) ## write the man pages and shell completions into target/share/
	@scripts/share.sh target/share

dist: $(if $(GSPLIT),,build) $(python_env)/ready ## pack both programs, libtorch, completions and man pages into target/dist/ (runs without Rust), and use that in an empty root
	@$(python_env)/bin/python scripts/dist.py --programs "$(dir $(or $(GSPLIT),target/release/gsplit))"
	@scripts/dist_check.sh "$$(ls -t target/dist/*.tar.gz | head -n 1)"

demo: build ## prepare, partition, train and compare on a generated graph, or on a real one (DATA=path)
	@DATA="$(DATA)" scripts/demo.sh

test: setup ## compile the tests (8 minutes on two cores, the first time), run them (6), and print the slowest
	@python3 scripts/tests.py

test-all: setup ## run every test in every combination (make test has representatives of the longest)
	@python3 scripts/tests.py --all

test-fakes: setup ## pass what runs on the libraries that stand in for GPUs TIMES times in a row (20)
	cargo test --no-run -p gsplit-kernels -p gsplit-trainer --lib
	cargo test --no-run --test suite
	@for time in $$(seq $(or $(TIMES),20)); do \
		if [ $$((time % 2)) = 0 ]; then export FAKE_CUDA_HASTE=$$time; else unset FAKE_CUDA_HASTE; fi; \
		cargo test -q -p gsplit-kernels -p gsplit-trainer --lib fake && cargo test -q --test suite gpus || \
		{ echo "failed at time $$time"; exit 1; }; \
	done

test-gpu: setup ## pass the tests of what runs on GPUs on GPU 0 (make test emulates it)
	CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="env LD_PRELOAD=$(realpath libtorch/lib/libtorch_cuda.so)" \
		GSPLIT_TEST_GPU=1 RUST_TEST_THREADS=1 cargo test -p gsplit-kernels -p gsplit-trainer --lib -- device cuda gpu operator:: equivalence:: exchange:: narrow::

gpu-bundle: setup ## build all that wants a GPU, to run on a machine with one and no Rust (target/gpu-bundle/run.sh)
	@python3 scripts/gpu/bundle.py

test-peers: setup $(python_env)/ready ## open every export and training run with the tools they are for (DGL, PyG, TensorBoard ...: 2.5 GB of packages, once)
	cargo build --workspace
	$(call maturin,,target/python/wheel)
	python3 tests/peers/run.py target/debug/gsplit

test-report: setup ## look at reports in a headless Chromium (CHROMIUM=path names one), phone and desktop, light and dark
	@:$(call need,python3,install Python 3)
	cargo build --workspace
	python3 tests/report/run.py target/debug/gsplit

test-faults: setup ## make calls of every command fail, kill it at 200 moments and at each call that changes a folder, flip 1,000 bits (ALL=1: every call fails; SEED=n repeats a run)
	@:$(call need,strace,apt-get install strace)
	cargo build --workspace
	python3 tests/faults/run.py target/debug/gsplit $(if $(ALL),--all) $(if $(SEED),--seed $(SEED))

# $(call maturin,options,folder): packs the Python package with its extension into one wheel. What cargo built for other targets is used.
maturin = rm -rf $(2) && $(python_env)/bin/maturin build --quiet $(1) --manifest-path python/native/Cargo.toml --out $(2)

wheel: $(if $(GSPLIT),,build) $(python_env)/ready ## pack the programs, completions, man pages and the Python package into one wheel in target/wheel/ (runs without Rust)
	@:$(call need,cargo,install Rust as https://rustup.rs says)
	$(call maturin,--release,target/wheel)
	@scripts/share.sh target/share
	@$(python_env)/bin/python scripts/wheel.py target/wheel/*.whl --programs "$(dir $(or $(GSPLIT),target/release/gsplit))"

# The extension is compiled as the tests of the workspace are, which has compiled most of it by then.
test-python: $(python_env)/ready ## lint, type-check and test the Python package (python/)
	@:$(call need,cargo,install Rust as https://rustup.rs says)
	cd python && ../$(python_env)/bin/ruff check && ../$(python_env)/bin/ruff format --check
	cd python && ../$(python_env)/bin/mypy
	$(call maturin,,target/python/wheel)
	$(python_env)/bin/pip install --quiet --disable-pip-version-check --force-reinstall --no-deps target/python/wheel/*.whl
	cd python && GSPLIT_WHEEL=$$(ls ../target/python/wheel/*.whl) PYTHONDONTWRITEBYTECODE=1 \
	    ../$(python_env)/bin/pytest --override-ini pythonpath=tests

# GSPLIT=path measures a gsplit that is there; ARGS=--quick and ARGS='--scale 0.01' only try whether all of it runs.
bench: $(if $(NAME),$(if $(GSPLIT),,build)) $(if $(filter torch disk,$(NAME)),wheel) ## measure NAME=train, for example, and write bench/results/train.json; list the benchmarks without NAME
	@python3 bench/run.py $(NAME) $(ARGS)

reproduce: $(if $(GSPLIT),,build) ## measure the tables of REPRODUCTION.md again, or one (TABLE=gsplit-table1) (8 GB of disk, 10 GB of memory, 3 hours)
	@python3 bench/reproduce.py $(TABLE)

FUZZ_SECONDS ?= 60
FUZZ_TARGETS ?= $(basename $(notdir $(wildcard fuzz/fuzz_targets/*.rs)))
# Those that read what training writes link libtorch, which takes memory of its own. Leaks are not looked for: glibc's notes of threads
# that are just ending are taken for some.
fuzz_trained := checkpoint config
fuzz: ## fuzz everything that is read for FUZZ_SECONDS, 60 by default (fuzz/README.md)
	@:$(call need,cargo-fuzz,cargo install cargo-fuzz --locked)
	@mkdir -p $(FUZZ_TARGETS:%=fuzz/grown/%)
	cd fuzz && for target in $(FUZZ_TARGETS); do \
	    case " $(fuzz_trained) " in *" $$target "*) with="--features train"; rss=4096;; *) with=; rss=1024;; esac; \
	    LD_LIBRARY_PATH="$(CURDIR)/libtorch/lib:$$LD_LIBRARY_PATH" RUSTC_BOOTSTRAP=1 \
	        cargo fuzz run $$with $$target grown/$$target corpus/$$target -- \
	        -max_total_time=$(FUZZ_SECONDS) -max_len=16384 -timeout=60 -rss_limit_mb=$$rss -malloc_limit_mb=512 -detect_leaks=0 \
	        -verbosity=1 -print_final_stats=1 || exit 1; \
	done

lint: setup ## check the format, clippy, the documentation, the English, and that the preparation tools compile without libtorch; warnings are errors
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo clippy --workspace --no-default-features -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
	@python3 tests/mutants.py --list >/dev/null
	@python3 scripts/words.py

clean: ## remove what cargo built; libtorch/ stays
	cargo clean
