#pragma once

#include "../../core/detail/namespace.hpp"

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
/// calls find all their leases before they change anything.
/// @param stores a `StoresByType` of stores with `claim` and `unclaim`
/// @param claimed the buckets that were claimed by this call; its capacity must suffice
/// @return false if there is no room for one of them
template <class Stores, class Wanted>
[[nodiscard]] bool claim_leases(Stores& stores, std::span<std::size_t const> buckets,
                                Wanted const& is_wanted, std::vector<std::size_t>& claimed) {
    claimed.clear();
    for (std::size_t const bucket : buckets) {
        if (!is_wanted(bucket)) {
            continue;
        }
        if (!stores.of_bucket(bucket, [&](auto& store) { return store.claim(bucket); })) {
            unclaim_leases(stores, claimed);
            return false;
        }
        claimed.push_back(bucket);
    }
    return true;
}

} // namespace ZERO_NAMESPACE::detail
