#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../ops/exact_sum.hpp"

#include <cstdint>

namespace ZERO_NAMESPACE::detail {

/// @brief Tells how a rank delivered gradients in a step.
///
/// A rank starts the smallest index of a non-finite element, whose minimum over the ranks every
/// step reduces anyway, with one of these values. So the best evidence of all ranks costs no
/// message.
enum class GradientEvidence : std::int64_t {
    delivered = ops::Inspection::none - 2, ///< handed over, written to memory of the engine, or
                                           ///< reported in caller-owned memory
    cleared =
        ops::Inspection::none - 1,  ///< reported in caller-owned memory that the engine cleared
                                    ///< in this step; it may have been cleared too late
    nothing = ops::Inspection::none ///< no gradient was delivered
};

} // namespace ZERO_NAMESPACE::detail
