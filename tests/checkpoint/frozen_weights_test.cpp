// Checkpoints of frozen parameters that lie in codes.

#include "stage/wire_model.hpp"
#include "support/catch.hpp"
#include "support/temporary_folder.hpp"

#include <zero/checkpoint/checkpoint.hpp>
#include <zero/checkpoint/checkpoint_saver.hpp>
#include <zero/checkpoint/load_checkpoint.hpp>
#include <zero/checkpoint/load_parameters.hpp>
#include <zero/checkpoint/save_checkpoint.hpp>
#include <zero/checkpoint/save_parameters.hpp>
#include <zero/layout/balanced_partitioner.hpp>
#include <zero/stage/training_state.hpp>
#include <zero/zero.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace zero::test::frozen_checkpoint_test {

namespace {

using namespace wire_model;

template <class... Policies>
using Frozen = ZeroStage<3, Parameters<bfloat16>, FrozenWeights<Int4Blocks>, Policies...>;

std::vector<ParameterSpec> frozen_specs() {
    return {{"adapter", 130, {0}, 0, true}, {"base.0", 70001, {0}, 0, false},
            {"empty", 0, {0}, 0, false},    {"one", 1, {0}, 0, false},
            {"base.1", 65, {1}, 0, false},  {"head", 64, {1}, 0, true},
            {"base.2", 64, {1}, 0, false},  {"base.3", 63, {1}, 0, false}};
}

/// What is read, and the weights in full precision.
struct Held {
    Values read, exact;
    friend bool operator==(Held const&, Held const&) = default;
};

template <class Engine>
Held held_by(Engine& engine) {
    Held held{full_parameters(engine), {}};
    for (std::size_t parameter = 0; parameter < frozen_specs().size(); ++parameter) {
        held.exact.push_back(TrainingState(engine).full_fp32_parameter(parameter));
    }
    return held;
}

/// Other values than those of `frozen_specs`, which a load replaces.
std::vector<Parameter<bfloat16>> replaced() {
    auto parameters = registration<bfloat16>(frozen_specs());
    for (auto& parameter : parameters) {
        parameter.initialise = {};
    }
    return parameters;
}

/// Calls `use(engine)` on each rank and returns what rank 0 holds then.
template <class Stage, class Use>
Held after(int world, std::vector<Parameter<bfloat16>> const& parameters, Use const& use,
           typename Stage::Options const& options = {}) {
    return on_ranks<Held>(world, [&](LoopbackCommunicator& all) {
        Stage engine(all, parameters, options);
        use(engine, static_cast<std::uint64_t>(all.rank()));
        return held_by(engine);
    })[0];
}

} // namespace

TEST_CASE("Frozen parameters in codes keep every bit through checkpoints of any number of ranks") {
    TemporaryFolder const folder;
    auto const initial = registration<bfloat16>(frozen_specs());
    Held const saved = after<Frozen<>>(3, initial, [&](auto& engine, std::uint64_t rank) {
        (void)step_of(engine, rank, 0).report();
        save_checkpoint(engine, folder.path() / "first");
        CheckpointSaver saver(engine, folder.path() / "second");
        saver.start();
        (void)saver.wait();
        save_parameters(engine, folder.path() / "model.safetensors");
    });
    CHECK(saved.read[1]
          == wire_model::coded<Int4Blocks, bfloat16>(initial_values<bfloat16>(1, 70001)));
    auto const load = [&](char const* name) {
        return [&folder, name](auto& engine, std::uint64_t) {
            load_checkpoint(engine, folder.path() / name);
        };
    };
    for (int const world : {1, 2, 5}) {
        CAPTURE(world);
        CHECK((after<Frozen<>>(world, replaced(), load("first")) == saved));
        CHECK((after<Frozen<BalancedPartitioner>>(world, replaced(), load("second")) == saved));
        CHECK((after<Frozen<>>(world, replaced(), load("second"),
                               {.gather = {.persistence_threshold = 70}, .poison = true})
               == saved));
    }
    CHECK((after<Frozen<>>(2, replaced(),
                           [&](auto& engine, std::uint64_t) {
                               load_checkpoint(engine, folder.path() / "first");
                               save_checkpoint(engine, folder.path() / "third");
                           })
           == saved));
    CHECK((after<Frozen<>>(5, replaced(), load("third")) == saved));
    Held const model = after<Frozen<>>(2, replaced(), [&](auto& engine, std::uint64_t) {
        load_parameters(engine, folder.path() / "model.safetensors");
    });
    CHECK(model.exact == saved.exact);
}

