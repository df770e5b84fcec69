#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "mpi.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE::mpi::detail {

/// @brief The transfers of one round of a collective: at most one in each direction per peer.
struct Round {
    static constexpr int every_peer = -1; ///< the peer of a request that waits for all of them

    zero::detail::List<MPI_Request> requests;
    zero::detail::List<int> peers;       ///< by request
    zero::detail::List<char> is_receive; ///< by request; only a receive can be cancelled
    std::size_t used = 0;
    bool is_reducing = false; ///< whether MPI adds

    explicit Round(std::size_t capacity)
        : requests(capacity), peers(capacity), is_receive(capacity) {
        for (MPI_Request& request : requests) {
            request = MPI_REQUEST_NULL;
        }
    }
    Round() = default;

    /// @brief Takes the next request.
    MPI_Request& add(int peer, bool receives) noexcept {
        peers[used] = peer;
        is_receive[used] = receives ? 1 : 0;
        return requests[used++];
    }
};

} // namespace ZERO_NAMESPACE::mpi::detail
