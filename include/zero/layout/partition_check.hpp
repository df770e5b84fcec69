#pragma once

#include "../core/throw_error.hpp"
#include "partitioner.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace zero::detail {

/// @brief What a partitioner says of itself.
struct PartitionerTraits {
    bool cuts_parameters;
    bool is_even;
};

/// @brief Refuses what a partitioner made of a bucket when it breaks the contract of `Partitioner`: a mistake there would train to other numbers, or
/// write where nothing is. O(items log(items) + W), once a bucket.
/// @param elements of the pieces before they were placed, by index
/// @throws InvalidArgument
[[gnu::cold]] inline void require_partition(std::span<std::size_t const> elements, std::span<PartitionItem const> items, std::span<std::size_t const> cuts,
                                            PartitionerTraits traits) {
    for (std::size_t cut = 0; cut < cuts.size(); ++cut) {
        if (cuts[cut] % granularity != 0 || (cut == 0 ? cuts[0] != 0 : cuts[cut] < cuts[cut - 1])) {
            throw_error<InvalidArgument>({"zero: the partitioner's cut number ", cut, " of a bucket is ", cuts[cut],
                                          "; cuts begin with 0, do not descend, and are multiples of ", granularity, "."});
        }
        if (traits.is_even && cut != 0 && cuts[cut] - cuts[cut - 1] != cuts[1]) {
            throw_error<InvalidArgument>({"zero: the partitioner says is_even, but gives ", cuts[1], " elements of a bucket to rank 0 and ", cuts[cut] - cuts[cut - 1], " to rank ",
                                          cut - 1, "; make all extents equally long, or is_even false."});
        }
    }
    std::vector<std::uint64_t> offsets;
    std::vector<char> is_placed(elements.size(), false);
    for (PartitionItem const& item : items) {
        if (item.index >= elements.size() || is_placed[item.index] || item.elements != elements[item.index]) {
            throw_error<InvalidArgument>({"zero: the partitioner gave back piece number ", item.index, " of ", elements.size(), " with ", item.elements,
                                          " elements; it may reorder the pieces of a bucket, but keeps each once, with its elements."});
        }
        is_placed[item.index] = true;
        offsets.push_back(item.offset);
    }
    std::size_t free = 0;
    std::size_t next_cut = 0; // the first behind where an item starts
    for (std::size_t const number : order_by(offsets)) {
        PartitionItem const& item = items[number];
        if (item.elements == 0) {
            continue;
        }
        if (item.offset % granularity != 0 || item.offset < free || item.offset > cuts.back() || item.elements > cuts.back() - item.offset) {
            throw_error<InvalidArgument>({"zero: the partitioner placed piece number ", item.index, " (", item.elements, " elements) at ", item.offset, " of a bucket of ",
                                          cuts.back(), "; pieces start at multiples of ", granularity, ", lie inside the bucket, and do not overlap."});
        }
        free = item.offset + item.elements;
        while (cuts[next_cut] <= item.offset) {
            ++next_cut;
        }
        if (!traits.cuts_parameters && cuts[next_cut] < free) {
            throw_error<InvalidArgument>({"zero: the partitioner says that it cuts no parameter, but cuts piece number ", item.index, " at ", cuts[next_cut],
                                          "; cut between pieces, or make cuts_parameters true."});
        }
    }
}

} // namespace zero::detail
