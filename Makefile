# The two commands are `make demo` and `make test`; `make help` lists all.
#
# Needed beforehand: Rust, a C compiler and make. cmake, which a dependency's build calls, is
# installed from the system's packages if it is missing, and only then.

SHELL := /bin/sh
# Where rustup puts cargo, for shells that have not read its profile.
export PATH := $(PATH):$(HOME)/.cargo/bin

CARGO ?= cargo
TARGET_DIR = $${CARGO_TARGET_DIR:-target}

.DEFAULT_GOAL := help
.PHONY: help demo test build lint tools promtool

help: ## List what can be made
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1	\2/p' Makefile

# The dev profile, since it is built in a fraction of the time.
demo: tools ## Two simulated engines that misbehave, the router, and clients that do not notice
	$(CARGO) build --locked
	bash tests/demo.sh "$(TARGET_DIR)/debug/vllm-pingora"

# In this order because a log should end with a runner's summary: that of the doc tests is followed
# by a line on their build, and that of the unit tests is the last one.
test: tools ## Every test: doc tests, then those of the built router, then unit tests
	$(CARGO) test --locked --doc
	$(CARGO) test --locked --bins --test '*'
	$(CARGO) test --locked --lib

build: tools ## The optimised binary, target/release/vllm-pingora
	$(CARGO) build --release --locked

lint: tools ## Formatting, clippy and the links in the documentation
	$(CARGO) fmt --check
	$(CARGO) clippy --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --no-deps --locked

# Root needs no sudo, and Homebrew wants none.
tools:
	@command -v $(CARGO) >/dev/null || { echo "cargo is missing: install Rust first" >&2; exit 1; }
	@command -v cmake >/dev/null && exit 0; \
	echo "cmake is missing: installing it"; \
	sudo=; if [ "$$(id -u)" != 0 ] && command -v sudo >/dev/null; then sudo=sudo; fi; \
	if command -v apt-get >/dev/null; then \
		$$sudo apt-get update && $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y cmake; \
	elif command -v dnf >/dev/null; then $$sudo dnf install -y cmake; \
	elif command -v apk >/dev/null; then $$sudo apk add cmake; \
	elif command -v brew >/dev/null; then brew install cmake; \
	fi </dev/null; \
	command -v cmake >/dev/null || { \
		echo "cmake could not be installed: install it by hand, then try again" >&2; exit 1; }

# Unpacked from the package, not installed, since that would start a server.
promtool: ## Prometheus' promtool, for the tests that use it, from Debian's package
	@command -v promtool >/dev/null && exit 0; \
	test -x target/tools/usr/bin/promtool && exit 0; \
	mkdir -p target/tools && cd target/tools && \
	apt-get download prometheus && dpkg-deb -x prometheus_*.deb . && rm prometheus_*.deb usr/bin/prometheus