TEST_CASE("A run without codes loads what they decode to, and a run with codes loads any weights") {
    TemporaryFolder const folder;
    using Plainly = ZeroStage<2, Parameters<bfloat16>>;
    auto const initial = registration<bfloat16>(frozen_specs());
    Held const saved = after<Frozen<>>(2, initial, [&](auto& engine, std::uint64_t) {
        save_checkpoint(engine, folder.path() / "codes");
    });
    Held const plain = after<Plainly>(3, replaced(), [&](auto& engine, std::uint64_t) {
        load_checkpoint(engine, folder.path() / "codes", {.may_round = true});
    });
    CHECK(plain.read == saved.read);
    auto const refused = run_and_observe(2, [&](LoopbackCommunicator& all) {
        Plainly engine(all, replaced());
        load_checkpoint(engine, folder.path() / "codes");
    });
    CHECK_THAT(refused.ranks[0].message, contains_text("are stored as F32, which BF16 rounds"));
    (void)after<Plainly>(3, initial, [&](auto& engine, std::uint64_t) {
        save_checkpoint(engine, folder.path() / "plain");
    });
    CHECK((after<Frozen<>>(5, replaced(),
                           [&](auto& engine, std::uint64_t) {
                               load_checkpoint(engine, folder.path() / "plain");
                           })
           == saved));
}

TEST_CASE("A parameter that is trained later starts from what its codes decode to") {
    TemporaryFolder const folder;
    auto parameters = registration<bfloat16>(frozen_specs());
    Held const saved = after<Frozen<>>(2, parameters, [&](auto& engine, std::uint64_t) {
        save_checkpoint(engine, folder.path());
    });
    for (auto& parameter : parameters) {
        parameter.trainable = true;
        parameter.initialise = {};
    }
    Held const thawed =
        after<ZeroStage<1, Parameters<bfloat16>>>(3, parameters, [&](auto& engine, std::uint64_t) {
            load_checkpoint(engine, folder.path(), {.may_thaw = true});
        });
    CHECK((thawed == saved));
}

TEST_CASE("Frozen parameters of two types keep every bit through a checkpoint") {
    using Stage = ZeroStage<3, Parameters<bfloat16, float>, FrozenWeights<Int8Blocks>>;
    TemporaryFolder const folder;
    auto const run = [&](int world, bool saves) {
        return on_ranks<Values>(world, [&](LoopbackCommunicator& all) {
            auto halves = registration<bfloat16>(frozen_specs());
            auto floats = registration<float>(frozen_specs());
            std::vector<typename Stage::Registration> parameters;
            for (std::size_t index = 0; index < halves.size(); ++index) {
                if (!saves) {
                    halves[index].initialise = {};
                    floats[index].initialise = {};
                }
                if (index % 3 == 1) {
                    parameters.emplace_back(floats[index]);
                } else {
                    parameters.emplace_back(halves[index]);
                }
            }
            Stage engine(all, parameters);
            if (saves) {
                save_checkpoint(engine, folder.path());
            } else {
                load_checkpoint(engine, folder.path());
            }
            Values values;
            for (std::size_t index = 0; index < parameters.size(); ++index) {
                values.push_back(TrainingState(engine).full_fp32_parameter(index));
            }
            return values;
        })[0];
    };
    Values const saved = run(2, true);
    CHECK(std::abs(saved[1][3] - noise(1, 1, 3)) < 1.0F / 127);
    CHECK(saved[1][3] != noise(1, 1, 3)); // a float
    CHECK(run(3, false) == saved);
}

TEST_CASE("A checkpoint of the adapters knows the base in codes over which it was saved") {
    TemporaryFolder const folder;
    auto const initial = registration<bfloat16>(frozen_specs());
    SaveOptions const small{.only = {.trainable = true}, .base = "model"};
    Held const saved = after<Frozen<>>(3, initial, [&](auto& engine, std::uint64_t rank) {
        (void)step_of(engine, rank, 0).report();
        save_checkpoint(engine, folder.path(), small);
    });
    CHECK((after<Frozen<>>(
               2, initial,
               [&](auto& engine, std::uint64_t) { load_checkpoint(engine, folder.path()); })
           == saved));
    auto other = initial;
    other[4].initialise = {};
    auto const refused = run_and_observe(2, [&](LoopbackCommunicator& all) {
        Frozen<> engine(all, other);
        load_checkpoint(engine, folder.path());
    });
    CHECK_THAT(refused.ranks[0].message, contains_text("parameter 'base.1' has other values"));
}

} // namespace zero::test::frozen_checkpoint_test
