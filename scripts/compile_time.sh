#!/usr/bin/env bash
# Measures the time to compile a unit that constructs a stage and trains with it. Prints medians in seconds of processor time (user), which other programs on
# the machine affect, though less than wall time. The goal is below 3 s each.
#
# usage: scripts/compile_time.sh
# Settings: CXX (compiler, g++), ZERO_REPETITIONS (5), ZERO_FLAGS (-O2; with -DZERO_COMPILED as for zero::compiled),
# ZERO_DECLARED (1: each unit declares its stage with ZERO_DECLARE_STAGE, as if another unit defined it).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
if [ "${1:-}" = --help ]; then usage; exit 0; fi
[ "$#" -eq 0 ] || refuse "unknown option '$1'"
has "$(compiler)" || stop "the compiler $(compiler) was not found"

repetitions=${ZERO_REPETITIONS:-5}
read -r -a flags <<<"${ZERO_FLAGS:--O2}"
names=("stage 2, float, defaults" "stage 3, bfloat16, round-robin, Adam" "stage 1, float16, dynamic scaler" "stage 2, bfloat16 and float, split")
types=('zero::ZeroStage<2>'
    'zero::ZeroStage<3, zero::Parameters<zero::bfloat16>, zero::RoundRobinPartitioner, zero::Adam>'
    'zero::ZeroStage<1, zero::Parameters<zero::float16>, zero::DynamicLossScaler>'
    'zero::ZeroStage<2, zero::Parameters<zero::bfloat16, float>, zero::SplitMasterWeights>')

declaration=
[ -z "${ZERO_DECLARED:-}" ] || declaration='ZERO_DECLARE_STAGE(Zero);'

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for index in "${!types[@]}"; do
    cat >"$work/unit_$index.cpp" <<EOF
${declaration:+#include <zero/stage/declare_stage.hpp>}
#include <zero/zero.hpp>
using Zero = ${types[$index]};
$declaration
int main() {
    zero::run_ranks(2, [](zero::LoopbackCommunicator& communicator) {
        Zero engine(communicator, std::vector<Zero::Registration>{zero::Parameter<Zero::ParameterType>{.name = "w", .elements = 1000}}, {.gradient_clipping = 1.0F});
        engine.begin_step();
        for (auto const micro_step : engine.micro_steps(2)) {
            auto const weights = engine.acquire(0);
            auto const gradients = engine.gradients(0);
            gradients.get<Zero::GradientType>(0)[0] = weights.get<Zero::ParameterType>(0)[0];
            engine.gradients_ready(0);
        }
        (void)engine.step(0.1).report();
    });
}
EOF
done
printf '#include <zero/zero.hpp>\n' >"$work/unit_${#types[@]}.cpp"
names+=("(the include alone)")

# Interleaved, so that a slow moment of the machine does not affect one composition only.
TIMEFORMAT=%U
for ((round = 0; round < repetitions; ++round)); do
    for index in "${!names[@]}"; do
        if ! { time "$(compiler)" -std=c++20 "${flags[@]}" "-I$root_dir/include" -c "$work/unit_$index.cpp" -o "$work/unit.o" 2>"$work/errors"; } 2>"$work/time"; then
            cat "$work/errors" >&2
            stop "${names[$index]} does not compile"
        fi
        tail -n 1 "$work/time" | tr , . >>"$work/times_$index"
    done
done

median() { sort -n "$1" | awk '{ value[NR] = $1 } END { printf "%.2f", (value[int((NR + 1) / 2)] + value[int((NR + 2) / 2)]) / 2 }'; }
say "$("$(compiler)" --version | head -n 1), ${flags[*]}, medians of $repetitions, 1-minute load $(cut -d ' ' -f 1 /proc/loadavg 2>/dev/null || echo unknown)"
printf '%-40s %8s\n' composition 'user s'
for index in "${!names[@]}"; do printf '%-40s %8s\n' "${names[$index]}" "$(median "$work/times_$index")"; done
