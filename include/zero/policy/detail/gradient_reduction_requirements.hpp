#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/storage_types.hpp"
#include "../gradient_reduction.hpp"

#include <concepts>

/// @file
/// @brief The requirements of `GradientReductionPolicy`, one concept each. The concept and its
/// messages use them.

namespace ZERO_NAMESPACE::detail {

template <class P>
concept GradientReductionHasOptions = std::same_as<typename P::Options, GradientReductionOptions>;

template <class P>
concept GradientReductionHasTypes = StorageType<typename P::template GradientType<float>>
                                    && StorageType<typename P::template CommunicationType<float>>
                                    && StorageType<typename P::template AccumulationType<float>>;

} // namespace ZERO_NAMESPACE::detail
