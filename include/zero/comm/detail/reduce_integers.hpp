#pragma once

#include "../../core/detail/namespace.hpp"
#include "../collective_tag.hpp"
#include "../integer_reduction.hpp"
#include "communicator_requirements.hpp"

#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE::detail {

/// @brief Sums integers over the ranks, and minimises others: as one collective, if the
/// communicator sums and minimises together. `StepControl` decides by it.
/// @param minima follow the sums; at least one
template <class Communicator, class Queue>
void reduce_integers(Communicator& communicator, Queue queue, std::int64_t* values,
                     std::size_t sums, std::int64_t* minima, std::size_t minimum_count,
                     CollectiveTag const& tag) {
    if (sums != 0) {
        if constexpr (ReducesIntegersTogether<Communicator>) {
            communicator.all_reduce_integers(values, sums, minimum_count, queue, tag);
            return;
        } else {
            communicator.all_reduce_integers(values, sums, IntegerReduction::sum, queue,
                                             CollectiveTag{"gradient norm", 0});
        }
    }
    communicator.all_reduce_integers(minima, minimum_count, IntegerReduction::min, queue, tag);
}

} // namespace ZERO_NAMESPACE::detail
