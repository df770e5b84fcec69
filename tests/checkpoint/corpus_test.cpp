#include "fuzz_input.hpp"
#include "support/catch.hpp"
#include "support/temporary_folder.hpp"

#include <zero/checkpoint/safetensors_writer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

// The inputs that the fuzzer found, and changes of them: no bytes cause a crash or another
// exception than CheckpointError.

namespace zero::test::corpus_test {

namespace {

std::vector<std::string> corpus() {
    std::vector<std::filesystem::path> files;
    for (auto const& entry :
         std::filesystem::directory_iterator(ZERO_SOURCE_DIR "/tests/checkpoint/corpus")) {
        files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    std::vector<std::string> inputs;
    for (auto const& file : files) {
        inputs.push_back(content_of(file));
    }
    return inputs;
}

bool is_accepted(std::string const& input) {
    return test::is_accepted(reinterpret_cast<std::uint8_t const*>(input.data()), input.size());
}

/// Overwrites, inserts, removes, or copies bytes of another input.
std::string changed(std::string input, std::string const& other, std::mt19937_64& random) {
    auto const below = [&](std::size_t bound) { return bound == 0 ? 0 : random() % bound; };
    for (std::size_t change = 1 + below(4); change != 0; --change) {
        std::size_t const at = below(input.size());
        switch (below(4)) {
        case 0: input.insert(at, 1 + below(3), static_cast<char>(random())); break;
        case 1: input.erase(at, 1 + below(8)); break;
        case 2: input.insert(at, other.substr(below(other.size()), below(32))); break;
        default: input.replace(at, 1, 1, static_cast<char>(random()));
        }
    }
    return input;
}

} // namespace

TEST_CASE("Data files and manifests of any bytes are read or refused") {
    auto const inputs = corpus();
    REQUIRE(inputs.size() > 50);
    auto const accepted = static_cast<std::size_t>(std::count_if(
        inputs.begin(), inputs.end(), [](std::string const& input) { return is_accepted(input); }));
    CHECK(accepted > 3);
    CHECK(accepted < inputs.size() / 2);

    std::mt19937_64 random(7); // NOLINT(cert-msc32-c,cert-msc51-cpp): the same in every run
    for (int run = 0; run < 20'000; ++run) {
        std::string const& input = inputs[random() % inputs.size()];
        (void)is_accepted(changed(input, inputs[random() % inputs.size()], random));
    }
}

} // namespace zero::test::corpus_test
