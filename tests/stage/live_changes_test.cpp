#include "mixed_model.hpp"
#include "offload_model.hpp"
#include "state_model.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/stages.hpp"
#include "support/toy_model.hpp"

#include <zero/comm/groups.hpp>
#include <zero/core/host_memory_resource.hpp>
#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/ops/adamw.hpp>
#include <zero/ops/lamb.hpp>
#include <zero/policy/averaged.hpp>
#include <zero/stage/gathered_parameters.hpp>
#include <zero/stage/live_changes.hpp>
#include <zero/stage/training_state.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Parameters that are added, merged, removed, frozen and thawed between steps, in any order. The
// reference makes a new engine of the whole registration after each change, and sets its values and
// states by name.

namespace zero::test::live_changes_test {

namespace {

using namespace state_model;

constexpr std::size_t phases = 5;
constexpr std::size_t units = 3;
constexpr std::uint64_t steps = 2; // of each phase

struct Item {
    ParameterSpec spec{};
    std::uint64_t key = 0; ///< of its initial values
    int form = 0;          ///< how it is initialised
};
using Model = std::vector<Item>;

enum class Kind { freeze, thaw, add, remove, merge };

struct Change {
    Kind kind{};
    std::vector<std::string> names{}; ///< of `merge`: target and source
    Model added{};
};

Item some_item(std::mt19937_64& random, std::size_t number) {
    constexpr std::size_t sizes[]{0, 1, 2, 63, 64, 65, 97, 129, 200, 512};
    Item item;
    item.spec.name = "p" + std::to_string(number);
    item.spec.elements = sizes[random() % 10];
    item.spec.units = {random() % units};
    item.spec.group = random() % 2;
    item.spec.trainable = random() % 4 != 0;
    item.spec.rows = item.spec.elements % 2 == 0 && random() % 2 == 0 ? 2 : 0;
    item.key = number;
    item.form = static_cast<int>(random() % 3);
    return item;
}

/// The model at first, and what changes before each later phase.
struct Program {
    Model first;
    std::vector<std::vector<Change>> changes{phases};

    explicit Program(std::uint64_t seed) {
        std::mt19937_64 random(seed);
        std::size_t number = 0;
        for (; number < 6; ++number) {
            first.push_back(some_item(random, number));
        }
        first[0].spec.rows = first[0].spec.group = 0;
        first[0].spec.elements = 77; // a step needs a gradient, and the last unit a parameter
        first[0].spec.trainable = true;
        first[0].spec.units = {0, units - 1};
        first[1].spec.group = 1;
        Model model = first;
        for (std::size_t phase = 1; phase < phases; ++phase) {
            for (int count = 0; count < 4; ++count) {
                Change change;
                change.kind = static_cast<Kind>(random() % 5);
                std::size_t const some = random() % 4;
                if (change.kind == Kind::add) {
                    for (std::size_t added = 0; added < some; ++added) {
                        change.added.push_back(some_item(random, number++));
                    }
                } else if (change.kind == Kind::merge) {
                    std::size_t const target = random() % model.size();
                    change.names = {model[target].spec.name,
                                    model[(target + 1) % model.size()].spec.name};
                } else {
                    for (std::size_t chosen = 0; chosen < some && model.size() > 2; ++chosen) {
                        change.names.push_back(model[1 + random() % (model.size() - 1)].spec.name);
                    }
                }
                apply(model, change);
                changes[phase].push_back(change);
            }
        }
    }

    static void apply(Model& model, Change const& change) {
        model.insert(model.end(), change.added.begin(), change.added.end());
        for (std::string const& name : change.names) {
            for (std::size_t index = 0; index < model.size(); ++index) {
                if (model[index].spec.name == name && change.kind == Kind::remove) {
                    model.erase(model.begin() + static_cast<std::ptrdiff_t>(index));
                    break;
                }
                if (model[index].spec.name == name && change.kind != Kind::merge) {
                    model[index].spec.trainable = change.kind == Kind::thaw;
                }
            }
        }
    }
};

/// Registers a model, with memory for scattered parameters.
template <class Stage>
class Registrar {
public:
    using T = typename Stage::ParameterType;
    using G = typename Stage::GradientType;

