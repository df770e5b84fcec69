#pragma once

#include "../../core/detail/namespace.hpp"

namespace ZERO_NAMESPACE::detail {

/// @brief Throws what the communicator's transport noticed after its calls had returned, where it
/// has one that works by itself.
template <class Communicator>
void rethrow_failure_of(Communicator& communicator) {
    if constexpr (requires { communicator.rethrow_failure(); }) {
        communicator.rethrow_failure();
    }
}

/// @brief Waits on the host for the queue, whose commands use what collectives of this communicator
/// give.
///
/// A wait that ended is no proof: it also ends when a collective is aborted, and what it would have
/// given is then whatever lay there.
/// @throws what a command threw; CommunicatorError
template <class Communicator>
void wait_for_collectives(Communicator& communicator, typename Communicator::Backend::Queue queue) {
    using Backend = typename Communicator::Backend;
    Backend::synchronise(Backend::record(queue));
    Backend::rethrow_failure(queue);
    rethrow_failure_of(communicator);
}

} // namespace ZERO_NAMESPACE::detail
