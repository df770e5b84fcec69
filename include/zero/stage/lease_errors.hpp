#pragma once

#include "../core/error.hpp"
#include "../layout/flat_layout.hpp"

#include <cstddef>
#include <string>

namespace zero::detail {

[[noreturn]] inline void throw_late_gradient(FlatLayout const& layout, std::size_t parameter, std::size_t bucket, std::size_t rank) {
    throw LateGradient("zero: a gradient for parameter '" + layout.parameter(parameter).name + "' comes after the reduction of its bucket "
                       + std::to_string(bucket) + " was enqueued in this micro-step (rank " + std::to_string(rank)
                       + "); call gradients_ready() only after the last gradient of the unit.");
}

[[noreturn]] inline void throw_no_gradient_lease(FlatLayout const& layout, std::size_t unit, std::size_t rank) {
    throw OutOfOrder(
        "zero: unit " + std::to_string(unit) + " comes out of order: its bucket " + std::to_string(layout.unit_buckets(unit).front())
        + " finds no free gradient lease on rank " + std::to_string(rank)
        + "; call gradients_ready() also for units without a gradient, register parameters in order of use, or set extra_leases.");
}

[[noreturn]] inline void throw_no_parameter_lease(FlatLayout const& layout, std::size_t unit, std::size_t rank, std::size_t missing,
                                                  std::size_t free) {
    throw OutOfOrder("zero: unit " + std::to_string(unit) + " needs " + std::to_string(missing) + " gathered buckets, the first is bucket "
                     + std::to_string(layout.unit_buckets(unit).front()) + ", but only " + std::to_string(free)
                     + " leases are free; release units that are not in use, or set extra_leases (rank " + std::to_string(rank) + ").");
}

[[noreturn]] inline void throw_split_gradient(FlatLayout const& layout, std::size_t parameter) {
    throw InvalidArgument("zero: parameter '" + layout.parameter(parameter).name + "' of the adopted block lies in "
                          + std::to_string(layout.parameter_buckets(parameter).size())
                          + " buckets, so there is no contiguous engine memory for its gradient; register memory of your own in "
                            "Parameter::gradient, or use hand_over().");
}

} // namespace zero::detail
