// Checkpoints of a run whose weights or gradients travel in codes.

#include "stage/wire_model.hpp"
#include "support/caller_memory.hpp"
#include "support/catch.hpp"
#include "support/temporary_folder.hpp"

#include <zero/checkpoint/checkpoint.hpp>
#include <zero/checkpoint/checkpoint_saver.hpp>
#include <zero/checkpoint/load_checkpoint.hpp>
#include <zero/checkpoint/save_checkpoint.hpp>
#include <zero/layout/balanced_partitioner.hpp>
#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/policy/dynamic_loss_scaler.hpp>
#include <zero/stage/training_state.hpp>
#include <zero/zero.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace zero::test::wire_checkpoint_test {

namespace {

using namespace wire_model;

template <int N>
using Coded = ZeroStage<N, Parameters<bfloat16>, Wire<Int8Blocks>>;

/// The end of a run of four steps, and what it read at the beginning.
struct End {
    Values first, read, masters;
    friend bool operator==(End const&, End const&) = default;
};

/// Runs from a step to the fourth one, and saves after the second.
template <int N>
std::vector<End> run(std::uint64_t begin, std::filesystem::path const& directory, bool saves) {
    return on_ranks<End>(3, [&](LoopbackCommunicator& all) {
        auto const rank = static_cast<std::uint64_t>(all.rank());
        typename Coded<N>::Options options;
        options.reduction.schedule = ReductionSchedule::boundary;
        Coded<N> engine(all, registration<bfloat16>(toy_specs()), options);
        if (begin != 0) {
            load_checkpoint(engine, directory);
        }
        End end;
        end.first = full_parameters(engine);
        for (std::uint64_t step = begin; step < 4; ++step) {
            (void)step_of(engine, rank, step).report();
            if (saves && step == 1) {
                save_checkpoint(engine, directory);
                end.first = full_parameters(engine);
            }
        }
        end.read = full_parameters(engine);
        TrainingState state(engine);
        for (std::size_t parameter = 0; parameter < toy_specs().size(); ++parameter) {
            end.masters.push_back(state.full_fp32_parameter(parameter));
        }
        return end;
    });
}

template <int N>
void check_resumed() {
    CAPTURE(N);
    TemporaryFolder const folder;
    auto const expected = run<N>(0, folder.path(), true);
    CHECK((run<1>(2, folder.path(), false) == expected));
    CHECK((run<2>(2, folder.path(), false) == expected));
    CHECK((run<3>(2, folder.path(), false) == expected));
}

} // namespace

TEST_CASE(
    "A run with weights in codes goes on from a checkpoint of any stage in any stage with the "
    "same bits") {
    check_resumed<1>();
    check_resumed<2>();
    check_resumed<3>();
}

TEST_CASE("A checkpoint holds exact master weights, so a run without codes goes on from them") {
    TemporaryFolder const folder;
    auto const ended = run<2>(0, folder.path(), true)[0];
    auto const masters = on_ranks<Values>(2, [&](LoopbackCommunicator& all) {
        ZeroStage<2, Parameters<bfloat16>> engine(all, registration<bfloat16>(toy_specs()));
        engine.for_each_owned_slice([](auto const& slice) { // the load replaces it
            for (auto& value : slice.values) {
                value = from_float<bfloat16>(7.0F);
            }
        });
        load_checkpoint(engine, folder.path());
        TrainingState(engine).publish_master_weights(); // the file holds what was decoded
        Values values;
        for (std::size_t parameter = 0; parameter < toy_specs().size(); ++parameter) {
            values.push_back(TrainingState(engine).full_fp32_parameter(parameter));
        }
        Values const read = full_parameters(engine);
        for (std::size_t i = 0; i < 500; ++i) {
            if (read[1][i] != to_float(from_float<bfloat16>(values[1][i]))) {
                return Values();
            }
        }
        return values;
    });
    CHECK(masters[0] == masters[1]);
    CHECK(ended.first[1] == wire_model::coded<Int8Blocks, bfloat16>(masters[0][1]));
}

