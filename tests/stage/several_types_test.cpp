#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/snapshot.hpp"

#include <zero/stage/with_stage.hpp>
#include <zero/stage/zero_stage.hpp>

#include <array>
#include <map>
#include <string>
#include <vector>

// A model with parameters of several types: matrices in bfloat16, norms and biases in float.

using namespace zero;
using namespace zero::test;

namespace {

constexpr int world = 3;

bool is_float(std::size_t parameter) {
    return parameter % 3 == 2; // of the toy model: first.bias, third.weight
}

/// The toy model, or only those of its parameters that `keeps` picks.
template <class Registration, class Keeps>
std::vector<Registration> mixed_registration(Keeps const& keeps) {
    auto const halves = registration<bfloat16>(toy_specs());
    auto const floats = registration<float>(toy_specs());
    std::vector<Registration> parameters;
    for (std::size_t index = 0; index < halves.size(); ++index) {
        if (keeps(index)) {
            if constexpr (std::is_same_v<Registration, Parameter<bfloat16>>) {
                parameters.push_back(halves[index]);
            } else if constexpr (std::is_same_v<Registration, Parameter<float>>) {
                parameters.push_back(floats[index]);
            } else {
                parameters.push_back(is_float(index) ? Registration(floats[index]) : Registration(halves[index]));
            }
        }
    }
    return parameters;
}

/// A gradient that depends on the parameter's name, so that it is the same in a model that has only some of the parameters.
float gradient_of(std::string const& name, std::uint64_t rank, std::size_t index, std::uint64_t step) {
    std::uint64_t key = 5;
    for (char const letter : name) {
        key = key * 31 + static_cast<unsigned char>(letter);
    }
    return noise(key, rank, index, step);
}

template <class T, class Gradients>
void add_gradient(Gradients const& gradients, std::size_t parameter, std::string const& name, std::uint64_t rank, std::uint64_t step) {
    auto const gradient = gradients.template get<T>(parameter);
    for (std::size_t i = 0; i < gradient.size(); ++i) {
        gradient[i] = from_float<T>(to_float(gradient[i]) + gradient_of(name, rank, i, step));
    }
}

/// Four steps of two micro-steps; the norm that the last one reports.
template <class T, class U, class Engine>
double train(Engine& engine, std::uint64_t rank) {
    double norm = 0.0;
    for (std::uint64_t step = 0; step < 4; ++step) {
        engine.begin_step();
        for (auto const micro_step : engine.micro_steps(2)) {
            for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
                auto const weights = engine.acquire(unit);
                auto const gradients = engine.gradients(unit);
                for (std::size_t const parameter : engine.layout().unit_parameters(unit)) {
                    auto const& spec = engine.layout().parameter(parameter);
                    if (spec.type == 0) {
                        add_gradient<T>(gradients, parameter, spec.name, rank, step * 2 + micro_step);
                    } else {
                        add_gradient<U>(gradients, parameter, spec.name, rank, step * 2 + micro_step);
                    }
                }
                engine.gradients_ready(unit);
            }
        }
        norm = engine.step(0.01).report().gradient_norm;
    }
    return norm;
}

using ByName = std::map<std::string, std::vector<float>>;

template <class Engine>
ByName values_by_name(Engine& engine) {
    ByName values;
    engine.for_each_full_parameter([&](std::size_t parameter, auto span) {
        auto& list = values[engine.layout().parameter(parameter).name];
        for (auto const value : span) {
            list.push_back(to_float(value));
        }
    });
    return values;
}

template <int N, class... Policies>
using Mixed = ZeroStage<N, Parameters<bfloat16, float>, Policies...>;

struct Trained {
    ByName values;
    double norm = 0.0;
    bool operator==(Trained const&) const = default;
};

template <class Stage>
std::vector<Trained> train_all(typename Stage::Options const& options) {
    return on_ranks<Trained>(world, [&](LoopbackCommunicator& communicator) {
        Stage engine(communicator, mixed_registration<typename Stage::Registration>([](std::size_t) { return true; }), options);
        double const norm = train<bfloat16, float>(engine, static_cast<std::uint64_t>(communicator.rank()));
        return Trained{values_by_name(engine), norm};
    });
}

/// The same with a model of one type, which has the parameters that `keeps` picks.
template <class T, class Keeps>
ByName train_some(Keeps const& keeps) {
    return on_ranks<ByName>(world, [&](LoopbackCommunicator& communicator) {
        ZeroStage<2, Parameters<T>> engine(communicator, mixed_registration<Parameter<T>>(keeps),
                                           {.reduction = {.schedule = ReductionSchedule::boundary}});
        (void)train<T, T>(engine, static_cast<std::uint64_t>(communicator.rank()));
        return values_by_name(engine);
    })[0];
}

} // namespace

