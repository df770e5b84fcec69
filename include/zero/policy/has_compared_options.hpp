#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/hash.hpp"

#include <concepts>

namespace ZERO_NAMESPACE {

/// @brief A policy whose options must be equal on all ranks. `static void add_to(Hash&, Options
/// const&)` adds these options. It also adds the name of the policy, if other policies have the
/// same options.
///
/// Optional; an optimizer may have `name` and `for_each_option` instead. Ranks with different
/// options get a LayoutMismatch. Without `add_to` they continue, with different results.
template <class P>
concept HasComparedOptions = requires(Hash& hash, typename P::Options const& options) {
    { P::add_to(hash, options) } -> std::same_as<void>;
};

} // namespace ZERO_NAMESPACE
