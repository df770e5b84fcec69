#include "support/allocation_count.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/stages.hpp"
#include "support/temporary_folder.hpp"
#include "support/toy_model.hpp"

#include <zero/checkpoint/checkpoint_reader.hpp>
#include <zero/checkpoint/checkpoint_saver.hpp>
#include <zero/checkpoint/detail/load_state.hpp>
#include <zero/checkpoint/detail/safetensors_header.hpp>
#include <zero/checkpoint/load_checkpoint.hpp>
#include <zero/checkpoint/manifest.hpp>
#include <zero/checkpoint/save_checkpoint.hpp>
#include <zero/stage/detail/state/state_access.hpp>
#include <zero/stage/detail/state/state_table.hpp>
#include <zero/stage/offload.hpp>
#include <zero/stage/zero_stage.hpp>

#include <algorithm>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <new>
#include <string>
#include <vector>

// The memory that saving and loading take, and the allocations of later steps. The replaced global
// operators count on every thread.

using namespace zero;
using namespace zero::test;

namespace {

constexpr int world = 2;
constexpr long long mebibyte = 1 << 20;

using Stage = ZeroStage<2, Parameters<bfloat16>>;

std::vector<Parameter<bfloat16>> model(std::size_t elements) {
    std::vector<Parameter<bfloat16>> parameters;
    for (char const* const name : {"a", "b", "c", "d"}) {
        parameters.push_back({.name = name, .elements = elements});
    }
    return parameters;
}

/// Returns the largest additional memory of all ranks while they run `act(engine, folder)`, whose
/// peaks may or may not coincide. A first run is not measured, because it may allocate memory that
/// stays.
/// The files exist before.
template <class Own = Stage, class Act>
long long additional_bytes(std::size_t elements, Act const& act,
                           typename Own::Options const& options = {}) {
    TemporaryFolder const folder;
    std::barrier<> barrier(world);
    long long before = 0;
    long long peak = 0;
    run_ranks(world, test_time_out, [&](LoopbackCommunicator& communicator) {
        Own engine(communicator, model(elements), options);
        save_checkpoint(engine, folder.path(), {.name = "first"});
        act(engine, folder.path());
        barrier.arrive_and_wait();
        if (communicator.rank() == 0) {
            before = live_bytes;
            peak_bytes = before;
        }
        barrier.arrive_and_wait();
        act(engine, folder.path());
        barrier.arrive_and_wait();
        if (communicator.rank() == 0) {
            peak = peak_bytes;
        }
        barrier.arrive_and_wait();
    });
    return peak - before;
}

constexpr std::size_t small = std::size_t{1} << 18U;
constexpr std::size_t large = std::size_t{1} << 21U; ///< 58 MB per rank
/// Eight bytes for each 512 KiB of all files, in lists that grow by doubling.
constexpr long long checksums = 4 * large * 14 / (1 << 19) * 8;

} // namespace

TEST_CASE("Live bytes count what is allocated until it is freed") {
    long long const before = live_bytes;
    auto* const memory = new std::vector<char>(1000);
    CHECK(live_bytes - before >= 1000);
    CHECK(live_bytes - before < 1200);
    delete memory;
    CHECK(live_bytes == before);
    CHECK(peak_bytes - before >= 1000);
}

