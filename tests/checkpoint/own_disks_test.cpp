// Checkpoints on disks that ranks do not share: each rank's file stays on its own, and a rank that
// lacks what it needs gets it from another one.

#include "engine_model.hpp"
#include "support/catch.hpp"

#include <zero/checkpoint/checkpoint.hpp>
#include <zero/checkpoint/detail/file.hpp>
#include <zero/comm/groups.hpp>
#include <zero/comm/recording.hpp>
#include <zero/zero.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace zero::test::own_disks_test {

namespace {

using namespace engine_model;
using Ranks = std::vector<std::size_t>; ///< the disk of each rank
namespace fs = std::filesystem;

/// Disks, each with a folder for checkpoints that is made by the first save.
struct Disks {
    TemporaryFolder root;

    [[nodiscard]] fs::path of(std::size_t disk) const {
        return root.path() / std::to_string(disk) / "checkpoints";
    }
    explicit Disks(std::size_t count) {
        for (std::size_t disk = 0; disk < count; ++disk) {
            fs::create_directory(of(disk).parent_path());
        }
    }

    /// Everything on them, by path.
    [[nodiscard]] std::map<std::string, std::string> content() const {
        std::map<std::string, std::string> all;
        for (auto const& entry : fs::recursive_directory_iterator(root.path())) {
            all[entry.path().string()] = entry.is_directory() ? "" : content_of(entry.path());
        }
        return all;
    }
};

std::string padded(std::size_t number, std::size_t digits) {
    std::string const text = std::to_string(number);
    return std::string(digits - text.size(), '0') + text;
}
std::string data_file(std::size_t number) {
    return "data-" + padded(number, 5) + ".safetensors";
}

std::vector<ParameterSpec> random_specs(std::mt19937_64& random) {
    std::vector<ParameterSpec> specs;
    std::size_t const sizes[]{0, 1, 7, 64, 129, 500, 4001};
    for (std::size_t index = 0; index < 2 + random() % 6; ++index) {
        specs.push_back({"p" + std::to_string(index),
                         index == 0 ? 300 : sizes[random() % 7],
                         {index / 2},
                         index % 2,
                         index == 0 || random() % 4 != 0});
    }
    return specs;
}

template <class Stage, class Communicator>
auto made(Communicator& communicator, std::vector<ParameterSpec> const& specs,
          std::vector<double> const& decays = {0.0, 0.1}) {
    typename Stage::Options options;
    for (double const decay : decays) {
        options.groups.emplace_back();
        options.groups.back().optimizer.weight_decay = decay;
    }
    return Stage(communicator,
                 registration<typename Stage::ParameterType, typename Stage::GradientType>(specs),
                 same_schedule<Stage>(options));
}

struct Saved {
    Bits state;
    Bits later; ///< after two more steps
};

/// Trains four steps and saves after the second and the fourth.
template <class Stage>
std::vector<Saved> save(Disks const& disks, Ranks const& disk_of,
                        std::vector<ParameterSpec> const& specs, bool is_behind,
                        std::size_t keep_last) {
    return on_ranks<Saved>(static_cast<int>(disk_of.size()), [&](LoopbackCommunicator& ranks) {
        auto const rank = static_cast<std::size_t>(ranks.rank());
        fs::path const folder = disks.of(disk_of[rank]);
        auto engine = made<Stage>(ranks, specs);
        SaveOptions options{.keep_last = keep_last, .own_disks = true};
        std::vector<std::int64_t> const rows(rank + 1, static_cast<std::int64_t>(rank));
        options.arrays["rows"] = ExtraArray::of(std::span<std::int64_t const>(rows), true);
        CheckpointSaver saver(engine, folder);
        for (std::uint64_t step = 0; step < 4; step += 2) {
            train(engine, ranks, step, step + 2);
            options.extras["next"] = std::to_string(step + 2);
            if (is_behind) {
                saver.start(options);
                (void)saver.wait();
            } else {
                save_checkpoint(engine, folder, options);
            }
        }
        Saved own{state_of(engine), {}};
        train(engine, ranks, 4, 6);
        own.later = state_of(engine);
        return own;
    });
}

struct Loaded {
    Outcome outcome;
    Bits before, state, later;
    LoadReport report;
};

template <class Stage>
std::vector<Loaded> load(Disks const& disks, Ranks const& disk_of,
                         std::vector<ParameterSpec> const& specs, LoadOptions options = {}) {
    options.own_disks = true;
    return on_ranks<Loaded>(static_cast<int>(disk_of.size()), [&](LoopbackCommunicator& ranks) {
        auto engine = made<Stage>(ranks, specs);
        train(engine, ranks, 0, 1);
        Loaded own;
        own.before = state_of(engine);
        own.outcome = outcome_of([&] {
            own.report = load_checkpoint(
                engine, disks.of(disk_of[static_cast<std::size_t>(ranks.rank())]), options);
        });
        own.state = state_of(engine);
        train(engine, ranks, 4, 6); // it goes on
        own.later = state_of(engine);
        return own;
    });
}

/// Saves on some disks and loads on others, on which everything is found or not.
template <class Saves, class Loads>
void check(std::mt19937_64& random) {
    std::size_t const worlds[]{1, 2, 3, 5};
    std::size_t const from = worlds[random() % 4], to = random() % 2 ? from : worlds[random() % 4];
    constexpr std::size_t count = 8;
    Disks const disks(count);
    Ranks saved_on, loaded_on;
    for (std::size_t rank = 0; rank < from; ++rank) {
        saved_on.push_back(random() % 4);
    }
    std::set<std::size_t> const used(saved_on.begin(), saved_on.end());
    loaded_on.assign(used.begin(), used.end()); // all, as far as there are ranks
    std::shuffle(loaded_on.begin(), loaded_on.end(), random);
    while (loaded_on.size() < to) {
        loaded_on.push_back(random() % count); // it may be an empty one
    }
    loaded_on.resize(to);
    if (random() % 4 == 0) {
        loaded_on[random() % to] = random() % count;
    }
    std::shuffle(loaded_on.begin(), loaded_on.end(), random);
    auto const specs = random_specs(random);
    bool const is_behind = random() % 2 == 0;
    std::size_t const keep_last = random() % 3;
    auto const saved = save<Saves>(disks, saved_on, specs, is_behind, keep_last);

    Names const names = keep_last == 1 ? Names{"latest", "step-00000004"}
                                       : Names{"latest", "step-00000002", "step-00000004"};
    std::string const manifest =
        content_of(disks.of(saved_on[0]) / "step-00000004" / "manifest.json");
    for (std::size_t const disk : used) {
        CHECK(entries(disks.of(disk)) == names);
        Names files;
        for (std::size_t rank = 0; rank < from; ++rank) {
            if (saved_on[rank] == disk) {
                files.push_back(data_file(rank));
            }
        }
        files.push_back("manifest.json");
        CHECK(entries(disks.of(disk) / "step-00000004") == files);
        CHECK(content_of(disks.of(disk) / "step-00000004" / "manifest.json") == manifest);
    }
    auto const files = Manifest::from_json(manifest, "it").files;
    REQUIRE(files.size() == from);
    for (std::size_t rank = 0; rank < from; ++rank) {
        CHECK(files[rank].rank == rank);
        CHECK(files[rank].host == zero::detail::host_name());
    }

    std::set<std::size_t> const seen(loaded_on.begin(), loaded_on.end());
    bool const is_whole = std::includes(seen.begin(), seen.end(), used.begin(), used.end());
    bool const is_any = std::any_of(used.begin(), used.end(),
                                    [&](std::size_t disk) { return seen.contains(disk); });
    auto const before = disks.content();
    LoadOptions options;
    options.verify_first = random() % 2 == 0;
    auto const loaded = load<Loads>(disks, loaded_on, specs, options);
    CHECK(disks.content() == before);
    std::size_t rows = 0;
    for (std::size_t rank = 0; rank < to; ++rank) {
        Loaded const& own = loaded[rank];
        INFO(from << " to " << to << ", rank " << rank << ": " << own.outcome.message);
        if (is_whole) {
            CHECK(own.outcome == Outcome{});
            CHECK(own.state == saved[0].state);
            CHECK(own.report.name == "step-00000004");
            CHECK(own.report.extras.at("next") == "4");
            CHECK((from != to || own.later == saved[0].later));
            rows += own.report.arrays.at("rows").data.size() / 8;
            continue;
        }
        CHECK(own.state == own.before);
        if (!is_any) {
            CHECK_THAT(own.outcome.message, contains_text("no complete checkpoint"));
            continue;
        }
        for (std::size_t writer = 0; writer < from; ++writer) {
            std::string const text = "'" + data_file(writer) + "', which rank "
                                     + std::to_string(writer) + " saved on host '"
                                     + zero::detail::host_name() + "'";
            CHECK((own.outcome.message.find(text) == std::string::npos)
                  == seen.contains(saved_on[writer]));
        }
        CHECK_THAT(own.outcome.message,
                   contains_text("on no rank's disk")
                       && contains_text("(rank " + std::to_string(rank) + ")"));
    }
    CHECK(rows == (is_whole ? from * (from + 1) / 2 : 0));
}

std::vector<ParameterSpec> const& toy() {
    static std::vector<ParameterSpec> const specs = toy_specs();
    return specs;
}

} // namespace

