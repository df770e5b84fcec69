// Arrays of the caller are saved with a checkpoint, whole or by rows, and loaded on any number of
// ranks.

#include "engine_model.hpp"
#include "stage/offload_model.hpp"
#include "support/catch.hpp"

#include <zero/checkpoint/checkpoint.hpp>
#include <zero/comm/groups.hpp>
#include <zero/zero.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace zero::test::extra_arrays_test {

namespace {

using namespace engine_model;
using Arrays = std::map<std::string, ExtraArray>;
using Longs = std::vector<std::int64_t>;

template <class Stage>
void save(Stage& engine, std::filesystem::path const& folder, bool behind, Arrays arrays) {
    if (behind) {
        CheckpointSaver saver(engine, folder);
        saver.start({.name = "state", .arrays = arrays});
        arrays.clear(); // the saver has a copy
        (void)saver.wait();
    } else {
        save_checkpoint(engine, folder, {.name = "state", .arrays = arrays});
    }
}

/// Rows of 3 numbers, which are their places in the whole array.
ExtraArray rows_of(std::size_t begin, std::size_t rows) {
    Longs values;
    for (std::size_t i = 3 * begin; i < 3 * (begin + rows); ++i) {
        values.push_back(static_cast<std::int64_t>(i));
    }
    auto array = ExtraArray::of(std::span<std::int64_t const>(values), true);
    array.shape = {rows, 3};
    return array;
}

/// What a rank gives: bytes and floats of rank 0, which other ranks have in another way, and rows.
Arrays arrays_of(std::size_t rank, std::vector<std::size_t> const& rows) {
    std::size_t begin = 0;
    for (std::size_t before = 0; before < rank; ++before) {
        begin += rows[before];
    }
    std::vector<float> const floats{1.5F, static_cast<float>(rank), -0.0F};
    Arrays arrays{{"rows", rows_of(begin, rows[rank])},
                  {"floats/of a rank", ExtraArray::of(std::span<float const>(floats))}};
    arrays["bytes"].data.assign(1001 + rank, static_cast<std::byte>(7 + rank));
    arrays["nothing"];
    return arrays;
}

template <class Loads>
std::vector<LoadReport> load(int world, std::filesystem::path const& folder) {
    return on_ranks<LoadReport>(world, [&](LoopbackCommunicator& communicator) {
        Toy<Loads> toy(communicator);
        return load_checkpoint(*toy.engine, folder);
    });
}

/// Checks what each rank has loaded.
void check(std::vector<LoadReport> const& reports, std::vector<std::size_t> const& rows) {
    std::size_t all = 0, begin = 0;
    for (std::size_t const of_rank : rows) {
        all += of_rank;
    }
    for (std::size_t rank = 0; rank < reports.size(); ++rank) {
        Arrays const& arrays = reports[rank].arrays;
        REQUIRE(arrays.size() == 4);
        CHECK(arrays.at("bytes").data == std::vector<std::byte>(1001, std::byte{7}));
        CHECK(arrays.at("bytes").dtype == "U8");
        CHECK(bits_of(arrays.at("floats/of a rank").values<float>())
              == Bits{0x3fc00000U, 0, 0x80000000U});
        CHECK(arrays.at("nothing").shape == std::vector<std::uint64_t>{0});
        std::size_t const own = reports.size() == rows.size()
                                    ? rows[rank]
                                    : all / reports.size() + (rank < all % reports.size() ? 1 : 0);
        ExtraArray const& loaded = arrays.at("rows");
        CHECK(loaded.is_by_rows);
        CHECK(loaded.dtype == "I64");
        CHECK(loaded.shape == std::vector<std::uint64_t>{own, 3});
        CHECK(loaded.values<std::int64_t>() == rows_of(begin, own).values<std::int64_t>());
        begin += own;
    }
    CHECK(begin == all);
}

} // namespace

