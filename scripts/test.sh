#!/usr/bin/env bash
# Builds and runs the tests. Installs what is missing (Debian, Ubuntu; as root or through sudo). Works from any folder.
#
# usage: scripts/test.sh [option...]
#   (none)         everything in a release build, then the tests of threads and failures under the address+undefined and the thread sanitizer,
#                  then those of LibTorch, if Python can install it (1.7 GB below the build root); with nvcc, the device tests in PTX as well
#   --quick        the release build only, with fewer random configurations
#   --release      the release build only: tests, refusals, header checks, examples and benchmarks. With clang++, if it is there, the tests of behaviour, examples
#                  and benchmarks are compiled by it, in half of the time; CXX names one compiler for everything
#   --sanitizers   the sanitizer builds only: address+undefined and thread
#   --clang        the release build with clang++ only
#   --torch        the tests of zero::torch only, with LibTorch from the Python package torch
#   --ptx          the device tests as nvcc compiles them, in interpreted PTX without a device; skipped without nvcc
#   --bare-root    scripts/bare_root.sh only: the demonstration in a bare Debian 12. If it is skipped, that is a failure
#   --ci           everything, then --bare-root: what continuous integration runs
#   --help         this text
# Options may be combined. The last line sums up all runs in the words of CTest. The exit status is 0 only if everything passed.
#
# Settings: CXX (compiler, g++), ZERO_JOBS (parallel jobs), ZERO_BUILD_ROOT (folder of the builds, build/),
# ZERO_ORACLE_CONFIGURATIONS (number of random configurations of the oracle), ZERO_PTX_OPTIONS (options of CMake for --ptx, such as -DZERO_PTX_SEEDS=0;1;2),
# ZERO_TORCH (folder of LibTorch, otherwise it is installed below the build root).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# The configurations take the 26 rows of the oracle in turn: 130 are five for each row, which are 15 to 20 runs. Ten of the rows are built here.
sanitizer_configurations=130
# Tests of threads, lifetimes and failures. Arithmetic has its own tests, and the release build runs the other stage tests. Of the oracle, the executables
# that build in about 40 s: they cover every kind of partitioner, owner and scale, and the others differ only in types.
waits='^host/.*queue|^stage/(.*failure|agreement|overlap|poison|several_queues|no_memory|pending_commands|caller_update|gradients_in_place|handed_over|rebuild)_test'
threads_and_failures="^comm/|^cuda/nccl_failure_test|$waits"
sanitized_asan="$threads_and_failures|^tier/file_tier_test|^stage/offload_((pipeline|refusals)_)?test|^c/|^launch/|^checkpoint/|^stage/oracle_(float|bfloat16|partitioners)_test"
# Those of them that take the compiler longest are not compiled without the sanitizer as well, if the same compiler does both. The forms of files are tested beside
# optimised libraries too, and checkpoint/many_readers_test is as large as it must be only without a sanitizer.
only_asan="$waits|^launch/|^checkpoint/(checkpoint_|early|exports|groups|initialise|keep|killed|memory|offload|reshard|resume|slow|tiles|update|vanished)"
# Neither a type of elements, nor a form of a file, nor the translation to C makes another thread.
sanitized_tsan="$threads_and_failures|^tier/file_tier_test|^stage/(offload_(bits|pipeline|states|states_faults)|own_gathers|report_figures)_test|^checkpoint/(checkpoint_saver|many_readers|slow_files|vanished_rank)_test|^stage/oracle_(float|partitioners)_test"
legs=()
for option in "$@"; do
    case $option in
        --quick) export ZERO_ORACLE_CONFIGURATIONS=${ZERO_ORACLE_CONFIGURATIONS:-50}; legs+=(release) ;;
        --release) legs+=(release) ;;
        --sanitizers) legs+=(asan tsan) ;;
        --clang) legs+=(clang) ;;
        --torch) legs+=(torch) ;;
        --ptx) legs+=(ptx) ;;
        --bare-root) legs+=(bare) ;;
        --ci) legs+=(release asan tsan torch ptx bare) ;;
        --help) usage; exit 0 ;;
        *) refuse "unknown option '$option'" ;;
    esac
