#pragma once

#include "failures.hpp"

namespace ZERO_NAMESPACE::detail {

ZERO_COLD_INLINE Failures::Failures(std::size_t world) {
    _failures.reserve(world + 1);
}

ZERO_COLD_INLINE void Failures::keep(bool is_consequence) noexcept {
    std::lock_guard const lock(_mutex);
    _failures.push_back({std::current_exception(), is_consequence});
}

ZERO_COLD_INLINE void Failures::rethrow_cause() const {
    for (Failure const& failure : _failures) {
        if (!failure.is_consequence) {
            std::rethrow_exception(failure.exception);
        }
    }
    if (!_failures.empty()) {
        std::rethrow_exception(_failures.front().exception);
    }
}

} // namespace ZERO_NAMESPACE::detail
