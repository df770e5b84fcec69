#pragma once

#include "../../../core/detail/namespace.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE::detail {

/// @brief Bounds the commands that a set-up loop over parameters leaves pending: waits for the
/// queue after every `most` of them. A model may then have more parameters than a queue has room.
///
/// Only construction uses it, because a step must not wait. It cannot deadlock, because commands
/// depend only on commands that were enqueued before them.
template <class Backend>
class SetUpBacklog {
public:
    static constexpr std::size_t most = 256; ///< commands pending because of the loop

    explicit SetUpBacklog(typename Backend::Queue queue) noexcept : _queue(queue) {}

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
