#pragma once

#include "../../comm/detail/extents.hpp"
#include "../../core/detail/namespace.hpp"
#include "peers.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE::mpi::detail {

using zero::detail::Extents;
using zero::detail::Flight;
using zero::detail::Part;

/// @brief Calls `post(round)` for each round, and `take(round)` when its transfers are complete.
/// Two rounds are in flight at a time.
template <class Post, class Take>
void in_rounds(Peers& peers, std::size_t rounds, Post const& post, Take const& take) {
    zero::detail::in_rounds(rounds, post, [&](std::size_t number) {
        peers.finish(peers.round(number));
        take(number);
    });
}

} // namespace ZERO_NAMESPACE::mpi::detail
