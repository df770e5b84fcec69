#!/usr/bin/env bash
# Builds and runs all device tests on a machine with a GPU, without network and without CMake, and prints one table last. Installs nothing.
#
# usage: scripts/gpu_check.sh [option...]
#   --catch2 DIR      folder that holds catch2/catch.hpp (Catch2 version 2); default: where the compiler looks
#   --benchmark DIR   folder that holds include/benchmark/benchmark.h and lib/ of Google Benchmark; default: where the compiler looks
#   --eigen DIR       folder that holds Eigen/Core (for the comparison with the host's training); default: where the compiler looks
#   --cli11 DIR       folder that holds CLI/CLI.hpp (for the training example); default: where the compiler looks
#   --nccl DIR        folder that holds include/nccl.h and lib/; default: the CUDA toolkit, then Python packages
#   --arch ARCH       for nvcc -arch; default: native
#   --build DIR       where to build; default: build/gpu
#   --no-sanitizer    leave compute-sanitizer out
#   --help            this text
# Settings: NVCC (nvcc), CXX (g++), ZERO_JOBS (parallel compilers). The exit status is 0 only if nothing failed; a missing prerequisite is listed and is not a failure.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
catch2=
benchmark=
eigen=
cli11=
nccl=
arch=native
build=$root/build/gpu
sanitizes=true
while [ "$#" -gt 0 ]; do
    case $1 in
        --catch2) catch2=$2; shift ;;
        --benchmark) benchmark=$2; shift ;;
        --eigen) eigen=$2; shift ;;
        --cli11) cli11=$2; shift ;;
        --nccl) nccl=$2; shift ;;
        --arch) arch=$2; shift ;;
        --build) build=$2; shift ;;
        --no-sanitizer) sanitizes=false ;;
        --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;;
        *) printf "error: unknown option '%s'\n" "$1" >&2; exit 2 ;;
    esac
    shift
done

rows=()
failures=0
# row WHAT RESULT SECONDS NOTE: adds a row to the table.
row() { rows+=("$(printf '%-44s %-8s %6s  %s' "$1" "$2" "$3" "$4")"); [ "$2" != FAILED ] || failures=$((failures + 1)); }

nvcc=${NVCC:-$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)}
cxx=${CXX:-g++}
[ -n "$nvcc" ] || { printf 'error: nvcc was not found; set NVCC\n' >&2; exit 3; }
toolkit=$(cd "$(dirname "$nvcc")/.." && pwd)
mkdir -p "$build/log"
include=(-I "$root/include" -I "$root/tests")
[ -z "$catch2" ] || include+=(-isystem "$catch2")
if ! printf '#include <catch2/catch.hpp>\n' | "$cxx" -std=c++20 "${include[@]}" -x c++ -E - >/dev/null 2>&1; then
    printf 'error: catch2/catch.hpp was not found; give its folder with --catch2 DIR\n' >&2
    exit 3
fi

device=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -n 1)
row "device" "$([ -n "$device" ] && echo found || echo missing)" "" "${device:-device tests will say 'skipped: no CUDA device'}"
row "nvcc" found "" "$("$nvcc" --version | sed -n 's/^Cuda compilation tools, //p')"

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

flags=(-std=c++20 --expt-relaxed-constexpr "-arch=$arch" "-DZERO_SOURCE_DIR=\"$root\"" "${include[@]}" "-diag-suppress=20014,20011")
"$cxx" -std=c++20 -O0 -w "${include[@]}" -c "$root/tests/support/main.cpp" -o "$build/main.o" || exit 1
# Flags of programs that need NCCL: header and library from one folder.
nccl_flags=()
if [ -n "$nccl" ]; then
    nccl_file=$(nccl_library "$nccl")
    nccl_folder=$(dirname "$nccl_file")
    nccl_flags=(-isystem "$nccl/include" "-Xlinker=$nccl_file" "-Xlinker=-rpath=$nccl_folder") # through -Xlinker, since nvcc rejects a file named .so.2, as in Python packages
fi

