#include "support/catch.hpp"
#include "support/resident_memory.hpp"
#include "support/shapes.hpp"

#include <cstddef>
#include <vector>

// Each later stage takes less memory, as a list of processes shows it: with the default options,
// and whether or not the parameters are in units. The planned bytes alone would not show
// memory that the plan forgets.

using namespace zero;
using namespace zero::test;

namespace {

/// GPT-2's tensors with an eighth of the elements.
std::vector<ParameterSpec> small_gpt2(bool has_units) {
    auto model = gpt2_124m();
    for (ParameterSpec& spec : model) {
        spec.elements /= 8;
        if (!has_units) {
            spec.units = {0};
        }
    }
    return model;
}

/// A process holds the planned memory, the program, its threads and the engine's tables. A part of
/// the planned memory may never be touched.
bool is_near_plan(ResidentMemory const& memory) {
    constexpr std::size_t program = std::size_t{16} << 20U;
    return memory.resident <= memory.planned + program
           && memory.resident + memory.planned / 32 >= memory.planned;
}

} // namespace

TEST_CASE("With units each later stage has less resident memory per rank", "[stage]") {
    auto const model = small_gpt2(true);
    ResidentMemory before = resident_memory(0, model, 2);
    // 2 bytes a parameter and its gradient, 4 of the sum, 12 of master weight and moments
    CHECK(before.planned >= 18 * elements_of(model));
    for (int const stage : {1, 2, 3}) {
        CAPTURE(stage);
        ResidentMemory const now = resident_memory(stage, model, 2);
        CHECK(now.resident < before.resident);
        CHECK(now.planned < before.planned);
        CHECK(is_near_plan(now));
        before = now;
    }
}

TEST_CASE("Without units stage 3 has the whole model gathered beside its shard", "[stage]") {
    auto const model = small_gpt2(false);
    std::vector<ResidentMemory> stages;
    for (int const stage : {0, 1, 2, 3}) {
        stages.push_back(resident_memory(stage, model, 2));
        CHECK(is_near_plan(stages.back()));
    }
    CHECK(stages[1].resident < stages[0].resident);
    CHECK(stages[2].resident < stages[1].resident);
    CHECK(stages[3].resident < stages[1].resident);
    std::size_t const shard = elements_of(model) / 2 * sizeof(bfloat16);
    CHECK(stages[3].planned <= stages[2].planned + shard + (std::size_t{1} << 20U));
    CHECK(stages[3].planned + (std::size_t{1} << 20U) >= stages[2].planned + shard);
}
