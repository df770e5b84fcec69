#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/policy_category.hpp"

#include <concepts>

namespace ZERO_NAMESPACE {

struct ParametersOptions {};

/// @brief The types that parameters are stored, gathered and used in; most models have one. Each
/// type has flat buffers of its own.
template <class... T>
struct Parameters {
    using policy_category = ParametersCategory;
    using Options = ParametersOptions;

    /// @brief Whether U is one of the types.
    template <class U>
    static constexpr bool contains = (std::same_as<T, U> || ...);

    /// @brief Whether U is the only type.
    template <class U>
    static constexpr bool contains_only = (std::same_as<T, U> && ...);
};

} // namespace ZERO_NAMESPACE
