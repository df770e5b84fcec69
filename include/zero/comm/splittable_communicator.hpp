#pragma once

#include "../core/detail/namespace.hpp"
#include "communicator.hpp"
#include "detail/splittable_requirements.hpp"

namespace ZERO_NAMESPACE {

/// @brief A communicator that can be divided into smaller groups.
///
/// `split(color, key)` is collective over all ranks and not allowed inside a step. It returns, by
/// value, a communicator of the group of all ranks that gave the same `color`. `key` is any number.
/// The transport decides which colors are valid; every transport accepts 0 and above. The
/// ranks of the new group are ordered by `key`, and by their old rank where keys are equal. The
/// communicator that was split remains usable, and so does the new one when the old one is
/// destroyed. An abort or a failure of one of them reaches the group that it was split from and all
/// groups split from that; when a communicator is destroyed, only its own group ends.
///
/// An author asserts `diagnose_splittable_communicator<C>()`, and passes `check_split` of the
/// conformance suite (`tests/comm/split_conformance.hpp`).
template <class C>
concept SplittableCommunicator = Communicator<C> && detail::SplitsIntoItself<C>;

/// @brief Reports each reason why `C` is not a `SplittableCommunicator` as one error.
template <class C>
consteval bool diagnose_splittable_communicator() {
    if constexpr (!Communicator<C>) {
        return diagnose_communicator<C>();
    } else {
        static_assert(detail::HasSplit<C>,
                      "zero: a SplittableCommunicator needs 'C split(int color, int key)'.");
        if constexpr (detail::HasSplit<C>) {
            static_assert(detail::SplitsIntoItself<C>,
                          "zero: 'split' of a SplittableCommunicator must return a communicator of "
                          "its own type, by value.");
        }
        return SplittableCommunicator<C>;
    }
}

} // namespace ZERO_NAMESPACE
