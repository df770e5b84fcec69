#!/usr/bin/env bash
# Builds and runs all device tests on a machine with a GPU, without network and without CMake. Installs nothing. Build and run may be two machines: --phase build makes
# one archive, build/gpu.tar.xz, which holds all that --phase run needs. Unpack it anywhere, or over a checkout. Each program has a limit of its own, and a row is printed
# as soon as it has ended. A call ends within --call-seconds, and the next call goes on with the rows that are left. The time of each phase is printed last.
#
# usage: scripts/gpu_check.sh [option...]
#   --phase PHASE      'build', which needs no device, 'run', which needs no compiler, or 'all'; default: all
#   --only PART,...    these parts of the run alone: probe, bits, bench, engine, nccl, train, sanitizer, peer, oracle; default: all. They run in the order that finds most
#                      in the least time: kernels first, then whole steps, then NCCL, training and compute-sanitizer, and last the oracle
#   --again            run rows again that ended in an earlier call
#   --call-seconds S   seconds of one call of the run; default: 600
#   --limit S          seconds for one test; default: 60
#   --long-limit S     seconds for one benchmark, training, sanitized test or oracle; default: 240
#   --require-device   fail if a probe finds no device, no memory pools or no graph capture, and if a program says that it was skipped
#   --no-sanitizer     leave compute-sanitizer out
#   --results DIR      folder for rows, logs and tables of all calls; default: results/ in the build folder
#   --archive-limit M  MiB that the archive may have; default: 64
#   --carry-nccl       put NCCL's library into the archive, with the code of --arch alone, for a machine that has an older one
#   --catch2 DIR       folder that holds catch2/catch.hpp (Catch2 version 2); default: where the compiler looks
#   --benchmark DIR    folder that holds include/benchmark/benchmark.h and lib/ of Google Benchmark; default: where the compiler looks
#   --eigen DIR        folder that holds Eigen/Core (for the comparison with the host's training); default: where the compiler looks
#   --cli11 DIR        folder that holds CLI/CLI.hpp (for the training example); default: where the compiler looks
#   --nccl DIR         folder that holds include/nccl.h and lib/; default: the CUDA toolkit, then Python packages
#   --arch ARCH        for nvcc -arch; default: native, and sm_90 if there is no device
#   --build DIR        where to build, relative to the tree; default: build/gpu
#   --help             this text
# Settings: NVCC (nvcc), CXX (g++), ZERO_JOBS (parallel compilers). The exit status is 0 if every row has ended and none failed, 1 if one failed in this or an earlier
# call, and 5 if rows are left for the next call. A missing prerequisite is listed and is not a failure.
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
parts=(probe bits bench engine nccl train sanitizer peer oracle)
reserve=15 # seconds of a call in which no program runs: two signals to one that hangs, and tables
phase=all
only=
again=false
call_seconds=600
limit=60
long_limit=240
requires_device=false
sanitizes=true
results=
archive_limit=64
carries_nccl=false
catch2=
benchmark=
eigen=
cli11=
nccl=
arch=
build=build/gpu
while [ "$#" -gt 0 ]; do
    case $1 in
        --again) again=true; shift; continue ;;
        --require-device) requires_device=true; shift; continue ;;
        --no-sanitizer) sanitizes=false; shift; continue ;;
        --carry-nccl) carries_nccl=true; shift; continue ;;
        --help) usage; exit 0 ;;
        --phase | --only | --call-seconds | --limit | --long-limit | --results | --archive-limit | --catch2 | --benchmark | --eigen | --cli11 | --nccl | --arch | --build) ;;
        *) refuse "unknown option '$1'" ;;
    esac
    [ "$#" -gt 1 ] || refuse "$1 needs a value"
    case $1 in
        --phase) phase=$2 ;;
        --only) only=$2 ;;
        --call-seconds) call_seconds=$2 ;;
        --limit) limit=$2 ;;
        --long-limit) long_limit=$2 ;;
        --results) results=$2 ;;
        --archive-limit) archive_limit=$2 ;;
        --catch2) catch2=$(realpath -m "$2") ;;
        --benchmark) benchmark=$(realpath -m "$2") ;;
        --eigen) eigen=$(realpath -m "$2") ;;
        --cli11) cli11=$(realpath -m "$2") ;;
        --nccl) nccl=$(realpath -m "$2") ;;
        --arch) arch=$2 ;;
        --build) build=$2 ;;
    esac
    [ -n "$2" ] || refuse "$1 needs a value"
    shift 2
