#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../stage/detail/gather_on_host.hpp"
#include "../checkpoint_error.hpp"
#include "gather_texts.hpp"

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Runs `run()` on this rank and then learns whether it succeeded on all. Collective; waits.
///
/// An exception of `run` does not break the engine. It is rethrown on its rank, and the others
/// throw a CheckpointError with its first line.
/// @param what completes "rank 3 could not ..."
/// @return the number that `run` returned on each rank
template <class Access, class Run>
std::vector<std::uint64_t> on_every_rank(Access const& access, char const* what, Run&& run) {
    std::exception_ptr failure;
    std::string text;
    std::uint64_t value = 0;
    try {
        value = run();
    } catch (std::exception const& error) {
        failure = std::current_exception();
        text = error.what();
    } catch (...) {
        failure = std::current_exception();
        text = "an exception that is not a std::exception";
    }
    std::vector<std::uint64_t> all;
    access.guard([&] {
        all = gather_on_host(access.communicator(), access.queue(), access.memory(),
                             {std::uint64_t{failure != nullptr}, value}, what);
    });
    std::vector<std::uint64_t> values;
    std::size_t failed = all.size();
    for (std::size_t rank = 0; 2 * rank < all.size(); ++rank) {
        if (all[2 * rank] != 0) {
            failed = smaller(failed, rank);
        }
        values.push_back(all[2 * rank + 1]);
    }
    if (failed == all.size()) {
        return values;
    }
    auto const texts = gather_texts(access, text, what);
    if (failure) {
        std::rethrow_exception(failure);
    }
    throw_error<CheckpointError>({"zero: rank ", failed, " could not ", what,
                                  ", so the call failed on every rank (rank ", access.rank(),
                                  "). Its error is: ", texts[failed]});
}

} // namespace ZERO_NAMESPACE::detail
