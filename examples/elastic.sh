#!/usr/bin/env bash
# Trains on 4 processes, in every other run on two levels, kills one of them, goes on with 2 from the last checkpoint, and ends with the bits of 8 ranks that never stopped.
#
# usage: elastic.sh TRAIN_GPT [RUNS [LAUNCHER...]]
set -euo pipefail

train_gpt=$1
runs=${2:-1}
launch=("${@:3}")
[ ${#launch[@]} != 0 ] || launch=(mpirun --oversubscribe)
for program in pkill stdbuf mkfifo; do command -v $program >/dev/null || { echo "skipped: no $program"; exit 0; }; done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
training=(--micro-batches 8 --steps 40 --width 16 --context 16 --batch 1 --bucket-bytes 4096 --dtype bfloat16)
hash_of() { sed -n 's/^parameters: //p' "$1"; }

"$train_gpt" "${training[@]}" --world 8 --stage 2 >"$work/whole"
expected=$(hash_of "$work/whole")
for run in $(seq "$runs"); do
    checkpoints=$work/run-$run
    # One of the processes is killed after 1 to 5 of 10 checkpoints.
    mkfifo "$work/lines-$run"
    "${launch[@]}" -n 4 stdbuf -oL "$train_gpt" "${training[@]}" --communicator mpi --stage 3 --inner-ranks $((1 + run % 2)) --save "$checkpoints" --save-every 4 >"$work/lines-$run" 2>"$work/killed" &
    launcher=$!
    left=$((1 + RANDOM % 5))
    while read -r line; do
        case $line in saved*) left=$((left - 1)) ;; esac
        if [ "$left" = 0 ]; then
            pkill -9 --parent "$launcher" --newest
            left=-1
        fi
    done <"$work/lines-$run"
    if wait "$launcher"; then
        echo "run $run: a killed process went unnoticed"
        exit 1
    fi
    "${launch[@]}" -n 2 "$train_gpt" "${training[@]}" --communicator mpi --stage 1 --resume "$checkpoints" >"$work/second" 2>&1 || { cat "$work/second"; exit 1; }
    found=$(hash_of "$work/second")
    echo "run $run: killed, $(sed -n 's/^\(resumed from [^,]*\).*/\1/p' "$work/second"), parameters ${found:-none}, expected $expected"
    [ "$found" = "$expected" ] || exit 1
done