tests=()
for file in "$root"/tests/cuda/*_test.cu; do
    name=$(basename "$file" _test.cu)
    if [ "$name" = nccl_graph ] && [ -z "$nccl" ]; then
        row "test nccl_graph" missing "" "NCCL is not installed"
        continue
    fi
    tests+=("$name")
    extra=()
    [ "$name" != nccl_graph ] || extra=("${nccl_flags[@]}")
    [ "$name" != fast_math ] || extra=(-use_fast_math)
    [ "$name" != oracle ] || extra=(-DZERO_ALL_ORACLE_ROWS)
    compile "$name" "$nvcc" "${flags[@]}" "${extra[@]}" "$file" "$build/main.o" -o "$build/$name"
done
library_flags=(-Xcompiler=-fPIC -shared)
compile first "$nvcc" "${flags[@]}" "${library_flags[@]}" -DZERO_LIBRARY=first "$root/tests/cuda/two_libraries/library.cu" -o "$build/libfirst.so"
compile second "$nvcc" "${flags[@]/-arch=$arch/-gencode=arch=compute_80,code=[sm_80,compute_80]}" "${library_flags[@]}" -DZERO_LIBRARY=second "$root/tests/cuda/two_libraries/library.cu" \
    -o "$build/libsecond.so"
wait
compile two_libraries "$nvcc" "${flags[@]}" "$root/tests/cuda/two_libraries/two_libraries_test.cu" "$build/main.o" -o "$build/two_libraries" -L "$build" -lfirst -lsecond "-Xlinker=-rpath=$build"

if [ -n "$nccl" ]; then
    compile linked_nccl "$cxx" -std=c++20 "${include[@]}" -isystem "$toolkit/include" "$root/tests/cuda/linked_nccl.cpp" "$nccl_file" "-Wl,-rpath=$nccl_folder" \
        -L "$toolkit/lib64" -lcudart_static -ldl -lrt -pthread -o "$build/linked_nccl"
fi

compile cuda_minimal "$nvcc" "${flags[@]}" -O2 "$root/examples/cuda_minimal.cu" -o "$build/cuda_minimal"

# The training examples: on the device with all parameter types, and on the host.
examples=()
if has_include CLI/CLI.hpp "$cli11"; then
    program=(-std=c++20 -O2 "-DZERO_SOURCE_DIR=\"$root\"" -I "$root/include")
    [ -z "$cli11" ] || program+=(-isystem "$cli11")
    "$cxx" "${program[@]}" -c "$root/examples/gpt/program.cpp" -o "$build/program.o" || exit 1
    nccl_example=()
    [ -z "$nccl" ] || nccl_example=(-DGPT_HAS_NCCL "${nccl_flags[@]}")
    examples+=(cuda_train_gpt)
    compile cuda_train_gpt "$nvcc" "${flags[@]}" -O2 -DGPT_ALL_TYPES "$root/examples/cuda_train_gpt.cu" "$build/program.o" "${nccl_example[@]}" -lcublas \
        -o "$build/cuda_train_gpt"
    if has_include Eigen/Core "$eigen"; then
        examples+=(train_gpt)
        compile train_gpt "$cxx" "${program[@]}" -isystem "$eigen" "$root/examples/train_gpt.cpp" "$build/program.o" -pthread -o "$build/train_gpt"
    fi
fi
wait
tests+=(two_libraries)

# run ROW LOG COMMAND...: runs a command and adds a row.
run() {
    local what=$1 log=$build/log/$2 started=$SECONDS status
    shift 2
    timeout 1200 "$@" >"$log" 2>&1
    status=$?
    if [ "$status" -ne 0 ]; then
        row "$what" FAILED $((SECONDS - started)) "status $status, see $log"
    elif grep -q 'skipped: no CUDA device' "$log"; then
        row "$what" skipped $((SECONDS - started)) "no CUDA device"
    elif grep -q 'ERROR OCCURRED' "$log"; then # Google Benchmark exits with status 0 even then
        row "$what" FAILED $((SECONDS - started)) "$(grep -m 1 'ERROR OCCURRED' "$log")"
    else
        row "$what" passed $((SECONDS - started)) "$(grep -E 'assertions in|test cases:' "$log" | tail -n 1)"
    fi
}

# built NAME: succeeds if it was built; otherwise adds a row.
built() {
    local status seconds
    read -r status seconds <"$build/log/$1.built"
    [ "$status" -eq 0 ] || row "build of $1" FAILED "$seconds" "see $build/log/$1.build"
    [ "$status" -eq 0 ]
}

for name in "${tests[@]}"; do
    if built "$name"; then
        run "test $name" "$name.run" "$build/$name"
    fi
done

if [ -z "$nccl" ]; then
    row "test linked_nccl" missing "" "NCCL is not installed"
elif built linked_nccl; then
    run "test linked_nccl" linked_nccl.run "$build/linked_nccl"
fi

if built cuda_minimal; then
    run "example cuda_minimal" cuda_minimal.run "$build/cuda_minimal"
fi

# Prints the validation loss in the output of a training.
validation_loss() { sed -n 's/.*validation loss \([0-9.]*\).*/\1/p' "$1"; }
if [ "${#examples[@]}" -eq 0 ]; then
    row "example cuda_train_gpt" missing "" "CLI11 is not installed"