namespace {

template <int N, class S, class... Policies>
using Kept = ZeroStage<N, Parameters<bfloat16>, DynamicLossScaler,
                       Wire<Int8Blocks, Int4Blocks, ErrorFeedback<S>>, Policies...>;

/// What the encoding of a rank's gradients lost, and the loss scale in it; empty if it counts as 0.
struct Lost {
    std::vector<std::byte> items;
    std::optional<float> scale;
    friend bool operator==(Lost const&, Lost const&) = default;

    template <class Engine>
    static Lost of(Engine& engine) {
        auto const access = detail::access_to(engine);
        Lost lost;
        lost.scale = access.error_scale();
        for (detail::HeldArray const& errors : access.gradient_errors()) {
            for (detail::HeldSlice const& slice : errors.slices) {
                auto const* const from = static_cast<std::byte const*>(slice.data);
                lost.items.insert(lost.items.end(), from, from + errors.bytes(slice.elements));
            }
        }
        return lost;
    }

    template <class S>
    [[nodiscard]] std::vector<float> values() const {
        std::vector<float> all;
        if constexpr (std::is_same_v<S, float>) {
            all.resize(items.size() / sizeof(float));
            std::memcpy(all.data(), items.data(), items.size());
        } else {
            for (std::size_t at = 0; at < items.size(); at += S::bytes_per_block) {
                float block[64];
                S::decode(reinterpret_cast<std::uint8_t const*>(&items[at]), block);
                all.insert(all.end(), block, block + 64);
            }
        }
        return all;
    }
};

struct Ran {
    Values parameters;
    Lost lost;
    float loss_scale = 0;
    friend bool operator==(Ran const&, Ran const&) = default;
};

struct Course {
    int world = 2;
    std::uint64_t begin = 0, end = 0;
    bool loads = false;
    bool in_background = false; ///< the save after the third step
    std::uint64_t reset_every = 1024;
    LoadOptions load{};
    SaveOptions save{};
};

/// Runs steps of a course, and saves after the third one.
template <class Stage>
std::vector<Ran> run(std::filesystem::path const& folder, Course const& course,
                     typename Stage::Options options = {}) {
    options.feedback.reset_every = course.reset_every;
    options.reduction.schedule = ReductionSchedule::every_micro_step; // in every stage
    options.loss_scaler = {.initial_scale = 8.0F, .growth_interval = 2};
    return on_ranks<Ran>(course.world, [&](LoopbackCommunicator& all) {
        auto const rank = static_cast<std::uint64_t>(all.rank());
        auto own = options;
        auto parameters = registration<bfloat16>(toy_specs());
        auto const memory = provide_memory(parameters, own);
        Stage engine(all, parameters, own);
        std::optional<CheckpointSaver<Stage>> saver;
        if (course.loads) {
            load_checkpoint(engine, folder, course.load);
        }
        for (std::uint64_t step = course.begin; step < course.end; ++step) {
            (void)run_step(engine, rank, step, 2, 0.05, 3).report();
            if (step == 2 && course.in_background) {
                saver.emplace(engine, folder).start(course.save);
            } else if (step == 2) {
                save_checkpoint(engine, folder, course.save);
            }
        }
        saver.reset(); // writes what was copied, not what followed
        return Ran{full_parameters(engine), Lost::of(engine), engine.loss_scaler_state().scale};
    });
}

template <class S>
void check_errors_resumed() {
    for (int const world : {1, 2, 3, 5}) {
        for (std::uint64_t const reset_every : {4U, 5U, 1024U}) {
            CAPTURE(world, reset_every);
            TemporaryFolder const folder;
            Course course{.world = world, .end = 6, .reset_every = reset_every};
            course.in_background = world == 3;
            auto const expected = run<Kept<2, S>>(folder.path(), course);
            CHECK(expected[0].loss_scale == 64.0F);
            course.begin = 3;
            course.loads = true;
            auto const resumed = [&]<class Stage>(std::type_identity<Stage>,
                                                  typename Stage::Options const& options = {}) {
                return run<Stage>(folder.path(), course, options);
            };
            CHECK((resumed(std::type_identity<Kept<1, S>>(), {.bucketer = {.bucket_bytes = 256}})
                   == expected));
            CHECK((resumed(std::type_identity<Kept<2, S>>(), {.storage = Storage::scattered})
                   == expected));
            CHECK((resumed(std::type_identity<Kept<3, S>>(), {.reduction = {.wire_bytes = 300}})
                   == expected));
            CHECK((resumed(std::type_identity<Kept<2, S, RoundRobinPartitioner>>()) == expected));
            CHECK((resumed(std::type_identity<Kept<3, S, BalancedPartitioner>>()) == expected));
            course.load.scope = LoadScope::weights;
            CHECK((resumed(std::type_identity<Kept<2, S>>()) != expected));
        }
    }
}

} // namespace

