# One entry for tasks. Each target sets up what it needs and no more; a stamp in .venv remembers it.
#   make run      answer a first prompt with cria          make run PROMPT="Who are you?"
#   make web      build the page and serve it on loopback
#   make test     every tier on this machine, ordinary tests   make test ARGS="-m 'not slow' -k gguf"
#   make exhaustive  all jobs below, at most 60 minutes each
#   make exhaustive-parity    exhaustive tests of the tier parity: whole matrices, second drivers
#   make exhaustive-tests     exhaustive tests of the other tiers       make exhaustive-tests ARGS="-k mutation"
#   make exhaustive-sanitize  make sanitize
#   make exhaustive-threads   make sanitize ARGS=--threads
#   make exhaustive-rigs      make fuzz, make fuzz-engine, make vectors ARGS=--all
#   make exhaustive-arm64     make arm64
#   make exhaustive-isa       make isa
#   make exhaustive-cuda      make cuda
#   make build    what `make test` needs: kernels, native and for pages, and the page
#   make lint     ruff and pyright
#   make bench    camelid bench                            make bench ARGS="-n 64"
#   make fuzz     ten minutes of damaged files             make fuzz ARGS="--minutes 60"
#   make fuzz-engine  random requests on a simulated late device   make fuzz-engine ARGS="--n 500 --seed 7"
#   make goldens  make the golden files anew with their oracles, and compare
#   make vectors  the text layer inside Pyodide, against its oracles  make vectors ARGS="--all" (or --speed)
#   make clients  other projects' client libraries, driven against the server
#   make rivals   llama.cpp's logits beside Camelid's on the same files; builds llama.cpp once
#   make arm64    the kernels' tests on arm64's library, in qemu-user
#   make isa      the shaders' machine code on GPUs that are not here, against bounds
#   make cuda     the CUDA kernels' machine code on GPUs that are not here, against bounds   make cuda ARGS=sm_90
#   make sanitize the kernels' tests under AddressSanitizer and UBSan   make sanitize ARGS=--threads
#   make wheel    a release's two wheels, in dist/: camelid with the CPU kernels of every platform, tried; and
#                 camelid-web with the built page
.DEFAULT_GOAL := run
JOBS := $(addprefix exhaustive-,parity tests sanitize threads rigs arm64 isa cuda)
.PHONY: run web test exhaustive $(JOBS) build lint bench fuzz fuzz-engine goldens vectors clients rivals arm64 isa cuda sanitize wheel clean

PROMPT ?= What is 12 plus 30?
ARGS ?=
BIN := .venv/bin
SETUP := pyproject.toml .ci/setup
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Compiles the CPU kernels if they changed; where there is no compiler, says so in a line.
KERNELS := $(BIN)/python -m camelid_native.build --quiet --optional $(if $(CI),--werror)
# The same kernels for pages, by Zig.
MODULES := $(KERNELS) --target wasm-simd --target wasm-relaxed
PYTEST := $(BIN)/python -m pytest -n auto --dist loadfile
MODULE := PYTHONPATH=core:native:. $(BIN)/python -m
export PYTHON
export PROMPT
# Python keeps bytecode although containers often switch it off: tests start hundreds of processes, and each would
# compile the sources anew for a second. An empty value counts as unset.
export PYTHONDONTWRITEBYTECODE :=

run: .venv/.run
	@$(KERNELS)
	@$(BIN)/camelid run -p "$$PROMPT" $(ARGS)

web: .venv/.web
	@$(KERNELS)
	@$(MODULES)
	@$(BIN)/python web/build.py
	@$(BIN)/camelid web $(ARGS)

test: build
	@$(PYTEST) $(ARGS)

exhaustive: $(JOBS)

exhaustive-parity: build
	@$(PYTEST) --exhaustive -m parity $(ARGS)

exhaustive-tests: build
	@$(PYTEST) --exhaustive -m "not parity" $(ARGS)

exhaustive-sanitize: .venv/.test
	@$(MODULE) tests.native.sanitized

exhaustive-threads: .venv/.test
	@$(MODULE) tests.native.sanitized --threads

exhaustive-rigs: .venv/.test
	@$(KERNELS)
	@$(MODULE) tests.fuzz
	@$(MODULE) tests.support.engine_fuzz
	@$(MODULE) tests.vectors --all

exhaustive-arm64: arm64

exhaustive-isa: isa

exhaustive-cuda: cuda

build: .venv/.test
	@$(KERNELS)
	@$(MODULES)
	@$(BIN)/python web/build.py

lint: .venv/.lint
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/pyright

bench: .venv/.run
	@$(KERNELS)
	@$(BIN)/camelid bench $(ARGS)

fuzz: .venv/.test
	@$(MODULE) tests.fuzz $(ARGS)

fuzz-engine: .venv/.test
	@$(KERNELS)
	@$(MODULE) tests.support.engine_fuzz $(ARGS)

goldens: .venv/.goldens
	@for name in $(sort $(notdir $(basename $(wildcard tests/golden/make_*.py)))); do \
		echo "$$name" && $(MODULE) tests.golden.$$name || exit 1; done

vectors: .venv/.test
	@$(MODULE) tests.vectors $(ARGS)

clients: build .venv/.clients
	@CAMELID_NO_SKIPS=1 $(PYTEST) tests/clients $(ARGS)

rivals: .venv/.test .venv/.rivals
	@$(KERNELS)
	@$(MODULE) tests.rivals.llama_cpp $(ARGS)
	@$(MODULE) tests.rivals.encoders
	@$(MODULE) tests.rivals.adapters

arm64: .venv/.arm64
	@PYTHONPATH=native $(BIN)/python -m camelid_native.build --quiet --zig --target linux-aarch64 --out build/native
	@$(MODULE) tests.native.arm64 $(ARGS)

isa: .venv/.test .venv/.isa
	@$(MODULE) tests.perf.isa.gate $(ARGS)

cuda: .venv/.test .venv/.cuda
	@$(MODULE) tests.cuda.static $(ARGS)

sanitize: .venv/.test
	@$(MODULE) tests.native.sanitized $(ARGS)

wheel: .venv/.wheel
	@rm -f dist/camelid-*-py3-none-any.whl dist/camelid_web-*.whl
	@CAMELID_NATIVE_TARGETS=all $(BIN)/python -m hatchling build -t wheel -d dist
	@$(MODULE) tests.native.wheel dist/camelid-*-py3-none-any.whl
	@$(MODULES)
	@$(BIN)/python web/build.py
	@cd web/wheel && ../../$(BIN)/python -m hatchling build -t wheel -d ../../dist

clean:
	rm -rf build dist native/camelid_native/lib .pytest_cache .ruff_cache

.venv/.web .venv/.test .venv/.wheel: package-lock.json .npmrc .ci/system-packages
.venv/.clients: tests/clients/js/package-lock.json
.venv/.isa: .ci/gpu-drivers
.venv/.cuda: .ci/system-packages
.venv/.%: $(SETUP)
	@.ci/setup $*
	@touch $@
