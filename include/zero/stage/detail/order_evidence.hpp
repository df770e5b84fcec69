#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../ops/host_device.hpp"

#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE::detail {

/// @brief The order in which a rank acquired and gathered units in a step, as a hash. The ranks
/// reduce it together with the integers that they reduce in every step anyway, so that a rank with
/// another order is found even over transports that compare no tags.
struct OrderEvidence {
    bool is_compared = false; ///< parameters are sharded, on more than one rank
    bool is_changed = false;  ///< this rank recorded an order in this step, or gathered other
                              ///< buckets than in the step before
    std::uint64_t hash = 0;   ///< hash of the acquisitions and gathers of the step
};

/// @brief The numbers of one rank's `OrderEvidence`, then their minima over the ranks, in the
/// memory of the backend.
struct OrderAgreement {
    static constexpr std::size_t count = 3;

    /// Hash, complement of the hash, and 1 if the rank's order or gathers changed, otherwise 0.
    std::int64_t numbers[count] = {};

    /// @brief Sets the numbers of one rank.
    ZERO_HOST_DEVICE constexpr void set(OrderEvidence const& order) noexcept {
        numbers[0] = static_cast<std::int64_t>(order.hash);
        numbers[1] = static_cast<std::int64_t>(~order.hash);
        numbers[2] = order.is_changed ? 1 : 0;
    }

    /// @brief Returns whether all ranks acquired and gathered units in the same order: the least
    /// hash is the greatest.
    [[nodiscard]] ZERO_HOST_DEVICE constexpr bool is_same() const noexcept {
        return numbers[0] == ~numbers[1];
    }

    /// @brief Returns whether the order or the gathers of every rank changed in the step.
    [[nodiscard]] constexpr bool is_changed_everywhere() const noexcept { return numbers[2] == 1; }
};

} // namespace ZERO_NAMESPACE::detail
