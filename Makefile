# Two commands do everything on a fresh machine with Rust and Node.js:
#   make run    builds, starts the daemon, runs the demo
#   make test   installs what tests need, runs everything

SHELL := /bin/bash
.PHONY: run test build bench install check

# Debug by default: it builds in about a minute; `make install` builds the optimised one.
HANDLER := target/debug/handler

build:
	cargo xtask guest
	cargo build -p handler

run: build
	$(HANDLER) daemon start
	$(HANDLER) doctor
	$(HANDLER) demo

test:
	scripts/test-setup
	cargo xtask ci

check:
	cargo fmt --all --check
	cargo xtask arch
	cargo clippy --workspace --all-targets -- -D warnings

bench:
	scripts/bench-setup
	cargo xtask bench

install:
	cargo xtask guest
	cargo build --release -p handler
	install -D target/release/handler $(or $(PREFIX),$(HOME)/.local)/bin/handler
	ln -sf handler $(or $(PREFIX),$(HOME)/.local)/bin/handlerd