TEST_CASE("Random models resume from disks that ranks do not share, or are refused") {
    std::mt19937_64 random(38);
    for (int round = 0; round < 12; ++round) {
        INFO("round " << round);
        check<ZeroStage<2>, ZeroStage<3, RoundRobinPartitioner>>(random);
        check<ZeroStage<3, RoundRobinPartitioner>, ZeroStage<1>>(random);
        check<ZeroStage<1>, ZeroStage<0>>(random);
    }
}

TEST_CASE("A save that died while disks gave it its name is completed by the next load") {
    Disks const disks(2);
    Ranks const disk_of{0, 1, 1};
    auto const name = [&](std::size_t disk) { return disks.of(disk) / "step-00000004"; };
    auto const prepared = [&](std::size_t disk) {
        return disks.of(disk) / ".incomplete-step-00000004";
    };
    auto const saved = save<ZeroStage<2>>(disks, disk_of, toy(), false, 0);
    Bits const older =
        load<ZeroStage<2>>(disks, disk_of, toy(), {.name = "step-00000002"})[0].state;
    CHECK(older != saved[0].state);
    for (std::size_t const dead : {0U, 1U}) { // the disk that did not come so far
        for (bool const replaces : {false, true}) {
            fs::rename(name(dead), prepared(dead));
            set_content(disks.of(dead) / "latest", "step-00000002\n");
            if (replaces) {
                fs::copy(disks.of(dead) / "step-00000002", name(dead)); // another save of that name
            }
            for (Loaded const& own : load<ZeroStage<3>>(disks, disk_of, toy())) {
                INFO(own.outcome.message);
                CHECK(own.report.name == "step-00000004");
                CHECK(own.state == saved[0].state);
            }
            CHECK(entries(disks.of(dead)) == Names{"latest", "step-00000002", "step-00000004"});
            CHECK(CheckpointDirectory(disks.of(dead)).latest() == "step-00000004");
        }
    }
    for (std::size_t const disk : {0U, 1U}) { // no disk came so far
        fs::rename(name(disk), prepared(disk));
        set_content(disks.of(disk) / "latest", "step-00000002\n");
    }
    for (Loaded const& own : load<ZeroStage<3>>(disks, disk_of, toy())) {
        CHECK(own.report.name == "step-00000002");
        CHECK(own.state == older);
    }
    for (Loaded const& own : load<ZeroStage<3>>(disks, disk_of, toy(), {.name = "step-00000004"})) {
        CHECK_THAT(own.outcome.message,
                   contains_text("'step-00000004'") && contains_text("does not exist"));
    }
}

