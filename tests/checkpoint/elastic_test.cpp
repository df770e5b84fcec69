// A run that goes on with another number of ranks has the bits of one that never stopped.

#include "stage/tree_model.hpp"
#include "support/catch.hpp"
#include "support/outcome.hpp"
#include "support/temporary_folder.hpp"

#include <zero/checkpoint/checkpoint.hpp>
#include <zero/comm/hierarchical.hpp>
#include <zero/zero.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

namespace zero::test::elastic_test {

namespace {

using namespace zero::test::tree; // NOLINT(google-build-using-namespace): one test's model

using Levels = Hierarchical<LoopbackCommunicator, LoopbackCommunicator>;

template <int N, class C = LoopbackCommunicator>
using Half = ZeroStage<N, Parameters<bfloat16>, TreeReduction<>, C>;

/// Loads the last checkpoint of a folder, if there is one, trains to a step, and saves. Over
/// `Levels` two ranks each are an inner group.
template <class Stage>
std::vector<Seen> train_to(int world, std::uint64_t end, TemporaryFolder const& folder,
                           Job const& job, LoadOptions const& load = {}) {
    auto const body = [&](auto& communicator) {
        typename Stage::Options options;
        if constexpr (zero::detail::config_of_t<Stage>::adds_in_tree) {
            tree::configure(options, job);
        }
        Stage engine(communicator, registration<typename Stage::ParameterType>(job.specs), options);
        if (CheckpointDirectory(folder.path()).latest()) {
            load_checkpoint(engine, folder.path(), load);
        }
        std::vector<Seen> result;
        while (engine.step_count() < end) {
            if constexpr (zero::detail::config_of_t<Stage>::adds_in_tree) {
                auto const report = tree::run_step(engine, job, engine.step_count());
                result.assign(1, seen(engine, report, job));
            }
        }
        save_checkpoint(engine, folder.path());
        return result;
    };
    return joined(on_ranks<std::vector<Seen>>(world, [&](LoopbackCommunicator& all) {
        if constexpr (std::is_same_v<typename Stage::Communicator, Levels>) {
            LoopbackCommunicator intra = all.split(all.rank() / 2, all.rank());
            LoopbackCommunicator inter = all.split(all.rank() % 2, all.rank());
            Levels levels(intra, inter);
            return body(levels);
        } else {
            return body(all);
        }
    }));
}

} // namespace

TEST_CASE("A run on 8 ranks goes on with 4, 2, 1 and 8, in other stages, to the bits of each that "
          "never stopped") {
    Job const job{.micro_batches = 8};
    TemporaryFolder const whole;
    auto const expected = train_to<Half<2>>(8, 8, whole, job);
    for (int const world : {1, 2, 4}) {
        TemporaryFolder const other;
        CHECK((train_to<Half<3>>(world, 8, other, job) == expected));
    }
    TemporaryFolder const parts;
    (void)train_to<Half<2>>(8, 2, parts, job);
    (void)train_to<Half<3>>(4, 3, parts, job);
    (void)train_to<Half<0>>(2, 5, parts, job);
    (void)train_to<Half<1>>(1, 6, parts, job);
    CHECK((train_to<Half<2>>(8, 8, parts, job) == expected));
}

TEST_CASE("A run on two levels goes on with one, and back, to the bits of one that never stopped") {
    Job const job{.micro_batches = 8};
    TemporaryFolder const whole;
    auto const expected = train_to<Half<2>>(1, 6, whole, job);
    TemporaryFolder const parts;
    (void)train_to<Half<2, Levels>>(8, 2, parts, job);
    (void)train_to<Half<3, Levels>>(4, 3, parts, job);
    (void)train_to<Half<1>>(2, 4, parts, job);
    CHECK((train_to<Half<0, Levels>>(4, 6, parts, job) == expected));
}

TEST_CASE("A run with another tree is refused, unless it is asked for") {
    Job const job{.micro_batches = 12, .group = 3};
    TemporaryFolder const folder;
    (void)train_to<Half<2>>(2 + 1, 1, folder, job);
    auto const message = [&](Job const& other) {
        return outcome_of([&] { (void)train_to<Half<2>>(1, 2, folder, other); }).message;
    };
    std::string const end = ", so the run would go on with other bits; set reduction.micro_batches "
                            "and micro_batch_group of TreeReduction as they were, or "
                            "LoadOptions::may_differ.";
    std::string const stored =
        " gradients were added in a tree of 12 micro-batches in groups of 3, and the engine adds ";
    CHECK(message({.micro_batches = 6, .group = 3}).find(stored + "6 in groups of 3" + end)
          != std::string::npos);
    CHECK(message({.micro_batches = 12}).find(stored + "12 in groups of 1" + end)
          != std::string::npos);
    auto const in_rank_order =
        outcome_of([&] { (void)train_to<ZeroStage<2, Parameters<bfloat16>>>(1, 1, folder, job); });
    CHECK(in_rank_order.message.find(stored + "in rank order" + end) != std::string::npos);
    CHECK(train_to<Half<2>>(1, 2, folder, {.micro_batches = 4}, {.may_differ = true}).size() == 1);
}

} // namespace zero::test::elastic_test
