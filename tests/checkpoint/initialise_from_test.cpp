#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/temporary_folder.hpp"
#include "support/toy_model.hpp"

#include <zero/checkpoint/checkpoint.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

// Initial values from a file: read by rank 0 and sent, or by each rank for what it owns.

namespace zero::test::initialise_from_test {

namespace {

constexpr std::size_t elements = 100000;

std::vector<Parameter<float>> registration_of(Initialiser<float> const& fill, bool is_everywhere) {
    Parameter<float> parameter;
    parameter.name = "weight";
    parameter.elements = elements;
    parameter.initialise = fill;
    parameter.is_deterministic = is_everywhere;
    return {parameter};
}

struct Seen {
    std::vector<std::vector<float>> values;
    std::uint64_t bytes = 0; ///< bytes read from the file
    std::uint64_t sent = 0;  ///< elements that were broadcast
};

/// Makes engines with initial values from a file. Each rank has its own reader, or all share one.
std::vector<Seen> make(std::filesystem::path const& file, bool is_everywhere,
                       std::shared_ptr<CheckpointReader> const& shared = nullptr) {
    return on_ranks<Seen>(4, [&](LoopbackCommunicator& communicator) {
        auto const reader =
            shared ? shared : std::make_shared<CheckpointReader>(CheckpointReader::of_file(file));
        std::uint64_t const before = reader->bytes_read();
        ZeroStage<3> engine(
            communicator, registration_of(initialise_from<float>(reader, "weight"), is_everywhere));
        return Seen{full_parameters(engine), reader->bytes_read() - before,
                    communicator.traffic()[CollectiveKind::broadcast].elements};
    });
}

} // namespace

TEST_CASE("Each rank reads the part of a file that it owns, and nothing is sent") {
    TemporaryFolder const folder;
    auto const file = folder / "model.safetensors";
    auto const saved =
        on_ranks<std::vector<std::vector<float>>>(2, [&](LoopbackCommunicator& communicator) {
            auto const noisy = [](std::size_t begin, std::span<float> values) {
                for (std::size_t i = 0; i < values.size(); ++i) {
                    values[i] = noise(1, 2, begin + i);
                }
            };
            ZeroStage<3> engine(communicator, registration_of(noisy, true));
            save_parameters(engine, file);
            return full_parameters(engine);
        })[0];
    std::uint64_t const quarter = elements;  // bytes
    std::uint64_t const overhead = 3 * 4096; // blocks at both ends, and their checksums
    for (Seen const& rank : make(file, true)) {
        CHECK(rank.values == saved);
        CHECK(rank.bytes >= quarter - 256); // the last rank owns padding
        CHECK(rank.bytes <= quarter + 256 + overhead);
        CHECK(rank.sent == 0);
    }
    auto const by_rank_0 = make(file, false);
    CHECK(by_rank_0[0].values == saved);
    CHECK(by_rank_0[0].bytes >= 4 * quarter);
    CHECK(by_rank_0[1].bytes == 0);
    CHECK(by_rank_0[1].sent >= elements);
    // threads of one process may share a reader
    auto const reader = std::make_shared<CheckpointReader>(CheckpointReader::of_file(file));
    for (Seen const& rank : make(file, true, reader)) {
        CHECK(rank.values == saved);
    }
}

TEST_CASE("A file without the tensor is an error on the ranks that read it") {
    TemporaryFolder const folder;
    auto const file = folder / "model.safetensors";
    on_ranks<int>(1, [&](LoopbackCommunicator& communicator) {
        ZeroStage<3> engine(communicator, registration_of({}, true));
        save_parameters(engine, file);
        return 0;
    });
    auto const outcomes = run_and_observe(2, [&](LoopbackCommunicator& communicator) {
        auto const reader = std::make_shared<CheckpointReader>(CheckpointReader::of_file(file));
        ZeroStage<3> engine(communicator,
                            registration_of(initialise_from<float>(reader, "weigth"), true));
    });
    for (Outcome const& outcome : outcomes.ranks) {
        bool const is_own = outcome.message.find("has no parameter 'weigth'") != std::string::npos;
        CHECK((is_own || outcome.type == "Aborted"));
    }
}

} // namespace zero::test::initialise_from_test
