#include "support/catch.hpp"
#include "support/stages.hpp"
#include "support/temporary_folder.hpp"
#include "support/trained.hpp"

#include <zero/stage/offload.hpp>

#include <cstddef>
#include <string>

namespace zero::test::offload_test {

using States = Offload<To<FileTier, BufferKind::optimizer_state, BufferKind::master_weights>>;

TEST_CASE("States in a file train to the bits of states in memory, in every stage") {
    TemporaryFolder const folder;
    in_every_stage([&]<int N>() {
        using InMemory = ZeroStage<N, Parameters<bfloat16>>;
        using InFile = ZeroStage<N, Parameters<bfloat16>, States>;
        for (int const world : {1, 2, 3}) {
            INFO("W = " << world);
            auto const expected = trained<InMemory>(world);
            for (double const ratio : {0.0, 0.37, 1.0}) {
                auto const found = trained<InFile>(world, {.offload = {.path = folder.path(),
                                                                       .chunk_bytes = 4096,
                                                                       .ratio = ratio,
                                                                       .allow_page_cache = true}});
                CHECK((found == expected));
            }
        }
    });
}

} // namespace zero::test::offload_test
