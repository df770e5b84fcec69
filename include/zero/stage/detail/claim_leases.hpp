#pragma once

#include "../../core/detail/namespace.hpp"
#include "lease_map.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Gives up the claims of `claim_leases`.
template <class Stores>
void unclaim_leases(Stores& stores, std::vector<std::size_t>& claimed) {
    for (std::size_t const bucket : claimed) {
        stores.of_bucket(bucket, [&](auto& store) { store.unclaim(bucket); });
    }
    claimed.clear();
}

/// @brief Claims memory for every bucket that is wanted, or for none. For the schedulers, whose
/// calls find all their leases before they change anything. No bucket takes another's place before
/// all have tried their own.
/// @param stores a `StoresByType` of stores with `claim` and `unclaim`
/// @param choice the memory that they may claim
/// @param claimed the buckets that were claimed by this call; its capacity must suffice
/// @return false if there is no room for one of them
template <class Stores, class Wanted>
[[nodiscard]] bool claim_leases(Stores& stores, std::span<std::size_t const> buckets,
                                Wanted const& is_wanted, LeaseChoice choice,
                                std::vector<std::size_t>& claimed) {
    claimed.clear();
    bool is_met = false;
    for (int tried = 0; !is_met && tried <= static_cast<int>(choice); ++tried) {
        is_met = true;
        for (std::size_t const bucket : buckets) {
            if (!is_wanted(bucket)) {
                continue;
            }
            if (stores.of_bucket(bucket, [&](auto& store) {
                    return store.claim(bucket, static_cast<LeaseChoice>(tried));
                })) {
                claimed.push_back(bucket);
            } else {
                is_met = false;
            }
        }
    }
    if (!is_met) {
        unclaim_leases(stores, claimed);
    }
    return is_met;
}

} // namespace ZERO_NAMESPACE::detail
