#pragma once

#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/policy_category.hpp"
#include "detail/partition/order_by.hpp"
#include "detail/partition/place_in_bucket.hpp"
#include "padding.hpp"
#include "partitioner.hpp"
#include "proportional_partitioner.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Returns how much of `amount` each rank gets if those that hold the least are filled up to
/// one level.
[[gnu::cold]] inline std::vector<double> filled_up(std::vector<std::uint64_t> const& held,
                                                   std::uint64_t amount) {
    std::vector<double> shares(held.size(), 0);
    std::vector<std::size_t> const order = order_by(held);
    std::uint64_t sum = amount; // and what the ranks hold that are filled
    std::size_t filled = 0;
    while (filled < order.size() && (filled == 0 || held[order[filled]] * filled < sum)) {
        sum += held[order[filled++]];
    }
    for (std::size_t index = 0; index < filled; ++index) {
        shares[order[index]] = static_cast<double>(sum / filled - held[order[index]]);
    }
    return shares;
}

} // namespace ZERO_NAMESPACE::detail

namespace ZERO_NAMESPACE {

/// @brief Keeps matrices whole and cuts large parameters that are none, such as embeddings: even
/// shards for `Muon`. Not part of zero.hpp.
///
/// First the matrices are dealt, those with the largest part first: of the group's elements, or of
/// its Newton-Schulz iterations, whose work is k (3 k n + k^2) for sides k <= n. Each goes to the
/// rank where the larger of both parts stays least. Then small parameters go, whole, to the rank
/// that holds the least. Last, each parameter of at least W times `granularity` elements and of
/// more than 1/8 of a rank's mean is spread: cut such that the ranks that hold the least are filled
/// up to one level. It shares no bucket with others.
///
/// With enough to spread, all ranks hold equally many elements, up to `granularity` for each cut.
/// Ties go to the lower parameter index and the lower rank. O(n log n + n W) once for n parameters,
/// and O(items + W) per bucket.
struct WholeMatrixPartitioner {
    using policy_category = PartitionerCategory;
    struct State {
        std::vector<std::uint64_t> owners;     ///< rank of each parameter of the group, or `spread`
        std::size_t next = 0;                  ///< first parameter of the next bucket
        ProportionalPartitioner::State rest{}; ///< cuts the parameters that are spread
    };
    static constexpr bool cuts_parameters = true;
    static constexpr bool cuts_group = false;
    static constexpr bool is_even = false;
    static constexpr auto spread = std::numeric_limits<std::uint64_t>::max(); ///< over all ranks

    /// @param rows by parameter, 0 if it is no matrix; empty: none is
    [[gnu::cold]] static State begin(std::span<std::size_t const> elements, std::size_t world,
                                     std::span<std::size_t const> rows = {}) {
        std::vector<std::uint64_t> work(elements.size(), 0); // 0: no matrix
        std::uint64_t all_work = 1;                          // no division by 0
        std::uint64_t all = 1;
        for (std::size_t index = 0; index < elements.size(); ++index) {
            if (!rows.empty() && rows[index] != 0) {
                std::uint64_t const k = detail::smaller(rows[index], elements[index] / rows[index]);
                work[index] = k * (3 * elements[index] + k * k);
            }
            all_work += work[index];
            all += padded_size(elements[index]);
        }
        auto const part = [&](std::uint64_t of_work, std::uint64_t of_elements) {
            return detail::larger(static_cast<double>(of_work) / static_cast<double>(all_work),
                                  static_cast<double>(of_elements) / static_cast<double>(all));
        };
        std::vector<std::uint64_t> descending;
        for (std::size_t index = 0; index < elements.size(); ++index) {
            double const own = part(work[index], padded_size(elements[index]));
            double const before = work[index] == 0 ? 2.0 - own : 1.0 - own; // matrices first
            descending.push_back(static_cast<std::uint64_t>(before * 0x1p60));
        }
        State state{std::vector<std::uint64_t>(elements.size(), spread)};
        std::vector<std::uint64_t> held(world, 0);
        std::vector<std::uint64_t> works(world, 0);
        std::uint64_t left = 0;
        for (std::size_t const index : detail::order_by(descending)) {
            std::uint64_t const size = padded_size(elements[index]);
            if (work[index] == 0 && size >= world * granularity && size * world > all / 8) {
                left += size;
                continue;
            }
            auto const filled = [&](std::size_t rank) {
                return part(work[index] == 0 ? 0 : works[rank] + work[index], held[rank] + size);
            };
            std::size_t least = 0;
            for (std::size_t rank = 1; rank < world; ++rank) {
                least = filled(rank) < filled(least) ? rank : least;
            }
            held[least] += size;
            works[least] += work[index];
            state.owners[index] = least;
        }
        state.rest = ProportionalPartitioner::begin(
            elements, world, {left == 0 ? std::vector<double>() : detail::filled_up(held, left)});
        return state;
    }

    [[gnu::cold]] static void partition(std::span<PartitionItem> items, State& state,
                                        std::span<std::size_t> cuts) {
        auto const owners = std::span(state.owners).subspan(state.next, items.size());
        std::size_t others = 0;
        for (std::uint64_t const owner : owners) {
            others += owner == spread ? 0 : 1;
        }
        if (others == 0) {
            ProportionalPartitioner::partition(items, state.rest, cuts);
        } else { // of persistent parameters, each of which can stay whole
            for (std::size_t index = 0; index < items.size(); ++index) {
                owners[index] = owners[index] == spread ? (state.next + index) % (cuts.size() - 1)
                                                        : owners[index];
            }
            detail::place_by_owner(items, owners, cuts);
        }
        state.next += items.size();
    }

    /// @brief Returns whether a parameter of the group is spread over the ranks.
    static bool is_spread(State const& state, std::size_t index) noexcept {
        return state.owners[index] == spread;
    }
};
static_assert(MatrixKeepingPartitioner<WholeMatrixPartitioner>);

} // namespace ZERO_NAMESPACE
