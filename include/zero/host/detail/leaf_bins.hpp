#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../ops/exact_sum.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE::host::detail {

/// Collects leaf sums by exponent. Used by `InspectLoop`.
///
/// The significands of one exponent are added as integers, which takes one addition per leaf; the
/// digits of `Inspection` take four and shifts. The exact sum is the same.
class LeafBins {
public:
    static constexpr std::size_t capacity =
        1020; ///< leaves between two flushes: fewer than 2^10 significands below 2^53

    void add_leaf(double leaf) noexcept {
        auto const bits = std::bit_cast<std::uint64_t>(leaf);
        if (bits != 0) {
            _sums[(bits >> 52U) - first_exponent] += (bits & (hidden_bit - 1)) | hidden_bit;
        }
    }

    void flush(ops::Inspection& result) noexcept {
        for (std::size_t i = 0; i < exponents; ++i) {
            if (_sums[i] != 0) {
                result.add_significands(_sums[i], static_cast<int>(first_exponent + i));
                _sums[i] = 0;
            }
        }
    }

private:
    static constexpr std::uint64_t hidden_bit = ops::Inspection::hidden_bit;
    static constexpr std::size_t first_exponent =
        1023 - 298; // exponent of 2^-298, the smallest leaf sum above zero
    static constexpr std::size_t exponents = 298 + 262; // all leaf sums are below 2^262

    std::uint64_t _sums[exponents] = {};
};

} // namespace ZERO_NAMESPACE::host::detail
