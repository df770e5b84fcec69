#pragma once

#include "../../core/detail/namespace.hpp"

#include <array>

namespace ZERO_NAMESPACE::detail {

/// @brief The learning rate of a step as the text of a collective's tag, so that ranks that
/// disagree read both rates. `StepControl` owns it; it allocates nothing.
class RateText {
public:
    /// @brief Returns "rate 0.01, steps and settings as hash". Valid until the next call.
    [[nodiscard]] char const* of(double learning_rate) noexcept;

private:
    double _rate = -1.0; ///< of the text; rates are not negative
    std::array<char, 64> _text{};
};

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "rate_text.ipp"
#endif
