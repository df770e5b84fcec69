#pragma once

#include "../core/minmax.hpp"
#include "flat_layout.hpp"
#include "waste_searching_bucketer.hpp"

#include <cstddef>
#include <utility>
#include <vector>

namespace zero::detail {

/// @brief What a search compares: all elements with padding, and those of the fullest bucket of several parameters.
struct BucketSums {
    std::size_t padded = 0;
    std::size_t fullest = 0;

    explicit BucketSums(std::vector<BucketPlan> const& buckets) {
        for (BucketPlan const& bucket : buckets) {
            std::size_t filled = 0;
            for (Piece const& piece : bucket.pieces) {
                filled += round_up(piece.elements, granularity);
            }
            padded += bucket.cuts.back();
            fullest = larger(fullest, bucket.pieces.size() > 1 ? filled : 0);
        }
    }
};

/// @brief The buckets of `plan(bucketing)`, or of the options with the least padding among those that a bucketer wants to be tried.
template <class Bucketer, class Plan>
std::vector<BucketPlan> plan_buckets(typename Bucketer::Options bucketing, [[maybe_unused]] std::size_t element_bytes, Plan const& plan) {
    std::vector<BucketPlan> best = plan(bucketing);
    if constexpr (SearchingBucketer<Bucketer>) {
        BucketSums sums(best);
        std::size_t least = sums.padded;
        for (auto next = Bucketer::next(bucketing, bucketing, sums.fullest * element_bytes); next;
             next = Bucketer::next(bucketing, *next, sums.fullest * element_bytes)) {
            std::vector<BucketPlan> buckets = plan(*next);
            sums = BucketSums(buckets);
            if (sums.padded < least) {
                least = sums.padded;
                best = std::move(buckets);
            }
        }
    }
    return best;
}

} // namespace zero::detail
