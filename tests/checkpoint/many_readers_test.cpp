#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/sanitizers.hpp"
#include "support/temporary_folder.hpp"

#include <zero/checkpoint/load_checkpoint.hpp>
#include <zero/checkpoint/save_checkpoint.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cstddef>
#include <string>
#include <vector>

// A rank reads little more than its share of a checkpoint, whichever ranks wrote it.

namespace zero::test::many_readers_test {

namespace {

using Stage = ZeroStage<3, Parameters<bfloat16>>;

// A sanitizer makes each element expensive. A quarter of the ranks then share a quarter of the
// elements, so a rank reads as many as without it.
constexpr int divisor = has_address_sanitizer || has_thread_sanitizer ? 4 : 1;
constexpr int readers = 64 / divisor;
constexpr std::size_t layers = 6;
constexpr std::size_t layer_elements = 768 + (4'000'003 / divisor | 1);

/// 24 million elements. The shares of the ranks cut every matrix. A layer is a unit, because each
/// rank holds leases for the largest unit.
std::vector<Parameter<bfloat16>> model() {
    std::vector<Parameter<bfloat16>> parameters;
    for (std::size_t layer = 0; layer < layers; ++layer) {
        std::string const name = std::to_string(layer);
        parameters.push_back({.name = name + ".norm", .elements = 768, .units = {layer}});
        parameters.push_back(
            {.name = name + ".weight", .elements = layer_elements - 768, .units = {layer}});
    }
    return parameters;
}

} // namespace

TEST_CASE("A rank of 64 reads at most 1.05 times what it needs of a checkpoint of 8") {
    TemporaryFolder const folder;
    run_ranks(8, test_time_out, [&](LoopbackCommunicator& communicator) {
        Stage engine(communicator, model());
        save_checkpoint(engine, folder.path());
    });
    for (bool const verify_first : {false, true}) {
        auto const reports = on_ranks<LoadReport>(readers, [&](LoopbackCommunicator& communicator) {
            Stage engine(communicator, model());
            return load_checkpoint(engine, folder.path(), {.verify_first = verify_first});
        });
        std::size_t total = 0;
        for (std::size_t rank = 0; rank < reports.size(); ++rank) {
            auto const needed = static_cast<double>(reports[rank].bytes_needed);
            double const passes = verify_first ? 2 : 1;
            double const ratio = static_cast<double>(reports[rank].bytes_read) / (needed * passes);
            INFO("rank " << rank << " reads " << ratio << " times its " << needed << " bytes");
            CHECK(ratio <= 1.05);
            CHECK(ratio > 1); // control: the checksums are counted
            total += reports[rank].bytes_needed;
        }
        CHECK(total == layers * layer_elements * (2 + 4 + 4 + 4));
    }
}

TEST_CASE("Rank 0 lists the intervals of all ranks for the manifest, another rank only its own") {
    struct Seen {
        std::size_t listed = 0;
        std::size_t own = 0;
    };
    auto const seen = on_ranks<Seen>(5, [&](LoopbackCommunicator& communicator) {
        std::vector<Parameter<bfloat16>> parameters;
        for (std::size_t index = 0; index < 200; ++index) {
            parameters.push_back({.name = std::to_string(index), .elements = 400 + index});
        }
        Stage engine(communicator, parameters);
        auto const access = detail::access_to(engine);
        detail::SavePlan const plan(access, "", {});
        Seen counted;
        for (ManifestParameter const& parameter : plan.manifest.parameters) {
            for (ManifestInterval const& interval : parameter.intervals) {
                ++counted.listed;
                counted.own += interval.file == access.rank() ? 1U : 0U;
            }
        }
        return counted;
    });
    std::size_t all = 0;
    for (std::size_t rank = 0; rank < seen.size(); ++rank) {
        CHECK(seen[rank].own > 0);
        CHECK((rank == 0 || seen[rank].listed == seen[rank].own));
        all += seen[rank].own;
    }
    CHECK(seen[0].listed == all);
}

} // namespace zero::test::many_readers_test
