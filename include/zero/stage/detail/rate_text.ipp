#pragma once

#include "rate_text.hpp"

#include <cstdio>

namespace ZERO_NAMESPACE::detail {

ZERO_INLINE char const* RateText::of(double learning_rate) noexcept {
    if (learning_rate != _rate) { // 17 digits tell all rates apart
        std::snprintf(_text.data(), _text.size(), "rate %.17g, steps and settings as hash",
                      learning_rate);
        _rate = learning_rate;
    }
    return _text.data();
}

} // namespace ZERO_NAMESPACE::detail
