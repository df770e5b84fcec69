#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../layout/detail/count_blocks.hpp"
#include "../../policy/master_weights_policy.hpp"
#include "../owned_slice.hpp"
#include "held_array.hpp"
#include "held_slice.hpp"
#include "optimizer_store.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE::detail {

/// @brief Calls `visit(data, item_bytes, item_elements)` for each array of a slice, without the
/// parameters themselves.
template <class Config, class Types, class Visitor>
void for_arrays(OwnedSlice<Config, Types> const& slice, Visitor&& visit) {
    if constexpr (Types::has_master) {
        visit(slice.master.data(), sizeof(slice.master[0]), 1);
    }
    if constexpr (Types::master_form == MasterForm::split) {
        visit(slice.remainder.data(), sizeof(slice.remainder[0]), 1);
        visit(slice.rounded_up.data(), sizeof(slice.rounded_up[0]), 8);
    }
    for (auto const& state : slice.states) {
        visit(state.data(), sizeof(state[0]), 1);
    }
    if constexpr (Config::OptimizerState::is_block_scaled) {
        for (auto const& scale : slice.scales) {
            visit(scale.data(), sizeof(scale[0]), block_elements);
        }
    }
}

/// @brief Appends the master weights and states that this rank holds for parameters of one type.
/// The list has the same arrays on every rank.
template <class Config, class Types>
[[gnu::cold]] void add_held_states(List<HeldArray>& arrays,
                                   OptimizerStore<Config, Types> const& memory, std::size_t type) {
    std::size_t const first = arrays.size();
    for_arrays(OwnedSlice<Config, Types>(),
               [&](void*, std::size_t item_bytes, std::size_t item_elements) {
                   arrays.push_back({type, false, item_bytes, item_elements});
               });
    for (std::size_t index = 0; index < memory.slices(); ++index) {
        auto const owned = memory.owned_slice(index);
        std::size_t next = first;
        for_arrays(owned, [&](void* data, std::size_t, std::size_t) {
            // with a name: nvcc 13.0 miscompiles the braces of an argument here
            HeldSlice const slice{owned.parameter, owned.begin, owned.values.size(), data};
            arrays[next++].slices.push_back(slice);
        });
    }
}

} // namespace ZERO_NAMESPACE::detail
