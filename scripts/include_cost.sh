#!/usr/bin/env bash
# Measures the time to compile a unit that only includes a header, and subtracts that of an empty unit. Prints medians of 7 in milliseconds.
#
# usage: scripts/include_cost.sh [header...]     default: zero/zero.hpp and every header in zero/policy/
# Settings: CXX (compiler, g++), ZERO_REPETITIONS (7).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
case ${1:-} in --help) usage; exit 0 ;; -*) refuse "unknown option '$1'" ;; esac
has "$(compiler)" || stop "the compiler $(compiler) was not found"

repetitions=${ZERO_REPETITIONS:-7}
headers=("$@")
if [ "${#headers[@]}" -eq 0 ]; then
    cd "$root_dir/include"
    [ ! -f zero/zero.hpp ] || headers+=(zero/zero.hpp)
    for header in zero/policy/*.hpp; do [ ! -f "$header" ] || headers+=("$header"); done
fi
[ "${#headers[@]}" -gt 0 ] || stop "no header to measure"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: >"$work/unit_0.cpp"
for index in "${!headers[@]}"; do printf '#include <%s>\n' "${headers[$index]}" >"$work/unit_$((index + 1)).cpp"; done

# Prints wall time in microseconds. The decimal separator depends on the locale.
now() { printf '%s\n' "${EPOCHREALTIME//[.,]/}"; }

# Interleaved, so that a slow moment of the machine does not affect one header only.
for ((round = 0; round < repetitions; ++round)); do
    for ((index = 0; index <= ${#headers[@]}; ++index)); do
        begin=$(now)
        "$(compiler)" -std=c++20 -O2 "-I$root_dir/include" -c "$work/unit_$index.cpp" -o "$work/unit.o" || stop "${headers[$((index - 1))]} does not compile alone"
        printf '%s\n' "$(($(now) - begin))" >>"$work/times_$index"
    done
done

median() { sort -n "$1" | awk '{ value[NR] = $1 } END { print int((value[int((NR + 1) / 2)] + value[int((NR + 2) / 2)]) / 2) }'; }
empty=$(median "$work/times_0")
say "$("$(compiler)" --version | head -n 1), -O2, medians of $repetitions"
printf '%-50s %10s %10s\n' header 'ms' 'added ms'
printf '%-50s %10d %10s\n' '(empty unit)' "$((empty / 1000))" -
for index in "${!headers[@]}"; do
    time=$(median "$work/times_$((index + 1))")
    printf '%-50s %10d %10d\n' "${headers[$index]}" "$((time / 1000))" "$(((time - empty) / 1000))"
done
