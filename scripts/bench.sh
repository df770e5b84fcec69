#!/usr/bin/env bash
# Builds and runs the benchmarks, each beside a twin that moves the same bytes, prints one table and draws plots. Installs what is missing (Debian, Ubuntu; as root or
# through sudo). Works from any folder. Leave the machine idle meanwhile; the largest sizes take 16 GB of memory.
#
# usage: scripts/bench.sh [option...]
#   (none)            all benchmarks, 7 repetitions in random order
#   --quick           3 repetitions, and no size above 10 million elements
#   --filter REGEX    only benchmarks whose name (operation/case/who/elements) matches, and their twins; the others keep their last results in the table
#   --repetitions N   repetitions of each benchmark; the table shows medians
#   --table           measures nothing; prints the table of the last results
#   --docs            also writes the tables into docs/data/benchmarks.txt, the rows with a goal into docs/benchmarks.md, and the plots beside that page
#   --help            this text
# Options may be combined. Results and plots: build/bench/results/.
#
# Settings: CXX (compiler, g++), ZERO_JOBS (parallel jobs of the build), ZERO_BUILD_ROOT (folder of the builds, build/),
# ZERO_BENCH_BUILD (a build of this project that holds the benchmarks; nothing is installed or built then).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

repetitions=
filter=
is_quick=
is_table=
is_docs=
while [ "$#" -gt 0 ]; do
    case $1 in
        --quick) is_quick=1 ;;
        --filter | --repetitions)
            [ "$#" -gt 1 ] || refuse "$1 needs a value"
            if [ "$1" = --filter ]; then filter=$2; else repetitions=$2; fi
            shift
            ;;
        --table) is_table=1 ;;
        --docs) is_docs=1 ;;
        --help) usage; exit 0 ;;
        *) refuse "unknown option '$1'" ;;
    esac
    shift
done
if [ -z "$repetitions" ]; then
    repetitions=7
    [ -z "$is_quick" ] || repetitions=3
fi
[[ $repetitions =~ ^[1-9][0-9]*$ ]] || refuse "--repetitions $repetitions: a number above 0"
has python3 || stop "python3 was not found; it makes the table, with its standard library alone. Debian, Ubuntu: apt-get install python3-minimal"

results=$build_root/bench/results
programs=${ZERO_BENCH_BUILD:-$build_root/bench}/bench
smallest_time=0.05 # minimum seconds of one repetition; a longer benchmark runs once

build() {
    local cuda=OFF
    if has nvidia-smi && nvidia-smi -L >/dev/null 2>&1; then cuda=AUTO; else say "no GPU: skipping the benchmarks of the CUDA backend"; fi
    say "building in $build_root/bench with $(jobs) jobs"
    configure bench release "-DCMAKE_CXX_COMPILER=$(compiler)" "-DZERO_CUDA=$cuda" -DZERO_BUILD_TESTS=OFF -DZERO_BUILD_EXAMPLES=OFF || stop "CMake could not configure the build"
    build_target all || stop "the build failed"
}

# Names without commas and equals signs, which Google Benchmark does not accept in its context.
processor() { sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo 2>/dev/null | head -n 1 | tr -d ',='; }
compiler_name() { printf '%s %s' "$(basename "$(compiler)")" "$("$(compiler)" -dumpfullversion -dumpversion)" | tr -d ',='; }

# chosen PROGRAM: prints a regular expression that matches exactly the chosen benchmarks of the program, and their twins; nothing if there are none.
chosen() {
    { "$1" --benchmark_list_tests --benchmark_filter="${filter:-.}"; echo; "$1" --benchmark_list_tests --benchmark_filter=.; } 2>/dev/null \
        | awk -F / -v OFS=/ -v is_quick="$is_quick" '
            is_quick && /\/[0-9]{8,}(\/|$)/ { next }
            /^$/ { are_all = 1; next }
            are_all { if ($0 in wanted) print "^" $0 "$"; next }
            { wanted[$0]; $3 = "twin"; wanted[$0] }
            $2 ~ /^cuda/ { $1 = "copy"; $2 = "cuda"; wanted[$0] }' \
        | paste -sd '|'
}

has_run=
# run PROGRAM: runs the chosen benchmarks. Each filter has its own file, so that it adds to earlier results. Without input, because mpirun would read the list of programs.
run() {
    local name names file
    name=$(basename "$1")
    names=$(chosen "$1")
    [ -n "$names" ] || return 0
    has_run=1
    file=$results/$name.json
    [ -z "$filter" ] || file=$results/$name.$(printf '%s' "$filter" | cksum | tr ' ' '-').json # names of files are short, filters are not
    say "$name"
    run_quietly "$1" --benchmark_filter="$names" --benchmark_repetitions="$repetitions" --benchmark_enable_random_interleaving=true \
        --benchmark_min_time="$smallest_time" --benchmark_context="cpu=$(processor),compiler=$(compiler_name)" \
        --benchmark_out="$file.part" --benchmark_out_format=json </dev/null || stop "$name failed (its output is above)"
    mv "$file.part" "$file"
}

if [ -z "$is_table" ]; then
    if [ -z "${ZERO_BENCH_BUILD:-}" ]; then
        install_missing g++ cmake ninja-build libbenchmark-dev
        build
    fi
    [ -d "$programs" ] || stop "$programs does not exist"
    mkdir -p "$results"
    if [ -z "$filter" ]; then rm -f "$results"/*.json; fi
    while IFS= read -r program; do run "$program"; done < <(find "$programs" -maxdepth 1 -type f -name '*_bench' -perm -u+x | sort)
    [ -n "$has_run" ] || stop "no benchmark was run: the filter '$filter'${is_quick:+ with --quick} matches none"
fi

shopt -s nullglob
files=("$results"/*.json)
scaling_files=("$results"/stage_scaling_bench*.json)
[ "${#files[@]}" -gt 0 ] || stop "there are no results yet"

# make SCRIPT PLOT ARGUMENT...: prints a table, writes the plot beside the results, and with --docs both into the pages.
make() {
    local script=$root_dir/scripts/$1 plot=$2
    shift 2
    python3 -B "$script" "$@"
    python3 -B "$script" "$@" --svg "$results/$plot" 2>/dev/null || say "no plot: too few results"
    [ -z "$is_docs" ] || python3 -B "$script" "$@" --svg "$root_dir/docs/$plot" --page "$root_dir/docs/data/benchmarks.txt" || stop "could not write docs/data/benchmarks.txt"
}

make bench_table.py benchmarks.svg "${files[@]}"
[ -z "$is_docs" ] || python3 -B "$root_dir/scripts/bench_table.py" "${files[@]}" --goals "$root_dir/docs/benchmarks.md" >/dev/null || stop "could not write docs/benchmarks.md"
if [ "${#scaling_files[@]}" -gt 0 ]; then
    "$programs/stage_scaling_table" >"$results/scaling_plan.txt"
    printf '\nOne rank of W, the others simulated:\n\n'
    make bench_scaling.py scaling.svg "$results/scaling_plan.txt" "${scaling_files[@]}"
fi
say "plots: $results/*.svg"
[ -z "$is_docs" ] || say "written: docs/benchmarks.md, docs/data/benchmarks.txt and the plots"
