#!/usr/bin/env bash
# Trains a small GPT on real text under ZeRO stage 2 on four ranks, then proves over 20 steps that all stages give the same parameters.
# Installs what is missing (Debian, Ubuntu; as root or through sudo), builds, runs. Works from any folder.
#
# usage: scripts/demo.sh
# Settings: CXX (compiler, g++), ZERO_JOBS (parallel jobs), ZERO_BUILD_ROOT (folder of the builds, build/).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
if [ "${1:-}" = --help ]; then usage; exit 0; fi
[ "$#" -eq 0 ] || refuse "unknown option '$1'"

# The two runs. They train on the default text of the program, the headers of this library.
train_arguments=(--stage 2 --world 4 --steps 500)
verify_arguments=(--stage 2 --world 4 --verify 20)

install_missing g++ cmake ninja-build libeigen3-dev libcli11-dev
say "building the example train_gpt in $build_root/demo"
configure demo release "-DCMAKE_CXX_COMPILER=$(compiler)" -DZERO_BUILD_TESTS=OFF -DZERO_BUILD_BENCHMARKS=OFF || stop "CMake could not configure the example"
build_target train_gpt || stop "the example could not be built"

say "training: train_gpt ${train_arguments[*]}"
log=$build_dir/train_gpt.log
"$build_dir/examples/train_gpt" "${train_arguments[@]}" | tee "$log" || stop "the training failed"

# A network that only knows the frequencies of byte pairs has not learned. Short runs may end there; this one must not.
losses=$(sed -nE 's/.*validation loss ([0-9.]+) nats per byte \(unigram [0-9.]+, bigram ([0-9.]+)\).*/\1 \2/p' "$log")
[ -n "$losses" ] || stop "the training printed no finite validation loss"
read -r loss bigram <<<"$losses"
awk -v loss="$loss" -v bigram="$bigram" 'BEGIN { exit !(loss < bigram) }' || stop "the training learned too little: its validation loss $loss is not below the loss of bigrams, $bigram"
say "learned: the validation loss $loss is below the loss of bigrams, $bigram"

say "verifying: train_gpt ${verify_arguments[*]}"
"$build_dir/examples/train_gpt" "${verify_arguments[@]}" || stop "the verification failed"
