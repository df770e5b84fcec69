#pragma once

#include "toy_model.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace zero::test {

/// The training state of one rank, element by element, as far as the rank owns it.
struct OwnedState {
    using Bits = std::vector<std::uint32_t>; ///< value, master weight if there is one, moments

    std::vector<std::vector<float>> full; ///< all parameters
    std::vector<std::vector<Bits>>
        owned; ///< by parameter and element; empty where another rank owns it
    std::uint64_t step_count = 0;
};

/// What one rank sees. Collective.
template <class Engine>
OwnedState owned_state(Engine& engine) {
    OwnedState state;
    state.full = full_parameters(engine);
    for (auto const& parameter : state.full) {
        state.owned.emplace_back(parameter.size());
    }
    engine.for_each_owned_slice([&](auto const& slice) {
        for (std::size_t i = 0; i < slice.values.size(); ++i) {
            auto& bits = state.owned[slice.parameter][slice.begin + i];
            bits.push_back(std::bit_cast<std::uint32_t>(to_float(slice.values[i])));
            if (!slice.master.empty()) {
                bits.push_back(std::bit_cast<std::uint32_t>(to_float(slice.master[i])));
            }
            for (auto const& moment : slice.states) {
                bits.push_back(std::bit_cast<std::uint32_t>(moment[i]));
            }
        }
    });
    state.step_count = engine.step_count();
    return state;
}

/// Every bit of the state of all ranks in the order of the model, whoever owns it: nothing where
/// the ranks contradict each other.
inline std::optional<std::vector<std::uint32_t>> whole_state(std::vector<OwnedState> const& ranks) {
    std::vector<std::uint32_t> bits;
    for (std::size_t parameter = 0; parameter < ranks[0].full.size(); ++parameter) {
        for (std::size_t i = 0; i < ranks[0].full[parameter].size(); ++i) {
            OwnedState::Bits element;
            for (OwnedState const& rank : ranks) {
                auto const& own = rank.owned[parameter][i];
                if (std::bit_cast<std::uint32_t>(rank.full[parameter][i])
                        != std::bit_cast<std::uint32_t>(ranks[0].full[parameter][i])
                    || (!own.empty() && !element.empty() && own != element)) {
                    return std::nullopt;
                }
                element = own.empty() ? element : own;
            }
            bits.push_back(std::bit_cast<std::uint32_t>(ranks[0].full[parameter][i]));
            bits.push_back(static_cast<std::uint32_t>(element.size()));
            bits.insert(bits.end(), element.begin(), element.end());
        }
    }
    bits.push_back(static_cast<std::uint32_t>(ranks[0].step_count));
    return bits;
}

} // namespace zero::test