done
[ "${#legs[@]}" -gt 0 ] || legs=(release asan tsan torch ptx)

packages=(g++ cmake ninja-build catch2 nlohmann-json3-dev libxxhash-dev)
optional=(ccache)
for leg in "${legs[@]}"; do
    case $leg in
        release)
            packages+=(libbenchmark-dev libeigen3-dev libcli11-dev libopenmpi-dev openmpi-bin)
            optional+=(valgrind doxygen clang-format-16 clang-19 iproute2)
            [ -n "${CXX:-}" ] || optional+=(clang lld)
            ;;
        asan | tsan) [ -n "${CXX:-}" ] || optional+=(clang libclang-rt-dev lld) ;;
        clang) packages+=(clang libbenchmark-dev libeigen3-dev libcli11-dev libopenmpi-dev openmpi-bin) ;;
    esac
done
mapfile -t packages < <(printf '%s\n' "${packages[@]}" | awk '!seen[$0]++')
install_missing "${packages[@]}"
install_optional "${optional[@]}"
# Through ccache, also in the builds that tests start. In its depend mode a first build takes no longer than without it.
if has ccache; then
    export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache CMAKE_CUDA_COMPILER_LAUNCHER=ccache CCACHE_DEPEND=1
fi
# The compiler of unoptimised code: CXX, or clang++, or g++ where clang++ is missing. A unit of stage tests takes g++ 60 s and clang++ 27 s, with sanitizers 207 s and 76 s.
quick_compiler=$(compiler)
[ -n "${CXX:-}" ] || ! has clang++ || ! at_least "$(clang++ -dumpversion)" "$needed_clangxx" || quick_compiler=clang++
sanitizer_compiler=$quick_compiler
is_there libclang-rt-dev || sanitizer_compiler=$(compiler)
quick_linker=()
! has ld.lld || quick_linker=(-DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=lld)
for leg in "${legs[@]}"; do [ "$leg" != clang ] || check_compiler_version clang++; done

passed_total=0
failed_total=0
report=()
failures=()

# finish LEG RESULT: adds a line to the report.
finish() { report+=("$(printf '%-8s %5d s  %s' "$1" "$((SECONDS - started))" "$2")"); }

# fail LEG WHAT: reports a failed build, which counts as one failed test.
fail() {
    printf 'error: %s: %s\n' "$1" "$2" >&2
    failed_total=$((failed_total + 1))
    finish "$1" "$2"
}

# failed_tests LOG: prints the failed tests of a CTest log, each with the end of its output.
failed_tests() {
    awk '/^ *[0-9]+\/[0-9]+ Test +#/ || /^ +Start +[0-9]+:/ || /^[0-9]+% tests passed/ { flush(); inside = 0 }
         /^ *[0-9]+\/[0-9]+ Test +#.*\*\*\*(Failed|Timeout|Exception|Not Run)/ && !/Disabled/ { inside = 1 }
         inside { kept[++lines] = $0 }
         function flush(   line) {
             for (line = 1; line <= lines; ++line) if (line == 1 || line > lines - 40) print kept[line]
             lines = 0
         }' "$1"
}

# install_torch: installs the Python package torch below the build root, without the packages that only its part for devices loads.
install_torch() {
    local python=$build_root/torch_packages/bin/python3
    if [ ! -f "$build_root/torch_packages/complete" ]; then
        has python3 && python3 -m venv "$build_root/torch_packages" >/dev/null 2>&1 || return 1
        say "torch: installing LibTorch with pip"
        run_quietly timeout 900 "$python" -m pip install --no-deps torch==2.4.1 nvidia-cuda-runtime-cu12==12.1.105 nvidia-cuda-cupti-cu12==12.1.105 || return 1
        touch "$build_root/torch_packages/complete"
    fi
    # Without these packages the test of exported weights is skipped and says so.
    if [ ! -f "$build_root/torch_packages/readers" ] && run_quietly timeout 600 "$python" -m pip install safetensors==0.4.5 transformers==4.46.3 'numpy<2' typing_extensions sympy networkx jinja2 fsspec filelock; then
        touch "$build_root/torch_packages/readers"
    fi
}

