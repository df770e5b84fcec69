#pragma once

#include "rate_text.hpp"

#include <cstdio>

namespace ZERO_NAMESPACE::detail {

ZERO_INLINE char const* RateText::of(double learning_rate, std::size_t micro_steps) noexcept {
    if (learning_rate != _rate || micro_steps != _micro_steps) { // 17 digits tell all rates apart
        int const length = std::snprintf(_text.data(), _text.size(), "rate %.17g", learning_rate);
        auto at = static_cast<std::size_t>(length);
        if (micro_steps != 0) {
            at += static_cast<std::size_t>(std::snprintf(_text.data() + at, _text.size() - at,
                                                         " after %zu micro-steps", micro_steps));
        }
        std::snprintf(_text.data() + at, _text.size() - at, ", steps and settings as hash");
        _rate = learning_rate;
        _micro_steps = micro_steps;
    }
    return _text.data();
}

} // namespace ZERO_NAMESPACE::detail
