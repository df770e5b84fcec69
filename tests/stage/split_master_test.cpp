#include "support/catch.hpp"
#include "support/trained.hpp"

#include <zero/stage/with_stage.hpp>
#include <zero/stage/zero_stage.hpp>

#include <vector>

// Master weights in parts against float ones: the same bits, in every stage and storage, at 2.125 bytes an element.

using namespace zero;
using namespace zero::test;

namespace {

constexpr int world = 3;

template <int N, class... More>
using Split = ZeroStage<N, Parameters<bfloat16>, SplitMasterWeights, More...>;
template <int N, class... More>
using Whole = ZeroStage<N, Parameters<bfloat16>, MasterWeights<float>, More...>;

template <class Test>
void in_every_stage(Test const& test) {
    for (int const stage : {0, 1, 2, 3}) {
        INFO("stage " << stage);
        with_stage(stage, [&]<int N>() { test.template operator()<N>(); });
    }
}

} // namespace

TEST_CASE("Master weights in parts give the bits of float master weights in every stage, with poison, too") {
    auto const expected = trained<Whole<0>>(world);
    in_every_stage([&]<int N>() {
        CHECK((trained<Split<N>>(world) == expected));
        CHECK((trained<Split<N>>(world, {.poison = true}) == expected));
        CHECK((trained<Split<N, RoundRobinPartitioner>>(world) == expected));
    });
    CHECK_FALSE((trained<Split<2>>(world, {}, 4, 0.0101) == expected));
    CHECK_FALSE((trained<ZeroStage<2, Parameters<bfloat16>, NoMasterWeights>>(world) == expected));
}

TEST_CASE("Master weights in parts give the bits of float master weights beside the caller's memory") {
    for (auto const storage : {Storage::adopted, Storage::scattered}) {
        auto const expected = trained<Whole<0>>(world, {.storage = storage});
        CHECK((trained<Split<0>>(world, {.storage = storage}) == expected));
        CHECK((trained<Split<1>>(world, {.storage = storage}) == expected));
        CHECK((trained<Split<2>>(world, {.storage = storage, .poison = true}) == expected));
    }
}

TEST_CASE("A skipped step changes no part of a master weight") {
    in_every_stage([]<int N>() {
        auto const kept = on_ranks<std::vector<std::uint32_t>>(1, [](LoopbackCommunicator& communicator) {
            Split<N> engine(communicator, registration<bfloat16>(toy_specs()));
            (void)run_step(engine, 0, 0);
            auto bits = snapshot(engine);
            engine.begin_step();
            for ([[maybe_unused]] auto const micro_step : engine.micro_steps(1)) {
                engine.gradients(1)[1][3] = from_float<bfloat16>(std::numeric_limits<float>::infinity());
                engine.gradients_ready(1);
            }
            bool const is_skipped = engine.step(0.01).report().is_skipped;
            auto const after = snapshot(engine);
            return std::vector<std::uint32_t>{is_skipped, after == bits};
        });
        CHECK((kept[0] == std::vector<std::uint32_t>{1, 1}));
    });
}

TEST_CASE("Parameters that the caller changed are their own master weights: nothing is left of the old ones") {
    struct Seen {
        int left_before = 0, left_after = 0, wrong = 0;
    };
    in_every_stage([]<int N>() {
        auto const ranks = on_ranks<Seen>(world, [](LoopbackCommunicator& communicator) {
            Split<N> engine(communicator, registration<bfloat16>(toy_specs()));
            (void)run_step(engine, static_cast<std::uint64_t>(communicator.rank()), 0);
            Seen seen;
            auto const left = [](auto const& slice) {
                int count = 0;
                for (std::size_t i = 0; i < slice.values.size(); ++i) {
                    count += slice.master_weight(i) == to_float(slice.values[i]) ? 0 : 1;
                }
                return count;
            };
            engine.for_each_owned_slice([&](auto const& slice) {
                seen.left_before += left(slice);
                slice.values[0] = from_float<bfloat16>(3.0F);
            });
            engine.parameters_changed();
            engine.for_each_owned_slice([&](auto const& slice) {
                seen.left_after += left(slice);
                seen.wrong += slice.master_weight(0) == 3.0F ? 0 : 1;
            });
            return seen;
        });
        for (Seen const& seen : ranks) {
            CHECK(seen.left_before > 100);
            CHECK(seen.left_after == 0);
            CHECK(seen.wrong == 0);
        }
    });
}

TEST_CASE("Master weights in parts take two bytes an element and eight for each 64 of a slice") {
    // 500 bfloat16 on one rank: 1000 bytes, 24 of padding, and 8 blocks.
    auto const plan = on_ranks<MemoryPlan>(1, [](LoopbackCommunicator& communicator) {
        Split<2> const engine(communicator, registration<bfloat16, bfloat16>({{"w", 500, {0}, 0, true}}));
        return engine.memory_plan();
    })[0];
    CHECK((plan[BufferKind::master_weights] == MemoryRow{1000 + 64, 24, false}));
}