# find_torch: sets ZERO_TORCH to a folder of LibTorch. A second call does not try again.
has_no_torch=no
find_torch() {
    local python=$build_root/torch_packages/bin/python3
    [ -z "${ZERO_TORCH:-}" ] || return 0
    [ "$has_no_torch" = no ] || return 1
    beside_result torch || install_torch || { has_no_torch=yes; return 1; }
    ZERO_TORCH=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')/torch
}

# find_nvcc: prints the path of nvcc.
find_nvcc() { command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null; }

# find_nvdisasm: sets nvdisasm to CMake's option for the disassembler of CUDA, which some toolkits lack. Installs its Python package below the build root. Without it, a test of figures is skipped.
nvdisasm=()
find_nvdisasm() {
    local nvcc folder=$build_root/nvdisasm
    nvcc=$(find_nvcc) || return 0
    ! has nvdisasm && [ ! -x "$(dirname "$nvcc")/nvdisasm" ] || return 0
    if ! ls "$folder"/nvidia/*/bin/nvdisasm >/dev/null 2>&1; then
        has python3 && run_quietly timeout 300 python3 -m pip install --no-deps --target "$folder" nvidia-cuda-nvdisasm==13.2.78 || return 0
    fi
    nvdisasm=("-DZERO_NVDISASM=$(ls "$folder"/nvidia/*/bin/nvdisasm)")
}

# find_python_packages: sets python_packages to CMake's options for Conan, which builds the recipe in packaging/, and for a Python that can build and use the wheel. Installs
# them below the build root. Without them, those tests are skipped.
python_packages=()
find_python_packages() {
    local folder=$build_root/python_packages
    if [ ! -f "$folder/complete" ]; then
        has python3 && python3 -m venv "$folder" >/dev/null 2>&1 || return 0
        run_quietly timeout 300 "$folder/bin/python3" -m pip install conan==2.34.0 numpy==1.26.4 ml_dtypes==0.5.0 scikit-build-core==0.10.7 || return 0
        touch "$folder/complete"
    fi
    python_packages=("-DZERO_CONAN=$folder/bin/conan" "-DZERO_PYTHON=$folder/bin/python3")
}

# count LEG LOG: adds the results that the last line of a log sums up in the words of CTest. Without such a line the leg counts as one failed test.
count() {
    local leg=$1 log=$2 summary failed total shown
    summary=$(grep -E '^[0-9]+% tests passed, [0-9]+ tests? failed out of [0-9]+' "$log" | tail -n 1) || { fail "$leg" "$(grep -m 1 '^skipped: ' "$log" || echo "no test ran")"; return 0; }
    failed=$(sed -E 's/.*passed, ([0-9]+) tests?.*/\1/' <<<"$summary")
    total=$(sed -E 's/.*out of ([0-9]+).*/\1/' <<<"$summary")
    failed_total=$((failed_total + failed))
    passed_total=$((passed_total + total - failed))
    if [ "$failed" -gt 0 ]; then
        shown=$(failed_tests "$log")
        failures+=("$leg: ${shown:-$(tail -n 60 "$log")}")
    fi
    finish "$leg" "$summary"
}

