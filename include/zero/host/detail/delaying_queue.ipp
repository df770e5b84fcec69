#pragma once

#include "../delaying_queue.hpp"

#include <chrono>
#include <thread>

namespace ZERO_NAMESPACE::host {

ZERO_INLINE DelayingQueue::~DelayingQueue() {
    stop();
}

ZERO_INLINE void DelayingQueue::pause() {
    _state = _state * 6364136223846793005U + 1442695040888963407U;
    auto const random = static_cast<unsigned>(_state >> 33U);
    if (random % 4 == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(random / 4 % (_longest + 1)));
    }
}

} // namespace ZERO_NAMESPACE::host