TEST_CASE("A disk that missed the last save, or came back without a file, is no other checkpoint") {
    Disks const disks(3);
    auto const saved = save<ZeroStage<2>>(disks, {0, 1}, toy(), false, 0);
    fs::copy(disks.of(1), disks.of(2), fs::copy_options::recursive);
    fs::remove_all(disks.of(2) / "step-00000004");
    set_content(disks.of(2) / "latest", "step-00000002\n");
    for (Loaded const& own : load<ZeroStage<2>>(disks, {2, 0}, toy())) {
        CHECK_THAT(own.outcome.message,
                   contains_text("step-00000004' has files")
                       && contains_text("'" + data_file(1) + "', which rank 1"));
        CHECK(own.state == own.before);
    }
    auto const older = load<ZeroStage<2>>(disks, {2, 0}, toy(), {.name = "step-00000002"});
    CHECK(older[1].outcome == Outcome{});
    CHECK(older[1].state != saved[0].state);
    fs::copy(disks.of(2) / "step-00000002", disks.of(2) / "step-00000004"); // another of that name
    CHECK(load<ZeroStage<3>>(disks, {2, 0, 1}, toy())[0].state == saved[0].state);
    fs::remove_all(disks.of(2) / "step-00000004");
    auto const file = fs::path("step-00000004") / data_file(1);
    fs::copy(disks.of(1) / file, disks.of(0) / file); // as the message says
    CHECK(load<ZeroStage<2>>(disks, {2, 0}, toy())[0].state == saved[0].state);
    fs::remove(disks.of(1) / file);
    CHECK(load<ZeroStage<2>>(disks, {1, 0}, toy())[0].state == saved[0].state);
}