TEST_CASE("Random arrays of the caller are loaded on any number of ranks") {
    std::mt19937_64 random(3);
    for (int round = 0; round < 12; ++round) {
        int const from = 1 + static_cast<int>(random() % 5),
                  to = 1 + static_cast<int>(random() % 5);
        std::vector<std::size_t> rows;
        std::size_t const sizes[]{0, 0, 1, 2, 7, 300};
        for (int rank = 0; rank < from; ++rank) {
            rows.push_back(round == 0 ? 0 : sizes[random() % 6]);
        }
        INFO(from << " to " << to);
        TemporaryFolder const folder;
        bool const behind = round % 2 == 0;
        run_ranks(from, test_time_out, [&](LoopbackCommunicator& communicator) {
            Toy<ZeroStage<2>> toy(communicator);
            train(*toy.engine, communicator, 0, 1);
            save(*toy.engine, folder.path(), behind,
                 arrays_of(static_cast<std::size_t>(communicator.rank()), rows));
        });
        check(load<ZeroStage<3>>(to, folder.path()), rows);
        check(load<ZeroStage<0>>(from, folder.path()), rows);
    }
}

TEST_CASE("Every rank of a hybrid run has rows, and those in files have them as well") {
    TemporaryFolder const folder;
    using Hosts = Groups<LoopbackCommunicator, Hybrid>;
    for (std::vector<std::size_t> const& rows :
         {std::vector<std::size_t>{1, 2, 3, 4}, std::vector<std::size_t>{5, 2, 0, 1}}) {
        for (bool const behind : {false, true}) {
            run_ranks(4, test_time_out, [&](LoopbackCommunicator& everyone) {
                Hosts hosts(everyone, {.shard = 2});
                run_rank(hosts, [&](Hosts& groups) {
                    Toy<ZeroStage<3, Hosts>> toy(groups);
                    save(*toy.engine, folder.path(), behind,
                         arrays_of(static_cast<std::size_t>(groups.rank()), rows));
                });
            });
            CHECK(Manifest::read(folder / "state").files.size() == (rows[2] == 0 ? 3 : 4));
            for (int const to : {4, 3}) {
                check(load<ZeroStage<2>>(to, folder.path()), rows);
            }
        }
    }
    using Filed = ZeroStage<3, Parameters<bfloat16>, OffloadAll<3>>;
    DelayedFiles files(7);
    std::vector<std::size_t> const rows{400, 0, 9};
    for (bool const behind : {false, true}) {
        run_ranks(3, test_time_out, [&](LoopbackCommunicator& communicator) {
            Filed::Options options;
            options.offload = {.path = folder.path(), .chunk_bytes = 4096, .calls = &files};
            Toy<Filed> toy(communicator, options);
            save(*toy.engine, folder.path(), behind,
                 arrays_of(static_cast<std::size_t>(communicator.rank()), rows));
        });
        check(load<ZeroStage<2, Parameters<bfloat16>>>(2, folder.path()), rows);
    }
}

TEST_CASE("Arrays that cannot be saved, or differ between ranks, are refused on every rank") {
    TemporaryFolder const folder;
    auto const refusal = [&](Arrays const& arrays, Arrays const& of_rank_1) {
        auto const seen = on_ranks<Outcome>(3, [&](LoopbackCommunicator& communicator) {
            Toy<ZeroStage<1>> toy(communicator);
            auto const own = outcome_of([&] {
                save(*toy.engine, folder.path(), false,
                     communicator.rank() == 1 ? of_rank_1 : arrays);
            });
            train(*toy.engine, communicator, 0, 1); // it goes on
            return own;
        });
        CHECK(seen[0].type == "InvalidArgument");
        CHECK(seen[2].type == "InvalidArgument");
        CHECK(seen[1].type == "InvalidArgument");
        return seen[0].message;
    };
    Arrays const good{{"a", rows_of(0, 2)}};
    Arrays type = good, size = good, wider = good, other = good, whole = good;
    type["a"].dtype = "LONG";
    CHECK(refusal(type, type).find("the array 'a' of SaveOptions::arrays has type 'LONG'")
          != std::string::npos);
    size["a"].shape = {3, 3};
    CHECK(refusal(size, size).find("has 48 bytes, and one of its type and shape has 72")
          != std::string::npos);
    wider["a"].shape = {1, 6};
    other["b"] = other["a"];
    whole["a"].is_by_rows = false;
    for (Arrays const& of_rank_1 : {wider, other, whole, Arrays{}}) {
        CHECK(refusal(good, of_rank_1)
                  .find("ranks 0 and 1 have different options: 'only, or names, types and sizes of "
                        "rows of arrays'; give all")
              != std::string::npos);
    }
    CHECK(CheckpointDirectory(folder.path()).complete().empty());
}

