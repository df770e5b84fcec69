#pragma once

#include "../queue.hpp"

#include <thread>
#include <utility>

namespace ZERO_NAMESPACE::host {

ZERO_INLINE void Progress::set(std::uint64_t ticket) {
    _completed.store(ticket, std::memory_order_seq_cst);
    if (_awaited.load(std::memory_order_seq_cst) <= ticket) {
        {
            std::lock_guard const lock(_mutex);
            _awaited.store(none, std::memory_order_seq_cst); // the others announce theirs again
        }
        _changed.notify_all();
    }
}

ZERO_INLINE void Progress::wait(std::uint64_t ticket) {
    for (int spin = 0; spin < spins_before_sleep; ++spin) {
        if (has_reached(ticket)) {
            return;
        }
        std::this_thread::yield();
    }
    std::unique_lock lock(_mutex);
    for (;;) {
        if (ticket < _awaited.load(std::memory_order_relaxed)) {
            _awaited.store(ticket, std::memory_order_seq_cst);
        }
        if (_completed.load(std::memory_order_seq_cst) >= ticket) {
            return;
        }
        _changed.wait(lock);
    }
}

ZERO_INLINE void Progress::fail(std::exception_ptr failure) {
    _failure = std::move(failure);
    _has_failed.store(true, std::memory_order_release);
}

ZERO_INLINE void Progress::rethrow_failure() const {
    if (has_failed()) {
        std::rethrow_exception(_failure);
    }
}

} // namespace ZERO_NAMESPACE::host
