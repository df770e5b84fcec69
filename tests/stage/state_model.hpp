#pragma once

// The toy model with every form of training state, and values for its weights and states.

#include "mixed_model.hpp"
#include "support/caller_memory.hpp"
#include "support/ranks.hpp"
#include "support/toy_model.hpp"
#include "support/trained.hpp"

#include <zero/comm/grouped_communicator.hpp>
#include <zero/core/convert.hpp>
#include <zero/stage/training_state.hpp>
#include <zero/stage/zero_stage.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace zero::test::state_model {

using Bits = std::vector<std::uint32_t>;

inline Bits bits_of(std::span<float const> values) {
    Bits bits;
    for (float const value : values) {
        bits.push_back(std::bit_cast<std::uint32_t>(value));
    }
    return bits;
}

/// The values that the storage of a test holds exactly.
enum class Exact { every_float, eight_bits };

/// Returns values of the toy model: `eight_bits` are multiples of 1/128 in [-1, 1). The others use
/// all bits, and their rounding to bfloat16 goes up, down, or decides a tie.
inline std::vector<float> some_values(Exact exact, std::uint64_t key, std::size_t parameter) {
    std::vector<float> values(toy_specs()[parameter].elements);
    for (std::size_t i = 0; i < values.size(); ++i) {
        float const value = noise(key, parameter, i);
        if (exact == Exact::eight_bits) {
            values[i] = static_cast<float>(static_cast<int>(value * 128.0F)) / 128.0F;
        } else {
            std::uint32_t const low[]{0x8000, 0x7fff, 0x8001, 0x0001};
            std::uint32_t const bits = std::bit_cast<std::uint32_t>(value);
            values[i] =
                i % 5 == 4 ? value : std::bit_cast<float>((bits & 0xffff0000U) | low[i % 5]);
        }
    }
    return values;
}

/// Returns values as a parameter of the toy model stores them.
template <class Stage>
std::vector<float> rounded(std::size_t parameter, std::vector<float> values) {
    bool const is_float = Stage::parameter_types == 2 && mixed::is_float(parameter);
    for (float& value : values) {
        value = is_float ? value : to_float(from_float<typename Stage::ParameterType>(value));
    }
    return values;
}

/// Memory for the toy model in any storage, and an engine that uses it.
template <class Stage>
struct Toy {
    template <class Communicator>
    explicit Toy(Communicator& communicator, typename Stage::Options options = {}) {
        if constexpr (Stage::parameter_types == 2) {
            engine.emplace(communicator,
                           mixed::mixed_registration<typename Stage::Registration>(
                               [](std::size_t) { return true; }),
                           options);
        } else {
            using T = typename Stage::ParameterType;
            auto specs = toy_specs();
            if constexpr (MatrixOptimizer<typename Stage::Composition::EngineConfig::Optimizer>) {
                specs[1].rows = 20; // 20 x 25
            }
            auto parameters = registration<T, typename Stage::GradientType>(specs);
            if (options.storage != Storage::owned) {
                memory.emplace(parameters);
            }
            if (options.storage == Storage::adopted) {
                options.adopted_block = memory->block;
            }
            engine.emplace(communicator, parameters, options);
        }
    }

    std::optional<CallerMemory<typename Stage::ParameterType, typename Stage::GradientType>> memory;
    std::optional<Stage> engine; ///< destroyed before the memory
};

/// Returns everything that training depends on: weights, states, step count and loss scale, by
/// parameter of the toy model. Collective.
template <class Stage>
Bits state_of(Stage& engine) {
    TrainingState state(engine);
    Bits bits{static_cast<std::uint32_t>(engine.step_count())};
    float const scale = engine.loss_scaler_state().scale;
    bits.push_back(std::bit_cast<std::uint32_t>(scale));
    for (std::size_t p = 0; p < engine.layout().parameters().size(); ++p) {
        Bits const weights = bits_of(state.full_fp32_parameter(p));
        bits.insert(bits.end(), weights.begin(), weights.end());
        for (auto const& name : state.state_names()) {
            if (engine.layout().parameter(p).trainable) {
                Bits const values = bits_of(state.full_optimizer_state(p, name));
                bits.insert(bits.end(), values.begin(), values.end());
            }
        }
    }
    return bits;
}

/// Weights, states and counts, after each phase of a training.
using Seen = std::vector<Bits>;

/// Runs `body(communicator)` on each rank, in shard groups of two if the stage has groups. Returns
/// what rank 0 saw if all saw the same, and otherwise nothing.
template <class Stage, class Body>
Seen on_all(int world, Body const& body) {
    using Communicator = typename Stage::Communicator;
    std::vector<Seen> seen(static_cast<std::size_t>(world));
    auto const run = [&](Communicator& communicator) {
        seen[static_cast<std::size_t>(communicator.rank())] = body(communicator);
    };
    if constexpr (GroupedCommunicator<Communicator>) {
        run_ranks<Communicator>(world, test_time_out, {.shard = 2}, run);
    } else {
        run_ranks<Communicator>(world, test_time_out, run);
    }
    for (Seen const& other : seen) {
        if (other != seen[0]) {
            return {};
        }
    }
    return seen[0];
}

} // namespace zero::test::state_model
