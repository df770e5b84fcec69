#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/hash.hpp"
#include "../has_compared_options.hpp"

#include <cstdint>

namespace ZERO_NAMESPACE::detail {

/// @brief Returns a hash of the options that ranks compare. If the policy compares no options, it
/// is the hash of no values.
template <class P>
[[nodiscard]] std::uint64_t hash_of_options(typename P::Options const& options) noexcept {
    Hash hash;
    if constexpr (HasComparedOptions<P>) {
        P::add_to(hash, options);
    }
    return hash.value();
}

} // namespace ZERO_NAMESPACE::detail
