#pragma once

// Functions that place the items of one bucket and cut it, for the shipped partitioners.

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../bucketer.hpp"
#include "../parameter_spec.hpp"
#include "../partitioner.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace ZERO_NAMESPACE::detail {

/// @brief Places the items one after the other and returns the end of the last one, padding
/// included.
std::size_t place_in_order(std::span<PartitionItem> items);

/// @brief Places the items in order and cuts the bucket into W equal extents.
void cut_evenly(std::span<PartitionItem> items, std::span<std::size_t> cuts);

/// @brief Orders the items by owner and cuts the bucket where the owner changes. Items of one owner
/// keep their order.
void place_by_owner(std::span<PartitionItem> items, std::span<std::uint64_t const> owners,
                    std::span<std::size_t> cuts);

/// @brief A type-erased `Bucketer` with its options. Layouts are made through it, so that they are
/// compiled once and not for each composition. The options must outlive it.
struct BucketerRef {
    void const* options;
    void (*validate)(void const* options);
    std::size_t capacity; ///< in bytes; no limit unless the options have `bucket_bytes`
    std::size_t (*take)(std::span<BucketItem const> items, void const* options,
                        std::size_t element_bytes);
};

template <class Bucketer>
BucketerRef bucketer_ref(typename Bucketer::Options const& options) noexcept {
    using Options = typename Bucketer::Options;
    std::size_t capacity = static_cast<std::size_t>(-1);
    if constexpr (requires { capacity = options.bucket_bytes; }) {
        capacity = options.bucket_bytes;
    }
    return {&options,
            [](void const* erased) { Bucketer::validate(*static_cast<Options const*>(erased)); },
            capacity,
            [](std::span<BucketItem const> items, void const* erased, std::size_t element_bytes) {
                return Bucketer::take(items, *static_cast<Options const*>(erased), element_bytes);
            }};
}

/// @brief Divides parameters into buckets and calls `visit` with the members of each.
///
/// A bucket ends where the bucketer ends it, and before and after each tied parameter, which gets a
/// bucket of its own.
/// @param order parameter indices in the order in which buckets are filled
/// @param inside_units a bucket also ends where the unit changes
/// @throws InvalidArgument if the bucketer takes no parameter, or more than it was offered
void for_bucket_members(std::span<ParameterSpec const> parameters,
                        std::span<std::size_t const> order, bool inside_units, BucketerRef bucketer,
                        std::size_t element_bytes, FunctionRef<std::span<std::size_t const>> visit);

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "place_in_bucket.ipp"
#endif
