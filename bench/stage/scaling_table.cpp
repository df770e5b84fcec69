// Prints the memory plan of one rank, from a million to 10^12 parameters and W = 1 to 64, with the
// model, types and policies of scaling_bench.cpp. Allocates and times nothing. Each line holds
// stage, W, parameters, bytes of memory.

#include "stage/scaling_model.hpp"

#include <zero/layout/contiguous_partitioner.hpp>
#include <zero/layout/detail/partition/make_buckets.hpp>
#include <zero/layout/gather_options.hpp>
#include <zero/layout/make_layout.hpp>
#include <zero/layout/memory_plan.hpp>
#include <zero/layout/parameter_spec.hpp>
#include <zero/layout/size_capped_bucketer.hpp>
#include <zero/policy/gradient_reduction.hpp>

#include <cstddef>
#include <cstdio>

namespace {

void print(int stage, std::size_t world, std::size_t elements) {
    auto const model = bench::scaling_model(elements);
    zero::LayoutOptions const options{
        .world = world, .element_bytes = 2, .buckets_inside_units = stage == 3};
    auto const layout =
        zero::make_layout<zero::ContiguousPartitioner, zero::SizeCappedBucketer>(model, options);
    auto const schedule = zero::default_schedule(stage);
    auto const row = zero::stage_row(stage, schedule);
    auto const totals = zero::count_layout(layout, 0, row, zero::Storage::owned, 0);
    auto const plan = zero::plan_memory(row, totals,
                                        {.parameter = 2,
                                         .gradient = 4,
                                         .communication = 4,
                                         .accumulation = 4,
                                         .master = 4,
                                         .optimizer_state = 8},
                                        zero::Storage::owned, false, 0);
    std::printf("%d %zu %zu %zu\n", stage, world, elements, plan.engine_bytes());
}

} // namespace

int main() {
    for (int stage = 0; stage <= 3; ++stage) {
        for (std::size_t const world : bench::scaling_worlds) {
            for (std::size_t elements = std::size_t{1} << 20U; elements <= std::size_t{1} << 40U;
                 elements *= 4) {
                print(stage, world, elements);
            }
        }
    }
    return 0;
}
