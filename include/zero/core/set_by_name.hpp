#pragma once

#include "detail/namespace.hpp"

namespace ZERO_NAMESPACE {

/// @brief The first member of options that have several: the others can only be set by name.
///
/// `{0.1}` for options that begin with `beta1` would set `beta1`. That also protects from nvcc
/// 13.0, which drops the names of a braced list that is assigned where the type depends on a
/// template parameter, and would set the first members instead of the named ones. With this member
/// both do not compile. Name the type then: `options.optimizer = zero::AdamWOptions{.weight_decay =
/// 0.1}`. Occupies no space.
struct SetByName {
    explicit constexpr SetByName() noexcept = default;
    friend constexpr bool operator==(SetByName, SetByName) noexcept = default;
};

} // namespace ZERO_NAMESPACE
