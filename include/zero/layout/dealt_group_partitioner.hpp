#pragma once

#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"
#include "partitioner.hpp"
#include "whole_group_partitioner.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief Deals the parameters into W lists in turn, concatenates the lists, and cuts the result
/// like `WholeGroupPartitioner`.
///
/// Parameters that are neighbours in the backward pass are then on different ranks, so all ranks
/// receive at the same time (DeepSpeed's round_robin_gradients). The cost: a bucket holds
/// parameters from the whole model, so most buckets stay open until the backward pass ends, and the
/// pool of gradient leases is about as large as the gradients. With at least as many ranks as
/// parameters the order does not change.
struct DealtGroupPartitioner : WholeGroupPartitioner {

    [[gnu::cold]] static std::vector<std::size_t> order(std::span<std::size_t const> elements,
                                                        std::size_t world) {
        std::vector<std::size_t> dealt;
        for (std::size_t list = 0; list < detail::smaller(world, elements.size()); ++list) {
            for (std::size_t index = list; index < elements.size(); index += world) {
                dealt.push_back(index);
            }
        }
        return dealt;
    }
};
static_assert(OrderingPartitioner<DealtGroupPartitioner>);

} // namespace ZERO_NAMESPACE
