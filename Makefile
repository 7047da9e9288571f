# `make help` lists the targets.
.DEFAULT_GOAL := help
.PHONY: help tools setup build demo test lint clean

# $(call need,program,how to install it): stops with one line where the program is missing.
need = $(if $(shell command -v $(1) 2>/dev/null),,$(error $(1) is missing: $(2)))

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 10

tools:
	@:$(call need,cargo,install Rust as https://rustup.rs says)
	@:$(call need,c++,install a C++ compiler (Debian and Ubuntu: sudo apt-get install g++))
	@:$(call need,python3,install Python 3 (Debian and Ubuntu: sudo apt-get install python3))

setup: tools ## put libtorch into libtorch/: link an installed PyTorch 2.11.0, or fetch it (545 MB, once)
	@python3 scripts/libtorch.py

build: setup ## build target/release/gsplit
	cargo build --release

demo: build ## prepare, partition, train and compare on a generated graph, or on a real one (DATA=path)
	@DATA="$(DATA)" scripts/demo.sh

test: setup ## run every test, and check that the preparation tools build without libtorch
	cargo check --no-default-features
	cargo test --workspace

lint: setup ## check the format, clippy and the documentation; warnings are errors
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

clean: ## remove what cargo built; libtorch/ stays
	cargo clean
