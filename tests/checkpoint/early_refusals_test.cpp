#include "engine_model.hpp"
#include "support/catch.hpp"
#include "support/safetensors.hpp"
#include "support/untagged.hpp"

#include <zero/checkpoint/checkpoint_saver.hpp>
#include <zero/checkpoint/load_checkpoint.hpp>
#include <zero/checkpoint/load_parameters.hpp>
#include <zero/checkpoint/manifest.hpp>
#include <zero/checkpoint/save_checkpoint.hpp>
#include <zero/checkpoint/save_parameters.hpp>

#include <chrono>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

// What cannot be saved or loaded is refused before anything is written or changed.

namespace zero::test::early_refusals_test {

namespace {

using namespace engine_model;

/// Returns the message of the first rank, and checks that the engine of each is as it was.
template <class Run>
std::string refusal_of(Run const& run) {
    struct Seen {
        Outcome outcome;
        bool is_unchanged = false;
    };
    auto const seen = on_ranks<Seen>(2, [&](LoopbackCommunicator& communicator) {
        Toy<ZeroStage<2>> toy(communicator);
        train(*toy.engine, communicator, 0, 1);
        Bits const before = state_of(*toy.engine);
        Seen own;
        own.outcome = outcome_of([&] { run(*toy.engine); });
        own.is_unchanged = state_of(*toy.engine) == before;
        train(*toy.engine, communicator, 1, 2);
        return own;
    });
    CHECK(seen[0].is_unchanged);
    CHECK(seen[1].is_unchanged);
    CHECK_FALSE(seen[1].outcome.message.empty());
    return seen[0].outcome.message;
}

} // namespace

TEST_CASE("Extras that are not text are refused by name before a file is written") {
    TemporaryFolder const folder;
    std::string const message = refusal_of([&](auto& engine) {
        save_checkpoint(engine, folder / "all", {.extras = {{"step", "7"}, {"rng", "\xff\x01"}}});
    });
    INFO(message);
    CHECK(message.find("the extra \"rng\" is not text in UTF-8") != std::string::npos);
    CHECK(message.find("hexadecimal") != std::string::npos);
    CHECK_FALSE(std::filesystem::exists(folder / "all"));
}

TEST_CASE("A time-out of files that is not positive is refused by every call that takes one") {
    TemporaryFolder const folder;
    auto const check = [&](auto const& run) {
        CHECK_THAT(refusal_of(run),
                   contains_text("file_time_out must be positive, and is -1 ms on rank 0"));
    };
    std::chrono::milliseconds const negative(-1);
    check([&](auto& engine) {
        save_checkpoint(engine, folder / "all", {.file_time_out = negative});
    });
    check([&](auto& engine) {
        CheckpointSaver(engine, folder / "all").start({.file_time_out = negative});
    });
    CHECK_FALSE(std::filesystem::exists(folder / "all"));
    check([&](auto& engine) {
        save_checkpoint(engine, folder / "all", {.name = "one"});
        load_checkpoint(engine, folder / "all", {.file_time_out = negative});
    });
    write_tensors(folder / "file", {{"x", "F32", {1}}}, numbered_bytes(4));
    check([&](auto& engine) {
        load_parameters(engine, folder / "file", {.file_time_out = negative});
    });
    check([&](auto& engine) { save_parameters(engine, folder / "out", DType::float32, negative); });
    CHECK_FALSE(std::filesystem::exists(folder / "out"));
}

TEST_CASE(
    "A name without a checkpoint lists those that are there, and a checkpoint is no directory") {
    TemporaryFolder const folder;
    std::string const typo = refusal_of([&](auto& engine) {
        save_checkpoint(engine, folder / "all", {.name = "one"});
        load_checkpoint(engine, folder / "all", {.name = "oen"});
    });
    INFO(typo);
    CHECK(typo.find("the checkpoint 'oen' in '" + (folder / "all").string()
                    + "' does not exist. Complete checkpoints there: 'one'.")
          != std::string::npos);
    std::string const inside =
        refusal_of([&](auto& engine) { load_checkpoint(engine, folder / "all/one"); });
    INFO(inside);
    CHECK(inside.find("is itself a checkpoint; give the directory that contains it")
          != std::string::npos);
    std::string const none =
        refusal_of([&](auto& engine) { load_checkpoint(engine, folder / "no"); });
    CHECK(none.find("contains no complete checkpoint") != std::string::npos);
}

TEST_CASE("Extras that the caller refuses leave the engine as it was") {
    TemporaryFolder const folder;
    on_ranks<int>(2, [&](LoopbackCommunicator& communicator) {
        Toy<ZeroStage<2>> toy(communicator);
        save_checkpoint(*toy.engine, folder.path(), {.extras = {{"step", "12abc"}}});
        return 0;
    });
    std::string const message = refusal_of([&](auto& engine) {
        LoadOptions options;
        options.check_extras = [](std::map<std::string, std::string> const& extras) {
            throw InvalidArgument("refused: " + extras.at("step"));
        };
        load_checkpoint(engine, folder.path(), options);
    });
    CHECK(message == "refused: 12abc");
}

TEST_CASE("A number of steps that would overflow is refused") {
    constexpr std::uint64_t largest = std::numeric_limits<std::uint64_t>::max();
    std::string message = refusal_of([&](auto& engine) { engine.set_step_count(largest); });
    CHECK(message.find("step count 18446744073709551615 is larger than 2^62") != std::string::npos);
    for (std::string const& name : {std::string("step_count"), std::string("skipped_in_a_row")}) {
        TemporaryFolder const folder;
        on_ranks<int>(2, [&](LoopbackCommunicator& communicator) {
            Toy<ZeroStage<2>> toy(communicator);
            save_checkpoint(*toy.engine, folder.path(), {.name = "one"});
            return 0;
        });
        Manifest manifest = Manifest::read(folder / "one");
        manifest.scalars.counts.at(name) = largest;
        set_content(folder / "one/manifest.json", manifest.to_json());
        message = refusal_of([&](auto& engine) { load_checkpoint(engine, folder.path()); });
        INFO(message);
        CHECK(message.find("of the checkpoint 18446744073709551615 is larger")
              != std::string::npos);
    }
}

TEST_CASE("A run that was saved at its limit of skipped steps may try one more step") {
    TemporaryFolder const folder;
    auto const seen =
        on_ranks<std::vector<std::uint64_t>>(2, [&](LoopbackCommunicator& communicator) {
            ZeroStage<2> engine(communicator, {{.name = "w", .elements = 3}}, {.skip_limit = 3});
            std::vector<std::uint64_t> skipped;
            auto const step = [&](float gradient) {
                engine.begin_step();
                engine.begin_micro_step(MicroStep::last);
                engine.gradients(0)[0][0] = gradient;
                engine.gradients_ready(0);
                engine.end_micro_step();
                skipped.push_back(engine.step(0.1).report().skipped_in_a_row);
            };
            constexpr float bad = std::numeric_limits<float>::infinity();
            step(bad);
            step(bad);
            step(bad);
            save_checkpoint(engine, folder.path());
            for (float const tried : {1.0F, bad}) {
                load_checkpoint(engine, folder.path());
                step(tried);
                step(1.0F); // skipped if the limit is reached again
            }
            return skipped;
        });
    for (auto const& skipped : seen) {
        CHECK(skipped == std::vector<std::uint64_t>{1, 2, 3, 0, 0, 3, 4});
    }
}

TEST_CASE("Weights of a type that is not read are refused by parameter and type") {
    TemporaryFolder const folder;
    auto const file = folder / "weights.safetensors";
    std::vector<TensorEntry> tensors;
    std::size_t bytes = 0;
    for (auto const& spec : toy_specs()) {
        bool const is_double = spec.name == "first.bias";
        tensors.push_back({spec.name, is_double ? "F64" : "F32", {spec.elements}});
        bytes += spec.elements * (is_double ? 8 : 4);
    }
    write_tensors(file, tensors, std::vector<std::byte>(bytes));
    std::string const message = refusal_of([&](auto& engine) { load_parameters(engine, file); });
    INFO(message);
    CHECK(message.find("the weights of parameter 'first.bias' are stored as F64, and values are "
                       "read from F32, BF16 and F16; convert them")
          != std::string::npos);
    CHECK(message.find("first.weight") == std::string::npos);
    auto const reader = std::make_shared<CheckpointReader>(CheckpointReader::of_file(file));
    std::vector<float> values(7);
    CHECK_THROWS_WITH(reader->read_parameter("first.bias", 0, values),
                      contains_text("'first.bias'") && contains_text("stored as F64")
                          && contains_text(file.string()));
}

TEST_CASE("Negative second moments are refused by element, state and parameter") {
    std::vector<float> values(500, 1.0F);
    values[412] = -0.25F;
    values[413] = -0.0F;
    std::string message = refusal_of([&](auto& engine) {
        TrainingState(engine).set_full_optimizer_state(1, "exp_avg_sq", values);
    });
    INFO(message);
    CHECK(message.find("element 412 of the state 'exp_avg_sq' of parameter 'first.weight' cannot "
                       "be -0.25")
          != std::string::npos);
    message = refusal_of([&](auto& engine) {
        TrainingState state(engine);
        auto slice = state.local_optimizer_state(1, "exp_avg_sq").at(0);
        slice.values.back() = -1.0F;
        state.set_local_optimizer_state(1, "exp_avg_sq", slice.begin, slice.values);
    });
    CHECK(message.find("of parameter 'first.weight' cannot be -1") != std::string::npos);
    on_ranks<int>(2, [&](LoopbackCommunicator& communicator) { // first moments have any sign
        Toy<ZeroStage<2>> toy(communicator);
        TrainingState(*toy.engine).set_full_optimizer_state(1, "exp_avg", values);
        return 0;
    });
}

TEST_CASE("Over a transport without tags, ranks that save and load at once are told both calls") {
    using Stage = ZeroStage<2, Untagged>;
    struct Call {
        char const* text;
        std::function<void(Stage&)> run;
    };
    TemporaryFolder const folder;
    std::vector<Call> const calls{
        {"'save_checkpoint() ", [&](Stage& engine) { save_checkpoint(engine, folder / "all"); }},
        {"'load_checkpoint() ", [&](Stage& engine) { load_checkpoint(engine, folder / "all"); }},
        {"'save_parameters() ", [&](Stage& engine) { save_parameters(engine, folder / "file"); }},
        {"'load_parameters() ", [&](Stage& engine) { load_parameters(engine, folder / "file"); }},
        {"'values of parameter ",
         [](Stage& engine) { (void)TrainingState(engine).full_fp32_parameter(0); }}};
    for (Call const& one : calls) {
        for (Call const& other : calls) {
            if (&one == &other) {
                continue;
            }
            INFO("rank 0 calls " << one.text);
            for (Outcome const& outcome : run_and_observe(2, [&](LoopbackCommunicator& loopback) {
                                              Untagged communicator(loopback);
                                              Toy<Stage> toy(communicator);
                                              (loopback.rank() == 0 ? one : other).run(*toy.engine);
                                          }).ranks) {
                CHECK(outcome.type == "CollectiveMismatch");
                CHECK_THAT(outcome.message, contains_text(one.text) && contains_text(other.text));
            }
        }
    }
}

} // namespace zero::test::early_refusals_test