done
for option in "--limit $limit" "--long-limit $long_limit"; do [[ $option =~ \ [1-9][0-9]*$ ]] || refuse "$option: a number of seconds above 0"; done
[[ $call_seconds =~ ^[0-9]+$ ]] || refuse "--call-seconds $call_seconds: a number of seconds"
[[ $archive_limit =~ ^[1-9][0-9]*$ ]] || refuse "--archive-limit $archive_limit: a number of MiB above 0"
case $phase in build | run | all) ;; *) refuse "--phase is 'build', 'run' or 'all', not '$phase'" ;; esac
for part in ${only//,/ }; do
    case " ${parts[*]} " in *" $part "*) ;; *) refuse "--only takes some of ${parts[*]}, not '$part'" ;; esac
done
[ "$phase" != run ] || ! $carries_nccl || refuse "--carry-nccl belongs to --phase build"

cd "$root_dir" || exit 1
root=. # programs hold paths relative to the tree
results=${results:-$build/results}

failures=0
run_started=0 # the time of a call counts from the beginning of the script, but for that of a build
# row WHAT RESULT SECONDS NOTE: prints a row, and appends it to a file, which survives a run that is cut off.
row() {
    [ "$2" != FAILED ] || failures=$((failures + 1))
    printf '%-44s %-8s %6s  %s\n' "$1" "$2" "$3" "$4" | tee -a "$rows_file"
}

phases=()
phase_name=
# begin_phase NAME: ends the phase before, whose time is printed last.
begin_phase() {
    [ -z "$phase_name" ] || phases+=("$(printf '%-44s %6d s' "$phase_name" $((SECONDS - phase_started)))")
    phase_name=$1
    phase_started=$SECONDS
}

# finish: prints the time of each phase, and what is left for another call. The exit status says whether something failed or is left.
left=()
finish() {
    begin_phase ""
    {
        printf '\n%-44s %6s\n' phase time
        printf '%s\n' "${phases[@]}"
        [ "${#left[@]}" -eq 0 ] || { printf '%d rows are left for the next call, which goes on there:' "${#left[@]}"; printf ' %s;' "${left[@]}"; printf '\n'; }
        printf '%d failures\n' "$failures"
    } | tee -a "$rows_file"
    [ "$failures" -eq 0 ] || return 1
    [ "${#left[@]}" -eq 0 ] || return 5
}

if [ "$phase" = run ]; then
    [ -e "$build/programs.txt" ] || { printf "error: '%s' holds no programs; run --phase build first, or unpack its archive\n" "$build" >&2; exit 3; }
    mkdir -p "$results/log"
    rows_file=$results/rows.txt
else
    mkdir -p "$build/log"
    rows_file=$build/rows.txt
    : >"$rows_file"
fi
printf '\n%-44s %-8s %6s  %s\n' what result s note | tee -a "$rows_file"

device=$(timeout 30 nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -n 1)
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
if [ "$phase" = run ]; then
    : # the programs and the linker say which libraries they need
elif [ -n "$nccl" ]; then
    nccl_library "$nccl" >/dev/null || { printf "error: '%s' does not hold both include/nccl.h and libnccl.so\n" "$nccl" >&2; exit 3; }
else
    for candidate in "$toolkit" /usr $(python3 -c 'import importlib.util as u; s = u.find_spec("nvidia.nccl"); print(*(s.submodule_search_locations if s else []))' 2>/dev/null); do
        ! nccl_library "$candidate" >/dev/null || { nccl=$candidate; break; }
    done
fi
[ "$phase" = run ] || row "NCCL" "$([ -n "$nccl" ] && echo found || echo missing)" "" "${nccl:-not installed}"

