#include "state_model.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/stages.hpp"

#include <zero/layout/round_robin_partitioner.hpp>

#include <cmath>
#include <string>
#include <vector>

// Weights and optimizer states are read back as they were set, in every stage and form of storage.

namespace zero::test::training_state_test {

namespace {

using namespace state_model;

/// A value that one rank reads from a parameter, and the expected one.
struct Reading {
    std::string what;
    Bits found;
    Bits expected;
};

struct Seen {
    std::vector<Reading> readings;
    Trained owned;
    std::vector<std::size_t> local_elements; ///< weights of each parameter on this rank
};

std::vector<std::string> const names{"exp_avg", "exp_avg_sq"};

/// Returns values for a state of a parameter; the second one is a sum of squares.
std::vector<float> some_moments(Exact exact, std::uint64_t key, std::size_t index, std::size_t p) {
    auto moments = some_values(exact, key + 1 + index, p);
    for (float& value : moments) {
        value = index == 1 ? std::fabs(value) : value;
    }
    return moments;
}

/// Returns weights as they are held: those of frozen parameters are the parameters.
template <class Stage>
std::vector<float> held_weights(Exact exact, std::uint64_t key, std::size_t parameter) {
    auto const values = some_values(exact, key, parameter);
    return toy_specs()[parameter].trainable ? values : rounded<Stage>(parameter, values);
}

/// Reads everything on this rank and compares it with the values of `key`.
template <class Stage>
void read(Seen& seen, TrainingState<typename Stage::EngineType>& state, Stage& engine,
          std::uint64_t key, Exact weights, Exact states) {
    auto const specs = toy_specs();
    auto const parameters = full_parameters(engine);
    for (std::size_t p = 0; p < specs.size(); ++p) {
        auto const values = held_weights<Stage>(weights, key, p);
        auto const add = [&](char const* what, std::span<float const> found,
                             std::vector<float> const& expected) {
            seen.readings.push_back(
                {what + (" of " + specs[p].name), bits_of(found), bits_of(expected)});
        };
        add("full weights", state.full_fp32_parameter(p), values);
        add("parameters", parameters[p], rounded<Stage>(p, values));
        for (LocalValues const& slice : state.local_fp32_parameter(p)) {
            add("local weights", slice.values,
                {values.begin() + static_cast<std::ptrdiff_t>(slice.begin),
                 values.begin() + static_cast<std::ptrdiff_t>(slice.begin + slice.values.size())});
        }
        for (std::size_t index = 0; specs[p].trainable && index < 2; ++index) {
            auto const moments = some_moments(states, key, index, p);
            add("full state", state.full_optimizer_state(p, names[index]), moments);
            for (LocalValues const& slice : state.local_optimizer_state(p, names[index])) {
                auto const begin = moments.begin() + static_cast<std::ptrdiff_t>(slice.begin);
                add("local state", slice.values,
                    {begin, begin + static_cast<std::ptrdiff_t>(slice.values.size())});
            }
        }
    }
}

/// Sets everything, by the full setters or the local ones.
template <class Stage>
void set_all(TrainingState<typename Stage::EngineType>& state, int rank, bool is_full,
             std::uint64_t key, Exact weights, Exact states) {
    auto const specs = toy_specs();
    for (std::size_t p = 0; p < specs.size(); ++p) {
        auto const values = some_values(weights, key, p);
        auto const part = [](std::vector<float> const& all, LocalValues const& slice) {
            return std::span<float const>(all).subspan(slice.begin, slice.values.size());
        };
        if (is_full) {
            state.set_full_fp32_parameter(p, rank == 0 ? values : std::vector<float>());
        } else {
            for (LocalValues const& slice : state.local_fp32_parameter(p)) {
                state.set_local_fp32_parameter(p, slice.begin, part(values, slice));
            }
        }
        for (std::size_t index = 0; specs[p].trainable && index < 2; ++index) {
            auto const moments = some_moments(states, key, index, p);
            if (is_full) {
                state.set_full_optimizer_state(p, names[index], moments);
            } else {
                for (LocalValues const& slice : state.local_optimizer_state(p, names[index])) {
                    state.set_local_optimizer_state(p, names[index], slice.begin,
                                                    part(moments, slice));
                }
            }
        }
    }
}

/// Sets and reads everything on several ranks, after two steps, so that nothing is fresh.
template <class Stage>
void check_round_trip(int world, Exact weights, Exact states,
                      typename Stage::Options const& options = {}) {
    INFO("ranks " << world);
    for (bool const is_full : {true, false}) {
        INFO((is_full ? "full" : "local") << " setters");
        auto const ranks = on_ranks<Seen>(world, [&](LoopbackCommunicator& communicator) {
            Toy<Stage> toy(communicator, options);
            Stage& engine = *toy.engine;
            int const rank = communicator.rank();
            if constexpr (Stage::parameter_types == 1) {
                for (std::uint64_t const step :
                     {0U, 1U}) { // from the second on units are prefetched
                    (void)run_step(engine, static_cast<std::uint64_t>(rank), step);
                }
            }
            TrainingState state(engine);
            Seen seen;
            set_all<Stage>(state, rank, is_full, 50, weights, states);
            if (!is_full) {
                state.publish_master_weights();
            }
            read<Stage>(seen, state, engine, 50, weights, states);
            seen.owned.resize(toy_specs());
            engine.for_each_owned_slice([&](auto const& slice) { seen.owned.add(slice); });
            for (std::size_t p = 0; p < toy_specs().size(); ++p) {
                seen.local_elements.push_back(0);
                for (LocalValues const& slice : state.local_fp32_parameter(p)) {
                    seen.local_elements.back() += slice.values.size();
                }
            }
            return seen;
        });
        std::vector<Trained> owned;
        std::vector<std::size_t> elements(toy_specs().size());
        for (Seen const& seen : ranks) {
            for (Reading const& reading : seen.readings) {
                INFO(reading.what);
                CHECK((reading.found == reading.expected));
            }
            owned.push_back(seen.owned);
            for (std::size_t p = 0; p < elements.size(); ++p) {
                elements[p] += seen.local_elements[p];
            }
        }
        Trained const all = Trained::joined(owned);
        for (std::size_t p = 0; p < elements.size(); ++p) {
            ParameterSpec const spec = toy_specs()[p];
            INFO(spec.name);
            if (!spec.trainable) {
                continue;
            }
            CHECK((bits_of(all.masters[p]) == bits_of(some_values(weights, 50, p))));
            bool const is_replicated = ranks[0].local_elements[1] == 500; // stage 0, or one rank
            CHECK(elements[p]
                  == spec.elements * static_cast<std::size_t>(is_replicated ? world : 1));
            auto const first = some_moments(states, 50, 0, p);
            auto const second = some_moments(states, 50, 1, p);
            for (std::size_t i = 0; i < spec.elements; ++i) {
                if (all.states[p][2 * i] != first[i] || all.states[p][2 * i + 1] != second[i]) {
                    FAIL_CHECK("states of element " << i);
                }
            }
        }
    }
}

template <class... Policies>
void check_every_stage(Exact weights, Exact states) {
    in_every_stage([&]<int N>() {
        for (int const world : {1, 2, 3}) {
            check_round_trip<ZeroStage<N, Policies...>>(world, weights, states);
        }
    });
}

template <class... Policies>
void check_every_storage(Exact weights, Exact states) {
    for (Storage const storage : {Storage::adopted, Storage::scattered}) {
        INFO("storage " << static_cast<int>(storage));
        check_round_trip<ZeroStage<0, Policies...>>(3, weights, states, {.storage = storage});
        check_round_trip<ZeroStage<1, Policies...>>(3, weights, states, {.storage = storage});
        check_round_trip<ZeroStage<2, Policies...>>(3, weights, states, {.storage = storage});
    }
}

constexpr Exact every = Exact::every_float;
constexpr Exact eight = Exact::eight_bits;

} // namespace

TEST_CASE("Get after set gives the bits that were set, for float parameters") {
    check_every_stage<>(every, every);
    check_every_storage<>(every, every);
}

TEST_CASE("Get after set gives the bits that were set, for master weights of bfloat16 and float16 "
          "parameters") {
    check_every_stage<Parameters<bfloat16>>(every, every);
    check_every_stage<Parameters<float16>, DynamicLossScaler>(every, every);
    check_every_storage<Parameters<bfloat16>>(every, every);
}

TEST_CASE("Get after set gives the bits that were set, for split master weights") {
    check_every_stage<Parameters<bfloat16>, SplitMasterWeights>(every, every);
    check_every_storage<Parameters<bfloat16>, SplitMasterWeights>(every, every);
}

TEST_CASE("Get after set gives the bits that were set, without master weights and with "
          "block-scaled states") {
    check_every_stage<Parameters<bfloat16>, NoMasterWeights>(eight, every);
    check_every_stage<Parameters<bfloat16>, StochasticRounding>(eight, every);
    check_every_stage<BlockScaledState<float16>>(every, eight);
    check_every_storage<BlockScaledState<float16>>(every, eight);
}

TEST_CASE("Get after set gives the bits that were set, with two parameter types and with a "
          "partitioner that deals parameters") {
    check_every_stage<Parameters<bfloat16, float>>(every, every);
    in_every_stage([]<int N>() {
        check_round_trip<ZeroStage<N, RoundRobinPartitioner, Parameters<bfloat16>>>(3, every,
                                                                                    every);
    });
}

TEST_CASE("A value that the storage does not hold is rounded, and the comparison above finds it") {
    auto const found = on_ranks<std::vector<float>>(2, [](LoopbackCommunicator& communicator) {
        Toy<ZeroStage<2, Parameters<bfloat16>, NoMasterWeights>> toy(communicator);
        TrainingState state(*toy.engine);
        state.set_full_fp32_parameter(1, some_values(every, 50, 1));
        return state.full_fp32_parameter(1);
    });
    CHECK(found[0] == found[1]);
    CHECK_FALSE(bits_of(found[0]) == bits_of(some_values(every, 50, 1)));
    for (std::size_t i = 0; i < found[0].size(); ++i) {
        CHECK(found[0][i] == to_float(from_float<bfloat16>(some_values(every, 50, 1)[i])));
    }
}

} // namespace zero::test::training_state_test