elif built cuda_train_gpt; then
    for dtype in float32 bfloat16 float16; do
        run "cuda_train_gpt --verify, $dtype" "verify.$dtype" "$build/cuda_train_gpt" --world 3 --verify 10 --accumulate 2 --dtype "$dtype"
    done
    if [ "${#examples[@]}" -eq 1 ]; then
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

sanitizer=$(command -v compute-sanitizer || ls "$toolkit/bin/compute-sanitizer" 2>/dev/null)
if ! $sanitizes; then
    row "compute-sanitizer" "left out" "" ""
elif [ -z "$sanitizer" ] || [ -z "$device" ]; then
    row "compute-sanitizer" missing "" "$([ -z "$sanitizer" ] && echo 'not installed' || echo 'no device')"
else
    for tool in memcheck initcheck racecheck; do
        for name in element_kernels inspect_kernels update_kernels engine; do
            [ -x "$build/$name" ] || continue
            run "$tool of $name" "$name.$tool" "$sanitizer" --tool "$tool" --error-exitcode 9 "$build/$name"
        done
    done
fi

benchmark_flags=()
[ -z "$benchmark" ] || benchmark_flags=(-I "$benchmark/include" -L "$benchmark/lib")
for file in "$root"/bench/cuda/*_bench.cu; do
    name=$(basename "$file" .cu)
    started=$SECONDS
    if ! "$nvcc" "${flags[@]}" -O2 "${benchmark_flags[@]}" "$file" -lbenchmark_main -lbenchmark -o "$build/$name" >"$build/log/$name.build" 2>&1; then
        if grep -q 'benchmark/benchmark.h\|cannot find -lbenchmark' "$build/log/$name.build"; then
            row "benchmark $name" missing "" "Google Benchmark is not installed"
        else
            row "build of $name" FAILED $((SECONDS - started)) "see $build/log/$name.build"
        fi
        continue
    fi
    run "benchmark $name" "$name.run" "$build/$name" --benchmark_repetitions=5 --benchmark_enable_random_interleaving=true \
        "--benchmark_out=$build/log/$name.json" # with all repetitions, since aggregates omit those that failed
    python3 "$root/scripts/bench_table.py" "$build/log/$name.json" || grep '_median' "$build/log/$name.run"
done

if ! python3 -c 'import torch' >/dev/null 2>&1; then
    row "peer torch_adamw" missing "" "PyTorch is not installed"
else
    run "peer torch_adamw" torch_adamw.run python3 "$root/bench/peers/torch_adamw.py" --device cuda --model gpt2-xl
fi

printf '\n%-44s %-8s %6s  %s\n' what result s note
printf '%s\n' "${rows[@]}"
printf '%d failures\n' "$failures"
[ "$failures" -eq 0 ]