TEST_CASE("A damaged array is an error on every rank before any engine changes") {
    TemporaryFolder const folder;
    run_ranks(2, test_time_out, [&](LoopbackCommunicator& communicator) {
        Toy<ZeroStage<2>> toy(communicator);
        train(*toy.engine, communicator, 0, 1);
        save(*toy.engine, folder.path(), false,
             arrays_of(static_cast<std::size_t>(communicator.rank()), {3, 2}));
    });
    auto const file = folder / "state" / "data-00001.safetensors";
    std::string content = content_of(file);
    std::int64_t const last = 3 * 5 - 1; // in the rows of rank 1
    std::string const bytes(reinterpret_cast<char const*>(&last), sizeof last);
    std::size_t const at = content.find(bytes);
    REQUIRE(at != std::string::npos);
    content[at + 3] = 1;
    set_content(file, content);
    for (bool const verify_first : {true, false}) {
        auto const seen = on_ranks<Outcome>(3, [&](LoopbackCommunicator& communicator) {
            Toy<ZeroStage<2>> toy(communicator);
            Bits const before = state_of(*toy.engine);
            auto own = outcome_of([&] {
                load_checkpoint(*toy.engine, folder.path(), {.verify_first = verify_first});
            });
            if (state_of(*toy.engine) != before) {
                own.message = "changed";
            }
            return own;
        });
        for (Outcome const& own : seen) {
            INFO(own.message);
            CHECK(own.message.find("is damaged") != std::string::npos);
        }
    }
}

TEST_CASE("Types have the names of safetensors, and a manifest names arrays only if it has some") {
    auto const name = []<class T>(T) { return ExtraArray::of(std::span<T const>()).dtype; };
    CHECK(name(std::uint8_t{}) == "U8");
    CHECK(name(std::int16_t{}) == "I16");
    CHECK(name(std::uint64_t{}) == "U64");
    CHECK(name(float{}) == "F32");
    CHECK(name(double{}) == "F64");
    CHECK(name(bfloat16{}) == "BF16");
    CHECK(name(float16{}) == "F16");

    Manifest manifest;
    CHECK(manifest.to_json().find("arrays") == std::string::npos);
    manifest.files = {{"data-00000.safetensors", 1}};
    ManifestExtraArray const array{"a", "I32", {5, 2}, true, {{0, 0, 0}, {0, 0, 5}, {0, 5, 5}}};
    manifest.arrays = {array};
    auto const read = Manifest::from_json(manifest.to_json(), "text").arrays.at(0);
    CHECK(read.intervals.size() == 3);
    CHECK(read.intervals[1].end == 5);
    CHECK(read.shape == array.shape);
    auto const refused = [&](ManifestExtraArray const& bad) {
        manifest.arrays = {bad};
        return outcome_of([&] {
                   (void)Manifest::from_json(manifest.to_json(), "text");
               }).message.find("the array 'a' of the caller has no valid")
               != std::string::npos;
    };
    CHECK_FALSE(refused(array));
    CHECK(refused({"a", "I33", {5, 2}, true, array.intervals}));
    CHECK(refused({"a", "I32", {}, true, {}}));
    CHECK(refused({"a", "I32", {6, 2}, true, array.intervals}));
    CHECK(refused({"a", "I32", {5, 2}, true, {{0, 0, 5}, {1, 5, 5}}}));
    CHECK(refused({"a", "I32", {5, 2}, true, {{0, 0, 3}, {0, 4, 5}}}));
    CHECK(refused({"a", "I32", {5, ~0ULL}, true, array.intervals}));
}

} // namespace zero::test::extra_arrays_test
