# SPDX-License-Identifier: Apache-2.0
# A front for Meson.  `make run` and `make test` do everything on a fresh Debian machine.
BUILD = build
FUZZ_SECONDS = 60

.PHONY: run demo check check-sandbox test test-long test-packages test-k8s build deps bench fuzz \
        lint install uninstall python packages manifests release release-check clean help

export CMD
run: build ## build, and run CMD='...' in a fresh sandbox, or show what one is
	@tools/show $(BUILD)

demo: build ## build, and show the file tools at work
	@tools/demo $(BUILD)

check: ## build, unit tests and lint: under a minute once it is built
	@tools/install-packages build test
	@tools/run-tests check

check-sandbox: ## the tests of sandboxes, agents, sessions and the command: 5 minutes
	@tools/install-packages build test
	@tools/run-tests check-sandbox

test: ## install what the tests need, build, and run every suite: 25 minutes
	@tools/install-packages build test
	@tools/run-tests

test-long: ## valgrind, races, and the suites again with clang and sanitizers
	@tools/install-packages build test
	@tools/run-tests test-long test-compilers

test-packages: ## the packages of `make packages`, in clean systems made by debootstrap
	@tools/install-packages test package
	@tools/run-tests test-packages

test-k8s: ## the manifests and their pods in a real Kubernetes, which it builds: 18 minutes; needs Go
	@tools/install-packages build test kubernetes
	@tools/run-tests test-k8s

build: deps ## build/cay, build/libcay.so, build/libcay.a, build/libcay.pc
	@test -f $(BUILD)/build.ninja || meson setup $(BUILD) >/dev/null
	@ninja -C $(BUILD) -n | grep -q 'no work to do' || ninja -C $(BUILD) --quiet
	@cp $(BUILD)/meson-private/libcay.pc $(BUILD)/libcay.pc

deps: ## install the Debian packages the build needs
	@tools/install-packages build

bench: ## measure files, sandboxes and the server against plain system calls and the peers
	@tools/install-packages build test bench
	@bench/run

fuzz: ## run every fuzz target for FUZZ_SECONDS
	@tools/install-packages build test
	@tools/fuzz $(FUZZ_SECONDS)

lint: ## formatting, static analysis and our own checks
	@tools/install-packages build test
	@tools/run-tests lint analysis

install: build ## install the library, the command, headers and manual pages
	@meson install -C $(BUILD) --no-rebuild
	@if [ -z "$$DESTDIR" ] && [ "$$(id -u)" = 0 ]; then ldconfig; fi

uninstall: ## remove what `make install` of this directory installed
	@test -f $(BUILD)/meson-logs/install-log.txt || \
		{ echo "make uninstall: nothing was installed from $(BUILD)" >&2; exit 1; }
	@[ -n "$$DESTDIR" ] || [ ! -f /var/lib/cay/setup ] || $(BUILD)/cay setup --undo --yes
	@ninja -C $(BUILD) --quiet uninstall >/dev/null
	@rm $(BUILD)/meson-logs/install-log.txt
	@if [ -z "$$DESTDIR" ] && [ "$$(id -u)" = 0 ]; then ldconfig; fi

python: ## make .venv with the Python package and what its tests need
	@tools/install-packages build test
	@tools/make-venv

packages: ## build the Debian packages, wheels and tarballs of dist/: CONTRIBUTING.md
	@tools/install-packages build package
	@package/all

manifests: ## render the Helm chart into package/kubernetes/*.yaml; needs Go
	@package/manifests

release: export CAY_PROCESSORS ?= x86_64 aarch64
release: ## check CHANGELOG.md, then build dist/ with checksums; KEY=... signs them
	@package/notes >/dev/null
	@test -z "$$(git status --porcelain 2>/dev/null)" || \
		{ echo "make release: commit what \`git status\` lists first" >&2; exit 1; }
	@test -z "$(KEY)" || openssl pkey -in "$(KEY)" -noout
	@rm -rf dist
	@$(MAKE) -s packages
	@package/finish dist $(if $(KEY),"$(KEY)")

release-check: ## build dist/ again in another directory, and compare the checksums
	@package/reproduce dist

clean: ## remove what the other targets made
	@rm -rf --one-file-system $(BUILD) $(BUILD)-* .venv dist

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/make \1\t\2/p' Makefile
