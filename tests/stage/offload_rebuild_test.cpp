// Buckets are rebuilt while states lie in files.

#include "support/catch.hpp"
#include "support/stages.hpp"

#include "offload_model.hpp"

#include <zero/stage/training_state.hpp>
#include <zero/zero.hpp>

namespace zero::test::offload_rebuild_test {

namespace {

using Both = Offload<To<FileTier, BufferKind::optimizer_state, BufferKind::master_weights>>;
using StatesOnly = Offload<To<FileTier, BufferKind::optimizer_state>>;

} // namespace

TEST_CASE("Rebuilt buckets move states from one file to another and change no bit") {
    in_every_stage([&]<int N>() {
        auto const compare = [&]<class InMemory, class InFile>(InMemory*, InFile*,
                                                               char const* name) {
            constexpr int world = 3;
            Training const training{.order = {1, 3, 0, 2, 4}};
            auto const expected = trained<InMemory>(world, {.extra_leases = 8}, training);
            for (double const ratio : {0.5, 1.0}) {
                INFO(name << ", ratio " << ratio);
                TemporaryFolder const folder;
                DelayedFiles files(N);
                auto const found = trained<InFile>(world,
                                                   {.rebuild_buckets = InFile::in_ready_order,
                                                    .leases_until_rebuild = 8,
                                                    .bucketer = {.bucket_bytes = 1024},
                                                    .offload = {.path = folder.path(),
                                                                .chunk_bytes = 1500,
                                                                .depth = 2,
                                                                .ratio = ratio,
                                                                .calls = &files}},
                                                   training);
                CHECK((found == expected));
                CHECK(files.created == 2 * world); // the second for the new layout
                CHECK(files.closed == files.created);
            }
        };
        using Half = Parameters<bfloat16>;
        using Capped = ZeroStage<N, Half, SizeCappedBucketer>;
        using Scaled =
            ZeroStage<N, Half, SizeCappedBucketer, SplitMasterWeights, BlockScaledState<float16>>;
        compare(static_cast<Capped*>(nullptr),
                static_cast<typename Capped::template with<Both>*>(nullptr), "copied masters");
        compare(static_cast<Capped*>(nullptr),
                static_cast<typename Capped::template with<StatesOnly>*>(nullptr), "states only");
        compare(static_cast<Capped*>(nullptr),
                static_cast<typename Capped::template with<OffloadAll<N>>*>(nullptr), "all");
        compare(static_cast<Scaled*>(nullptr),
                static_cast<typename Scaled::template with<OffloadAll<N>>*>(nullptr),
                "split masters, scaled states");
    });
}

TEST_CASE("Without room for a second file the rebuild fails, and what was trained can be read") {
    using InMemory = ZeroStage<2, Parameters<bfloat16>, SizeCappedBucketer>;
    using InFile = InMemory::with<Both>;
    constexpr std::size_t order[]{1, 3, 0, 2, 4};
    TemporaryFolder const folder;
    DelayedFiles files(7);
    files.room = 1;
    auto const outcomes = run_and_observe(1, [&](LoopbackCommunicator& communicator) {
        auto const train = [&](auto& engine) {
            (void)run_step(engine, 0, 0, 1, 0.01, 24, {std::begin(order), std::end(order)});
        };
        InMemory expected(communicator, registration<bfloat16>(toy_specs()),
                          {.bucketer = {.bucket_bytes = 1024}});
        train(expected);
        InFile engine(communicator, registration<bfloat16>(toy_specs()),
                      {.rebuild_buckets = InFile::in_ready_order,
                       .leases_until_rebuild = 8,
                       .bucketer = {.bucket_bytes = 1024},
                       .offload = {.path = folder.path(), .chunk_bytes = 1500, .calls = &files}});
        auto const outcome = outcome_of([&] { train(engine); });
        CHECK_THAT(outcome.message, contains_text("has no room for a file of"));
        TrainingState right(expected);
        TrainingState found(engine);
        std::size_t values = 0;
        for (std::size_t p = 0; p < toy_specs().size(); ++p) {
            if (toy_specs()[p].trainable) {
                std::vector<float> all[2];
                for (auto const& slice : right.local_optimizer_state(p, "exp_avg")) {
                    all[0].insert(all[0].end(), slice.values.begin(), slice.values.end());
                }
                for (auto const& slice : found.local_optimizer_state(p, "exp_avg")) {
                    all[1].insert(all[1].end(), slice.values.begin(), slice.values.end());
                }
                values += all[0].size();
                CHECK(all[0] == all[1]);
            }
        }
        CHECK(values > 100);
    });
    CHECK(outcomes.ranks[0].message.empty());
    CHECK(files.closed == files.created);
}

} // namespace zero::test::offload_rebuild_test
