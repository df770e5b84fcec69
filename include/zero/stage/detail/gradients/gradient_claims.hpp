#pragma once

#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../memory/lease_map.hpp"

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

/// @brief Tracks which units, parameters and buckets of one micro-step have their gradients.
///
/// A member of `GradientScheduler`. It depends only on the layout, not on data or queues.
class Readiness {
public:
    Readiness() = default;

    [[gnu::cold]] explicit Readiness(FlatLayout const& layout);

    /// @brief Starts a micro-step.
    void reset();

    [[nodiscard]] bool is_unit_ready(std::size_t unit) const { return _is_unit_ready[unit] != 0; }
    [[nodiscard]] bool is_parameter_ready(std::size_t parameter) const {
        return _units_left[parameter] == 0;
    }
    /// @brief Whether any unit of the parameter is ready.
    [[nodiscard]] bool is_started(std::size_t parameter) const {
        return _units_left[parameter] < _layout->parameter(parameter).units.size();
    }
    [[nodiscard]] bool is_launched(std::size_t bucket) const { return _is_launched[bucket] != 0; }
    [[nodiscard]] bool is_complete(std::size_t bucket) const {
        return _parameters_left[bucket] == 0;
    }

    /// @brief Marks the unit's gradients as complete. Call it once per unit and micro-step.
    void mark(std::size_t unit);

    /// @brief The lowest bucket that is not launched; the number of buckets if all are.
    [[nodiscard]] std::size_t next() const noexcept { return _next; }

    void set_launched(std::size_t bucket);

private:
    FlatLayout const* _layout = nullptr;
    std::vector<char> _is_unit_ready;
    std::vector<std::size_t> _units_left;      ///< by parameter
    std::vector<std::size_t> _parameters_left; ///< by bucket
    std::vector<char> _is_launched;
    std::size_t _next = 0;
};

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

#if !defined(ZERO_COMPILED)
#include "readiness.ipp"
#endif
