#pragma once

#include "caller_memory.hpp"
#include "ranks.hpp"
#include "toy_model.hpp"

#include <zero/layout/memory_plan.hpp>
#include <zero/layout/parameter_spec.hpp>
#include <zero/layout/stage_table.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

namespace zero::test {

/// The state after a run of the toy model: all parameters, and the master weight and optimizer
/// states of each trainable element, by parameter and element. It depends on neither stage nor
/// partitioner, so that runs of all of them can be compared.
struct Trained {
    std::vector<std::vector<float>> parameters;
    std::vector<std::vector<float>> masters; ///< before the join: zero for elements of other ranks
    std::vector<std::vector<float>> states;  ///< like `masters`, with two states for each element
    MemoryPlan plan;                         ///< plan of rank 0; not compared

    /// Makes room for the owned state of a model, all zeros.
    void resize(std::vector<ParameterSpec> const& specs) {
        masters.resize(specs.size());
        states.resize(specs.size());
        for (std::size_t index = 0; index < specs.size(); ++index) {
            masters[index].resize(specs[index].elements);
            states[index].resize(2 * specs[index].elements);
        }
    }

    /// Adds a slice that the rank owns.
    template <class Slice>
    void add(Slice const& slice) {
        for (std::size_t i = 0; i < slice.values.size(); ++i) {
            masters[slice.parameter][slice.begin + i] = slice.master_weight(i);
            for (std::size_t state = 0; state < slice.states.size(); ++state) {
                states[slice.parameter][2 * (slice.begin + i) + state] = slice.state(state, i);
            }
        }
    }

    /// Joins the owned states of all ranks.
    /// @throws std::logic_error when ranks contradict each other
    static Trained joined(std::vector<Trained> const& ranks) {
        Trained all = ranks.front();
        for (Trained const& rank : ranks) {
            if (!same(rank.parameters, all.parameters)) {
                throw std::logic_error("the ranks have different parameters");
            }
            join(all.masters, rank.masters);
            join(all.states, rank.states);
        }
        return all;
    }

    /// Compares bits.
    friend bool operator==(Trained const& a, Trained const& b) {
        return same(a.parameters, b.parameters) && same(a.masters, b.masters)
               && same(a.states, b.states);
    }

private:
    using Values = std::vector<std::vector<float>>;

    static bool same(Values const& a, Values const& b) {
        return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](auto const& x, auto const& y) {
            return x.size() == y.size()
                   && (x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0);
        });
    }

    static void join(Values& all, Values const& rank) {
        for (std::size_t index = 0; index < all.size(); ++index) {
            for (std::size_t i = 0; i < all[index].size(); ++i) {
                auto const theirs = std::bit_cast<std::uint32_t>(rank[index][i]);
                auto const found = std::bit_cast<std::uint32_t>(all[index][i]);
                if (theirs != 0 && found != 0 && theirs != found) {
                    throw std::logic_error("two ranks own an element and have different values");
                }
                all[index][i] = found == 0 ? rank[index][i] : all[index][i];
            }
        }
    }
};

/// A run of the toy model.
struct Training {
    std::uint64_t steps = 4;
    double learning_rate = 0.01;
    std::size_t binades = 24; ///< powers of 2 between gradients, so that the order of a sum shows
    std::vector<ParameterSpec> specs = toy_specs();
    std::vector<std::size_t> order = {}; ///< order of the units in the backward pass
};

/// Trains on `world` ranks, with two micro-steps a step, and joins their states. Provides the
/// memory if `options` name a caller-owned storage. The reduction schedule is `boundary` unless
/// `options` name one, because the library's default differs between stages.
template <class Stage>
Trained trained(int world, typename Stage::Options const& options = {},
                Training const& training = {}) {
    using T = typename Stage::ParameterType;
    using G = typename Stage::GradientType;
    return Trained::joined(on_ranks<Trained>(world, [&](LoopbackCommunicator& communicator) {
        auto parameters = registration<T, G>(training.specs);
        auto own_options = options;
        own_options.reduction.schedule =
            options.reduction.schedule.value_or(ReductionSchedule::boundary);
        auto const memory = provide_memory(parameters, own_options);
        Stage engine(communicator, parameters, own_options);
        for (std::uint64_t step = 0; step < training.steps; ++step) {
            (void)run_step(engine, static_cast<std::uint64_t>(communicator.rank()), step, 2,
                           training.learning_rate, training.binades, training.order);
        }
        Trained result;
        result.resize(training.specs);
        result.parameters = full_parameters(engine);
        engine.for_each_owned_slice([&](auto const& slice) { result.add(slice); });
        result.plan = engine.memory_plan();
        return result;
    }));
}

} // namespace zero::test
