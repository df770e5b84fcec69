#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../ops/exact_sum.hpp"

#include <cstdint>

namespace ZERO_NAMESPACE::detail {

/// @brief How a rank delivered gradients in a step. Smaller values are better evidence.
///
/// Every step reduces the index of the first non-finite element to its minimum over the ranks. A
/// rank initialises that index with one of these values, which are larger than any index. So the
/// best evidence of all ranks costs no extra message.
enum class GradientEvidence : std::int64_t {
    delivered = ops::Inspection::none - 2, ///< handed over, written to memory of the engine, or
                                           ///< leased in caller-owned memory without being cleared
    doubtful = ops::Inspection::none - 1,  ///< in caller-owned memory that the engine cleared in
                                           ///< this step, perhaps too late, or that was reported
                                           ///< without `gradients`, perhaps before it was written
    nothing = ops::Inspection::none        ///< no gradient was delivered
};

} // namespace ZERO_NAMESPACE::detail
