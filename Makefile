# The MLA decode attention verification suite. `make help` lists the targets.

# ---- knobs --------------------------------------------------------------------------------------------------------------------
CC       ?= cc#            C compiler: gcc or clang
CXX      ?= c++#           C++ compiler, for host execution alone
OPT      ?= -O3#           optimisation of host code, within IEEE arithmetic
FLAVOUR  ?= release#       release | asan | ubsan: each builds into a directory of its own
JOBS     ?= $(shell nproc)# parallel jobs
ELEMENTS ?= 1000000000#    elements that make false-alarms grades
ROCM_PATH ?= /opt/rocm#    ROCm 6 or 7, when there is one
CUDA_HOME ?= /usr/local/cuda# CUDA 12 or 13, when there is one
AMD_ARCHS ?= gfx90a gfx942 gfx950# AMD targets to compile for
NVIDIA_ARCHS ?= 80 90#     compute capabilities to compile for
FUZZ_SECONDS ?= 30#        seconds that `make fuzz` spends on each target
PREFIX   ?= /usr/local#   where make install puts mla-verify, the library and its headers; DESTDIR goes before it
V        ?=#                set to 1 to see the commands
SHELL := /bin/bash
.DEFAULT_GOAL := all

ifneq ($(filter deps,$(MAKECMDGOALS)),)
# Tools are looked for when make starts: after installing them, a fresh make does the rest.
OTHER_GOALS := $(filter-out deps,$(MAKECMDGOALS))
.PHONY: deps $(OTHER_GOALS)
deps: ## install Debian's or Ubuntu's packages (uses sudo only when needed)
	@tests/install_packages.sh
$(OTHER_GOALS): deps
	@$(MAKE) $@
else

# ---- what this machine has --------------------------------------------------------------------------------------------------------
MULTIARCH := $(shell $(CC) -print-multiarch 2>/dev/null)
OPENBLAS_INC := $(firstword $(wildcard /usr/include/$(MULTIARCH)/openblas-openmp /usr/include/openblas-openmp /usr/include/openblas))
OPENBLAS_LIB := $(firstword $(wildcard /usr/lib/$(MULTIARCH)/openblas-openmp /usr/lib/openblas-openmp))
HAVE_BOOST := $(if $(shell command -v $(CXX)),$(wildcard /usr/include/boost/context/fiber.hpp))
HAVE_CRITERION := $(wildcard /usr/include/criterion/criterion.h)
NVCC := $(firstword $(wildcard $(CUDA_HOME)/bin/nvcc) $(shell command -v nvcc))
AMD_CLANG := $(firstword $(wildcard $(ROCM_PATH)/llvm/bin/clang++ $(ROCM_PATH)/lib/llvm/bin/clang++ /usr/bin/clang++-22))
LLVM_BIN := $(if $(AMD_CLANG),$(dir $(realpath $(AMD_CLANG))))

