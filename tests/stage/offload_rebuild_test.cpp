// Buckets are rebuilt while states lie in files.

#include "support/catch.hpp"
#include "support/stages.hpp"

#include "offload_model.hpp"

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
        compare(static_cast<Scaled*>(nullptr),
                static_cast<typename Scaled::template with<Both>*>(nullptr),
                "split masters, scaled states");
    });
}

} // namespace zero::test::offload_rebuild_test