# has_include HEADER FOLDER...: succeeds if the host compiler finds the header.
has_include() {
    local header=$1 folder folders=()
    shift
    for folder in "$@"; do [ -z "$folder" ] || folders+=(-isystem "$folder"); done
    printf '#include <%s>\n' "$header" | "$cxx" -std=c++20 "${folders[@]}" -x c++ -E - >/dev/null 2>&1
}
[ -n "$eigen" ] || eigen=/usr/include/eigen3

# compile OUT COMMAND...: runs a compiler in the background, at most `most_jobs` at once.
most_jobs=$(jobs)
running=0
compile() {
    local out=$1
    shift
    [ "$running" -lt "$most_jobs" ] || { wait -n; running=$((running - 1)); }
    ( started=$SECONDS; "$@" >"$build/log/$out.build" 2>&1; echo "$? $((SECONDS - started))" >"$build/log/$out.built" ) &
    running=$((running + 1))
}
wait_for_compilers() { wait; running=0; }

build_all() {
    local flags name file extra library_flags program nccl_example benchmark_flags
    flags=(-std=c++20 -Xlinker=-s "-arch=$arch" "-DZERO_SOURCE_DIR=\"$root\"" "${include[@]}" "-diag-suppress=20014,20011")
    begin_phase build
    rm -rf "$build"/log/*.built "${build:?}/lib" "$build/programs.txt"
    mkdir -p "$build/lib"
    "$cxx" -std=c++20 -O0 -w "${include[@]}" -c "$root/tests/support/main.cpp" -o "$build/main.o" || exit 1
    compile gpu_probe "$nvcc" -std=c++20 "-arch=$arch" -Xlinker=-s "$root/tests/cuda/gpu_probe.cu" -ldl -o "$build/gpu_probe" # first, because a run begins with it
    # Flags of programs that need NCCL: header and library from one folder.
    nccl_flags=()
    if [ -n "$nccl" ]; then
        nccl_file=$(nccl_library "$nccl")
        nccl_folder=$(dirname "$nccl_file")
        nccl_flags=(-isystem "$nccl/include" "-Xlinker=$nccl_file" "-Xlinker=-rpath=$nccl_folder") # through -Xlinker, since nvcc rejects a file named .so.2, as in Python packages
    fi

    for file in "$root"/tests/cuda/*_test.cu; do
        name=$(basename "$file" _test.cu)
        if { [[ $name = nccl_* ]] && [ -z "$nccl" ]; } || { [ "$name" = gpt_model ] && ! has_include Eigen/Core "$eigen"; }; then
            continue
        fi
        extra=()
        [ "$name" != gpt_model ] || extra=(-I "$root/examples" -isystem "$eigen" -diag-suppress=20012 -lcublas)
        [[ $name != nccl_* ]] || extra=("${nccl_flags[@]}")
        [ "$name" != fast_math ] || extra=(-use_fast_math)
        [ "$name" != oracle ] || extra=(-DZERO_ALL_ORACLE_ROWS)
        compile "$name" "$nvcc" "${flags[@]}" "${extra[@]}" "$file" "$build/main.o" -o "$build/$name"
    done
    library_flags=(-Xcompiler=-fPIC -shared)
    compile first "$nvcc" "${flags[@]}" "${library_flags[@]}" -DZERO_LIBRARY=first "$root/tests/cuda/two_libraries/library.cu" -o "$build/libfirst.so"
    compile second "$nvcc" "${flags[@]/-arch=$arch/-gencode=arch=compute_80,code=[sm_80,compute_80]}" "${library_flags[@]}" -DZERO_LIBRARY=second -DCUB_WRAPPED_NAMESPACE=second_cub "$root/tests/cuda/two_libraries/library.cu" \
        -o "$build/libsecond.so"
    wait_for_compilers
    compile two_libraries "$nvcc" "${flags[@]}" "$root/tests/cuda/two_libraries/two_libraries_test.cu" "$build/main.o" -o "$build/two_libraries" -L "$build" -lfirst -lsecond "-Xlinker=-rpath=\$ORIGIN"

    if [ -n "$nccl" ]; then
        compile linked_nccl "$cxx" -std=c++20 "${include[@]}" -isystem "$toolkit/include" "$root/tests/cuda/linked_nccl.cpp" "$nccl_file" "-Wl,-rpath=$nccl_folder" \
            -L "$toolkit/lib64" -lcudart_static -ldl -lrt -pthread -s -o "$build/linked_nccl"
    fi

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
            compile train_gpt "$cxx" "${program[@]}" -isystem "$eigen" "$root/examples/train_gpt.cpp" "$root/examples/gpt/host_model.cpp" "$build/program.o" -pthread -s -o "$build/train_gpt"
        fi
    fi
    # The library of benchmarks is copied into lib/, where programs look for it.
    benchmark_flags=()
    if [ -n "$benchmark" ]; then
        benchmark_flags+=(-I "$benchmark/include" -L "$benchmark/lib")
        cp -L "$benchmark"/lib/libbenchmark.so* "$build/lib" 2>/dev/null
    fi
    for file in "$root"/bench/cuda/*_bench.cu; do
        name=$(basename "$file" .cu)
        extra=()
        if [ "$name" = nccl_bench ]; then
            [ -n "$nccl" ] || continue
            extra=("${nccl_flags[@]}")
        fi
        compile "$name" "$nvcc" "${flags[@]}" -O2 "${extra[@]}" "${benchmark_flags[@]}" "$file" -lbenchmark_main -lbenchmark -o "$build/$name"
    done
    wait_for_compilers
}

# pack: makes the archive: programs that were built, their libraries, the scripts of the run, and the text that trainings read.
pack() {
    local archive=$build.tar.xz name status started=$SECONDS files=() bytes
    if $carries_nccl; then
        python3 -B scripts/slim_fatbin.py "$nccl_file" "$build/lib/libnccl.so.2" "$arch" >"$build/log/slim_fatbin.run" 2>&1 || { row "NCCL in the archive" FAILED "" "$(tail -n 1 "$build/log/slim_fatbin.run")"; return; }
        row "NCCL in the archive" passed $((SECONDS - started)) "$(tail -n 1 "$build/log/slim_fatbin.run")"
    fi
    while read -r name status _; do
        [ "$status" -ne 0 ] || case $name in first | second) files+=("./lib$name.so") ;; *) files+=("./$name") ;; esac
    done <"$build/programs.txt"
    files+=(./lib ./programs.txt ./build_id)
    tar -cf "$archive" --use-compress-program "xz -T$most_jobs" --transform 's,^\./,build/gpu/,' -C "$build" "${files[@]}" -C "$root_dir" \
        scripts/{gpu_check.sh,lib.sh,bench_table.py,bench_plot.py} bench/peers/{torch_adamw.py,models.py} include/zero README.md \
        || { row archive FAILED $((SECONDS - started)) "tar could not make $archive"; return; }
    bytes=$(stat -c %s "$archive")
    row archive "$([ "$bytes" -le $((archive_limit << 20)) ] && echo passed || echo FAILED)" $((SECONDS - started)) \
        "$archive, $(awk -v b="$bytes" 'BEGIN { printf "%.1f", b / 1048576 }') MiB of $archive_limit (--archive-limit)"
}

if [ "$phase" != run ]; then
    ! $carries_nccl || [ -n "$nccl" ] || { printf 'error: --carry-nccl: NCCL was not found; give its folder with --nccl DIR\n' >&2; exit 3; }
    ! $carries_nccl || [[ $arch =~ ^sm_[0-9]+a?$ ]] || { printf 'error: --carry-nccl needs one architecture, such as --arch sm_90, not %s\n' "$arch" >&2; exit 3; }
    build_all
    date -u "+%Y-%m-%dT%H:%M:%SZ $$" >"$build/build_id"
    begin_phase "what was built"
    for file in "$build"/log/*.built; do
        name=$(basename "$file" .built)
        read -r status seconds <"$file"
        printf '%s %d %d\n' "$name" "$status" "$seconds" >>"$build/programs.txt"
        row "build of $name" "$([ "$status" -eq 0 ] && echo passed || echo FAILED)" "$seconds" "$([ "$status" -eq 0 ] || echo "see ${file%.built}.build")"
    done
    # A bare machine has no Google Benchmark.
    while read -r name _ file _; do cp -L "$file" "$build/lib/$name"; done < <(ldd "$build"/*_bench 2>/dev/null | awk '/libbenchmark.* => \//')
    if [ "$phase" = build ]; then
        pack
        finish
        exit
    fi
    failures=0 # the run counts programs that were not built once more
    run_started=$SECONDS
    mkdir -p "$results/log"
    rows_file=$results/rows.txt
fi

# What earlier calls left: a journal with a line for each row that was begun, and one with its result when it had ended. Rows of another build do not count.
declare -A result_of=() times_begun=()
if ! cmp -s "$build/build_id" "$results/build_id"; then
    rm -f "$results/journal.txt"
    cp "$build/build_id" "$results/build_id"
fi
touch "$results/journal.txt"
probe_row="probe: device, memory pools, capture"
while ! $again && IFS=$'\t' read -r result what; do
    if [ "$what" = "$probe_row" ]; then
        continue # each call may have another machine
    elif [ "$result" = begun ]; then
        times_begun[$what]=$((${times_begun[$what]:-0} + 1))
    else
        result_of[$what]=$result
    fi
done <"$results/journal.txt"
if [ "${#result_of[@]}" -gt 0 ]; then
    failures=$(printf '%s\n' "${result_of[@]}" | grep -c FAILED)
    printf '%d rows ended in earlier calls, %d of them failed: %s\n' "${#result_of[@]}" "$failures" "$results/rows.txt"
fi
timeout 30 nvidia-smi -q >"$results/nvidia-smi.txt" 2>/dev/null

# Libraries that the linker does not find by itself: those of the archive, then folders of the toolkit and of Python packages that hold one.
LD_LIBRARY_PATH=$(realpath -m "$build/lib")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
add_library_folders() {
    local program library folder found candidates
    candidates=("$toolkit/lib64" "$toolkit/lib" "${CUDA_HOME:-/usr/local/cuda}/lib64" /usr/local/cuda*/lib64 $(python3 -c 'import glob, nvidia; print(*(f for p in nvidia.__path__ for f in glob.glob(p + "/*/lib")))' 2>/dev/null))
    while read -r library; do
        found=
        for folder in "${candidates[@]}"; do
            [ -e "$folder/$library" ] || continue
            found=$folder
            case :$LD_LIBRARY_PATH: in *":$folder:"*) ;; *) LD_LIBRARY_PATH+=:$folder ;; esac
            break
        done
        row "library $library" "$([ -n "$found" ] && echo found || echo missing)" "" "$found"
    done < <(while read -r program _; do ldd "$build/$program" 2>/dev/null; done <"$build/programs.txt" | awk '/=> not found/ && !seen[$1]++ { print $1 }')
}
add_library_folders

