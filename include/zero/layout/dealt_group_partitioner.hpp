#pragma once

#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"
#include "partitioner.hpp"
#include "whole_group_partitioner.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace ZERO_NAMESPACE {

struct DealtGroupPartitionerOptions {};

/// @brief The whole-group cut after the tensors were dealt into W lists in turn, which are then
/// laid one after the other.
///
/// Neighbours in the backward pass then lie on different ranks (DeepSpeed's round_robin_gradients:
/// ranks copy their shares at the same time). The price: a bucket holds tensors from all over the
/// model, so most buckets stay open until the backward pass ends, and the pool of gradient leases
/// is about as large as the gradients. With at least as many ranks as tensors the order stays as it
/// was.
struct DealtGroupPartitioner : WholeGroupPartitioner {
    using Options = DealtGroupPartitionerOptions;

    static std::vector<std::size_t> order(std::span<std::size_t const> elements,
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
