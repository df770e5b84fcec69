#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/policy_category.hpp"

#include <concepts>

namespace ZERO_NAMESPACE {

/// @brief The types in which parameters are stored, gathered and used. Most models have one. Each
/// type has its own flat buffers.
template <class... T>
struct Parameters {
    using policy_category = ParametersCategory;

    /// @brief True if U is one of the types.
    template <class U>
    static constexpr bool contains = (std::same_as<T, U> || ...);
};

} // namespace ZERO_NAMESPACE