# end_row WHAT RESULT SECONDS NOTE: prints the row of a program that has ended.
end_row() {
    has_ended=true
    row "$@"
    printf '%s\t%s\n' "$2" "$1" >>"$results/journal.txt"
}

# run WHAT LIMIT LOG COMMAND...: runs a command for at most LIMIT seconds, prints a row, and sets `has_ended`. Does nothing if the row ended in an earlier call. What the
# end of the call cuts off is begun again by the next call, once.
run() {
    local what=$1 seconds=$2 log=$results/log/$3 started=$SECONDS is_cut=false most status program took
    shift 3
    has_ended=false
    [ -z "${result_of[$what]:-}" ] || return 0
    most=$((call_seconds - reserve - (SECONDS - run_started)))
    if [ "$most" -lt 1 ]; then
        left+=("$what")
        return 0
    fi
    if [ "${times_begun[$what]:-0}" -ge 2 ]; then
        end_row "$what" FAILED 0 "two calls ended while it ran, see $log"
        return 0
    fi
    [ "$most" -ge "$seconds" ] || { seconds=$most; is_cut=true; }
    printf 'begun\t%s\n' "$what" >>"$results/journal.txt"
    # A process that waits in the driver survives even SIGKILL, so `timeout` may never end, and the status has a limit too. It comes through a pipe, because `wait -n`
    # can miss a process that ended before it was called.
    exec {program}< <(timeout -k 3 "$seconds" "$@" >"$log" 2>&1 </dev/null; printf '%d\n' $?)
    read -r -t $((seconds + 8)) -u "$program" status || status=124
    exec {program}<&-
    took=$((SECONDS - started))
    if [ "$status" -eq 124 ] || { [ "$status" -eq 137 ] && [ "$took" -ge "$seconds" ]; }; then
        if $is_cut && [ "${times_begun[$what]:-0}" -eq 0 ]; then
            row "$what" "cut off" "$took" "the call ends; the next one begins it again"
            left+=("$what")
        else
            end_row "$what" FAILED "$took" "stopped after $seconds s, see $log"
        fi
    elif [ "$status" -gt 128 ]; then
        end_row "$what" FAILED "$took" "ended by signal $(kill -l $((status - 128))), see $log"
    elif [ "$status" -ne 0 ]; then
        end_row "$what" FAILED "$took" "status $status, see $log"
    elif grep -q 'skipped: no CUDA device' "$log"; then
        end_row "$what" "$($requires_device && echo FAILED || echo skipped)" "$took" "no CUDA device"
    elif grep -q 'No kernels were profiled' "$log"; then # ncu exits with status 0 even then
        end_row "$what" FAILED "$took" "ncu found no kernel of that name"
    elif grep -q 'ERROR OCCURRED' "$log"; then # Google Benchmark as well
        end_row "$what" FAILED "$took" "$(grep -m 1 'ERROR OCCURRED' "$log")"
    else
        end_row "$what" passed "$took" "$(grep -E 'assertions in|test cases:|^probe:' "$log" | tail -n 1)"
    fi
}

