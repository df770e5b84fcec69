#pragma once

#include "../../../core/detail/namespace.hpp"
#include "../../../ops/arithmetic.hpp"
#include "../../../ops/detail/square_anchor.hpp"
#include "../../../ops/norm.hpp"
#include "chunk.hpp"
#include "config.cuh"
#include "exact_sum.cuh"
#include "launch.cuh"

#include <cstdint>

namespace ZERO_NAMESPACE::cuda::detail::ZERO_CUDA_NAMESPACE {

/// @brief The sum of |x| (l1) or x^2 (l2) over consecutive packs of one thread, in doubles that do
/// not round, as long as the exponents of all elements are in one range. Far fewer instructions
/// than an addition to a `ThreadSum` for each pack.
///
/// Squares go to the two doubles of `ops::detail::SquareAnchor`. A sum of magnitudes needs one.
template <NormKind kind>
class ExactRun {
    static_assert(kind != NormKind::infinity);

    static constexpr int log2_elements = 8;
    static constexpr int headroom = 3; ///< how far exponents may rise after the first pack
    using Anchor = ops::detail::SquareAnchor<24, log2_elements, log2_elements>;
    static_assert(headroom <= Anchor::deepest);

    /// The largest distance of exponents. All magnitudes are multiples of 2^(smallest - 150), and
    /// their sum is below 2^(largest - 126 + log2_elements).
    static constexpr int widest =
        kind == NormKind::l1 ? 53 - 150 + 126 - log2_elements : Anchor::widest;

public:
    static constexpr unsigned most_packs_of_chunk =
        chunk_elements / round_elements + 1; ///< packs of a thread in a chunk, and one at its end
    static constexpr unsigned most_chunks =
        (1U << log2_elements) / (most_packs_of_chunk * pack_elements); ///< chunks of a run

    /// @brief The magnitudes of a pack: their bits as floats, times 2, so exponent fields are the
    /// upper 8 bits.
    struct Range {
        unsigned largest = 0;           ///< of the largest magnitude
        unsigned smallest_less_1 = ~0U; ///< of the smallest one that is not zero, minus 1

        __device__ explicit Range(float const (&x)[pack_elements]) {
#pragma unroll
            for (float const value : x) {
                unsigned const twice = __builtin_bit_cast(std::uint32_t, value) << 1U;
                largest = largest < twice ? twice : largest;
                smallest_less_1 = twice - 1 < smallest_less_1 ? twice - 1 : smallest_less_1;
            }
        }

        [[nodiscard]] __device__ int largest_exponent() const {
            return static_cast<int>(largest >> 24U);
        }
        [[nodiscard]] __device__ int smallest_exponent() const {
            return static_cast<int>((smallest_less_1 + 1) >> 24U);
        }
    };

    /// @brief Returns whether the run is exact with this pack too. False before `begin`, and for a
    /// pack of zeros.
    [[nodiscard]] __device__ bool takes(Range const& range) const {
        return range.largest < _above
               && _above - 1 - range.smallest_less_1 <= static_cast<unsigned>(widest + 1) << 24U;
    }

    /// @brief Begins an empty run that takes this pack, if there is one.
    /// @param range exponents of at most 254, and not all elements are zero
    __device__ void begin(Range const& range) {
        int const largest = range.largest_exponent();
        int const highest = range.smallest_exponent() + widest;
        int exponent = largest + headroom;
        exponent = exponent < highest ? exponent : highest;
        exponent = exponent < 254 ? exponent : 254;
        if (largest == 0 || exponent < largest) {
            return;
        }
        _above = static_cast<unsigned>(exponent + 1) << 24U;
        if constexpr (kind == NormKind::l2) {
            Anchor const anchor(exponent);
            _sum = anchor.anchor;
            _rest = anchor.offset;
        }
    }

    /// @brief Adds a pack that `takes` accepts.
    __device__ void add(float const (&x)[pack_elements]) {
#pragma unroll
        for (float const value : x) {
            auto const wide = static_cast<double>(value);
            if constexpr (kind == NormKind::l1) {
                _sum = ops::add(_sum, fabs(wide));
            } else {
                double const next = __fma_rn(wide, wide, _sum);
                _rest = ops::add(_rest, __fma_rn(wide, wide, -ops::sub(next, _sum)));
                _sum = next;
            }
        }
    }

    /// @brief Adds the run to sums of the thread, and empties it. The remainders are far smaller
    /// than the squares, so they have a window of their own.
    __device__ void end(ThreadSum& sum, ThreadSum& rest) {
        if (_above == 0) {
            return;
        }
        if constexpr (kind == NormKind::l1) {
            sum.add(_sum);
            _sum = 0.0;
        } else {
            Anchor const anchor(static_cast<int>(_above >> 24U) - 1);
            sum.add(ops::sub(ops::sub(_sum, anchor.anchor), anchor.offset));
            rest.add(_rest);
        }
        _above = 0;
    }

private:
    double _sum = 0.0;
    double _rest = 0.0;
    unsigned _above = 0; ///< bound of `Range::largest`; 0 for an empty run
};

} // namespace ZERO_NAMESPACE::cuda::detail::ZERO_CUDA_NAMESPACE