# ---- flags ---------------------------------------------------------------------------------------------------------------------------
ROOT := build
B := $(ROOT)$(if $(filter-out release,$(FLAVOUR)),/$(FLAVOUR))
SANITIZE := $(if $(filter asan,$(FLAVOUR)),-fsanitize=address) $(if $(filter asan ubsan,$(FLAVOUR)),-fsanitize=undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
WARN := -Wall -Wextra -Wshadow -Werror
COMMON := $(OPT) -g $(WARN) -ffp-contract=off -fopenmp -fPIC -fvisibility=hidden -MMD -MP $(SANITIZE)
CFLAGS_ALL := -std=c11 -D_GNU_SOURCE $(COMMON) -Wstrict-prototypes -Wvla -I$(OPENBLAS_INC) $(if $(HAVE_BOOST),-DMLA_HAVE_HOST_EXEC) $(CFLAGS)
CXXFLAGS_ALL := -std=c++17 $(COMMON) $(CXXFLAGS)
LIBS := -L$(OPENBLAS_LIB) -Wl,-rpath,$(OPENBLAS_LIB) -lopenblas -lmpfr -lgmp -lcjson -lm -ldl $(if $(HAVE_BOOST),-lboost_context)
LINK := $(if $(HAVE_BOOST),$(CXX),$(CC)) -fopenmp -rdynamic $(SANITIZE) $(LDFLAGS)

# ---- sources -----------------------------------------------------------------------------------------------------------------------------
HOST_ENGINES := cdna3 cdna4 cdna3tall cdna4tall mma
REF_OBJ := $(patsubst %.c,$(B)/%.o,$(wildcard ref/*.c))
GPU_OBJ := $(patsubst %.c,$(B)/%.o,$(filter-out gpu/example_%.c,$(wildcard gpu/*.c))) $(B)/gpu/device_images.o
HOST_OBJ := $(if $(HAVE_BOOST),$(patsubst %.cpp,$(B)/%.o,$(wildcard gpu/*.cpp)) $(HOST_ENGINES:%=$(B)/gpu/kernels_%.o) $(B)/gpu/bmm_on_host.o)
VERIFY_OBJ := $(patsubst %.c,$(B)/%.o,$(filter-out verify/main.c,$(wildcard verify/*.c))) $(B)/verify/report_html_files.o
SUITE_OBJ := $(REF_OBJ) $(GPU_OBJ) $(HOST_OBJ) $(VERIFY_OBJ)
HOPPER_ENGINES := hopper hopper16
DEVICE_SRC := $(wildcard gpu/*.hip gpu/device*.h gpu/engine*.h gpu/hopper*.h gpu/splitk*.h gpu/visible_keys.h gpu/bmm_args.h gpu/mla_gpu.h ref/mla.h)
AMD_IMAGES := $(if $(AMD_CLANG),$(foreach a,$(AMD_ARCHS),$(ROOT)/gpu/$a.co $(ROOT)/gpu/$(a)_tall.co))
NVIDIA_IMAGES := $(if $(NVCC),$(ROOT)/gpu/nvidia.fatbin $(if $(filter 90,$(NVIDIA_ARCHS)),$(HOPPER_ENGINES:%=$(ROOT)/gpu/%.fatbin)))
SUPPORT_OBJ := $(patsubst %.c,$(B)/%.o,$(wildcard tests/support_*.c))
TESTS := $(if $(HAVE_CRITERION),$(patsubst tests/%.c,$(B)/tests/%,$(wildcard tests/test_*.c)) $(if $(HAVE_BOOST),$(patsubst tests/%.cpp,$(B)/tests/%,$(wildcard tests/test_*.cpp))))
FUZZERS := $(patsubst tests/fuzz_%.c,$(ROOT)/fuzz/%,$(wildcard tests/fuzz_*.c))
FUZZED_case := verify/case.c verify/contract_line.c verify/contract_preset.c verify/random.c $(addprefix ref/,status.c format.c kv.c contract.c problem.c)
FUZZED_safetensors := verify/safetensors.c verify/output_file.c ref/status.c
EXAMPLES := $(patsubst gpu/%.c,$(B)/%.so,$(wildcard gpu/example_*.c))
MUTANTS := $(if $(HAVE_BOOST),$(patsubst tests/mutants/%.patch,$(B)/mutants/%.so,$(wildcard tests/mutants/*.patch)))
LIBRARY := $(B)/libmlaverify.so
PUBLIC_HEADERS := ref/mla.h gpu/mla_gpu.h verify/mlaverify.h
FORMATTED := $(wildcard ref/*.[ch] gpu/*.[ch] gpu/*.cpp gpu/*.hip verify/*.[ch] tests/*.[ch] tests/*.cpp)

.PHONY: all found verify check test unit cli speed install mutants mutants-build asan ubsan sanitized smoke false-alarms fuzz tidy format format-check inspect help clean
.SECONDARY:

all: found $(B)/mla-verify $(LIBRARY) $(EXAMPLES) ## build mla-verify with whatever this machine has

found:
	@test -n "$(OPENBLAS_LIB)" || { echo "OpenBLAS (openmp variant) not found: run 'make deps'" >&2; exit 1; }
	@echo "host execution: $(if $(HAVE_BOOST),on,off (needs g++ and libboost-context-dev))"
	@echo "AMD objects:    $(if $(AMD_CLANG),$(AMD_ARCHS) with $(AMD_CLANG),off (needs ROCm 6 or clang-22))"
	@echo "NVIDIA objects: $(if $(NVCC),$(NVIDIA_ARCHS:%=sm_%) with $(NVCC),off (needs nvcc))"
	@echo "unit tests:     $(if $(HAVE_CRITERION),on,off (needs libcriterion-dev))"

# ---- the main job and the tests -----------------------------------------------------------------------------------------------------------
RUN := OMP_WAIT_POLICY=passive $(B)/mla-verify run
HOST_KERNELS := $(HOST_ENGINES:%=--kernel splitk@host:%) --kernel bmm@host
NOT_TALL := $(patsubst %,--kernel splitk@host:%,$(filter-out %tall,$(HOST_ENGINES))) --kernel bmm@host
GATE_CASES := --cases data/smoke.cases --cases data/ragged.cases
TEST_CASES := $(patsubst %,--cases data/%.cases,edges formats paging masks reports)

verify: all ## the main job: the split-K kernel against the oracle, on the host and on the GPU when there is one
	$(RUN) --kernel reference --kernel splitk@host:cdna3 --kernel splitk@host:mma $(GATE_CASES)
	@tests/run_on_gpu.sh $(B)/mla-verify $(GATE_CASES)

check: all unit ## unit tests and the smoke cases: under a minute
	$(RUN) --quiet --kernel reference $(HOST_KERNELS) --cases data/smoke.cases

test: all unit cli ## everything
	$(RUN) --quiet --kernel reference $(HOST_KERNELS) $(GATE_CASES)
	$(RUN) --quiet --kernel reference $(NOT_TALL) $(TEST_CASES)
	OMP_WAIT_POLICY=passive $(B)/mla-verify mutants --quiet --kernel $(if $(HAVE_BOOST),splitk@host:cdna3,reference) --case 'kv_len=256,65,0 input=uniform plan=fixed:3 seed=1' --case 'heads=4 kv_len=130,3 input=exact plan=fixed:2'

unit: all $(TESTS) $(if $(HAVE_BOOST),$(B)/tests/fake_hip.so)
	@test -n "$(TESTS)" || { echo "unit tests need libcriterion-dev: run 'make deps'" >&2; exit 1; }
	@tests/run_unit.sh $(TESTS)

cli: all
	@tests/cli.sh $(B)/mla-verify
	@FAST=1 tests/speed.sh $(B)/mla-verify
	@tests/shards.sh $(B)/mla-verify
	@$(if $(filter release,$(FLAVOUR)),MAKE=$(MAKE) tests/library.sh $(B)/mla-verify)
	@tests/golden.sh $(B)/mla-verify
	@tests/html.sh $(B)/mla-verify

speed: all $(TESTS) $(if $(HAVE_BOOST),$(B)/tests/fake_hip.so) ## what the CPU's side may take: start-up, the contest's tests, make check, ratios; best on a quiet machine
	@MAKE="$(MAKE)" tests/speed.sh $(B)/mla-verify

asan: ## unit tests and smoke cases under AddressSanitizer and UBSan, host kernels included
	@$(MAKE) FLAVOUR=asan OPT=-O1 sanitized

ubsan: ## the same under UBSan alone
	@$(MAKE) FLAVOUR=ubsan OPT=-O1 sanitized

sanitized: unit smoke

smoke: all
	$(RUN) --quiet $(HOST_KERNELS) --cases data/smoke.cases

false-alarms: $(B)/tests/false_alarms ## how many right kernels, simulated, does the verifier fail? A background job of minutes to hours
	nice -n 19 $< $(ELEMENTS)

fuzz: $(FUZZERS) ## libFuzzer over case lines and tensor files
	@for fuzzer in $^; do name=$$(basename $$fuzzer); mkdir -p $(ROOT)/fuzz/corpus/$$name; \
	  $$fuzzer -max_total_time=$(FUZZ_SECONDS) -max_len=2048 -artifact_prefix=$(ROOT)/fuzz/ $(ROOT)/fuzz/corpus/$$name tests/corpus/$$name \
	    2>$(ROOT)/fuzz/$$name.log || { tail -n 40 $(ROOT)/fuzz/$$name.log; exit 1; }; \
	  echo "fuzz $$name: $$(tail -n 1 $(ROOT)/fuzz/$$name.log)"; done

# ---- mutants -------------------------------------------------------------------------------------------------------------------------------
mutants: mutants-build ## planted bugs: does the gate notice every one of them, and nothing else?
	OMP_WAIT_POLICY=passive $(B)/mla-verify mutants --kernel splitk@host:cdna3 --dir $(B)/mutants

mutants-build: all $(MUTANTS) ## the split-K kernel with each patch of tests/mutants, as plug-ins
	@test -n "$(MUTANTS)" || { echo "mutants need host execution: run 'make deps'" >&2; exit 1; }

install: all ## mla-verify, libmlaverify.so, headers and a pkg-config file, under PREFIX
	install -D $(B)/mla-verify $(DESTDIR)$(PREFIX)/bin/mla-verify
	install -D -m 644 $(LIBRARY) $(DESTDIR)$(PREFIX)/lib/libmlaverify.so.1
	ln -sf libmlaverify.so.1 $(DESTDIR)$(PREFIX)/lib/libmlaverify.so
	for h in $(PUBLIC_HEADERS); do install -D -m 644 $$h $(DESTDIR)$(PREFIX)/include/mlaverify/$$h || exit; done
	install -D -m 644 verify/grade_tensors.py $(DESTDIR)$(PREFIX)/share/mlaverify/grade_tensors.py
	install -d $(DESTDIR)$(PREFIX)/lib/pkgconfig
	sed 's|@PREFIX@|$(PREFIX)|' verify/mlaverify.pc.in > $(DESTDIR)$(PREFIX)/lib/pkgconfig/mlaverify.pc

# ---- checks ------------------------------------------------------------------------------------------------------------------------------------
TIDY_FLAGS := -std=c11 -D_GNU_SOURCE -fopenmp -I$(OPENBLAS_INC) -DMLA_HAVE_HOST_EXEC
tidy: ## clang-tidy over the C sources
	@printf '%s\n' $(wildcard ref/*.c gpu/*.c verify/*.c) | xargs -P $(JOBS) -I{} sh -c 'clang-tidy --quiet {} -- $(TIDY_FLAGS) 2>/dev/null || { echo "clang-tidy: {}"; exit 1; }'

format: ## rewrite the sources with clang-format
	clang-format -i $(FORMATTED)

format-check: ## fail when clang-format would change anything
	clang-format --dry-run -Werror $(FORMATTED)

inspect: $(AMD_IMAGES) $(NVIDIA_IMAGES) ## registers, spills, LDS and matrix instructions of the device objects
	@LLVM_BIN="$(LLVM_BIN)" CUDA_BIN="$(if $(NVCC),$(dir $(NVCC)))" gpu/inspect.sh $^

help: ## this list
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/  \1\t\2/p' Makefile | expand -t 18
	@echo; echo "knobs (make KNOB=value):"; sed -n 's/^\([A-Z_]*\) *?= *\(.*\)# *\(.*\)/  \1\t\3 [\2]/p' Makefile | expand -t 18

clean: ## remove build/
	rm -rf $(ROOT)

# ---- rules ----------------------------------------------------------------------------------------------------------------------------------------
Q := $(if $(V),,@)
BEGIN = @mkdir -p $(@D)$(if $(V),, && echo "  $@")

$(B)/mla-verify: $(SUITE_OBJ) $(B)/verify/main.o
	$(BEGIN)
	$(Q)$(LINK) -o $@ $^ $(LIBS)

# Of the suite the library has what it needs, and shows what its header declares.
$(LIBRARY): $(B)/verify/mlaverify.o $(B)/suite.a
	$(BEGIN)
	$(Q)echo '{ global: mlaverify_*; local: *; };' > $(B)/mlaverify.map
	$(Q)$(LINK) -shared -Wl,-soname,libmlaverify.so.1 -Wl,--version-script=$(B)/mlaverify.map -Wl,--no-undefined -Wl,--as-needed -o $@ $^ $(LIBS)

$(B)/suite.a: $(SUITE_OBJ)
	$(BEGIN)
	$(Q)rm -f $@ && ar rcs $@ $^

$(B)/%.o: %.c
	$(BEGIN)
	$(Q)$(CC) $(CFLAGS_ALL) -c -o $@ $<

$(B)/%.o: %.cpp
	$(BEGIN)
	$(Q)$(CXX) $(CXXFLAGS_ALL) -c -o $@ $<

# -O3 compiles six times as long here and runs no faster.
$(B)/gpu/kernels_%.o: gpu/kernels.hip
	$(BEGIN)
	$(Q)$(CXX) $(CXXFLAGS_ALL) $(OPT:-O3=-O2) -x c++ -DMLA_HOST_EXEC -DMLA_ENGINE_$(shell echo $* | tr a-z A-Z) -c -o $@ $<

$(B)/gpu/bmm_on_host.o: gpu/bmm.hip
	$(BEGIN)
	$(Q)$(CXX) $(CXXFLAGS_ALL) -x c++ -DMLA_HOST_EXEC -DMLA_ENGINE_CDNA3 -c -o $@ $<

$(B)/verify/report_html_files.o: verify/report_html_files.S verify/report_html.css verify/report_html.js
	$(BEGIN)
	$(Q)$(CC) -c -o $@ $<

$(B)/example_%.so: gpu/example_%.c
	$(BEGIN)
	$(Q)$(CC) -std=c11 $(OPT) -g $(WARN) -ffp-contract=off -fPIC -fvisibility=hidden -MMD -MP -shared -o $@ $< -lm

# What a mutant does not change. Its linker takes what it needs.
$(B)/mutants/unchanged.a: $(REF_OBJ) $(GPU_OBJ) $(filter-out $(B)/gpu/kernels_%.o,$(HOST_OBJ))
	$(BEGIN)
	$(Q)rm -f $@ && ar rcs $@ $^

$(B)/mutants/%.so: tests/mutants/%.patch $(B)/mutants/unchanged.a tests/build_mutant.sh tests/mutant_plugin.c $(DEVICE_SRC) gpu/plan.c gpu/splitk.c
	$(BEGIN)
	$(Q)CC="$(CC)" CXX="$(CXX)" tests/build_mutant.sh $< $(B)/mutants/unchanged.a $@

$(B)/tests/%: $(B)/tests/%.o $(SUPPORT_OBJ) $(SUITE_OBJ)
	$(BEGIN)
	$(Q)$(LINK) -o $@ $^ -lcriterion $(LIBS)

$(ROOT)/fuzz/case: $(FUZZED_case)
$(ROOT)/fuzz/safetensors: $(FUZZED_safetensors)
$(ROOT)/fuzz/%: tests/fuzz_%.c
	$(BEGIN)
	$(Q)clang -std=c11 -D_GNU_SOURCE -O1 -g $(WARN) -ffp-contract=off -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -o $@ $^ -lcjson -lm

$(B)/tests/fake_hip.so: $(B)/tests/fake_hip.o $(HOST_OBJ) $(B)/gpu/engine.o $(B)/ref/status.o
	$(BEGIN)
	$(Q)$(CXX) -shared -fopenmp $(SANITIZE) -o $@ $^ -lboost_context

$(ROOT)/gpu/%.co: gpu/kernels.hip $(DEVICE_SRC)
	$(BEGIN)
	$(Q)$(AMD_CLANG) -x hip --offload-arch=$(*:%_tall=%) --cuda-device-only --no-gpu-bundle-output -nogpulib -nogpuinc -O3 -std=c++17 \
	  -mcode-object-version=5 -DMLA_ENGINE_$(if $(filter gfx950%,$*),CDNA4,CDNA3)$(if $(filter %_tall,$*),TALL) -o $@ $<

$(ROOT)/gpu/nvidia.fatbin: gpu/kernels.hip $(DEVICE_SRC)
	$(BEGIN)
	$(Q)$(NVCC) -x cu -std=c++17 -O3 -DMLA_ENGINE_MMA $(foreach a,$(NVIDIA_ARCHS),-gencode arch=compute_$(a),code=sm_$(a)) -fatbin -o $@ $<

$(HOPPER_ENGINES:%=$(ROOT)/gpu/%.fatbin): $(ROOT)/gpu/%.fatbin: gpu/kernels.hip $(DEVICE_SRC)
	$(BEGIN)
	$(Q)$(NVCC) -x cu -std=c++17 -O3 -DMLA_ENGINE_$(shell echo $* | tr a-z A-Z) -gencode arch=compute_90a,code=sm_90a -fatbin -o $@ $<

$(B)/gpu/device_images.o: gpu/device_images.S $(AMD_IMAGES) $(NVIDIA_IMAGES)
	$(BEGIN)
	$(Q)$(CC) -c $(if $(AMD_IMAGES),$(AMD_ARCHS:%=-DMLA_IMAGE_%)) $(patsubst $(ROOT)/gpu/%.fatbin,-DMLA_IMAGE_%,$(NVIDIA_IMAGES)) -Wa,-I,$(ROOT)/gpu -o $@ $<

%.d: ;
-include $(shell find $(B) -name '*.d' 2>/dev/null)
endif