# repeat COUNT COMMAND...: runs a command until it fails, at most COUNT times.
repeat() {
    local count
    for ((count = $1; count > 0; --count)); do "${@:2}" || return; done
}
export -f repeat

# is_known NAME: succeeds if its build was tried.
is_known() { grep -q "^$1 " "$build/programs.txt"; }

# built NAME: succeeds if it was built; otherwise prints a row.
built() {
    local status seconds
    is_known "$1" || return
    read -r _ status seconds < <(grep "^$1 " "$build/programs.txt")
    if [ "$status" -ne 0 ]; then
        row "build of $1" FAILED "$seconds" "see $build/log/$1.build where it was built"
    elif [ ! -x "$build/$1" ]; then
        row "program $1" FAILED "" "$build/$1 is missing"
    else
        return 0
    fi
    return 1
}

# run_tests NAME...: runs device tests.
run_tests() {
    local name most
    for name in "$@"; do
        most=$limit
        [ "$name" != offload_states ] || most=$long_limit # blocks of at least a page of the device, 2 MiB
        if built "$name"; then run "test $name" "$most" "$name.run" "$build/$name"; fi
    done
}

# run_bench NAME [ELEMENTS...]: runs a program of benchmarks, and prints its table. Each number of elements has a row, and so a limit, of its own: the results of a row come
# at its end. Without numbers there is one row.
run_bench() {
    local name=$1 elements label json
    if ! is_known "$name"; then return; fi
    if grep -q 'benchmark/benchmark.h\|cannot find -lbenchmark' "$build/log/$name.build" 2>/dev/null; then
        row "benchmark $name" missing "" "Google Benchmark is not installed"
        return
    fi
    built "$name" || return 0
    shift
    [ "$#" -gt 0 ] || set -- ""
    for elements in "$@"; do
        label=$name${elements:+.$elements} json=$results/log/$label.json
        run "benchmark $name${elements:+, $elements elements}" "$long_limit" "$label.run" "$build/$name" "--benchmark_filter=${elements:+/$elements/}" --benchmark_repetitions=5 \
            --benchmark_enable_random_interleaving=true "--benchmark_out=$json" # with all repetitions, since aggregates omit those that failed
        if $has_ended; then { python3 -B scripts/bench_table.py "$json" 2>/dev/null || grep '_median' "$results/log/$label.run"; } | tee "$results/$label.txt"; fi
    done
}
# The models of bench/cuda/models.hpp: the goals are those of the first, and the last takes longest.
models=(124439808 16287488)
last_model=1557611200

