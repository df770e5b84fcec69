#pragma once

#include "../../core/detail/namespace.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE::detail {

/// @brief Returns the bytes of scratch memory of a communicator; 0 if it has none.
template <class Communicator>
[[nodiscard]] std::size_t scratch_bytes_of(Communicator const& communicator,
                                           std::size_t largest_bucket_bytes) noexcept {
    if constexpr (requires { communicator.scratch_bytes(largest_bucket_bytes); }) {
        return communicator.scratch_bytes(largest_bucket_bytes);
    } else {
        return 0;
    }
}

} // namespace ZERO_NAMESPACE::detail
