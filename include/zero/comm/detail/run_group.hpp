#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../loopback_options.hpp"
#include "run_threads.hpp"

#include <cstddef>
#include <string_view>

namespace ZERO_NAMESPACE::detail {

/// @brief Runs `body` on every rank of a new group. The implementation of `run_ranks`, compiled
/// once per type of communicator.
template <class Communicator>
void run_group(int world, LoopbackOptions const& options, FunctionRef<Communicator&> body) {
    auto communicators = Communicator::make_group(world, options);
    run_threads(
        communicators.size(), [&](std::size_t rank) { body(communicators[rank]); },
        [&](std::size_t rank, std::string_view cause, bool has_failed) {
            if constexpr (requires { communicators[rank].leave(cause); }) {
                if (!has_failed) {
                    communicators[rank].leave(cause);
                    return;
                }
            }
            communicators[rank].abort(cause);
        });
}

} // namespace ZERO_NAMESPACE::detail
