#pragma once

#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"
#include "../padding.hpp"
#include "order_by.hpp"
#include "require_partition.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace ZERO_NAMESPACE::detail {

ZERO_COLD_INLINE void require_partition(std::span<ParameterSpec const> parameters,
                                        std::span<Piece const> pieces,
                                        std::span<PartitionItem const> items,
                                        std::span<std::size_t const> cuts,
                                        PartitionerRef const& partitioner) {
    for (std::size_t cut = 0; cut < cuts.size(); ++cut) {
        if (cuts[cut] % granularity != 0 || (cut == 0 ? cuts[0] != 0 : cuts[cut] < cuts[cut - 1])) {
            throw_error<InvalidArgument>(
                {"zero: the partitioner's cut number ", cut, " of a bucket is ", cuts[cut],
                 "; cuts must begin with 0, not descend, and be multiples of ", granularity, "."});
        }
        if (partitioner.is_even && cut != 0 && cuts[cut] - cuts[cut - 1] != cuts[1]) {
            throw_error<InvalidArgument>({"zero: the partitioner says is_even, but gives ", cuts[1],
                                          " elements of a bucket to rank 0 and ",
                                          cuts[cut] - cuts[cut - 1], " to rank ", cut - 1,
                                          "; make all extents equal, or set is_even to false."});
        }
    }
    std::vector<std::uint64_t> offsets;
    std::vector<char> is_placed(pieces.size(), false);
    for (PartitionItem const& item : items) {
        if (item.index >= pieces.size() || is_placed[item.index]
            || item.elements != pieces[item.index].elements) {
            throw_error<InvalidArgument>({"zero: the partitioner returned piece number ",
                                          item.index, " of ", pieces.size(), " with ",
                                          item.elements,
                                          " elements; it may reorder the pieces of a bucket, but "
                                          "keeps each once, with its elements."});
        }
        is_placed[item.index] = true;
        offsets.push_back(item.offset);
    }
    std::size_t free = 0;
    std::size_t next_cut = 0; // the first cut after the start of the item
    for (std::size_t const number : order_by(offsets)) {
        PartitionItem const& item = items[number];
        if (item.elements == 0) {
            continue;
        }
        std::string const& name = parameters[pieces[item.index].parameter].name;
        if (item.offset % granularity != 0 || item.offset < free || item.offset > cuts.back()
            || item.elements > cuts.back() - item.offset) {
            throw_error<InvalidArgument>({"zero: the partitioner placed '", name, "' (",
                                          item.elements, " elements) at ", item.offset,
                                          " of a bucket of ", cuts.back(),
                                          "; pieces must start at multiples of ", granularity,
                                          ", lie inside the bucket, and do not overlap."});
        }
        free = item.offset + item.elements;
        while (cuts[next_cut] <= item.offset) {
            ++next_cut;
        }
        if (!partitioner.cuts_parameters && cuts[next_cut] < free) {
            throw_error<InvalidArgument>(
                {"zero: the partitioner says that it cuts no parameter, but cuts '", name, "' at ",
                 cuts[next_cut], "; cut between pieces, or make cuts_parameters true."});
        }
    }
}

} // namespace ZERO_NAMESPACE::detail
