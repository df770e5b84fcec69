#pragma once

#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/detail/throw_error.hpp"
#include "../core/error.hpp"
#include "../core/policy_category.hpp"
#include "detail/partition/place_in_bucket.hpp"
#include "padding.hpp"
#include "partitioner.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief Options of `ProportionalPartitioner`. They must be equal on all ranks; others get a
/// LayoutMismatch.
struct ProportionalPartitionerOptions {
    /// One number for each rank over which states are cut, such as its free memory in bytes: finite
    /// and at least 0, and not all of them 0. A rank with the share 0 owns nothing. Empty: equal
    /// shares.
    std::vector<double> shares{};
};

/// @brief Cuts every bucket into contiguous extents in proportion to the ranks' shares, for ranks
/// with unequal memory: `.partitioner = {.shares = {80e9, 80e9, 40e9}}`. Not part of zero.hpp.
///
/// The part of a model that a rank owns differs from its share by less than three times
/// `granularity` elements for each group and type, however many buckets there are: what one bucket
/// rounds off the next one makes up. Only sharded states follow the shares. Each bucket takes the
/// grouped collectives, in which the rank with the largest share receives the most. O(items + W)
/// per bucket.
struct ProportionalPartitioner {
    using policy_category = PartitionerCategory;
    using Options = ProportionalPartitionerOptions;
    struct State {
        std::vector<double> ends;         ///< by cut: the part of the model before it, from 0 to 1
        std::vector<std::uint64_t> given; ///< by cut: multiples of `granularity` before it so far
        std::uint64_t seen = 0;           ///< multiples of `granularity` in all buckets so far
    };
    static constexpr bool cuts_parameters = true;
    static constexpr bool cuts_group = false;
    static constexpr bool is_even = false;

    /// @throws InvalidArgument if the number of shares is not W, or one is out of range
    [[gnu::cold]] static State begin(std::span<std::size_t const> /*elements*/, std::size_t world,
                                     Options const& options = {}) {
        std::vector<double> const equal(options.shares.empty() ? world : 0, 1.0);
        std::vector<double> const& shares = options.shares.empty() ? equal : options.shares;
        if (shares.size() != world) {
            detail::throw_error<InvalidArgument>(
                {"zero: partitioner.shares has ", shares.size(), " numbers for ", world,
                 " ranks; give one for each rank over which states are cut, such as its free "
                 "memory in bytes."});
        }
        State state{{0}, std::vector<std::uint64_t>(world + 1, 0), 0};
        double sum = 0;
        for (std::size_t rank = 0; rank < world; ++rank) {
            sum += shares[rank];
            // x - x is NaN for infinities and NaN.
            if (!(shares[rank] >= 0) || !(sum - sum == 0)) {
                detail::throw_error<InvalidArgument>(
                    {"zero: partitioner.shares is ", shares[rank], " for rank ", rank,
                     "; a share is at least 0 and finite, and so is their sum. Give for instance "
                     "the free memory of each rank in bytes."});
            }
            state.ends.push_back(sum);
        }
        if (sum == 0) {
            detail::throw_error<InvalidArgument>(
                {"zero: all partitioner.shares are 0, so no rank may own anything; give at least "
                 "one rank a share above 0."});
        }
        for (double& end : state.ends) {
            end /= sum;
        }
        return state;
    }

    [[gnu::cold]] static void partition(std::span<PartitionItem> items, State& state,
                                        std::span<std::size_t> cuts) {
        std::size_t const blocks = detail::place_in_order(items) / granularity;
        state.seen += blocks;
        std::uint64_t last = 0;
        for (std::size_t cut = 0; cut < cuts.size(); ++cut) {
            // Rounded down: a sum with a product in it would depend on whether the compiler fuses
            // them.
            auto const whole =
                static_cast<std::uint64_t>(static_cast<double>(state.seen) * state.ends[cut]);
            std::uint64_t const missing = whole - detail::smaller(whole, state.given[cut]);
            last = detail::larger(last, detail::smaller(missing, std::uint64_t{blocks}));
            state.given[cut] += last;
            cuts[cut] = static_cast<std::size_t>(last) * granularity;
        }
    }
};
static_assert(Partitioner<ProportionalPartitioner>);

} // namespace ZERO_NAMESPACE