TEST_CASE("With ErrorFeedback a run goes on from a checkpoint with the same bits, in any stage, "
          "partitioner, bucket size and storage on as many ranks") {
    check_errors_resumed<float>();
    check_errors_resumed<Int8Blocks>();
}

namespace {

/// The mean over the ranks of the errors, and the largest one.
template <class S>
std::pair<std::vector<double>, double> mean_of(std::vector<Ran> const& ranks) {
    std::vector<double> mean;
    double largest = 0;
    for (Ran const& ran : ranks) {
        auto const values = ran.lost.template values<S>();
        mean.resize(values.size());
        for (std::size_t i = 0; i < values.size(); ++i) {
            auto const value = static_cast<double>(values[i]);
            mean[i] += value / static_cast<double>(ranks.size());
            largest = std::max(largest, std::abs(value));
        }
    }
    return {mean, largest};
}

template <class S>
void check_another_world(int saved, int loaded, double bound) {
    CAPTURE(saved, loaded);
    TemporaryFolder const folder;
    auto const before = mean_of<S>(run<Kept<2, S>>(folder.path(), {.world = saved, .end = 3}));
    auto const ranks =
        run<Kept<1, S>>(folder.path(), {.world = loaded, .begin = 3, .end = 3, .loads = true});
    auto const after = mean_of<S>(ranks);
    double most = 0;
    for (std::size_t i = 0; i < before.first.size(); ++i) {
        most = std::max(most, std::abs(before.first[i] - after.first[i]));
    }
    CHECK(before.second > 0.01); // or there is nothing to keep
    CHECK(most <= bound * before.second);
    // a mean of a few is not larger than they are
    CHECK(after.second <= before.second * (1 + bound) * std::max(1.0, 2.0 * loaded / saved));
    CHECK(ranks[0].lost.scale == 16.0F);
}

} // namespace

TEST_CASE("On another number of ranks the mean of what they held back stays") {
    for (auto const& [saved, loaded] : {std::pair{1, 3}, {4, 2}, {2, 4}, {3, 2}, {2, 3}, {5, 1}}) {
        check_another_world<float>(saved, loaded, 1e-6);
        check_another_world<Int8Blocks>(saved, loaded, 0.05);
    }
}

TEST_CASE("Errors that count as 0 are not saved, and a load without any begins with 0") {
    TemporaryFolder const folder;
    using Stage = Kept<2, float>;
    Course course{.end = 6, .reset_every = 3, .save = {.name = "reset"}};
    auto const reset = run<Stage>(folder.path(), course);
    CHECK(Manifest::read(folder.path() / "reset").arrays.empty());
    course.begin = 3;
    course.loads = true;
    course.load.name = "reset";
    CHECK((run<Stage>(folder.path(), course)[1].parameters == reset[1].parameters));
    course.begin = course.end = 3;
    CHECK((run<Stage>(folder.path(), course)[1].lost.scale == std::nullopt));
}

TEST_CASE("An engine that keeps no such errors leaves those of a checkpoint aside and says so") {
    TemporaryFolder const folder;
    (void)run<Kept<2, float>>(folder.path(), {.end = 3, .save = {.name = "saved"}});
    Manifest const manifest = Manifest::read(folder.path() / "saved");
    CHECK(manifest.arrays.size() == 1);
    CHECK(manifest.arrays[0].shape == std::vector<std::uint64_t>{2 * 1001});
    auto const loaded = [&]<class Stage>(std::type_identity<Stage>) {
        std::vector<std::string> lines;
        auto all = LoopbackCommunicator::make_group(1);
        Stage engine(all.front(), registration<bfloat16>(toy_specs()));
        auto const report = load_checkpoint(engine, folder.path());
        CHECK(report.arrays.empty());
        lines = report.differences;
        CHECK(Lost::of(engine).scale.has_value() == lines.empty());
        return lines;
    };
    std::vector<std::string> const told{
        "what the encoding of gradients lost is dropped, because the engine keeps no such errors "
        "of the same parameters"};
    CHECK(loaded(std::type_identity<Kept<3, float>>()).empty());
    CHECK(loaded(std::type_identity<Kept<2, Int8Blocks>>()) == told);
    CHECK(loaded(std::type_identity<ZeroStage<1, Parameters<bfloat16>, DynamicLossScaler,
                                              Wire<Int8Blocks, Int4Blocks>>>())
          == told);
    CHECK(loaded(std::type_identity<ZeroStage<0, Parameters<bfloat16>, DynamicLossScaler>>())
          == told);
}

