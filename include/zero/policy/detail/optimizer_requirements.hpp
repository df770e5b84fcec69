#pragma once

#include "../../backend/tensor_archetype.hpp"
#include "../../core/detail/namespace.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

/// @file
/// @brief The requirements of `Optimizer`, one concept each. The concepts and their messages use
/// them.

namespace ZERO_NAMESPACE::detail {

template <class O>
concept OptimizerHasTypes = requires {
    typename O::Options;
    typename O::Hyper;
    requires std::is_trivially_copyable_v<typename O::Hyper>;
};

template <class O>
concept OptimizerHasStates =
    std::same_as<decltype(O::states), std::size_t const> && (O::states >= 1);

template <class O>
concept OptimizerHasWholeTensor = std::same_as<decltype(O::whole_tensor), bool const>;

template <class O>
concept OptimizerHasHyper =
    requires(typename O::Options const& options, double learning_rate, std::uint64_t step) {
        { O::hyper(options, learning_rate, step) } noexcept -> std::same_as<typename O::Hyper>;
    };

template <class O>
concept OptimizerHasValidate = requires(typename O::Options const& options) {
    { O::validate(options) } -> std::same_as<void>;
};

template <class O>
concept OptimizerUpdatesElements =
    requires(O const& functor, float gradient, float& parameter, float (&state)[O::states],
             typename O::Hyper const& hyper) { functor(gradient, parameter, state, hyper); };

template <class O>
concept OptimizerUpdatesTensors =
    requires(TensorArchetype const& tensor, typename O::Hyper const& hyper) {
        { O::update_tensor(tensor, hyper) } noexcept -> std::same_as<void>;
    };

template <class O>
concept OptimizerHasScratchFloats = requires(std::size_t rows, std::size_t columns) {
    { O::scratch_floats(rows, columns) } noexcept -> std::same_as<std::size_t>;
};

} // namespace ZERO_NAMESPACE::detail
