#pragma once

#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/dtype.hpp"
#include "../../../layout/detail/plan/count_blocks.hpp"
#include "../../../policy/detail/state_name.hpp"
#include "../../../policy/master_weights_policy.hpp"
#include "../../owned_slice.hpp"
#include "../optimizer/optimizer_store.hpp"
#include "state_table.hpp"

#include <cstddef>
#include <string>
#include <utility>

namespace ZERO_NAMESPACE::detail {

/// @brief Calls `visit(ArrayForm, data)` for each array of a slice except its parameters.
template <class Config, class Types, class Visitor>
void for_arrays(OwnedSlice<Config, Types> const& slice, Visitor&& visit) {
    if constexpr (Types::has_master) {
        using M = typename Types::Master;
        visit(ArrayForm{ArrayKind::master, 0, dtype_of<M>(), sizeof(M)}, slice.master.data());
    }
    if constexpr (Types::master_form == MasterForm::split) {
        visit(ArrayForm{ArrayKind::remainder, 0, DType::bytes, sizeof(slice.remainder[0])},
              slice.remainder.data());
        visit(ArrayForm{ArrayKind::rounded_up, 0, DType::bytes, sizeof(slice.rounded_up[0]), 8},
              slice.rounded_up.data());
    }
    using S = typename Config::OptimizerState::Type;
    for (std::size_t state = 0; state < slice.states.size(); ++state) {
        visit(ArrayForm{ArrayKind::state, state, dtype_of<S>(), sizeof(S)},
              slice.states[state].data());
    }
    if constexpr (Config::OptimizerState::is_block_scaled) {
        for (std::size_t state = 0; state < slice.scales.size(); ++state) {
            visit(ArrayForm{ArrayKind::state_scale, state, DType::float32, sizeof(float),
                            block_elements},
                  slice.scales[state].data());
        }
    }
}

/// @brief Returns the name of an array, which is unique among those of one parameter.
template <class Optimizer>
[[nodiscard]] std::string array_name(ArrayForm const& form) {
    switch (form.kind) {
    case ArrayKind::parameter: return "parameter";
    case ArrayKind::master: return "master";
    case ArrayKind::remainder: return "remainder";
    case ArrayKind::rounded_up: return "rounded_up";
    case ArrayKind::gradient: return "gradient";
    case ArrayKind::frozen: return "frozen";
    case ArrayKind::state: break;
    case ArrayKind::state_scale: return state_name<Optimizer>(form.index) + ".scale";
    }
    return state_name<Optimizer>(form.index);
}

/// @brief Appends the master weights and states that this rank holds for parameters of one type.
/// The list has the same arrays on every rank.
template <class Config, class Types>
[[gnu::cold]] void add_held_states(List<HeldArray>& arrays,
                                   OptimizerStore<Config, Types> const& memory, std::size_t type) {
    std::size_t const first = arrays.size();
    for_arrays(OwnedSlice<Config, Types>(), [&](ArrayForm const& form, void*) {
        HeldArray array{type, form};
        arrays.push_back(std::move(array));
    });
    for (std::size_t index = 0; index < memory.slices(); ++index) {
        auto const owned = memory.owned_slice(index);
        std::size_t next = first;
        for_arrays(owned, [&](ArrayForm const&, void* data) {
            // a named variable, because nvcc 13.0 miscompiles a braced argument here
            HeldSlice const slice{owned.parameter, owned.begin, owned.values.size(),
                                  memory.held_address(index, data)};
            arrays[next++].slices.push_back(slice);
        });
    }
}

} // namespace ZERO_NAMESPACE::detail