    Registrar(Storage storage, int rank) : _storage(storage), _rank(rank) {}

    std::vector<Parameter<T, G>> operator()(Model const& model) {
        std::vector<Parameter<T, G>> parameters;
        for (Item const& item : model) {
            Parameter<T, G>& parameter = parameters.emplace_back();
            parameter.name = item.spec.name;
            parameter.elements = item.spec.elements;
            parameter.units = item.spec.units;
            parameter.group = item.spec.group;
            parameter.trainable = item.spec.trainable;
            parameter.rows = item.spec.rows;
            auto const fill = [key = item.key](std::size_t begin, std::span<T> values) {
                for (std::size_t i = 0; i < values.size(); ++i) {
                    values[i] = from_float<T>(noise(9, key, begin + i));
                }
            };
            if (_storage == Storage::scattered) {
                auto& memory = _memory[item.spec.name];
                memory.resize(item.spec.elements, from_float<T>(7.0F));
                if (_rank == 0) { // the others get it
                    fill(0, memory);
                }
                parameter.data = memory.data();
            } else if (item.form != 0) {
                parameter.initialise = fill;
                parameter.is_deterministic = item.form == 1;
            }
        }
        return parameters;
    }

private:
    Storage _storage;
    int _rank;
    std::map<std::string, std::vector<T>> _memory;
};

void merge(std::span<float> target, std::span<float const> source) {
    for (std::size_t i = 0; i < target.size() && !source.empty(); ++i) {
        target[i] += 0.375F * source[i % source.size()];
    }
}

template <class Stage>
void change_live(Stage& engine, Registrar<Stage>& registrar, Change const& change) {
    switch (change.kind) {
    case Kind::freeze: set_trainable(engine, change.names, false); break;
    case Kind::thaw: set_trainable(engine, change.names, true); break;
    case Kind::remove: remove_parameters(engine, change.names); break;
    case Kind::add: (void)add_parameters(engine, registrar(change.added)); break;
    case Kind::merge:
        auto merged = gather(engine, {std::string_view(change.names[0]), change.names[1]},
                             Gather::all_write_equally);
        merge(merged.writable(change.names[0]), merged.values(change.names[1]));
        merged.commit();
    }
}

/// What a new engine continues from.
struct Snapshot {
    struct Of {
        bool is_trainable = false;
        std::vector<float> weights{};
        std::vector<std::vector<float>> states{};
        std::uint64_t updates = 0;
    };
    std::map<std::string, Of> parameters;
    std::uint64_t steps = 0;
};

template <class Stage>
Snapshot taken(Stage& engine) {
    TrainingState state(engine);
    Snapshot snapshot;
    snapshot.steps = engine.step_count();
    for (std::size_t p = 0; p < engine.layout().parameters().size(); ++p) {
        auto const& spec = engine.layout().parameter(p);
        Snapshot::Of& own = snapshot.parameters[spec.name];
        own.is_trainable = spec.trainable;
        own.weights = state.full_fp32_parameter(p);
        if (spec.trainable) {
            own.updates = state.updates(p);
            for (auto const& name : state.state_names()) {
                own.states.push_back(state.full_optimizer_state(p, name));
            }
        }
    }
    return snapshot;
}

template <class Stage>
void set(Stage& engine, Snapshot const& snapshot) {
    engine.set_step_count(snapshot.steps);
    TrainingState state(engine);
    for (std::size_t p = 0; p < engine.layout().parameters().size(); ++p) {
        auto const& spec = engine.layout().parameter(p);
        auto const found = snapshot.parameters.find(spec.name);
        bool const is_known = found != snapshot.parameters.end();
        if (is_known) {
            state.set_full_fp32_parameter(p, found->second.weights);
        }
        bool const has_states = is_known && found->second.is_trainable;
        if (spec.trainable) {
            state.set_updates(p, has_states ? found->second.updates : 0);
            for (std::size_t index = 0; has_states && index < found->second.states.size();
                 ++index) {
                state.set_full_optimizer_state(p, state.state_names()[index],
                                               found->second.states[index]);
            }
        }
    }
}

/// Trains, and notes all weights, states, step counts and numbers of updates.
template <class Stage>
void train(Seen& seen, Stage& engine, std::size_t phase) {
    auto const rank = static_cast<std::uint64_t>(engine.communicator().rank());
    for (std::uint64_t step = 0; step < steps; ++step) {
        run_step(engine, rank, phase * steps + step);
    }
    Bits bits = state_of(engine);
    TrainingState state(engine);
    for (std::size_t p = 0; p < engine.layout().parameters().size(); ++p) {
        if (engine.layout().parameter(p).trainable) {
            bits.push_back(static_cast<std::uint32_t>(state.updates(p)));
        }
    }
    for (auto const& values : full_parameters(engine)) {
        Bits const more = bits_of(values);
        bits.insert(bits.end(), more.begin(), more.end());
    }
    seen.push_back(bits);
}

template <class Stage>
Seen live(int world, std::uint64_t seed, typename Stage::Options options = {}) {
    options.poison = true;
    Program const program(seed);
    return on_all<Stage>(world, [&](auto& communicator) {
        HostMemoryResource heap;
        auto own = options;
        own.memory = &heap;
        Registrar<Stage> registrar(options.storage, communicator.rank());
        Stage engine(communicator, registrar(program.first), own);
        Seen seen;
        for (std::size_t phase = 0; phase < phases; ++phase) {
            for (Change const& change : program.changes[phase]) {
                change_live(engine, registrar, change);
            }
            train(seen, engine, phase);
            MemoryPlan const plan = engine.memory_plan();
            for (BufferKind const kind :
                 {BufferKind::parameters, BufferKind::parameter_leases, BufferKind::gradients,
                  BufferKind::gradient_leases, BufferKind::master_weights,
                  BufferKind::optimizer_state, BufferKind::scratch, BufferKind::control}) {
                if (plan.tier_bytes == 0 && !plan[kind].is_callers
                    && heap.allocated_bytes(kind) != plan[kind].bytes()) {
                    seen.push_back(
                        {static_cast<std::uint32_t>(kind)}); // differs from the reference
                }
            }
        }
        return seen;
    });
}

template <class Stage>
Seen reference(int world, std::uint64_t seed, typename Stage::Options const& options = {}) {
    Program const program(seed);
    return on_all<Stage>(world, [&](auto& communicator) {
        Seen seen;
        Model model = program.first;
        Snapshot snapshot;
        Registrar<Stage> registrar(options.storage, communicator.rank());
        for (std::size_t phase = 0; phase < phases; ++phase) {
            for (Change const& change : program.changes[phase]) {
                Program::apply(model, change);
                Stage engine(communicator, registrar(model), options);
                if (change.kind == Kind::merge) {
                    merge(snapshot.parameters[change.names[0]].weights,
                          snapshot.parameters[change.names[1]].weights);
                }
                set(engine, snapshot);
                snapshot = taken(engine);
            }
            Stage engine(communicator, registrar(model), options);
            if (phase != 0) {
                set(engine, snapshot);
            }
            train(seen, engine, phase);
            snapshot = taken(engine);
        }
        return seen;
    });
}

template <class Stage>
void check(int world, std::uint64_t seed, typename Stage::Options const& options = {}) {
    Seen const expected = reference<Stage>(world, seed, options);
    CHECK(expected.size() == phases);
    CHECK((live<Stage>(world, seed, options) == expected));
}

} // namespace

TEST_CASE("Parameters that are added, merged and removed between steps train as in a new engine",
          "[stage][rebuild]") {
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
        INFO("seed " << seed);
        int const world = static_cast<int>(seed % 3) + 1;
        Seen const expected = reference<ZeroStage<0>>(world, seed);
        CHECK(expected.size() == phases);
        in_every_stage([&]<int N>() {
            CHECK((live<ZeroStage<N>>(world, seed) == expected));
            CHECK((live<ZeroStage<N, RoundRobinPartitioner, SizeCappedBucketer>>(
                       world, seed, {.bucketer = {.bucket_bytes = 700}})
                   == expected));
            CHECK_FALSE((live<ZeroStage<N>>(world, seed + 1) == expected));
            check<ZeroStage<N>>(world, seed, {.unused_parameters = UnusedParameters::leave});
        });
    }
}

