#!/usr/bin/env bash
# Builds and runs all device tests on a machine with a GPU, without network and without CMake. Prints a row as soon as each program has finished, and the time of each
# phase last. Installs nothing. Build and run may be two machines: copy the tree with its build folder, of which all paths are relative.
#
# usage: scripts/gpu_check.sh [option...]
#   --phase PHASE     'build', which needs no device, 'run', which needs no compiler, or 'all'; default: all
#   --require-device  fail if a probe finds no device, no memory pools or no graph capture, and if a program says that it was skipped
#   --deadline S      seconds for all programs together: what does not fit is listed as left out, which is a failure
#   --limit S         seconds for one program; default: 480
#   --catch2 DIR      folder that holds catch2/catch.hpp (Catch2 version 2); default: where the compiler looks
#   --benchmark DIR   folder that holds include/benchmark/benchmark.h and lib/ of Google Benchmark; default: where the compiler looks
#   --eigen DIR       folder that holds Eigen/Core (for the comparison with the host's training); default: where the compiler looks
#   --cli11 DIR       folder that holds CLI/CLI.hpp (for the training example); default: where the compiler looks
#   --nccl DIR        folder that holds include/nccl.h and lib/; default: the CUDA toolkit, then Python packages
#   --arch ARCH       for nvcc -arch; default: native, and sm_90 if there is no device
#   --build DIR       where to build, relative to the tree; default: build/gpu
#   --no-sanitizer    leave compute-sanitizer out
#   --help            this text
# Settings: NVCC (nvcc), CXX (g++), ZERO_JOBS (parallel compilers). The exit status is 0 only if nothing failed; a missing prerequisite is listed and is not a failure.
set -uo pipefail
phase=all
requires_device=false
deadline=
limit=480
catch2=
benchmark=
eigen=
cli11=
nccl=
arch=
build=build/gpu
sanitizes=true
refuse() { printf 'error: %s\n' "$1" >&2; exit 2; }
while [ "$#" -gt 0 ]; do
    case $1 in
        --require-device) requires_device=true; shift; continue ;;
        --no-sanitizer) sanitizes=false; shift; continue ;;
        --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;;
        --phase | --deadline | --limit | --catch2 | --benchmark | --eigen | --cli11 | --nccl | --arch | --build) ;;
        *) refuse "unknown option '$1'" ;;
    esac
    [ "$#" -gt 1 ] || refuse "$1 needs a value"
    case $1 in
        --phase) phase=$2 ;;
        --deadline) deadline=$2 ;;
        --limit) limit=$2 ;;
        --catch2) catch2=$(realpath -m "$2") ;;
        --benchmark) benchmark=$(realpath -m "$2") ;;
        --eigen) eigen=$(realpath -m "$2") ;;
        --cli11) cli11=$(realpath -m "$2") ;;
        --nccl) nccl=$(realpath -m "$2") ;;
        --arch) arch=$2 ;;
        --build) build=$2 ;;
    esac
    shift 2
done
[[ $limit =~ ^[1-9][0-9]*$ ]] || refuse "--limit $limit: a number of seconds above 0"
[[ ${deadline:-0} =~ ^[0-9]+$ ]] || refuse "--deadline $deadline: a number of seconds"
case $phase in build | run | all) ;; *) refuse "--phase is 'build', 'run' or 'all', not '$phase'" ;; esac

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
root=. # programs hold paths relative to the tree

failures=0
# row WHAT RESULT SECONDS NOTE: prints a row, and appends it to a file, which survives a run that is cut off.
row() {
    [ "$2" != FAILED ] || failures=$((failures + 1))
    printf '%-44s %-8s %6s  %s\n' "$1" "$2" "$3" "$4" | tee -a "$build/rows.txt"
}

phases=()
phase_name=
# begin_phase NAME: ends the phase before, whose time is printed last.
begin_phase() {
    [ -z "$phase_name" ] || phases+=("$(printf '%-44s %6d s' "$phase_name" $((SECONDS - phase_started)))")
    phase_name=$1
    phase_started=$SECONDS
}

# finish: prints the time of each phase; the exit status says whether something failed.
finish() {
    begin_phase ""
    printf '\n%-44s %6s\n' phase time
    printf '%s\n' "${phases[@]}"
    printf '%d failures\n' "$failures"
    [ "$failures" -eq 0 ]
}