# Most of the time of these two goes to the network and to one core, so they run beside the builds of the legs before them.
declare -A beside=()
# run_beside WHAT COMMAND...: starts a command, with its output in WHAT.log.
run_beside() {
    local what=$1
    shift
    mkdir -p "$build_root"
    set -m # a process group of its own, which the end of this script ends
    "$@" >"$build_root/$what.log" 2>&1 </dev/null &
    set +m
    beside[$what]=$!
}
# beside_result WHAT: waits for it and has its exit status. Fails if it was not started.
beside_result() {
    [ -n "${beside[$1]:-}" ] || return 1
    local status=0
    wait "${beside[$1]}" || status=$?
    unset "beside[$1]"
    cat "$build_root/$1.log"
    return "$status"
}
end_beside() { local group; for group in "${beside[@]}"; do kill -TERM -- "-$group" 2>/dev/null || true; done; }
trap end_beside EXIT
# Beside the release leg, the device tests in PTX are a part of it: both need what nvcc compiles.
# (With a device they run on it, so they have a leg of their own.)
read -ra ptx_options <<<"${ZERO_PTX_OPTIONS:-}"
ptx_options+=("-DZERO_PTX_CONFIGURATIONS=${ZERO_ORACLE_CONFIGURATIONS:-130}") # said each time, because a build keeps its options
ptx_beside=(-DZERO_PTX_TESTS=OFF)
if [[ " ${legs[*]} " == *" release "* && " ${legs[*]} " == *" ptx "* ]] && nvcc=$(find_nvcc) && ! nvidia-smi >/dev/null 2>&1; then
    ptx_beside=(-DZERO_PTX_TESTS=ON "-DCMAKE_CUDA_COMPILER=$nvcc" "${ptx_options[@]}")
    mapfile -t legs < <(printf '%s\n' "${legs[@]}" | grep -vx ptx)
fi
# With clang++ the tests of behaviour, examples and benchmarks are a leg of their own.
[ "$quick_compiler" = "$(compiler)" ] || mapfile -t legs < <(printf '%s\n' "${legs[@]}" | sed 's/^release$/&\nbehaviour/')
for leg in "${legs[@]:1}"; do
    case $leg in
        torch) [ -n "${ZERO_TORCH:-}" ] || run_beside torch install_torch ;;
        bare) run_beside bare bash "$root_dir/scripts/bare_root.sh" ;;
    esac
done

# set_leg LEG: sets how a leg is built and tested: preset, options (of CMake), target, arguments (of CTest) and configurations (of the oracle; empty: its default).
# Fails, with a reason, if the leg is skipped.
set_leg() {
    preset=release options=() target=all arguments=() configurations=${ZERO_ORACLE_CONFIGURATIONS:-} reason=
    case $1 in
        release)
            find_nvdisasm
            find_python_packages
            local has_behaviour=ON # said each time, because a build keeps its options
            [[ " ${legs[*]} " != *" behaviour "* ]] || has_behaviour=OFF
            options=("-DCMAKE_CXX_COMPILER=$(compiler)" -DZERO_OPTIMIZE_PROGRAMS=OFF "-DZERO_BEHAVIOUR_TESTS=$has_behaviour" "${ptx_beside[@]}" "${nvdisasm[@]}" "${python_packages[@]}")
            ;;
        behaviour)
            target=behaviour_tests arguments=(-L behaviour)
            local elsewhere=
            if [[ " ${legs[*]} " == *" asan "* ]] && [ "$sanitizer_compiler" = "$quick_compiler" ]; then elsewhere=$only_asan; fi
            options=("-DCMAKE_CXX_COMPILER=$quick_compiler" "${quick_linker[@]}" "-DZERO_TEST_FILES_ELSEWHERE=$elsewhere" -DZERO_OPTIMIZE_PROGRAMS=OFF -DZERO_BUILD_C=OFF -DZERO_CUDA=OFF)
            ;;
        clang) preset=release-clang options=(-DZERO_OPTIMIZE_PROGRAMS=OFF) ;;
        torch)
            find_torch || { reason="no LibTorch, because Python with venv and pip could not install it; set ZERO_TORCH to its folder"; return 1; }
            target=torch_tests arguments=(-L torch)
            options=("-DCMAKE_CXX_COMPILER=$(compiler)" "-DZERO_TORCH=$ZERO_TORCH" -DZERO_OPTIMIZE_PROGRAMS=OFF -DZERO_BUILD_BENCHMARKS=OFF -DZERO_BUILD_COMPILED=OFF -DZERO_BUILD_C=OFF -DZERO_BUILD_PLAN=OFF -DZERO_CUDA=OFF -DZERO_MPI=OFF)
            ;;
        ptx)
            local nvcc
            nvcc=$(find_nvcc) || { reason="no nvcc, which compiles kernels to PTX"; return 1; }
            target=ptx_tests arguments=(-L ptx)
            options=("-DCMAKE_CXX_COMPILER=$(compiler)" "-DCMAKE_CUDA_COMPILER=$nvcc" -DZERO_PTX_TESTS=ON -DZERO_BUILD_EXAMPLES=OFF -DZERO_BUILD_BENCHMARKS=OFF -DZERO_BUILD_COMPILED=OFF -DZERO_BUILD_C=OFF -DZERO_MPI=OFF "${ptx_options[@]}")
            ;;
        asan | tsan)
            local sanitized=sanitized_$1
            preset=$1 configurations=${ZERO_ORACLE_CONFIGURATIONS:-$sanitizer_configurations}
            options=("-DCMAKE_CXX_COMPILER=$sanitizer_compiler" "${quick_linker[@]}" "-DZERO_TEST_FILES=${!sanitized}")
            # Line numbers take a sixth of the build. A report of asan names functions, and is the same in a build of the preset asan, which has them; a race may not come again.
            if [ "$1" = tsan ]; then options+=(-DZERO_BUILD_C=OFF); else options+=(-DCMAKE_CXX_FLAGS_DEBUG=-O0); fi
            ;;
    esac
}

