#pragma once

#include "../../../core/detail/namespace.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE::detail {

/// @brief Waits for a queue after every `most` commands of a loop over parameters, so that the
/// number of parameters is not limited by the capacity of the queue.
///
/// For construction, which waits anyway; a step does not wait. It cannot deadlock, because commands
/// depend only on commands that were enqueued before them.
template <class Backend>
class EnqueueLimit {
public:
    static constexpr std::size_t most = 256; ///< commands pending because of the loop

    explicit EnqueueLimit(typename Backend::Queue queue) noexcept : _queue(queue) {}

    /// @brief Call it after each command of the loop.
    [[gnu::cold]] void count() {
        if (++_pending == most) {
            Backend::synchronise(Backend::record(_queue));
            _pending = 0;
        }
    }

private:
    typename Backend::Queue _queue;
    std::size_t _pending = 0;
};

} // namespace ZERO_NAMESPACE::detail