# part NAME TITLE: succeeds if this part of the run was asked for, and begins its phase.
part() {
    case ,${only:-$1}, in *",$1,"*) begin_phase "$2" ;; *) return 1 ;; esac
}

if part probe probe && built gpu_probe; then
    before=$failures
    run "$probe_row" "$limit" gpu_probe.run "$build/gpu_probe"
    if $requires_device && [ "$failures" -ne "$before" ]; then
        cat "$results/log/gpu_probe.run"
        finish
        exit 4
    fi
fi

kernel_tests=(element_kernels inspect_kernels update_kernels code_kernels)
first=(cub exact_sum exact_run "${kernel_tests[@]}" fast_math two_libraries)
if part bits "bits of the kernels"; then run_tests "${first[@]}"; fi

if part bench "benchmarks of the kernels"; then
    run_bench kernels_bench "${models[@]}"
    ncu=$(command -v ncu || ls "$toolkit/bin/ncu" 2>/dev/null)
    if [ -z "$ncu" ] || [ -z "$device" ]; then
        row "ncu of four kernels" missing "" "$([ -z "$ncu" ] && echo 'not installed' || echo 'no device')"
    elif built kernels_bench; then
        for kernel in flatten/cuda_bfloat16/zero sum/cuda_float32_2_ranks/zero norm/cuda_bfloat16/zero update/cuda_two_states/adamw; do
            # Not the kernels that make data and flush caches.
            run "ncu of ${kernel%%/*}" "$limit" "ncu_${kernel%%/*}.run" "$ncu" --clock-control none --section SpeedOfLight --section MemoryWorkloadAnalysis --section LaunchStats --section Occupancy \
                --kernel-name 'regex:copy_table_kernel|sum_ranks_kernel|inspect_kernel|update_kernel' --launch-count 1 "$build/kernels_bench" "--benchmark_filter=^$kernel/124439808/"
        done
    fi
