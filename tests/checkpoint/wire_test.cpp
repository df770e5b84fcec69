// Checkpoints of a run whose weights travel in codes.

#include "stage/wire_model.hpp"
#include "support/catch.hpp"
#include "support/stages.hpp"
#include "support/temporary_folder.hpp"

#include <zero/checkpoint/checkpoint_saver.hpp>
#include <zero/checkpoint/load_checkpoint.hpp>
#include <zero/checkpoint/load_parameters.hpp>
#include <zero/checkpoint/save_checkpoint.hpp>
#include <zero/checkpoint/save_parameters.hpp>
#include <zero/layout/balanced_partitioner.hpp>
#include <zero/stage/training_state.hpp>
#include <zero/zero.hpp>

#include <cmath>
#include <cstdint>
#include <filesystem>
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

TEST_CASE("A load forgets the errors of the steps before it, in an engine that has run as in a new "
          "one") {
    using Stage = ZeroStage<2, Parameters<bfloat16>, Wire<Plain, Int4Blocks, ErrorFeedback<float>>>;
    TemporaryFolder const folder;
    struct Ends {
        Values uninterrupted, resumed;
    };
    auto const run = [&](bool is_new) {
        return on_ranks<Ends>(2, [&](LoopbackCommunicator& all) {
            auto const rank = static_cast<std::uint64_t>(all.rank());
            Stage engine(all, registration<bfloat16>(toy_specs()));
            auto const steps = [&](std::uint64_t begin) {
                for (std::uint64_t step = begin; step < 5; ++step) {
                    (void)step_of(engine, rank, step).report();
                    if (step == 1 && begin == 0) {
                        save_checkpoint(engine, folder.path());
                    }
                }
                return full_parameters(engine);
            };
            Ends ends;
            if (!is_new) {
                ends.uninterrupted = steps(0);
            }
            load_checkpoint(engine, folder.path());
            ends.resumed = steps(2);
            return ends;
        });
    };
    auto const ran = run(false);
    auto const fresh = run(true);
    CHECK((ran[0].resumed == fresh[0].resumed));
    CHECK((ran[0].resumed == ran[1].resumed));
    CHECK((ran[0].uninterrupted != ran[0].resumed)); // or the errors did not matter
}

namespace {

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

} // namespace zero::test::wire_checkpoint_test