TEST_CASE("Every form of masters and states moves when parameters are added and removed",
          "[stage][rebuild]") {
    in_every_stage([]<int N>() {
        check<ZeroStage<N, Parameters<bfloat16>, SizeCappedBucketer>>(
            5, 15, {.bucketer = {.bucket_bytes = 700}});
        check<ZeroStage<N, Parameters<bfloat16>, SplitMasterWeights>>(2, 16);
        check<ZeroStage<N, Averaged<AdamW>>>(3, 18);
        check<ZeroStage<N, Lamb, RoundRobinPartitioner>>(2, 19);
        if constexpr (N < 3) {
            check<ZeroStage<N>>(3, 20, {.storage = Storage::scattered});
        }
    });
    Seen const expected = live<ZeroStage<0, BlockScaledState<float16>>>(2, 17);
    CHECK(expected.size() == phases);
    CHECK((live<ZeroStage<2, BlockScaledState<float16>>>(2, 17) == expected));
    CHECK((live<ZeroStage<3, BlockScaledState<float16>>>(2, 17) == expected));
    check<ZeroStage<3, Parameters<bfloat16>, StochasticRounding>>(2, 21);
}

TEST_CASE("Parameters of several types are added to a model and removed", "[stage][rebuild]") {
    using mixed::ByName;
    auto const run = []<int N>(bool trains_before, bool is_new) {
        return on_ranks<ByName>(3, [&](LoopbackCommunicator& communicator) {
            auto const rank = static_cast<std::uint64_t>(communicator.rank());
            std::vector<AnyParameter> const added{
                Parameter<float>{.name = "new.bias", .elements = 70, .units = {2}},
                Parameter<bfloat16>{.name = "new.weight", .elements = 130, .units = {1}}};
            auto parameters = mixed::mixed_registration<AnyParameter>(
                [&](std::size_t p) { return !is_new || (p != 1 && p != 2); });
            if (is_new) {
                parameters.insert(parameters.end(), added.begin(), added.end());
            }
            mixed::Mixed<N> engine(
                communicator, parameters,
                {.reduction = {.schedule = ReductionSchedule::every_micro_step}});
            if (trains_before) {
                (void)mixed::train<bfloat16, float>(engine, rank);
            }
            if (!is_new) {
                add_parameters(engine, added);
                remove_parameters(engine, {"first.weight", "first.bias"});
            }
            (void)mixed::train<bfloat16, float>(engine, rank);
            auto values = mixed::values_by_name(engine);
            values["states"] = {};
            for (std::uint32_t const word : state_of(engine)) {
                values["states"].push_back(static_cast<float>(word >> 8U));
                values["states"].push_back(static_cast<float>(word & 0xffU));
            }
            return values;
        })[1];
    };
    ByName const fresh = run.operator()<0>(false, true);
    ByName const later = run.operator()<0>(true, false);
    CHECK(fresh.count("new.bias") == 1);
    in_every_stage([&]<int N>() {
        CHECK(run.operator()<N>(false, false) == fresh);
        CHECK(run.operator()<N>(true, false) == later);
    });
    CHECK(fresh != later);
}

TEST_CASE("A run of sharded groups adds and removes parameters", "[stage][rebuild]") {
    check<ZeroStage<3, Groups<LoopbackCommunicator, Hybrid>>>(4, 22);
}

TEST_CASE("States in files move when parameters are added and removed", "[stage][rebuild]") {
    in_every_stage([]<int N>() {
        using InMemory = ZeroStage<N, Parameters<bfloat16>, SizeCappedBucketer>;
        using InFile = typename InMemory::template with<OffloadAll<N>>;
        TemporaryFolder const folder;
        DelayedFiles files(N);
        CHECK((live<InFile>(
                   2, 23, {.bucketer = {.bucket_bytes = 700}, .offload = in_folder(folder, &files)})
               == reference<InMemory>(2, 23, {.bucketer = {.bucket_bytes = 700}})));
        CHECK(files.created > 2);
    });
}

} // namespace zero::test::live_changes_test