mkdir -p "$build/log"
printf '\n%-44s %-8s %6s  %s\n' what result s note | tee "$build/rows.txt"
device=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -n 1)
[ -n "$arch" ] || { [ -n "$device" ] && arch=native || arch=sm_90; }
row "device" "$([ -n "$device" ] && echo found || echo missing)" "" "${device:-device tests will say 'skipped: no CUDA device'}"

nvcc=${NVCC:-$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)}
cxx=${CXX:-g++}
[ -n "$nvcc" ] || [ "$phase" = run ] || { printf 'error: nvcc was not found; set NVCC\n' >&2; exit 3; }
toolkit=$([ -n "$nvcc" ] && cd "$(dirname "$nvcc")/.." && pwd)
include=(-I "$root/include" -I "$root/tests")
[ -z "$catch2" ] || include+=(-isystem "$catch2")
if [ "$phase" != run ] && ! printf '#include <catch2/catch.hpp>\n' | "$cxx" -std=c++20 "${include[@]}" -x c++ -E - >/dev/null 2>&1; then
    printf 'error: catch2/catch.hpp was not found; give its folder with --catch2 DIR\n' >&2
    exit 3
fi

[ "$phase" = run ] || row "nvcc" found "" "$("$nvcc" --version | sed -n 's/^Cuda compilation tools, //p')"

