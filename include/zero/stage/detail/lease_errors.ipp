#pragma once

#include "lease_errors.hpp"

#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"

namespace ZERO_NAMESPACE::detail {

ZERO_COLD_INLINE void throw_late_gradient(FlatLayout const& layout, std::size_t parameter,
                                          std::size_t bucket, std::size_t rank) {
    throw_error<LateGradient>(
        {"zero: a gradient for parameter '", layout.parameter(parameter).name,
         "' comes after the reduction of its ", layout.bucket_text(bucket),
         " was enqueued in this micro-step (rank ", rank, "); call ",
         (layout.backward_call() != nullptr ? layout.backward_call() : "gradients_ready()"),
         (layout.backward_call() != nullptr
              ? " once for each micro-step, with the sum of all its losses."
              : " only after the last gradient of the unit.")});
}

ZERO_COLD_INLINE void throw_no_gradient_lease(FlatLayout const& layout, std::size_t unit,
                                              std::size_t rank) {
    throw_error<OutOfOrder>(
        {"zero: ", layout.unit_text(unit), " comes out of order: its ",
         layout.bucket_text(layout.unit_buckets(unit).front()),
         " finds no free gradient lease on rank ", rank,
         (layout.backward_call() != nullptr
              ? "; list the units in the order in which the forward pass uses them, or set "
                "extra_leases."
              : "; call gradients_ready() of a unit before gradients() of the next (even if the "
                "unit has none), number units in their order of use, or set extra_leases.")});
}

ZERO_COLD_INLINE void throw_no_parameter_lease(FlatLayout const& layout, std::size_t unit,
                                               std::size_t rank) {
    throw_error<OutOfOrder>(
        {"zero: ", layout.unit_text(unit), " finds no room for its ",
         layout.unit_buckets(unit).size(),
         layout.unit_buckets(unit).size() == 1 ? " gathered bucket, "
                                               : " gathered buckets, the first is ",
         layout.bucket_text(layout.unit_buckets(unit).front()),
         "; two consecutive units have room at once, and fewer where max_live_elements is less, so "
         "release units that are not in use, raise max_live_elements if it is set, or set "
         "extra_leases (rank ",
         rank, ")."});
}

ZERO_COLD_INLINE void throw_no_room(FlatLayout const& layout, std::size_t bucket,
                                    std::size_t rank) {
    throw_error<OutOfOrder>({"zero: ", layout.bucket_text(bucket), " of ", layout.elements(bucket),
                             " elements finds no room on rank ", rank,
                             ", which is a bug of zero; please report it, and set extra_leases."});
}

} // namespace ZERO_NAMESPACE::detail
