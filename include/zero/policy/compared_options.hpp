#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/hash.hpp"

#include <concepts>

namespace ZERO_NAMESPACE {

/// @brief A policy whose options ranks compare: `static void add_to(Hash&, Options const&)` adds
/// each of them that has to agree, and, for ranks whose programs differ, the policy's own name.
///
/// Optional. Ranks that chose different options of such a policy get a LayoutMismatch; without it
/// they go on, with results that differ.
template <class P>
concept HasComparedOptions = requires(Hash& hash, typename P::Options const& options) {
    { P::add_to(hash, options) } -> std::same_as<void>;
};

} // namespace ZERO_NAMESPACE
