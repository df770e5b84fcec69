#pragma once

#include "../../core/detail/namespace.hpp"

#include <array>

namespace ZERO_NAMESPACE::detail {

/// @brief The learning rate of a step as the text of a collective's tag, so that ranks that
/// disagree read both rates. `StepControl` owns it; it allocates nothing.
class RateText {
public:
    /// @brief Returns "rate 0.01 after 4 micro-steps, steps and settings as hash". Valid until the
    /// next call.
    /// @param micro_steps 0: ranks may differ in them, so they are left out
    [[nodiscard]] char const* of(double learning_rate, std::size_t micro_steps) noexcept;

private:
    double _rate = -1.0; ///< the rate in `_text`; initially -1, because no rate is negative
    std::size_t _micro_steps = 0;
    std::array<char, 112> _text{};
};

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "rate_text.ipp"
#endif
