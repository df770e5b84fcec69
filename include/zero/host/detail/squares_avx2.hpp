#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/storage_types.hpp"
#include "../../ops/exact_sum.hpp"
#include "../instruction_set.hpp"
#include "anchored_squares_avx2.hpp"
#include "exact_squares_avx2.hpp"

#if ZERO_HOST_HAS_AVX2

#include <cstddef>

namespace ZERO_NAMESPACE::host::detail {

/// The addition of squares by `InspectLoop` with AVX2.
template <StorageType T>
class SquaresAvx2 : public AnchoredSquares<T> {};

/// Most ranges of bfloat16 need no anchor.
template <>
class SquaresAvx2<bfloat16> : public AnchoredSquares<bfloat16> {
public:
    static constexpr std::size_t most = ExactSquares::elements;

    ZERO_HOST_AVX2 bool add(bfloat16 const* from, std::size_t n, ops::Inspection& result) noexcept {
        if (n == most) {
            double const sum = ExactSquares::sum(from);
            if (sum == sum) {
                result.add(sum);
                return true;
            }
        }
        return AnchoredSquares::add(from, n, result);
    }
};

} // namespace ZERO_NAMESPACE::host::detail

#endif
