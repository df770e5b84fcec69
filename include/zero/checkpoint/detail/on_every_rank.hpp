#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../stage/detail/gather_on_host.hpp"
#include "../checkpoint_error.hpp"

#include <cstddef>
#include <cstdint>
#include <exception>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Runs `run()` on this rank and then learns whether it succeeded on all. Collective; waits.
///
/// An exception of `run` leaves the engine as it is. It is rethrown on its rank, and the others
/// throw a CheckpointError.
/// @param what completes "rank 3 could not ..."
/// @return the number that `run` returned on each rank
template <class Access, class Run>
std::vector<std::uint64_t> on_every_rank(Access const& access, char const* what, Run&& run) {
    std::exception_ptr failure;
    std::uint64_t value = 0;
    try {
        value = run();
    } catch (...) {
        failure = std::current_exception();
    }
    std::vector<std::uint64_t> all;
    access.guard([&] {
        all = gather_on_host(access.communicator(), access.queue(), access.memory(),
                             {std::uint64_t{failure != nullptr}, value}, what);
    });
    if (failure) {
        std::rethrow_exception(failure);
    }
    std::vector<std::uint64_t> values;
    for (std::size_t rank = 0; 2 * rank < all.size(); ++rank) {
        if (all[2 * rank] != 0) {
            throw_error<CheckpointError>({"zero: rank ", rank, " could not ", what,
                                          "; its exception says why. Nothing was published or "
                                          "loaded (rank ",
                                          access.rank(), ")."});
        }
        values.push_back(all[2 * rank + 1]);
    }
    return values;
}

} // namespace ZERO_NAMESPACE::detail