# nccl_library FOLDER: prints the NCCL library in it. As in cmake/FindNCCL.cmake the folder must also hold the header, and neither may be a link to another installation.
nccl_library() {
    local root library file
    root=$(realpath -e "$1" 2>/dev/null) || return 1
    library=$(ls "$root"/lib{64,,/*}/libnccl.so{,.2} 2>/dev/null | head -n 1)
    for file in "$root/include/nccl.h" "$library"; do
        case $(realpath -e "$file" 2>/dev/null) in "$root"/*) ;; *) return 1 ;; esac
    done
    printf '%s\n' "$library"
}
if [ -n "$nccl" ]; then
    nccl_library "$nccl" >/dev/null || { printf "error: '%s' does not hold both include/nccl.h and libnccl.so\n" "$nccl" >&2; exit 3; }
else
    for candidate in "$toolkit" /usr $(python3 -c 'import importlib.util as u; s = u.find_spec("nvidia.nccl"); print(*(s.submodule_search_locations if s else []))' 2>/dev/null); do
        ! nccl_library "$candidate" >/dev/null || { nccl=$candidate; break; }
    done
fi
row "NCCL" "$([ -n "$nccl" ] && echo found || echo missing)" "" "${nccl:-not installed}"

# has_include HEADER FOLDER...: succeeds if the host compiler finds the header.
has_include() {
    local header=$1 folder folders=()
    shift
    for folder in "$@"; do [ -z "$folder" ] || folders+=(-isystem "$folder"); done
    printf '#include <%s>\n' "$header" | "$cxx" -std=c++20 "${folders[@]}" -x c++ -E - >/dev/null 2>&1
}
[ -n "$eigen" ] || eigen=/usr/include/eigen3

# compile OUT COMMAND...: runs a compiler in the background, at most `jobs` at once.
jobs=${ZERO_JOBS:-$(nproc 2>/dev/null || echo 2)}
compile() {
    local out=$1
    shift
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n || true; done
    ( started=$SECONDS; "$@" >"$build/log/$out.build" 2>&1; echo "$? $((SECONDS - started))" >"$build/log/$out.built" ) &
}

build_all() {
    local flags name file extra library_flags program nccl_example benchmark_flags
    flags=(-std=c++20 -Xlinker=-s --expt-relaxed-constexpr "-arch=$arch" "-DZERO_SOURCE_DIR=\"$root\"" "${include[@]}" "-diag-suppress=20014,20011")
    begin_phase build
    rm -f "$build"/log/*.built
    "$cxx" -std=c++20 -O0 -w "${include[@]}" -c "$root/tests/support/main.cpp" -o "$build/main.o" || exit 1
    # Flags of programs that need NCCL: header and library from one folder.
    nccl_flags=()
    if [ -n "$nccl" ]; then
        nccl_file=$(nccl_library "$nccl")
        nccl_folder=$(dirname "$nccl_file")
        nccl_flags=(-isystem "$nccl/include" "-Xlinker=$nccl_file" "-Xlinker=-rpath=$nccl_folder") # through -Xlinker, since nvcc rejects a file named .so.2, as in Python packages
    fi

    for file in "$root"/tests/cuda/*_test.cu; do
        name=$(basename "$file" _test.cu)
        if [ "$name" = nccl_graph ] && [ -z "$nccl" ]; then
            continue
        fi
        extra=()
        [ "$name" != nccl_graph ] || extra=("${nccl_flags[@]}")
        [ "$name" != fast_math ] || extra=(-use_fast_math)
        [ "$name" != oracle ] || extra=(-DZERO_ALL_ORACLE_ROWS)
        compile "$name" "$nvcc" "${flags[@]}" "${extra[@]}" "$file" "$build/main.o" -o "$build/$name"
    done
    library_flags=(-Xcompiler=-fPIC -shared)
    compile first "$nvcc" "${flags[@]}" "${library_flags[@]}" -DZERO_LIBRARY=first "$root/tests/cuda/two_libraries/library.cu" -o "$build/libfirst.so"
    compile second "$nvcc" "${flags[@]/-arch=$arch/-gencode=arch=compute_80,code=[sm_80,compute_80]}" "${library_flags[@]}" -DZERO_LIBRARY=second -DCUB_WRAPPED_NAMESPACE=second_cub "$root/tests/cuda/two_libraries/library.cu" \
        -o "$build/libsecond.so"
    wait
    compile two_libraries "$nvcc" "${flags[@]}" "$root/tests/cuda/two_libraries/two_libraries_test.cu" "$build/main.o" -o "$build/two_libraries" -L "$build" -lfirst -lsecond "-Xlinker=-rpath=\$ORIGIN"

    if [ -n "$nccl" ]; then
        compile linked_nccl "$cxx" -std=c++20 "${include[@]}" -isystem "$toolkit/include" "$root/tests/cuda/linked_nccl.cpp" "$nccl_file" "-Wl,-rpath=$nccl_folder" \
            -L "$toolkit/lib64" -lcudart_static -ldl -lrt -pthread -o "$build/linked_nccl"
    fi

    compile gpu_probe "$nvcc" -std=c++20 "-arch=$arch" -Xlinker=-s "$root/tests/cuda/gpu_probe.cu" -ldl -o "$build/gpu_probe"
    compile cuda_minimal "$nvcc" "${flags[@]}" -O2 "$root/examples/cuda_minimal.cu" -o "$build/cuda_minimal"
    compile cuda_thrust "$nvcc" "${flags[@]}" -O2 "$root/examples/cuda_thrust.cu" -o "$build/cuda_thrust"

    # The training examples: on the device with all parameter types, and on the host.
    if has_include CLI/CLI.hpp "$cli11"; then
        program=(-std=c++20 -O2 "-DZERO_SOURCE_DIR=\"$root\"" -I "$root/include")
        [ -z "$cli11" ] || program+=(-isystem "$cli11")
        "$cxx" "${program[@]}" -c "$root/examples/gpt/program.cpp" -o "$build/program.o" || exit 1
        nccl_example=()
        [ -z "$nccl" ] || nccl_example=(-DGPT_HAS_NCCL "${nccl_flags[@]}")
        compile cuda_train_gpt "$nvcc" "${flags[@]}" -O2 -DGPT_ALL_TYPES "$root/examples/cuda_train_gpt.cu" "$build/program.o" "${nccl_example[@]}" -lcublas \
            -o "$build/cuda_train_gpt"
        if has_include Eigen/Core "$eigen"; then
            compile train_gpt "$cxx" "${program[@]}" -isystem "$eigen" "$root/examples/train_gpt.cpp" "$build/program.o" -pthread -o "$build/train_gpt"
        fi
    fi
    # The library of benchmarks is copied beside the programs, which look for it there.
    benchmark_flags=("-Xlinker=-rpath=\$ORIGIN")
    if [ -n "$benchmark" ]; then
        benchmark_flags+=(-I "$benchmark/include" -L "$benchmark/lib")
        cp -L "$benchmark"/lib/libbenchmark*.so* "$build" 2>/dev/null
    fi
    for file in "$root"/bench/cuda/*_bench.cu; do
        compile "$(basename "$file" .cu)" "$nvcc" "${flags[@]}" -O2 "${benchmark_flags[@]}" "$file" -lbenchmark_main -lbenchmark -o "$build/$(basename "$file" .cu)"
    done
    wait
}

[ "$phase" = run ] || build_all
if [ "$phase" = build ]; then
    begin_phase "what was built"
    for file in "$build"/log/*.built; do
        read -r status seconds <"$file"
        row "build of $(basename "$file" .built)" "$([ "$status" -eq 0 ] && echo passed || echo FAILED)" "$seconds" "$([ "$status" -eq 0 ] || echo "see ${file%.built}.build")"
    done
    finish
    exit
fi

run_started=$SECONDS
[ -z "$nccl" ] || export LD_LIBRARY_PATH=$(dirname "$(nccl_library "$nccl")"):${LD_LIBRARY_PATH:-}

# run ROW LOG COMMAND...: runs a command and prints a row.
run() {
    local what=$1 log=$build/log/$2 started=$SECONDS status seconds=$limit left
    shift 2
    if [ -n "$deadline" ]; then
        left=$((deadline - (SECONDS - run_started)))
        if [ "$left" -lt 1 ]; then
            row "$what" FAILED 0 "left out: the deadline of $deadline s has passed"
            return
        fi
        [ "$left" -ge "$seconds" ] || seconds=$left
    fi
    timeout "$seconds" "$@" >"$log" 2>&1
    status=$?
    if [ "$status" -eq 124 ]; then
        row "$what" FAILED $((SECONDS - started)) "stopped after $seconds s, see $log"
    elif [ "$status" -ne 0 ]; then
        row "$what" FAILED $((SECONDS - started)) "status $status, see $log"
    elif grep -q 'skipped: no CUDA device' "$log"; then
        row "$what" "$($requires_device && echo FAILED || echo skipped)" $((SECONDS - started)) "no CUDA device"
    elif grep -q 'ERROR OCCURRED' "$log"; then # Google Benchmark exits with status 0 even then
        row "$what" FAILED $((SECONDS - started)) "$(grep -m 1 'ERROR OCCURRED' "$log")"
    else
        row "$what" passed $((SECONDS - started)) "$(grep -E 'assertions in|test cases:|^probe:' "$log" | tail -n 1)"
    fi
}

# repeat COUNT COMMAND...: runs a command until it fails, at most COUNT times.
repeat() {
    local count
    for ((count = $1; count > 0; --count)); do "${@:2}" || return; done
}
export -f repeat

# is_known NAME: succeeds if its build was tried.
is_known() { [ -e "$build/log/$1.built" ]; }

# built NAME: succeeds if it was built; otherwise prints a row.
built() {
    local status seconds
    is_known "$1" || return
    read -r status seconds <"$build/log/$1.built"
    [ "$status" -eq 0 ] || row "build of $1" FAILED "$seconds" "see $build/log/$1.build"
    [ "$status" -eq 0 ]
}

# run_tests NAME...: runs device tests.
run_tests() {
    local name
    for name in "$@"; do
        if built "$name"; then run "test $name" "$name.run" "$build/$name"; fi
    done
}

begin_phase probe
if [ "$phase" = run ] && ! is_known gpu_probe; then
    printf "error: '%s' holds no programs; run --phase build first\n" "$build" >&2
    exit 3
fi
if built gpu_probe; then
    before=$failures
    run "probe: device, memory pools, capture" gpu_probe.run "$build/gpu_probe"
    if $requires_device && [ "$failures" -ne "$before" ]; then
        cat "$build/log/gpu_probe.run"
        finish
        exit 4
    fi
fi

begin_phase "bits of the kernels"
first=(cub exact_sum exact_run element_kernels inspect_kernels update_kernels fast_math two_libraries)
run_tests "${first[@]}"

begin_phase "engine, loopback, delays, graphs"
second=(engine loopback delays checkpoint)
run_tests "${second[@]}"
if built graph; then run "test graph, 20 times" graph.run bash -c 'repeat 20 "$0"' "$build/graph"; fi
for file in "$root"/tests/cuda/*_test.cu; do # what the lists do not name, but the oracle
    name=$(basename "$file" _test.cu)
    case " ${first[*]} ${second[*]} graph nccl_graph oracle " in *" $name "*) ;; *) run_tests "$name" ;; esac
done
if built cuda_minimal; then run "example cuda_minimal" cuda_minimal.run "$build/cuda_minimal"; fi
if built cuda_thrust; then run "example cuda_thrust" cuda_thrust.run "$build/cuda_thrust"; fi

begin_phase benchmarks
for name in kernels_bench step_bench; do
    is_known "$name" || continue
    if grep -q 'benchmark/benchmark.h\|cannot find -lbenchmark' "$build/log/$name.build"; then
        row "benchmark $name" missing "" "Google Benchmark is not installed"
    elif built "$name"; then
        run "benchmark $name" "$name.run" "$build/$name" --benchmark_repetitions=5 --benchmark_enable_random_interleaving=true \
            "--benchmark_out=$build/log/$name.json" # with all repetitions, since aggregates omit those that failed
        python3 "$root/scripts/bench_table.py" "$build/log/$name.json" 2>/dev/null || grep '_median' "$build/log/$name.run"
    fi
done

begin_phase "linked NCCL"
if [ -z "$nccl" ]; then
    row "test linked_nccl" missing "" "NCCL is not installed"
    row "test nccl_graph" missing "" "NCCL is not installed"
else
    if built linked_nccl; then run "test linked_nccl" linked_nccl.run "$build/linked_nccl"; fi
    run_tests nccl_graph
fi

begin_phase "training example"
# Prints the validation loss in the output of a training.
validation_loss() { sed -n 's/.*validation loss \([0-9.]*\).*/\1/p' "$1"; }
if ! is_known cuda_train_gpt; then
    row "example cuda_train_gpt" missing "" "CLI11 is not installed"
elif built cuda_train_gpt; then
    for dtype in float32 bfloat16 float16; do
        run "cuda_train_gpt --verify, $dtype" "verify.$dtype" "$build/cuda_train_gpt" --world 3 --verify 10 --accumulate 2 --dtype "$dtype"
    done
    run "cuda_train_gpt --timeline" timeline.run "$build/cuda_train_gpt" --world 2 --steps 20 --timeline "$build/log/timeline.json"
    if ! is_known train_gpt; then
        row "cuda_train_gpt beside train_gpt" missing "" "Eigen is not installed"
    elif built train_gpt; then
        run "cuda_train_gpt, 300 steps" example.run "$build/cuda_train_gpt" --world 2 --steps 300
        if [ -n "$device" ]; then
            run "train_gpt, 300 steps" host_example.run "$build/train_gpt" --world 2 --steps 300
            row "validation losses of the two" "$(awk -v a="$(validation_loss "$build/log/example.run")" -v b="$(validation_loss "$build/log/host_example.run")" \
                'BEGIN { d = a - b; print (a > 0 && b > 0 && d < 0.05 && d > -0.05 ? "passed" : "FAILED") }')" "" \
                "$(validation_loss "$build/log/example.run") and $(validation_loss "$build/log/host_example.run")"
        fi
    fi
    devices=$(nvidia-smi -L 2>/dev/null | wc -l)
    if [ -z "$nccl" ] || [ "$devices" -lt 2 ] || ! command -v torchrun >/dev/null; then
        row "cuda_train_gpt over NCCL" missing "" "needs NCCL, torchrun and two devices; there are $devices"
    else
        run "cuda_train_gpt over NCCL" nccl_example.run torchrun --nproc-per-node 2 --no-python "$build/cuda_train_gpt" --steps 50
    fi
fi

begin_phase compute-sanitizer
sanitizer=$(command -v compute-sanitizer || ls "$toolkit/bin/compute-sanitizer" 2>/dev/null)
if ! $sanitizes; then
    row "compute-sanitizer" "left out" "" ""
elif [ -z "$sanitizer" ] || [ -z "$device" ]; then
    row "compute-sanitizer" missing "" "$([ -z "$sanitizer" ] && echo 'not installed' || echo 'no device')"
else
    for tool in memcheck racecheck synccheck initcheck; do
        for name in element_kernels inspect_kernels update_kernels engine; do
            [ -x "$build/$name" ] || continue
            run "$tool of $name" "$name.$tool" "$sanitizer" --tool "$tool" --error-exitcode 9 "$build/$name"
        done
    done
fi

begin_phase "PyTorch and the oracle"
if ! python3 -c 'import torch' >/dev/null 2>&1; then
    row "peer torch_adamw" missing "" "PyTorch is not installed"
else
    run "peer torch_adamw" torch_adamw.run python3 "$root/bench/peers/torch_adamw.py" --device cuda --model gpt2-xl
fi
run_tests oracle

finish
