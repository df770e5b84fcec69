#pragma once

#include "failure_record.hpp"

#include <exception>

namespace ZERO_NAMESPACE::detail {

ZERO_INLINE void FailureRecord::fail(FailureKind kind, std::string_view cause,
                                     bool is_provisional) noexcept {
    if (_kind != FailureKind::none && (!_is_provisional || is_provisional)) {
        return;
    }
    _kind = kind;
    _is_provisional = is_provisional;
    _grace_end = Clock::now() + grace;
    try {
        _cause = cause;
    } catch (std::exception const&) { // no memory for the text: the state is enough
        _cause.clear();
    }
    _has_failed.store(true, std::memory_order_release);
}

ZERO_INLINE bool FailureRecord::is_final() noexcept {
    if (_is_provisional && Clock::now() >= _grace_end) {
        _is_provisional = false;
    }
    return _kind != FailureKind::none && !_is_provisional;
}

} // namespace ZERO_NAMESPACE::detail
