#pragma once

#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../bucketer.hpp"
#include "../../gather_options.hpp"
#include "../../parameter_spec.hpp"
#include "../../partitioner.hpp"
#include "../../piece.hpp"
#include "partitioner_ref.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ZERO_NAMESPACE::detail {

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

/// @brief Returns the buckets of a model for `make_layout`: the trainable ones in the order in
/// which they become complete, then the frozen ones. A bucket holds whole parameters of one type.
/// @throws InvalidArgument if the parameters or options are invalid, or a policy breaks its
/// contract
std::vector<BucketPlan> make_buckets(std::span<ParameterSpec const> parameters,
                                     LayoutOptions const& options,
                                     PartitionerRef const& partitioner, BucketerRef bucketer);

/// @brief Returns the buckets of parameters in an adopted block, for `make_adopted_layout`.
/// @param offsets first element of each parameter in the block
/// @throws InvalidArgument if the arguments are invalid, parameters overlap, or the bucketer breaks
/// its contract
std::vector<BucketPlan> make_adopted_buckets(std::span<ParameterSpec const> parameters,
                                             std::span<std::size_t const> offsets,
                                             LayoutOptions const& options, BucketerRef bucketer);

/// @brief Returns one bucket of `pieces` as the partitioner orders and cuts it.
/// @param state points to the `State` of the partitioner
/// @throws InvalidArgument if the partitioner breaks its contract
BucketPlan partition_bucket(std::span<ParameterSpec const> parameters,
                            std::span<Piece const> pieces, std::size_t world,
                            PartitionerRef const& partitioner, void* state);

/// @brief Returns for each parameter a number that grows with the time at which its gradient
/// becomes complete, equal for parameters that become complete with the same unit.
/// @param unit_order as for `ready_order`
std::vector<std::uint64_t> complete_times(std::span<ParameterSpec const> parameters,
                                          std::span<std::size_t const> unit_order);

/// @brief Returns the indices of all parameters in gradient-ready order: the order in which their
/// gradients become complete. O(n log n).
///
/// The gradient of a parameter is complete when the last of its units has finished its backward
/// pass. Parameters that become complete with the same unit stay together, in reverse registration
/// order.
/// @param unit_order the order in which units finish their backward pass; empty: by descending
/// number, as `FlatLayout::unit_order` then says
std::vector<std::size_t> ready_order(std::span<ParameterSpec const> parameters,
                                     std::span<std::size_t const> unit_order);

/// @brief Checks the parameters and the options of a layout.
/// @throws InvalidArgument naming the parameter and the remedy
[[gnu::cold]] void validate_parameters(std::span<ParameterSpec const> parameters,
                                       LayoutOptions const& options);

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "make_buckets.ipp"
#include "validate_parameters.ipp"
#endif