fi

second=(engine loopback delays checkpoint)
if part engine "engine, loopback, delays, checkpoints, graphs"; then
    run_tests "${second[@]}"
    if built graph; then run "test graph, 20 times" "$limit" graph.run bash -c 'repeat 20 "$0"' "$build/graph"; fi
    while read -r name _; do # what no list names
        case " ${first[*]} ${second[*]} graph nccl_graph nccl_engine oracle " in *" $name "*) continue ;; esac
        [ ! -e "tests/cuda/${name}_test.cu" ] || run_tests "$name"
    done <"$build/programs.txt"
    if built cuda_minimal; then run "example cuda_minimal" "$limit" cuda_minimal.run "$build/cuda_minimal"; fi
    if built cuda_thrust; then run "example cuda_thrust" "$limit" cuda_thrust.run "$build/cuda_thrust"; fi
fi

if part bench "benchmark of the step"; then
    run_bench step_bench "${models[@]}" "$last_model"
    run_bench kernels_bench "$last_model"
fi

if part peer "PyTorch"; then
    if ! python3 -c 'import importlib.util as u, sys; sys.exit(u.find_spec("torch") is None)' >/dev/null 2>&1; then
        row "peer torch_adamw" missing "" "PyTorch is not installed"
    else
        for model in gpt2 gpt2-xl; do
            run "peer torch_adamw, $model" "$long_limit" "torch_adamw_$model.run" python3 -B bench/peers/torch_adamw.py --device cuda --model "$model"
        done
    fi
fi

# The environment of NCCL for several ranks on a device. Ranks connect when they start: a connection that is made later allocates, and waits for the kernels of other ranks.
ranks_on_device=(env NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_RUNTIME_CONNECT=0 CUDA_DEVICE_MAX_CONNECTIONS=32 CUDA_MODULE_LOADING=EAGER)
if part nccl "linked NCCL"; then
    if ! is_known linked_nccl; then
        row "test linked_nccl" missing "" "NCCL was not installed where the programs were built"
    elif built linked_nccl; then
        run "test linked_nccl" "$limit" linked_nccl.run "$build/linked_nccl"
        if ! grep -q -e --ranks-per-device "$build/linked_nccl"; then
            row "test linked_nccl, 4 ranks on a device" missing "" "it knows no --ranks-per-device"
        else
            run "test linked_nccl, 4 ranks on a device" "$limit" ranks_per_device.run "${ranks_on_device[@]}" "$build/linked_nccl" --ranks-per-device 4
        fi
    fi
    run_tests nccl_graph
    if is_known nccl_engine && built nccl_engine; then
        for count in 2 4; do
            run "test nccl_engine, $count ranks on a device" "$limit" "nccl_engine_$count.run" "${ranks_on_device[@]}" "ZERO_RANKS_PER_DEVICE=$count" "$build/nccl_engine"
        done
    fi
    run_bench nccl_bench # sets that environment itself
