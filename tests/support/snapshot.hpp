#pragma once

#include "toy_model.hpp"

#include <bit>
#include <cstdint>
#include <vector>

namespace zero::test {

/// Returns every bit of the training state that one rank sees: full parameters, then owned values,
/// master weights and states, then the step count. Collective.
template <class Engine>
std::vector<std::uint32_t> snapshot(Engine& engine) {
    std::vector<std::uint32_t> bits;
    for (auto const& parameter : full_parameters(engine)) {
        for (float const value : parameter) {
            bits.push_back(std::bit_cast<std::uint32_t>(value));
        }
    }
    engine.for_each_owned_slice([&](auto const& slice) {
        bits.push_back(static_cast<std::uint32_t>(slice.parameter * 4096 + slice.begin));
        for (auto const value : slice.values) {
            bits.push_back(std::bit_cast<std::uint32_t>(to_float(value)));
        }
        for (std::size_t i = 0; i < slice.values.size(); ++i) {
            bits.push_back(std::bit_cast<std::uint32_t>(slice.master_weight(i)));
        }
        for (std::size_t state = 0; state < slice.states.size(); ++state) {
            for (std::size_t i = 0; i < slice.values.size(); ++i) {
                bits.push_back(std::bit_cast<std::uint32_t>(slice.state(state, i)));
            }
        }
    });
    bits.push_back(static_cast<std::uint32_t>(engine.step_count()));
    return bits;
}

} // namespace zero::test
