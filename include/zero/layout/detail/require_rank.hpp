#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"
#include "../flat_layout.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE::detail {

/// @brief Throws `InvalidArgument` unless the layout has such a rank.
inline void require_rank(FlatLayout const& layout, std::size_t rank) {
    if (rank >= layout.world()) {
        throw_error<InvalidArgument>({"zero: there is no rank ", rank, "; the layout has ",
                                      layout.world(), " ranks, numbered from 0."});
    }
}

} // namespace ZERO_NAMESPACE::detail
