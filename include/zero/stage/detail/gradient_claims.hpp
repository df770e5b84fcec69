#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../layout/flat_layout.hpp"
#include "claim_leases.hpp"
#include "lease_map.hpp"
#include "readiness.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Claims memory for the gradient buckets of a micro-step, so that its end always finds
/// memory for the buckets that have none.
///
/// A member of `GradientScheduler`. The end of a micro-step sends zeros for a bucket that was never
/// claimed, while the buckets after it are still open. A claim that would leave no room for that is
/// refused.
class GradientClaims {
public:
    [[gnu::cold]] explicit GradientClaims(FlatLayout const& layout)
        : _trainable(layout.trainable_buckets()) {
        _claimed.reserve(_trainable); // a step allocates nothing
    }

    void begin_micro_step() noexcept { _end = 0; }

    /// @brief Claims memory for the buckets that are leased and not launched, or for none.
    /// @param stores the `StoresByType` of gradients
    /// @return false if there is no room; nothing was changed
    template <class Stores>
    [[nodiscard]] bool claim(Stores& stores, Readiness const& readiness,
                             std::span<std::size_t const> buckets) {
        auto const is_wanted = [&](std::size_t bucket) {
            return bucket < _trainable && !readiness.is_launched(bucket)
                   && stores.of_bucket(bucket, [&](auto const& store) {
                          return store.is_leased(bucket) && !store.is_claimed(bucket);
                      });
        };
        bool is_met = claim_leases(stores, buckets, is_wanted, LeaseChoice::any_place, _claimed);
        std::size_t end = _end;
        for (std::size_t const bucket : _claimed) {
            end = end > bucket ? end : bucket + 1;
        }
        for (std::size_t bucket = readiness.next(); is_met && bucket < end; ++bucket) {
            is_met = !is_wanted(bucket) || stores.of_bucket(bucket, [&](auto const& store) {
                return store.has_room_after_earlier(bucket);
            });
        }
        if (is_met) {
            _end = end;
        } else {
            unclaim_leases(stores, _claimed);
        }
        return is_met;
    }

private:
    std::size_t _trainable;
    std::vector<std::size_t> _claimed; ///< buckets claimed by the current call
    std::size_t _end = 0;              ///< no bucket from here on was claimed in this micro-step
};

} // namespace ZERO_NAMESPACE::detail