# build_leg LEG: configures and builds a leg that was set.
build_leg() {
    configure "$1" "$preset" "${options[@]}" || { echo "error: CMake could not configure the build"; return 1; }
    build_target "$target"
}

# build_ahead LEG: the same, with the processor time that tests leave.
build_ahead() {
    renice -n 19 "$BASHPID" >/dev/null 2>&1 || true
    build_leg "$1"
}

# run_leg LEG [NEXT]: configures, builds and tests a leg. While it tests, the leg NEXT is built: tests of threads and failures leave half of the processor time.
run_leg() {
    local leg=$1 next=${2:-} log=$build_root/$1/ctest.log settings=() tests built=0
    started=$SECONDS
    set_leg "$leg" || { finish "$leg" "skipped: $reason"; return 0; }
    say "$leg: building in $build_root/$leg with $(jobs) jobs"
    if [ -n "${beside[build_$leg]:-}" ]; then beside_result "build_$leg" || built=$?; else build_leg "$leg" || built=$?; fi
    [ "$built" -eq 0 ] || { fail "$leg" "the build failed"; return 0; }
    say "$leg: built in $((SECONDS - started)) s; testing"
    [ -z "$configurations" ] || settings=("ZERO_ORACLE_CONFIGURATIONS=$configurations")
    # One more than processors, because many tests wait: for time-outs, for slow files, and ranks for one another.
    tests=(env "${settings[@]}" ctest --test-dir "$build_root/$leg" --output-on-failure --no-tests=error --parallel "$(($(jobs) + 1))" "${arguments[@]}")
    # Tests of the release build measure times and memory, so nothing is built beside them.
    if [ "$leg" != release ] && [[ $next =~ ^(asan|tsan|torch)$ ]] && set_leg "$next"; then run_beside "build_$next" build_ahead "$next"; fi
    "${tests[@]}" 2>&1 | tee "$log" || true
    count "$leg" "$log"
}

for index in "${!legs[@]}"; do
    leg=${legs[index]}
    if [ "$leg" != bare ]; then
        run_leg "$leg" "${legs[index + 1]:-}"
        continue
    fi
    started=$SECONDS
    [ -n "${beside[bare]:-}" ] || run_beside bare bash "$root_dir/scripts/bare_root.sh"
    say "bare: waiting for it (its output so far: $build_root/bare.log)"
    beside_result bare || true
    count bare "$build_root/bare.log"
done

# The legs after a failure print thousands of lines, so repeat the failures at the end.
if [ "${#failures[@]}" -gt 0 ]; then
    say "failed"
    printf '%s\n' "${failures[@]}"
fi
say "results"
printf '%s\n' "${report[@]}"
total=$((passed_total + failed_total))
percent=$((100 * passed_total / (total > 0 ? total : 1)))
printf '%d%% tests passed, %d tests failed out of %d\n' "$percent" "$failed_total" "$total"
[ "$failed_total" -eq 0 ] && [ "$total" -gt 0 ]
