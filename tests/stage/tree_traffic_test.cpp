// What a step with `TreeReduction` moves on one level.

#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/stages.hpp"
#include "support/toy_model.hpp"

#include <zero/comm/recording.hpp>
#include <zero/layout/communication_model.hpp>
#include <zero/zero.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace zero::test::tree_traffic_test {

namespace {

constexpr std::size_t micro_batches = 8;
constexpr auto scatters = CollectiveKind::reduce_scatter;
constexpr auto gathers = CollectiveKind::all_gather;
constexpr auto reduces = CollectiveKind::all_reduce;

/// The traffic of one rank in a step.
struct Moved {
    TrafficCount sent, read;
    Traffic formula;
};

/// @tparam Reduction in a tree, or in rank order
template <int N, class Reduction>
std::vector<Moved> moved(int world) {
    constexpr bool in_tree = !std::is_same_v<Reduction, GradientReduction<>>;
    return on_ranks<Moved>(world, [&](LoopbackCommunicator& loopback) {
        Recording<LoopbackCommunicator> communicator(loopback);
        using Stage =
            ZeroStage<N, Parameters<bfloat16>, Reduction, Recording<LoopbackCommunicator>>;
        typename Stage::Options options;
        if constexpr (requires { options.bucketer.bucket_bytes; }) {
            options.bucketer.bucket_bytes = 600;
        }
        options.reduction.schedule = ReductionSchedule::every_micro_step;
        options.reduction.micro_batches = in_tree ? micro_batches : 0;
        Stage engine(communicator, registration<bfloat16>(toy_specs()), options);
        auto const rank = static_cast<std::size_t>(communicator.rank());
        std::size_t const micro_steps = micro_batches / static_cast<std::size_t>(world);
        communicator.reset_recorded();
        loopback.reset_traffic();
        engine.begin_step();
        std::vector<std::size_t> acquired;
        for (auto const micro_step : engine.micro_steps(micro_steps)) {
            run_micro_step(engine, rank, 0, micro_step.value);
            for (std::size_t unit = 0; unit < engine.layout().units(); ++unit) {
                acquired.push_back(unit);
            }
            for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
                acquired.push_back(unit);
            }
        }
        (void)engine.step(0.1).report();
        return Moved{communicator.recorded(), loopback.traffic(),
                     step_traffic_of_rank(engine.layout(), rank, N,
                                          ReductionSchedule::every_micro_step, micro_steps,
                                          acquired, {}, in_tree)};
    });
}

} // namespace

TEST_CASE("A tree moves the bytes of rank order in stages 1 to 3; stage 0 scatters, and gathers "
          "floats once a step") {
    in_every_stage([]<int N>() {
        for (int const world : {2, 4, 8}) {
            INFO("stage " << N << ", W = " << world);
            auto const tree = moved<N, TreeReduction<>>(world);
            auto const ranks = moved<N, GradientReduction<>>(world);
            for (std::size_t rank = 0; rank < tree.size(); ++rank) {
                TrafficCount const& sent = tree[rank].sent;
                TrafficCount const& read = tree[rank].read;
                Traffic const& formula = tree[rank].formula;
                CHECK(sent[scatters].bytes > 0);
                CHECK(read[scatters].elements == formula.reduce_scatter);
                CHECK(read[gathers].elements == formula.all_gather);
                CHECK(read[reduces].elements == formula.all_reduce);
                if (N != 0) {
                    for (auto const kind : {scatters, gathers, reduces}) {
                        CHECK(sent[kind].bytes == ranks[rank].sent[kind].bytes);
                        CHECK(sent[kind].calls == ranks[rank].sent[kind].calls);
                        CHECK(read[kind].bytes == ranks[rank].read[kind].bytes);
                    }
                    continue;
                }
                std::size_t const micro_steps = micro_batches / static_cast<std::size_t>(world);
                CHECK(sent[reduces].bytes == 0);
                CHECK(sent[scatters].elements == micro_steps * sent[gathers].elements);
                CHECK(sent[scatters].bytes == 2 * sent[scatters].elements);
                CHECK(sent[gathers].bytes == 4 * sent[gathers].elements);
            }
        }
    });
}

} // namespace zero::test::tree_traffic_test
