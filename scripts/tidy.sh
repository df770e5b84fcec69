#!/usr/bin/env bash
# Runs clang-tidy with the repository's .clang-tidy. A warning is a failure. All files take some minutes; the headers alone are also a test.
#
# usage: scripts/tidy.sh [file...]     default: tests/tidy/headers.cpp, which includes all headers, and the examples
# Settings: CLANG_TIDY (clang-tidy).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
case ${1:-} in --help) usage; exit 0 ;; -*) refuse "unknown option '$1'" ;; esac
tidy=${CLANG_TIDY:-clang-tidy}
has "$tidy" || stop "$tidy was not found (Debian and Ubuntu: the package 'clang-tidy')"

cd "$root_dir"
files=("$@")
if [ "${#files[@]}" -eq 0 ]; then
    files=(tests/tidy/headers.cpp examples/*.cpp examples/guides/*.cpp)
fi
mpi=()
if has mpicxx; then # the folders of mpi.h
    for folder in $(mpicxx -show | grep -o -- '-I[^ ]*' || true); do mpi+=(-isystem "${folder#-I}"); done
fi
failed=0
for file in "${files[@]}"; do
    if [ "${#mpi[@]}" -eq 0 ] && grep -q "^#include <zero/mpi/" "$file" && ! grep -q "__has_include(<mpi.h>)" "$file"; then continue; fi
    say "$file"
    "$tidy" --quiet --warnings-as-errors='*' "$file" -- -std=c++20 -Iinclude -Iexamples -isystem /usr/include/eigen3 "${mpi[@]}" -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX "-DZERO_SOURCE_DIR=\"$root_dir\"" 2>&1 \
        | { grep -v ' warnings\? generated' || true; } || failed=$((failed + 1))
done
[ "$failed" -eq 0 ] || stop "clang-tidy complains about $failed of ${#files[@]} files"
