#pragma once

#include "../../core/detail/namespace.hpp"

#include <concepts>

/// The requirements of `SplittableCommunicator`, one concept each.
namespace ZERO_NAMESPACE::detail {

template <class C>
concept HasSplit = requires(C& communicator) { communicator.split(0, 0); };

template <class C>
concept SplitsIntoItself = requires(C& communicator) {
    { communicator.split(0, 0) } -> std::same_as<C>;
};

} // namespace ZERO_NAMESPACE::detail
