#pragma once

#include "ranks.hpp"
#include "snapshot.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include <zero/layout/memory_plan.hpp>
#include <zero/layout/placement.hpp>

namespace zero::test {

/// The caller's memory for the toy model: parameters one after the other, with their initial
/// values, and gradients.
template <class T, class G>
struct CallersMemory {
    explicit CallersMemory(std::vector<Parameter<T, G>>& parameters) {
        std::size_t elements = 0;
        for (auto const& parameter : parameters) {
            elements += parameter.elements;
        }
        block.resize(elements);
        gradients.resize(elements);
        std::size_t begin = 0;
        for (auto& parameter : parameters) {
            parameter.data = block.data() + begin;
            parameter.gradient = parameter.trainable ? gradients.data() + begin : nullptr;
            parameter.initialise(0, std::span<T>(parameter.data, parameter.elements));
            parameter.initialise = nullptr;
            begin += parameter.elements;
        }
    }

    std::vector<T> block;
    std::vector<G> gradients;
};

/// What a run of the toy model leaves: of rank 0 all parameters, and of all ranks together the
/// master weight and the states of each trainable element, by parameter and in the order of its
/// elements. So runs in any stage and on any number of ranks compare.
struct Trained {
    std::vector<std::vector<float>> parameters;
    std::vector<std::vector<float>> masters;
    std::vector<std::vector<float>> states;
    MemoryPlan plan;

    friend bool operator==(Trained const& a, Trained const& b) {
        return same(a.parameters, b.parameters) && same(a.masters, b.masters)
               && same(a.states, b.states);
    }

private:
    static bool same(std::vector<std::vector<float>> const& a,
                     std::vector<std::vector<float>> const& b) {
        bool is_same = a.size() == b.size();
        for (std::size_t i = 0; is_same && i < a.size(); ++i) {
            is_same =
                a[i].size() == b[i].size()
                && (a[i].empty()
                    || std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) == 0);
        }
        return is_same;
    }
};

template <class Stage>
Trained trained(int world, typename Stage::Options const& options = {}, std::uint64_t steps = 4,
                double learning_rate = 0.01, std::size_t binades = 24,
                std::vector<ParameterSpec> const& specs = toy_specs(),
                std::vector<std::size_t> const& order = {}) {
    using T = typename Stage::ParameterType;
    auto const ranks = on_ranks<Trained>(world, [&](LoopbackCommunicator& communicator) {
        auto parameters = registration<T, typename Stage::GradientType>(specs);
        auto own_options = options;
        own_options.reduction.schedule =
            ReductionSchedule::boundary; // the default differs between stages
        std::optional<CallersMemory<T, typename Stage::GradientType>> memory;
        if (options.storage != Storage::owned) {
            memory.emplace(parameters);
            own_options.adopted_block =
                options.storage == Storage::adopted ? std::span<T>(memory->block) : std::span<T>();
        }
        Stage engine(communicator, parameters, own_options);
        for (std::uint64_t step = 0; step < steps; ++step) {
            (void)run_step(engine, static_cast<std::uint64_t>(communicator.rank()), step, 2,
                           learning_rate, binades, order);
        }
        Trained result;
        result.parameters = full_parameters(engine);
        result.masters.resize(parameters.size());
        result.states.resize(parameters.size());
        for (std::size_t index = 0; index < parameters.size(); ++index) {
            result.masters[index].resize(parameters[index].elements);
            result.states[index].resize(2 * parameters[index].elements);
        }
        engine.for_each_owned_slice([&](auto const& slice) {
            for (std::size_t i = 0; i < slice.values.size(); ++i) {
                result.masters[slice.parameter][slice.begin + i] = slice.master_weight(i);
                for (std::size_t state = 0; state < slice.states.size(); ++state) {
                    result.states[slice.parameter][2 * (slice.begin + i) + state] =
                        slice.state(state, i);
                }
            }
        });
        result.plan = engine.memory_plan();
        return result;
    });
    Trained all = ranks[0];
    for (std::size_t rank = 1; rank < ranks.size(); ++rank) { // what a rank does not own is zero
        for (std::size_t index = 0; index < all.masters.size(); ++index) {
            for (std::size_t i = 0; i < all.masters[index].size(); ++i) {
                all.masters[index][i] = all.masters[index][i] == 0.0F
                                            ? ranks[rank].masters[index][i]
                                            : all.masters[index][i];
            }
            for (std::size_t i = 0; i < all.states[index].size(); ++i) {
                all.states[index][i] = all.states[index][i] == 0.0F ? ranks[rank].states[index][i]
                                                                    : all.states[index][i];
            }
        }
    }
    return all;
}

} // namespace zero::test