TEST_CASE("Small checkpoints hold errors if they hold every trainable parameter") {
    TemporaryFolder const folder;
    Course course{.end = 6, .save = {.name = "small", .only = {.trainable = true}}};
    using Stage = Kept<2, float>;
    auto const expected = run<Stage>(folder.path(), course);
    Course resumed{.begin = 3, .end = 6, .loads = true};
    CHECK((run<Kept<3, float>>(folder.path(), resumed) == expected));
    course.save = {.name = "smaller", .only = {.names = {"first.*"}}};
    (void)run<Stage>(folder.path(), course);
    CHECK(Manifest::read(folder.path() / "smaller").arrays.empty());
}

TEST_CASE("Arrays of the caller stay beside the errors, whose names they may not have") {
    TemporaryFolder const folder;
    std::vector<float> const numbers{1, 2, 3};
    auto const array = ExtraArray::of(std::span<float const>(numbers), true);
    Course course{.end = 6};
    course.save.arrays = {{"a", array}, {"zzz", array}};
    auto const expected = run<Kept<2, float>>(folder.path(), course);
    auto const loaded = on_ranks<int>(2, [&](LoopbackCommunicator& all) {
        Kept<3, float> engine(all, registration<bfloat16>(toy_specs()));
        auto const report = load_checkpoint(engine, folder.path());
        bool const is_right = report.arrays.size() == 2 && report.arrays.at("a").data == array.data
                              && report.arrays.at("zzz").data == array.data;
        for (std::uint64_t step = 3; step < 6; ++step) {
            (void)run_step(engine, static_cast<std::uint64_t>(all.rank()), step, 2, 0.05, 3)
                .report();
        }
        auto const rank = static_cast<std::size_t>(all.rank());
        return is_right && full_parameters(engine) == expected[rank].parameters ? 1 : 0;
    });
    CHECK(loaded == std::vector<int>(2, 1));
    course.save.arrays = {{"zero.gradient_errors.0", array}};
    CHECK_THROWS_WITH((run<Kept<2, float>>(folder.path(), course)),
                      contains_text("a name of the library's own"));
}

TEST_CASE("A damaged error is found before the engine is changed") {
    TemporaryFolder const folder;
    (void)run<Kept<2, float>>(folder.path(), {.end = 3, .save = {.name = "saved"}});
    auto const file = folder.path() / "saved" / "data-00001.safetensors";
    auto const size = std::filesystem::file_size(file);
    SafetensorsReader reader(file);
    auto const* const entry = reader.find("extras/zero.gradient_errors.0[1001:2002]");
    REQUIRE(entry != nullptr);
    std::vector<float> stored(1001);
    reader.read(*entry, 0, std::as_writable_bytes(std::span(stored)));
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    std::string text(static_cast<std::size_t>(size), '\0');
    bytes.read(text.data(), static_cast<std::streamsize>(size));
    auto const at = text.find(std::string(reinterpret_cast<char const*>(stored.data()), 400));
    REQUIRE(at != std::string::npos);
    bytes.seekp(static_cast<std::streamoff>(at + 10)).put(static_cast<char>(text[at + 10] ^ 1));
    bytes.close();
    auto const right = on_ranks<int>(2, [&](LoopbackCommunicator& all) {
        Kept<2, float> engine(all, registration<bfloat16>(toy_specs()));
        auto const before = full_parameters(engine);
        try {
            load_checkpoint(engine, folder.path());
        } catch (CheckpointError const&) {
            return full_parameters(engine) == before ? 1 : 0;
        }
        return 0;
    });
    CHECK(right == std::vector<int>(2, 1));
}

} // namespace zero::test::wire_checkpoint_test