TEST_CASE("Saving takes one buffer a rank, whatever the size of the model") {
    auto const save = [](Stage& engine, auto const& folder) {
        save_checkpoint(engine, folder, {.name = "checkpoint"});
    };
    long long const of_small = additional_bytes(small, save);
    long long const of_large = additional_bytes(large, save);
    INFO(of_small << " and " << of_large);
    CHECK(of_small > world * mebibyte / 2); // control: the buffers are counted
    CHECK(of_large < world * mebibyte + 300'000 + 4 * checksums);
}

TEST_CASE("Loading takes small buffers, whatever the size of the model") {
    auto const load = [](Stage& engine, auto const& folder) {
        load_checkpoint(engine, folder, {.name = "first"});
    };
    long long const of_small = additional_bytes(small, load);
    long long const of_large = additional_bytes(large, load);
    INFO(of_small << " and " << of_large);
    CHECK(of_small > 0);
    CHECK(of_large < world * mebibyte + 4 * checksums);
}

TEST_CASE("Loading from the disks of others takes 11 MiB a rank, whatever the size of the model") {
    auto const load = [](Stage& engine, auto const& folder) {
        std::size_t const rank = detail::access_to(engine).rank();
        save_checkpoint(engine, folder / std::to_string(rank), {.own_disks = true});
        load_checkpoint(engine, folder / std::to_string(1 - rank), {.own_disks = true});
    };
    long long const of_large = additional_bytes(large, load);
    INFO(of_large);
    CHECK(of_large > world * 8 * mebibyte); // control: the pieces are counted
    CHECK(of_large < world * 12 * mebibyte + 300'000 + 4 * checksums);
}

TEST_CASE("Saving in the background takes the copy that it announces, once") {
    TemporaryFolder const folder;
    run_ranks(1, test_time_out, [&](LoopbackCommunicator& communicator) {
        Stage engine(communicator, model(large));
        CheckpointSaver saver(engine, folder.path());
        CHECK(saver.snapshot_bytes() == 0);
        long long const before = live_bytes;
        saver.start({.name = "one"});
        saver.wait();
        CHECK(saver.snapshot_bytes() == 4 * large * (2 + 4 + 4 + 4));
        long long const after = live_bytes;
        CHECK(after - before >= static_cast<long long>(saver.snapshot_bytes()));
        CHECK(after - before < static_cast<long long>(saver.snapshot_bytes()) + mebibyte / 4);
        saver.start({.name = "two"});
        saver.wait();
        CHECK(live_bytes - after < mebibyte / 4);
    });
}

TEST_CASE("Saving and loading states in files takes one buffer a rank, and no copy of them") {
    using InFile =
        ZeroStage<2, Parameters<bfloat16>,
                  Offload<To<FileTier, BufferKind::optimizer_state, BufferKind::master_weights>>>;
    TemporaryFolder const tier;
    InFile::Options options;
    options.offload = {
        .path = tier.path(), .chunk_bytes = 1 << 20, .depth = 1, .allow_page_cache = true};
    auto const act = [](InFile& engine, auto const& folder) {
        save_checkpoint(engine, folder, {.name = "now"});
        CheckpointSaver saver(engine, folder);
        saver.start({.name = "behind"});
        saver.wait();
        load_checkpoint(engine, folder, {.name = "now"});
    };
    long long const bytes = additional_bytes<InFile>(large, act, options);
    INFO(bytes);
    CHECK(bytes > world * 4 * mebibyte); // control: the buffers are counted
    CHECK(bytes < world * 6 * mebibyte); // a rank has 50 MB of states
}

TEST_CASE("Steps allocate nothing after a checkpoint was saved or loaded, in any stage") {
    in_every_stage([&]<int N>() {
        TemporaryFolder const folder;
        std::barrier<> barrier(world);
        allocations = 0;
        run_ranks(world, test_time_out, [&](LoopbackCommunicator& communicator) {
            auto const rank = static_cast<std::uint64_t>(communicator.rank());
            ZeroStage<N> engine(communicator, registration<float>(toy_specs()));
            CheckpointSaver saver(engine, folder.path());
            auto const count_step = [&](std::uint64_t step) {
                barrier.arrive_and_wait();
                is_counting = true;
                barrier.arrive_and_wait();
                (void)run_step(engine, rank, step).report();
                barrier.arrive_and_wait();
                is_counting = false;
                barrier.arrive_and_wait();
            };
            (void)run_step(engine, rank, 0).report(); // the first may allocate
            save_checkpoint(engine, folder.path(), {.name = "now"});
            count_step(1);
            load_checkpoint(engine, folder.path(), {.name = "now"});
            count_step(2);
            saver.start({.name = "behind"});
            saver.wait();
            count_step(3);
        });
        CHECK(allocations.load() == 0);
    });
}

namespace {

/// Adds parameters of 200 intervals each to a manifest.
void add_intervals(Manifest& manifest, std::size_t parameters) {
    constexpr std::uint64_t each = 1'000'000;
    if (manifest.types.empty()) {
        manifest.types = {{{"parameter", "F32", 1, true}}};
        manifest.files = {{"rank-0", 1}};
    }
    ManifestParameter parameter{.name = "", .shape = {200, each}, .intervals = {}};
    for (std::uint64_t part = 0; part < 200; ++part) {
        parameter.intervals.push_back({0, part * each, (part + 1) * each});
    }
    for (std::size_t index = 0; index < parameters; ++index) {
        parameter.name = std::to_string(index);
        manifest.parameters.push_back(parameter);
    }
}

/// Returns the largest additional memory while `act()` runs.
template <class Act>
long long additional_bytes_of(Act const& act) {
    long long const before = live_bytes;
    peak_bytes = before;
    act();
    return peak_bytes - before;
}

} // namespace

TEST_CASE("Reading a manifest of many intervals takes little more than their 24 bytes each") {
    Manifest manifest;
    add_intervals(manifest, 100);
    std::string const json = manifest.to_json();
    Manifest found;
    auto const bytes =
        static_cast<double>(additional_bytes_of([&] { found = Manifest::from_json(json, "here"); }))
        / (100 * 200);
    INFO(bytes << " bytes for each interval");
    CHECK(bytes < 30);
    CHECK(bytes >= 24); // control: they are counted
    CHECK(found.to_json() == json);
}

TEST_CASE("Writing a manifest and checking it takes small buffers, whatever its size") {
    Manifest manifest;
    add_intervals(manifest, 500);
    TemporaryFolder const folder;
    CHECK(additional_bytes_of([&] { detail::write_manifest(folder.path(), manifest); }) < 512'000);
    CHECK(std::filesystem::file_size(folder / Manifest::file) > 4 * mebibyte);
    CHECK(additional_bytes_of([&] { (void)Manifest::read(folder.path()); })
          > 500 * 200 * 24); // control: reading all of it takes more
    CHECK(Manifest::read(folder.path()).to_json() == manifest.to_json());
}

TEST_CASE("Loading keeps no interval of which this rank needs nothing") {
    TemporaryFolder const folder;
    run_ranks(1, test_time_out, [&](LoopbackCommunicator& communicator) {
        Stage engine(communicator, model(64));
        save_checkpoint(engine, folder.path(), {.name = "one"});
        Manifest manifest = Manifest::read(folder / "one");
        add_intervals(manifest, 500); // of parameters that the model lacks
        std::filesystem::remove(folder / "one/manifest.json");
        detail::write_manifest(folder / "one", manifest);
        manifest = {};
        CHECK(additional_bytes_of(
                  [&] { load_checkpoint(engine, folder.path(), {.may_differ = true}); })
              < mebibyte);
        CHECK(additional_bytes_of([&] { (void)CheckpointReader(folder / "one"); })
              > 500 * 200 * 24); // control
    });
}

TEST_CASE("A rank of stage 3 keeps the intervals of its own file only, one of stage 2 all") {
    TemporaryFolder const folder;
    std::vector<std::size_t> own(world);
    std::vector<std::size_t> others(world);
    std::vector<std::size_t> in_stage_2(world);
    std::size_t all = 0;
    auto const count = [&](auto& engine, auto const& visit) {
        auto const access = detail::access_to(engine);
        detail::StateTable const table(access.layout(), access.arrays());
        Manifest const manifest =
            detail::read_manifest(folder / "one", detail::NeededIntervals(access.layout(), table));
        for (ManifestParameter const& parameter : manifest.parameters) {
            for (ManifestInterval const& interval : parameter.intervals) {
                visit(interval);
            }
        }
    };
    run_ranks(world, test_time_out, [&](LoopbackCommunicator& communicator) {
        auto const rank = static_cast<std::size_t>(communicator.rank());
        ZeroStage<3, Parameters<bfloat16>> engine(communicator, model(1000));
        save_checkpoint(engine, folder.path(), {.name = "one"});
        count(engine, [&](ManifestInterval const& interval) {
            ++(interval.file == rank ? own : others)[rank];
        });
        Stage replicated(communicator, model(1000));
        count(replicated, [&](ManifestInterval const&) { ++in_stage_2[rank]; });
    });
    for (ManifestParameter const& parameter : Manifest::read(folder / "one").parameters) {
        all += parameter.intervals.size();
    }
    CHECK(own[0] + own[1] == all);
    CHECK(own[0] > 0);
    CHECK(own[1] > 0);
    CHECK(others == std::vector<std::size_t>{0, 0});
    CHECK(in_stage_2 == std::vector<std::size_t>{all, all});
}

TEST_CASE("Needed intervals and parameters do not depend on the order of a manifest") {
    TemporaryFolder const folder;
    std::vector<std::size_t> kept(3);
    run_ranks(world, test_time_out, [&](LoopbackCommunicator& communicator) {
        ZeroStage<3, Parameters<bfloat16>> engine(communicator, model(1000));
        save_checkpoint(engine, folder.path(), {.name = "one"});
        auto const access = detail::access_to(engine);
        detail::StateTable const table(access.layout(), access.arrays());
        Manifest manifest = Manifest::read(folder / "one");
        manifest.parameters.push_back({.name = "bb", .shape = {1}, .intervals = {{0, 0, 1}}});
        for (std::size_t order = 0; order < 3 && communicator.rank() == 0; ++order) {
            detail::NeededIntervals const needed(access.layout(), table);
            CheckpointReader const reader(folder / "one", manifest);
            for (std::size_t index = 0; index < manifest.parameters.size(); ++index) {
                ManifestParameter parameter = manifest.parameters[index];
                kept[order] += reader.find(parameter.name, order) == index ? 100U : 0U;
                needed(parameter);
                kept[order] += parameter.name == "bb" ? 50 * parameter.intervals.size()
                                                      : parameter.intervals.size();
            }
            if (order == 0) {
                std::reverse(manifest.parameters.begin(), manifest.parameters.end());
            } else {
                std::swap(manifest.parameters[1], manifest.parameters[3]);
            }
        }
    });
    CHECK(kept[0] > 500);
    CHECK(kept[0] < 550);
    CHECK(kept == std::vector<std::size_t>(3, kept[0]));
}

namespace {

/// Calls `act()` with memory that runs out after 0, 1, 2, ... allocations. Returns how often it
/// threw std::bad_alloc before it succeeded.
template <class Act>
int times_out_of_memory(Act const& act) {
    for (int times = 0;; ++times) {
        bool has_thrown = false;
        allocations_left = times;
        try {
            act();
        } catch (std::bad_alloc const&) {
            has_thrown = true;
        }
        allocations_left = -1;
        if (!has_thrown) {
            return times;
        }
    }
}

} // namespace

TEST_CASE("A manifest that is written or read throws when memory runs out, at every allocation") {
    Manifest manifest;
    manifest.composition = "stage 2";
    manifest.types = {{{"parameter", "BF16", 1, true}, {"master", "F32"}}};
    for (std::uint64_t part = 0; part < 4; ++part) {
        manifest.parameters.push_back(
            {"weight " + std::to_string(part), {4, 8}, 0, 1, true, {{0, 0, 20}, {1, 20, 32}}});
    }
    manifest.files = {{"rank-0.safetensors", 7}, {"rank-1.safetensors", 5}};
    manifest.scalars.counts = {{"step_count", 3}};
    manifest.scalars.numbers = {{"rate", 0.1}};
    manifest.extras = {{"position", "a text that is longer than a small string"}};
    std::string json;
    CHECK(times_out_of_memory([&] { json = manifest.to_json(); }) > 100);
    CHECK(times_out_of_memory([&] { (void)Manifest::from_json(json, "here"); }) > 100);
    CHECK(Manifest::from_json(json, "here").to_json() == json);
}

TEST_CASE("So does the header of a data file") {
    detail::SafetensorsHeader header;
    header.metadata = {{"format", "pt"}, {"key", "a text that is longer than a small string"}};
    header.tensors = {{"weight", "F32", {2, 3}, 0, 24}, {"bias", "BF16", {4}, 24, 32}};
    std::string json;
    CHECK(times_out_of_memory([&] { json = header.to_json("here"); }) > 10);
    CHECK(json.find(R"("weight":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]})")
          != std::string::npos);
    CHECK(times_out_of_memory([&] { (void)detail::SafetensorsHeader::from_json(json, "here", 32); })
          > 20);
}
