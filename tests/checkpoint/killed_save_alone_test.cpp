// A process that saves checkpoints is killed at random times. It forks, so this executable has no
// other tests.

#include "support/catch.hpp"
#include "support/safetensors.hpp"
#include "support/temporary_folder.hpp"

#include <zero/checkpoint/checkpoint_directory.hpp>
#include <zero/checkpoint/checkpoint_error.hpp>
#include <zero/checkpoint/manifest.hpp>
#include <zero/checkpoint/safetensors_reader.hpp>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

namespace zero::test::killed_save_alone_test {

namespace {

constexpr std::uint64_t elements = 20'000;

int kills() {
    char const* const text = std::getenv("ZERO_KILLS");
    return text == nullptr ? 60 : std::atoi(text);
}

/// Saves a checkpoint whose manifest holds `number` and whose files are derived from it. Every
/// fourth number also deletes the older checkpoints.
void save(std::filesystem::path const& folder, std::uint64_t number) {
    CheckpointDirectory const directory(folder);
    // Three names in turn: most checkpoints replace another.
    std::string const name = "step-" + std::to_string(number % 3);
    directory.begin(name);
    Manifest manifest;
    manifest.types = {{{"parameter", "U8"}}};
    manifest.parameters = {{"x", {2 * elements}, 0, 0, true, {}}};
    manifest.scalars.counts["number"] = number;
    for (std::uint64_t file = 0; file < 2; ++file) {
        std::string const own = "rank-" + std::to_string(file) + ".safetensors";
        ManifestInterval const interval{file, file * elements, (file + 1) * elements};
        manifest.parameters[0].intervals.push_back(interval);
        std::string const tensor =
            tensor_name(manifest.types[0][0], manifest.parameters[0], interval);
        manifest.files.push_back(
            {own, write_tensors(directory.incomplete(name) / own, {{tensor, "U8", {elements}}},
                                numbered_bytes(elements, number + file))});
    }
    set_content(directory.incomplete(name) / "manifest.json", manifest.to_json());
    directory.publish(name);
    if (number % 4 == 0) {
        directory.keep_last(1);
    }
}

/// Returns the number of a checkpoint; throws unless it is complete and belongs together.
std::uint64_t verified_number(std::filesystem::path const& checkpoint) {
    Manifest const manifest = Manifest::read(checkpoint);
    std::uint64_t const number = manifest.scalars.counts.at("number");
    for (ManifestInterval const& interval : manifest.parameters.at(0).intervals) {
        ManifestFile const& file = manifest.files.at(static_cast<std::size_t>(interval.file));
        SafetensorsReader reader(checkpoint / file.name, file.checksum);
        TensorEntry const* const tensor =
            reader.find(tensor_name(manifest.types[0][0], manifest.parameters[0], interval));
        if (tensor == nullptr
            || bytes_of(reader, *tensor) != numbered_bytes(elements, number + interval.file)) {
            throw CheckpointError("the data of '" + file.name + "' belongs to another checkpoint");
        }
    }
    return number;
}

/// Saves in a child process, which is killed after a time. That is not before the latest checkpoint
/// has the number `awaited`.
void save_and_kill(std::filesystem::path const& folder, std::uint64_t first, std::uint64_t awaited,
                   ::useconds_t after) {
    pid_t const child = ::fork();
    if (child == 0) {
        try {
            for (std::uint64_t number = first;; ++number) {
                save(folder, number);
            }
        } catch (...) {
            ::_exit(1);
        }
    }
    REQUIRE(child > 0);
    CheckpointDirectory const directory(folder);
    auto const latest = [&] {
        auto const manifest = Manifest::read(directory.path(directory.latest().value()));
        return manifest.scalars.counts.at("number");
    };
    for (int wait = 0; wait < 10'000 && latest() < awaited; ++wait) {
        ::usleep(1000);
    }
    ::usleep(after);
    ::kill(child, SIGKILL);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status)); // otherwise a save has failed
}

} // namespace

TEST_CASE("Whenever a save is killed, the latest checkpoint is complete and the newest published") {
    TemporaryFolder const folder;
    CheckpointDirectory const directory(folder.path());
    save(folder.path(), 1);
    std::uint64_t number = verified_number(directory.path(directory.latest().value()));
    CHECK(number == 1);
    std::mt19937 random(11);
    std::uint64_t saved = 0;
    std::size_t interrupted = 0;
    for (int turn = 0; turn < kills(); ++turn) {
        save_and_kill(folder.path(), number + 1, turn % 4 == 0 ? number + 1 : 0,
                      static_cast<::useconds_t>(random() % 20'000));
        auto const latest = directory.latest();
        REQUIRE(latest.has_value());
        std::uint64_t const found = verified_number(directory.path(*latest));
        CHECK(found >= number);
        saved += found - number;
        number = found;
        for (std::string const& name : directory.complete()) {
            CHECK("step-" + std::to_string(verified_number(directory.path(name)) % 3) == name);
        }
        for (auto const& entry : std::filesystem::directory_iterator(folder.path())) {
            interrupted += entry.path().filename().string().starts_with(".") ? 1U : 0U;
        }
    }
    // Most kills hit a save. The incomplete checkpoints that they left are removed.
    CHECK(interrupted > 0);
    directory.begin("step-9");
    for (auto const& entry : std::filesystem::directory_iterator(folder.path())) {
        std::string const name = entry.path().filename().string();
        CHECK((name == ".incomplete-step-9" || !name.starts_with(".")));
    }
    UNSCOPED_INFO(saved << " checkpoints saved, " << interrupted << " saves interrupted");
    CHECK(saved >= static_cast<std::uint64_t>(kills() / 4));
}

} // namespace zero::test::killed_save_alone_test
