#!/usr/bin/env bash
# Trains the same model with the same numbered batches on every kind of group, and prints a table of hashes that are equal in each column.
#
# usage: same_bits.sh [--quick] PROGRAM [LAUNCHER...]
# PROGRAM is train_gpt or cuda_train_gpt, whose model has bits of its own; with a launcher such as mpirun, train_gpt runs as processes over MPI as well.
# The last rows are controls: in rank order each number of ranks has other bits. The exit code is 1 if a hash is not what it has to be.
set -euo pipefail

quick=false
[ "${1-}" != --quick ] || { quick=true; shift; }
program=${1:?usage: same_bits.sh [--quick] PROGRAM [LAUNCHER...]}
launch=("${@:2}")
for command in "$program" "${launch[@]:0:1}"; do
    type -P -- "$command" >/dev/null || { echo "same_bits.sh: '$command' is no program; build train_gpt, and give its path" >&2; exit 1; }
done
root=$(cd "$(dirname "$0")/.." && pwd)
training=(--micro-batches 8 --steps 3 --width 16 --layers 1 --context 8 --batch 1 --bucket-bytes 4096 --text "$root/README.md")
types=(float32 bfloat16 float16)
worlds=(1 2 4 8) process_worlds=(2 4 8) stages=(0 1 2 3)
if $quick; then
    worlds=(1 4) process_worlds=(4) stages=(0 3)
fi
status=0
declare -A expected=()

# hash_of TYPE COMMAND...: the hash of the parameters, or the first line of the error
hash_of() {
    local output
    if output=$("${@:2}" "${training[@]}" --dtype "$1" 2>&1); then
        sed -n 's/^parameters: //p' <<<"$output"
    else
        head -n 1 <<<"$output"
    fi
}

# row TRANSPORT WORLD LEVELS STAGE COMMAND...: one hash of each type, equal to the first one of its column
row() {
    local cells="" type hash
    for type in "${types[@]}"; do
        hash=$(hash_of "$type" "${@:5}" --stage "$4")
        : "${expected[$type]:=$hash}"
        if [ "$hash" != "${expected[$type]}" ] || [ ${#hash} != 16 ]; then
            status=1
            hash="**$hash**"
        fi
        cells+=" $hash |"
    done
    echo "| $1 | $2 | $3 | $4 |$cells"
}

# rows TRANSPORT WORLD COMMAND...: all stages, on one level and on two
rows() {
    local stage
    for stage in "${stages[@]}"; do
        row "$1" "$2" 1 "$stage" "${@:3}"
    done
    if $has_levels && [ "$2" -gt 2 ]; then
        for stage in "${stages[@]}"; do
            row "$1" "$2" "2 x $(($2 / 2))" "$stage" "${@:3}" --inner-ranks 2
        done
    fi
}

name=$(basename "$program")
has_levels=true
case $name in *cuda*) has_levels=false ;; esac
built=()
for type in "${types[@]}"; do
    case $(hash_of "$type" "$program" --world 1) in *"without --dtype"*) ;; *) built+=("$type") ;; esac
done
types=("${built[@]}")
header="" line=""
for type in "${types[@]}"; do header+=" $type |" line+="---|"; done
printf '%s\n' "| ranks | W | levels | stage |$header" "|---|---|---|---|$line"
for world in "${worlds[@]}"; do
    rows threads "$world" "$program" --world "$world"
done
if [ ${#launch[@]} != 0 ]; then
    for world in "${process_worlds[@]}"; do
        rows "MPI processes" "$world" "${launch[@]}" -n "$world" "$program" --communicator mpi
    done
    # The order of the library concerns sums outside of the tree.
    row "MPI processes, --order library" 2 1 2 "${launch[@]}" -n 2 "$program" --communicator mpi --order library
fi
previous=()
for world in 2 4; do
    cells=""
    for index in "${!types[@]}"; do
        type=${types[index]}
        hash=$(hash_of "$type" "$program" --world "$world" --stage 2 --in-rank-order)
        if [ ${#hash} != 16 ] || [ "$hash" = "${expected[$type]}" ] || [ "$hash" = "${previous[index]-}" ]; then
            status=1
            hash="**$hash**"
        fi
        previous[index]=$hash
        cells+=" $hash |"
    done
    echo "| threads, in rank order: other bits | $world | 1 | 2 |$cells"
done
[ $status = 0 ] || echo "hashes differ that must be equal, or are equal that must differ: bold"
exit $status