fi

# Prints the validation loss in the output of a training.
validation_loss() { sed -n 's/.*validation loss \([0-9.]*\).*/\1/p' "$results/log/$1"; }
if part train "training example"; then
    if ! is_known cuda_train_gpt; then
        row "example cuda_train_gpt" missing "" "CLI11 was not installed where the programs were built"
    elif built cuda_train_gpt; then
        for dtype in float32 bfloat16 float16; do
            run "cuda_train_gpt --verify, $dtype" "$long_limit" "verify.$dtype" "$build/cuda_train_gpt" --world 3 --verify 10 --accumulate 2 --offload host --dtype "$dtype"
        done
        run "cuda_train_gpt --timeline" "$long_limit" timeline.run "$build/cuda_train_gpt" --world 2 --steps 20 --timeline "$results/log/timeline.json"
        if ! is_known train_gpt; then
            row "cuda_train_gpt beside train_gpt" missing "" "Eigen was not installed where the programs were built"
        elif built train_gpt; then
            run "cuda_train_gpt, 300 steps" "$long_limit" example.run "$build/cuda_train_gpt" --world 2 --steps 300
            if [ -n "$device" ]; then
                run "train_gpt, 300 steps" "$long_limit" host_example.run "$build/train_gpt" --world 2 --steps 300
                on_device=$(validation_loss example.run) on_host=$(validation_loss host_example.run)
                if [ -n "$on_device" ] && [ -n "$on_host" ]; then
                    row "validation losses of the two" "$(awk -v a="$on_device" -v b="$on_host" 'BEGIN { d = a - b; print (d < 0.05 && d > -0.05 ? "passed" : "FAILED") }')" "" "$on_device and $on_host"
                fi
            fi
        fi
        devices=$(nvidia-smi -L 2>/dev/null | wc -l)
        if ! is_known linked_nccl || [ "$devices" -lt 2 ] || ! has torchrun; then
            row "cuda_train_gpt over NCCL" missing "" "needs NCCL, torchrun and two devices; there are $devices"
        else
            run "cuda_train_gpt over NCCL" "$long_limit" nccl_example.run torchrun --nproc-per-node 2 --no-python "$build/cuda_train_gpt" --steps 50
        fi
    fi
fi

if part sanitizer compute-sanitizer; then
    sanitizer=$(command -v compute-sanitizer || ls "$toolkit/bin/compute-sanitizer" 2>/dev/null)
    if ! $sanitizes; then
        row "compute-sanitizer" "left out" "" ""
    elif [ -z "$sanitizer" ] || [ -z "$device" ]; then
        row "compute-sanitizer" missing "" "$([ -z "$sanitizer" ] && echo 'not installed' || echo 'no device')"
    else
        # sanitize NAMES TOOL...: runs these tests under each tool, of code_kernels those of kernels alone.
        sanitize() {
            local tool name options cases
            for tool in "${@:2}"; do
                options=()
                [ "$tool" != memcheck ] || options=(--report-api-errors no) # tests leave errors of CUDA on purpose
                for name in $1; do
                    cases=()
                    [ "$name" != code_kernels ] || cases=('Kernels *')
                    if built "$name"; then run "$tool of $name" "$long_limit" "$name.$tool" "$sanitizer" --tool "$tool" "${options[@]}" --error-exitcode 9 "$build/$name" "${cases[@]}"; fi
                done
            done
        }
        sanitize "${kernel_tests[*]}" memcheck racecheck synccheck initcheck
        sanitize engine memcheck racecheck synccheck initcheck
    fi
fi

if part oracle oracle && built oracle; then run "test oracle" "$long_limit" oracle.run "$build/oracle"; fi

finish
