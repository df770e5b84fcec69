// Draws docs/sharding.svg: the part of each model state that each rank holds in stages 0 to 3,
// computed from a layout.
//
//   draw_sharding > docs/sharding.svg

#include <zero/layout/contiguous_partitioner.hpp>
#include <zero/layout/flat_layout.hpp>
#include <zero/layout/make_layout.hpp>
#include <zero/layout/size_capped_bucketer.hpp>
#include <zero/layout/stage_table.hpp>

#include <cstddef>
#include <cstdio>

namespace {

constexpr std::size_t world = 4;

// An element is `pixel` wide and two bytes are `byte_pair` high, so that area is memory.
constexpr double pixel = 1.0 / 16.0, byte_pair = 5.0;
constexpr double left = 62, top = 66, panel_pitch = 206, rank_pitch = 62;

/// One model state of every parameter element.
struct State {
    char const* name;
    std::size_t bytes; ///< bytes per element
};
constexpr State parameters{"parameters", 2}, gradients{"gradients", 2},
    optimizer_state{"optimizer state", 12};

zero::FlatLayout small_model() {
    return zero::make_layout<zero::ContiguousPartitioner, zero::UnitBucketer>(
        {{.name = "embedding", .elements = 1024, .units = {0}},
         {.name = "layer 1", .elements = 768, .units = {1}},
         {.name = "layer 2", .elements = 768, .units = {2}},
         {.name = "head", .elements = 256, .units = {3}}},
        {.world = world, .element_bytes = 2});
}

/// Draws the part of a state that `rank` holds, in the colours of the owners; returns its bytes.
std::size_t draw_bar(zero::FlatLayout const& layout, zero::Placement placement, State state,
                     std::size_t rank, double x, double y) {
    double const height = byte_pair * static_cast<double>(state.bytes) / 2.0;
    std::size_t held = 0;
    for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
        double const begin = x + pixel * static_cast<double>(layout.bucket_begin(bucket));
        for (std::size_t owner = 0; owner < world; ++owner) {
            if (placement == zero::Placement::sharded && owner != rank) continue;
            zero::Range const extent = layout.extent(bucket, owner);
            std::printf("<rect class=\"r%zu\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                        "height=\"%.1f\"/>\n",
                        owner, begin + pixel * static_cast<double>(extent.begin), y,
                        pixel * static_cast<double>(extent.size()), height);
            held += layout.content(bucket, extent) * state.bytes;
        }
        std::printf("<rect class=\"bucket\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                    "height=\"%.1f\"/>\n",
                    begin, y, pixel * static_cast<double>(layout.elements(bucket)), height);
    }
    return held;
}

void draw_stage(zero::FlatLayout const& layout, int stage) {
    zero::StageRow const row = zero::stage_row(stage, zero::default_schedule(stage));
    double const x = left + panel_pitch * stage;
    std::size_t held = 0;
    for (std::size_t rank = 0; rank < world; ++rank) {
        double const y = top + rank_pitch * static_cast<double>(rank);
        held = draw_bar(layout, row.parameters, parameters, rank, x, y);
        held += draw_bar(layout, row.accumulation_buffer, gradients, rank, x, y + 8.0);
        held += draw_bar(layout, row.optimizer_state, optimizer_state, rank, x, y + 16.0);
    }
    std::printf("<text class=\"title\" x=\"%.1f\" y=\"48\">stage %d: %.1f KB a rank</text>\n", x,
                stage, static_cast<double>(held) * 1e-3);
}

} // namespace

int main() {
    zero::FlatLayout const layout = small_model();
    std::printf(R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 880 336" role="img">
<title>Which rank holds which part of the model states in ZeRO stages 0 to 3</title>
<style>
text { font: 12px sans-serif; fill: #1f2328 } .title { font-size: 14px; font-weight: bold }
.r0 { fill: #0969da } .r1 { fill: #bc4c00 } .r2 { fill: #1a7f37 } .r3 { fill: #8250df }
.bucket { fill: none; stroke: #8c959f; stroke-width: 0.8 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .bucket { stroke: #9198a1 }
.r0 { fill: #58a6ff } .r1 { fill: #f0883e } .r2 { fill: #3fb950 } .r3 { fill: #bc8cff }
}
</style>
)");
    std::printf("<text x=\"%.1f\" y=\"20\">%zu parameters in %zu buckets. Every bucket is cut into "
                "%zu equal shards; a colour is the rank that owns the shard.</text>\n",
                left, layout.padded_elements(), layout.buckets(), world);
    for (std::size_t rank = 0; rank < world; ++rank)
        std::printf("<text class=\"title r%zu\" x=\"4\" y=\"%.1f\">rank %zu</text>\n", rank,
                    top + rank_pitch * static_cast<double>(rank) + 28.0, rank);
    for (int stage = 0; stage < 4; ++stage) draw_stage(layout, stage);
    std::printf("<text x=\"%.1f\" y=\"326\">Three bars a rank, from the top, area is memory: %s "
                "(%zu bytes an "
                "element), %s (%zu), %s (%zu).</text>\n</svg>\n",
                left, parameters.name, parameters.bytes, gradients.name, gradients.bytes,
                optimizer_state.name, optimizer_state.bytes);
    return 0;
}
