#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/hash.hpp"
#include "../compared_options.hpp"

#include <cstdint>

namespace ZERO_NAMESPACE::detail {

/// @brief A hash of a policy's options; that of nothing for a policy that does not add them.
template <class P>
[[nodiscard]] std::uint64_t hash_of_options(typename P::Options const& options) noexcept {
    Hash hash;
    if constexpr (HasComparedOptions<P>) {
        P::add_to(hash, options);
    }
    return hash.value();
}

} // namespace ZERO_NAMESPACE::detail