TEST_CASE("What another disk holds is sent once, in pieces of 1 MiB") {
    Disks const disks(3);
    std::vector<ParameterSpec> const specs = even_specs(400'000);
    using Counted = Recording<LoopbackCommunicator>;
    auto const broadcasts = [&](Ranks const& disk_of, bool saves = false) {
        return on_ranks<CollectiveCount>(
            static_cast<int>(disk_of.size()), [&](LoopbackCommunicator& ranks) {
                Counted counted(ranks);
                auto engine = made<ZeroStage<3, Counted>>(counted, specs, {0.0});
                auto const disk = disks.of(disk_of[static_cast<std::size_t>(ranks.rank())]);
                if (saves) {
                    save_checkpoint(engine, disk, {.own_disks = true});
                }
                counted.reset_recorded();
                load_checkpoint(engine, disk, {.own_disks = true});
                return counted.recorded()[CollectiveKind::broadcast];
            })[0];
    };
    (void)broadcasts({0, 1}, true);
    CollectiveCount const at_home = broadcasts({0, 1}), swapped = broadcasts({1, 0});
    std::uint64_t pieces = 0, words = 0;
    for (std::size_t const file : {0U, 1U}) {
        std::uint64_t const bytes =
            fs::file_size(disks.of(file) / "step-00000000" / data_file(file));
        CHECK(bytes > 2U << 20U);
        pieces += (bytes + (1U << 20U) - 1) >> 20U;
        words += (bytes + 7) / 8;
    }
    CHECK(pieces == 6);
    CHECK(at_home.calls == 0);
    CHECK(swapped.calls - at_home.calls == pieces);
    CHECK(swapped.bytes - at_home.bytes == 8 * (words + pieces));
}

TEST_CASE("Hybrid runs and adapters are saved on disks of their own") {
    Disks const disks(4);
    using Hosts = Groups<LoopbackCommunicator, Hybrid>;
    auto const run = [&](Ranks const& disk_of, bool loads) {
        return on_ranks<Bits>(4, [&](LoopbackCommunicator& everyone) {
            Hosts hosts(everyone, {.shard = 2});
            Bits state;
            run_rank(hosts, [&](Hosts& groups) {
                auto engine = made<ZeroStage<3, Hosts>>(groups, toy());
                auto const disk = disks.of(disk_of[static_cast<std::size_t>(groups.rank())]);
                if (loads) {
                    load_checkpoint(engine, disk, {.own_disks = true});
                } else {
                    train(engine, groups, 0, 2);
                    save_checkpoint(engine, disk, {.only = {.trainable = true}, .own_disks = true});
                }
                state = state_of(engine);
            });
            return state;
        });
    };
    auto const saved = run({0, 1, 2, 3}, false);
    for (std::size_t disk = 0; disk < 4; ++disk) {
        CHECK(entries(disks.of(disk) / "step-00000002").size() == (disk < 2 ? 2U : 1U));
    }
    CHECK(run({3, 2, 1, 0}, true)[2] == saved[0]);
    CHECK(run({0, 0, 0, 1}, true)[3] == saved[0]);
    auto const other = load<ZeroStage<1>>(disks, {2, 1, 0}, toy());
    CHECK(other[0].outcome == Outcome{});
    CHECK(other[0].state == saved[0]);
}

TEST_CASE("A damaged, or vanished, file on another rank's disk is an error on every rank") {
    Disks const disks(2);
    auto const saved = save<ZeroStage<3>>(disks, {0, 1}, toy(), false, 1);
    auto const file = disks.of(1) / "step-00000004" / data_file(1);
    std::string const good = content_of(file);
    std::string bad = good;
    bad[bad.size() / 2] = static_cast<char>(bad[bad.size() / 2] ^ 4);
    set_content(file, bad);
    auto seen = load<ZeroStage<3>>(disks, {1, 0}, toy());
    for (Loaded const& own : seen) {
        CHECK(own.state == own.before);
        CHECK_THAT(own.outcome.message, contains_text(data_file(1) + " on the disk of rank 0"));
    }
    set_content(file, good);
    seen = load<ZeroStage<3>>(disks, {1, 0}, toy(), {.check_extras = [&](auto const&) {
                                  std::error_code ignored;
                                  fs::remove(file, ignored);
                              }});
    for (Loaded const& own : seen) {
        CHECK(own.state == own.before);
        CHECK_THAT(own.outcome.message,
                   contains_text("rank 0 did not send '" + data_file(1) + "' from its disk")
                       && contains_text("No such file"));
    }
    set_content(file, good);
    CHECK(load<ZeroStage<3>>(disks, {1, 0}, toy())[1].state == saved[0].state);
}

TEST_CASE("A rank that does not get what it asks for ends with the others") {
    Disks const disks(2);
    (void)save<ZeroStage<2>>(disks, {0, 1}, toy(), false, 1);
    LoadOptions options;
    options.file_time_out = std::chrono::milliseconds(0);
    for (Loaded const& own : load<ZeroStage<2>>(disks, {1, 0}, toy(), options)) {
        CHECK_THAT(own.outcome.message, contains_text("file_time_out must be positive"));
    }
    // Rank 0 reads from a file on the disk of rank 1 as long as `next(offset)` gives another
    // offset.
    auto const read = [&](std::string const& name, std::chrono::milliseconds limit,
                          auto const& next) {
        return run_and_observe(2, [&](LoopbackCommunicator& ranks) {
            auto engine = made<ZeroStage<2>>(ranks, toy());
            zero::detail::RemoteFiles files;
            files.folder = disks.of(static_cast<std::size_t>(ranks.rank())) / "step-00000004";
            files.places = {{name, 1, 1U << 30U, ranks.rank() == 1}};
            (void)zero::detail::on_files(
                zero::detail::access_to(engine), "read beyond the end",
                [&](zero::detail::OnCaller) {
                    std::byte byte{};
                    for (std::uint64_t at = 1; ranks.rank() == 0 && at != 0; at = next(at)) {
                        files.open(0).read_at(at, {&byte, 1});
                    }
                    return std::uint64_t{0};
                },
                limit, &files);
        });
    };
    auto const file = disks.of(1) / "step-00000004" / "long";
    set_content(file, "");
    fs::resize_file(file, 1U << 30U);
    auto const late = read("long", std::chrono::milliseconds(300), [](std::uint64_t at) {
        return (at + (1U << 20U)) % (1U << 30U); // for ever
    });
    for (Outcome const& own : late.ranks) {
        CHECK_THAT(own.message, contains_text("rank 0 did not read beyond the end within 300 ms"));
    }
    auto const seen =
        read(data_file(1), std::chrono::minutes(1), [](std::uint64_t) { return 1U << 29U; });
    CHECK_THAT(seen.ranks[0].message, contains_text("rank 1 did not send '" + data_file(1))
                                          && contains_text("before what its index promises"));
    CHECK_THAT(seen.ranks[1].message, contains_text("rank 0 could not read beyond the end"));
}

TEST_CASE("Without the option a disk that lacks a file is refused with its host") {
    Disks const disks(2);
    (void)save<ZeroStage<2>>(disks, {0, 1}, toy(), false, 1);
    auto const message = [&](auto const& act) {
        return on_ranks<std::string>(2, [&](LoopbackCommunicator& ranks) {
            auto engine = made<ZeroStage<2>>(ranks, toy());
            return outcome_of(
                       [&] { act(engine, disks.of(static_cast<std::size_t>(ranks.rank()))); })
                .message;
        });
    };
    for (std::string const &own :
         message([&](auto& engine, auto const&) { load_checkpoint(engine, disks.of(0)); })) {
        CHECK_THAT(own, contains_text("lacks '" + data_file(1) + "', which rank 1 saved on host '")
                            && contains_text("LoadOptions::own_disks"));
    }
    for (std::string const &own : message([](auto& engine, auto const& disk) {
             load_parameters(engine, disk / "step-00000004" / data_file(0), {.own_disks = true});
         })) {
        CHECK_THAT(own, contains_text("only load_checkpoint() takes LoadOptions::own_disks"));
    }
    for (std::string const &own : message([&](auto& engine, auto const&) {
             std::vector<fs::path> const parts{disks.of(0)};
             load_parts(engine, parts, {.name = "step-00000004", .own_disks = true});
         })) {
        CHECK_THAT(own, contains_text("only load_checkpoint() takes LoadOptions::own_disks"));
    }
}

TEST_CASE("A rank with another option of a save, a load or an export is told by its name, and "
          "training goes on") {
    Disks const disks(1);
    (void)save<ZeroStage<2>>(disks, {0, 0}, toy(), false, 1);
    std::string const before = content_of(disks.of(0) / "latest");
    auto const check_told = [&](char const* name, auto const& act) {
        for (int const other : {0, 2}) { // the rank whose option differs
            INFO(name << " of rank " << other);
            auto const seen = on_ranks<Outcome>(3, [&](LoopbackCommunicator& ranks) {
                auto engine = made<ZeroStage<2>>(ranks, toy());
                auto const own = outcome_of([&] { act(engine, ranks.rank() == other); });
                train(engine, ranks, 0, 1);
                return own;
            });
            for (std::size_t rank = 0; rank < seen.size(); ++rank) {
                CHECK(seen[rank].type == "InvalidArgument");
                CHECK_THAT(
                    seen[rank].message,
                    contains_text("ranks 0 and " + std::to_string(other == 0 ? 1 : other)
                                  + " have different options: '" + name)
                        && contains_text("give all ranks the same (rank " + std::to_string(rank)));
            }
        }
        CHECK(content_of(disks.of(0) / "latest") == before);
        CHECK(entries(disks.of(0)).size() == 2);
    };
    auto const saves = [&](char const* name, auto const& set) {
        check_told(name, [&](auto& engine, bool differs) {
            SaveOptions options;
            if (differs) {
                set(options);
            }
            save_checkpoint(engine, disks.of(0), options);
        });
        check_told(name, [&](auto& engine, bool differs) {
            SaveOptions options;
            if (differs) {
                set(options);
            }
            CheckpointSaver(engine, disks.of(0)).start(options);
        });
    };
    auto const loads = [&](char const* name, auto const& set) {
        check_told(name, [&](auto& engine, bool differs) {
            LoadOptions options;
            if (differs) {
                set(options);
            }
            load_checkpoint(engine, disks.of(0), options);
        });
    };
    auto const imports = [&](char const* name, auto const& set) {
        check_told(name, [&](auto& engine, bool differs) {
            LoadOptions options;
            if (differs) {
                set(options);
            }
            load_parameters(engine, disks.of(0) / "no such file", options);
        });
    };
    saves("own_disks' (", [](auto& options) { options.own_disks = true; });
    saves("name'", [](auto& options) { options.name = "another"; });
    saves("only, or names, types and sizes of rows of arrays'",
          [](auto& options) { options.only.trainable = true; });
    loads("own_disks' (", [](auto& options) { options.own_disks = true; });
    loads("name'", [](auto& options) { options.name = "another"; });
    loads("scope'", [](auto& options) { options.scope = LoadScope::weights; });
    loads("settings' (", [](auto& options) { options.settings = false; });
    loads("may_round' (", [](auto& options) { options.may_round = true; });
    loads("may_differ' (", [](auto& options) { options.may_differ = true; });
    loads("may_thaw' (", [](auto& options) { options.may_thaw = true; });
    loads("may_regroup' (", [](auto& options) { options.may_regroup = true; });
    imports("name'", [](auto& options) { options.name = "another"; });
    imports("may_round' (", [](auto& options) { options.may_round = true; });
    check_told("name'", [&](auto& engine, bool differs) { // of parts, which have the same here
        load_parts(engine, std::vector<fs::path>{disks.of(0)},
                   {.name = differs ? "another" : "step-00000001"});
    });
    check_told("dtype'", [&](auto& engine, bool differs) {
        save_parameters(engine, disks.of(0) / "file", differs ? DType::bfloat16 : DType::float32);
    });
}

TEST_CASE("A rank whose disk cannot be written keeps every disk from giving the name") {
    Disks const disks(2);
    auto const seen = on_ranks<Outcome>(3, [&](LoopbackCommunicator& ranks) {
        auto engine = made<ZeroStage<2>>(ranks, toy());
        auto const rank = static_cast<std::size_t>(ranks.rank());
        if (rank == 1) {
            set_content(disks.of(1), "no folder");
        }
        auto const own =
            outcome_of([&] { save_checkpoint(engine, disks.of(rank % 2), {.own_disks = true}); });
        train(engine, ranks, 0, 1);
        return own;
    });
    CHECK_THAT(seen[1].message, contains_text("checkpoints"));
    for (std::size_t const rank : {0U, 2U}) {
        CHECK_THAT(seen[rank].message, contains_text("rank 1 could not reach its disk"));
    }
    CHECK_FALSE(fs::exists(disks.of(0) / "latest"));
    for (std::string const& name : entries(disks.of(0))) {
        CHECK(name.starts_with(".incomplete-")); // the next save removes it
    }
    fs::remove(disks.of(1));
    (void)save<ZeroStage<2>>(disks, {0, 1}, toy(), true, 1);
    CHECK(entries(disks.of(0)) == Names{"latest", "step-00000004"});
}

} // namespace zero::test::own_disks_test