TEST_CASE("A model with two parameter types trains to the bits of two models with one type each") {
    ByName expected = train_some<bfloat16>([](std::size_t index) { return !is_float(index); });
    expected.merge(train_some<float>([](std::size_t index) { return is_float(index); }));
    REQUIRE(expected.size() == toy_specs().size());
    for (int const stage : {0, 1, 2, 3}) {
        INFO("stage " << stage);
        with_stage(stage, [&]<int N>() {
            for (auto const& rank : train_all<Mixed<N>>({.reduction = {.schedule = ReductionSchedule::boundary}})) {
                CHECK((rank.values == expected));
            }
        });
    }
}

TEST_CASE("With several types clipping, poison, scattered memory and small buckets give the same bits in every stage") {
    for (auto const schedule : {ReductionSchedule::boundary, ReductionSchedule::every_micro_step}) {
        auto const expected = train_all<Mixed<0>>({.gradient_clipping = 0.5F, .reduction = {.schedule = schedule}});
        CHECK(expected[0].norm > 0.5); // it clips
        for (int const stage : {0, 1, 2, 3}) {
            INFO("stage " << stage);
            with_stage(stage, [&]<int N>() {
                CHECK((train_all<Mixed<N, SizeCappedBucketer>>(
                           {.gradient_clipping = 0.5F, .poison = true, .bucketer = {.bucket_bytes = 600}, .reduction = {.schedule = schedule}})
                       == expected));
                CHECK((train_all<Mixed<N, RoundRobinPartitioner>>({.gradient_clipping = 0.5F, .reduction = {.schedule = schedule}}) == expected));
            });
        }
    }
}

TEST_CASE("With several types the plan is what was allocated, and master weights are kept for bfloat16 alone") {
    for (int const stage : {0, 1, 2, 3}) {
        INFO("stage " << stage);
        with_stage(stage, [&]<int N>() {
            struct Account {
                MemoryPlan plan;
                std::array<std::size_t, buffer_kinds> allocated{};
            };
            auto const accounts = on_ranks<Account>(world, [&](LoopbackCommunicator& communicator) {
                HostMemoryResource memory;
                Mixed<N> engine(communicator, mixed_registration<AnyParameter>([](std::size_t) { return true; }), {.memory = &memory});
                Account account{engine.memory_plan(), {}};
                for (std::size_t kind = 0; kind < buffer_kinds; ++kind) {
                    account.allocated[kind] = memory.allocated_bytes(static_cast<BufferKind>(kind));
                }
                return account;
            });
            std::size_t master = 0;
            for (auto const& account : accounts) {
                for (std::size_t kind = 0; kind < buffer_kinds; ++kind) {
                    CHECK(account.plan.rows[kind].bytes() == account.allocated[kind]);
                }
                master += account.plan[BufferKind::master_weights].content_bytes;
            }
            // embedding 300, first.weight 500, second.weight 129, third.empty 0, head.scale 1; second.table is frozen
            CHECK(master == 4 * 930 * (N == 0 ? world : 1));
        });
    }
}

TEST_CASE("Types that do not fit are refused by name") {
    auto const outcomes = on_ranks<std::vector<std::string>>(1, [](LoopbackCommunicator& communicator) {
        std::vector<std::string> messages;
        auto const all = mixed_registration<AnyParameter>([](std::size_t) { return true; });
        Mixed<2> engine(communicator, all);
        auto const weights = engine.acquire(1);
        messages.push_back(outcome_of([&] { (void)weights.template get<float>(1); }).message);
        std::vector<AnyParameter> with_half = all;
        with_half.emplace_back(Parameter<float16>{.name = "half", .elements = 3});
        messages.push_back(outcome_of([&] { Mixed<2> refused(communicator, with_half); }).message);
        std::vector<bfloat16> block(64);
        std::vector<AnyParameter> const adopted{Parameter<bfloat16>{.name = "a", .data = block.data(), .elements = 64}};
        messages.push_back(outcome_of([&] { Mixed<2> refused(communicator, adopted, {.storage = Storage::adopted, .adopted_block = block}); }).message);
        return messages;
    })[0];
    CHECK(outcomes[0] == "zero: parameter 'first.weight' has the type bfloat16, not float32; ask for it as that (rank 0).");
    CHECK(outcomes[1]
          == "zero: parameter 'half' is float16 with a float16 gradient, which is none of the types of this composition; name its type in "
             "zero::Parameters, and its gradient's in zero::GradientReduction.");
    CHECK(outcomes[2] == "zero: an adopted block holds one parameter type, but the model has several; use Storage::scattered.");
}
