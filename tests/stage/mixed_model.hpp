#pragma once

// The toy model with parameters of two types: some in bfloat16, some in float.

#include "support/ranks.hpp"
#include "support/toy_model.hpp"

#include <zero/stage/zero_stage.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

namespace zero::test::mixed {

inline constexpr int world = 3;

inline bool is_float(std::size_t parameter) {
    return parameter % 3 == 2; // first.bias and third.weight of the toy model
}

/// Returns the toy model, or only the parameters that `keeps` selects.
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
                parameters.push_back(is_float(index) ? Registration(floats[index])
                                                     : Registration(halves[index]));
            }
        }
    }
    return parameters;
}

/// Returns a gradient that depends on the parameter's name, and is therefore the same in a model
/// with only some of the parameters.
inline float gradient_of(std::string const& name, std::uint64_t rank, std::size_t index,
                         std::uint64_t step) {
    std::uint64_t key = 5;
    for (char const letter : name) {
        key = key * 31 + static_cast<unsigned char>(letter);
    }
    return noise(key, rank, index, step);
}

template <class T, class Gradients>
void add_gradient(Gradients const& gradients, std::size_t parameter, std::string const& name,
                  std::uint64_t rank, std::uint64_t step) {
    auto const gradient = gradients.template get<T>(parameter);
    for (std::size_t i = 0; i < gradient.size(); ++i) {
        gradient[i] = from_float<T>(to_float(gradient[i]) + gradient_of(name, rank, i, step));
    }
}

/// Runs the backward passes of a micro-step, which visit the units in `order`; if that is empty, in
/// reverse order.
template <class T, class U, class Engine>
void run_backward(Engine& engine, std::uint64_t rank, std::uint64_t when,
                  std::vector<std::size_t> const& order = {}) {
    for (std::size_t position = engine.layout().units(); position-- > 0;) {
        std::size_t const unit = order.empty() ? position : order[order.size() - 1 - position];
        auto const weights = engine.acquire(unit);
        auto const gradients = engine.gradients(unit);
        for (std::size_t const parameter : engine.layout().unit_parameters(unit)) {
            auto const& spec = engine.layout().parameter(parameter);
            if (spec.type == 0) {
                add_gradient<T>(gradients, parameter, spec.name, rank, when);
            } else {
                add_gradient<U>(gradients, parameter, spec.name, rank, when);
            }
        }
        engine.gradients_ready(unit);
    }
}

/// Trains four steps of two micro-steps.
/// @param order as in `run_backward`
/// @return the gradient norm of the last step
template <class T, class U, class Engine>
double train(Engine& engine, std::uint64_t rank, std::vector<std::size_t> const& order = {}) {
    double norm = 0.0;
    for (std::uint64_t step = 0; step < 4; ++step) {
        engine.begin_step();
        for (auto const micro_step : engine.micro_steps(2)) {
            run_backward<T, U>(engine, rank, step * 2 + micro_step, order);
        }
        norm = engine.step(0.01).report().gradient_norm;
    }
    return norm;
}

using ByName = std::map<std::string, std::vector<float>>;

template <class Engine>
ByName values_by_name(Engine& engine) {
    ByName values;
    engine.settle();
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

/// The state of one rank after a run.
struct TrainedByName {
    ByName values;
    double norm = 0.0;
    ByName owned; ///< master weight and states of each element, zero where another rank owns it

    /// Compares what every rank has.
    bool operator==(TrainedByName const& other) const {
        return values == other.values && norm == other.norm;
    }
};

template <class Engine>
ByName owned_by_name(Engine& engine) {
    ByName owned;
    for (auto const& spec : engine.layout().parameters()) {
        owned[spec.name].resize(3 * spec.elements);
    }
    engine.for_each_owned_slice([&](auto const& slice) {
        auto& list = owned[engine.layout().parameter(slice.parameter).name];
        for (std::size_t i = 0; i < slice.values.size(); ++i) {
            list[3 * (slice.begin + i)] = slice.master_weight(i);
            for (std::size_t state = 0; state < slice.states.size(); ++state) {
                list[3 * (slice.begin + i) + 1 + state] = slice.state(state, i);
            }
        }
    });
    return owned;
}

/// Compares also what each rank owns, for runs with the same shards.
inline bool are_equal(std::vector<TrainedByName> const& a, std::vector<TrainedByName> const& b) {
    bool is_equal = a == b;
    for (std::size_t rank = 0; is_equal && rank < a.size(); ++rank) {
        is_equal = a[rank].owned == b[rank].owned;
    }
    return is_equal;
}

/// Returns the owned state of all ranks together.
inline ByName owned_by_all(std::vector<TrainedByName> const& ranks) {
    ByName all = ranks[0].owned;
    for (TrainedByName const& rank : ranks) {
        for (auto& [name, list] : all) {
            for (std::size_t i = 0; i < list.size(); ++i) {
                list[i] = list[i] == 0.0F ? rank.owned.at(name)[i] : list[i];
            }
        }
    }
    return all;
}

template <class Stage>
std::vector<TrainedByName> train_all(typename Stage::Options const& options,
                                     std::vector<std::size_t> const& order = {}) {
    return on_ranks<TrainedByName>(world, [&](LoopbackCommunicator& communicator) {
        Stage engine(
            communicator,
            mixed_registration<typename Stage::Registration>([](std::size_t) { return true; }),
            options);
        double const norm =
            train<bfloat16, float>(engine, static_cast<std::uint64_t>(communicator.rank()), order);
        return TrainedByName{values_by_name(engine), norm, owned_by_name(engine)};
    });
}

} // namespace zero::test::mixed
