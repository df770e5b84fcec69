#pragma once

#include "../../core/detail/namespace.hpp"

namespace ZERO_NAMESPACE::detail {

/// @brief Throws an error that the transport of the communicator detected after its calls returned.
/// No-op for transports without `rethrow_failure`.
template <class Communicator>
void rethrow_failure_of(Communicator& communicator) {
    if constexpr (requires { communicator.rethrow_failure(); }) {
        communicator.rethrow_failure();
    }
}

/// @brief Waits on the host for a queue whose commands use results of this communicator's
/// collectives, and checks that the results are valid.
///
/// The wait alone proves nothing: it also ends when a collective is aborted, and then its result is
/// undefined.
/// @throws the exception of a command; CommunicatorError
template <class Communicator>
void wait_for_collectives(Communicator& communicator, typename Communicator::Backend::Queue queue) {
    using Backend = typename Communicator::Backend;
    Backend::synchronise(Backend::record(queue));
    Backend::rethrow_failure(queue);
    rethrow_failure_of(communicator);
}

/// @brief Waits until the collectives that were called so far have run, and checks that none
/// failed. Transports that run them in the order of the calls, whatever their queues, do not wait.
///
/// A peer that has left since does not count as a failure, if the transport has `synchronise`.
template <class Communicator>
void synchronise_collectives(Communicator& communicator) {
    if constexpr (requires { communicator.synchronise(); }) {
        communicator.synchronise();
    } else {
        rethrow_failure_of(communicator);
    }
}

} // namespace ZERO_NAMESPACE::detail
