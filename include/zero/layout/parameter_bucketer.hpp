#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/policy_category.hpp"
#include "bucket_item.hpp"
#include "bucketer.hpp"

#include <cstddef>
#include <span>

namespace ZERO_NAMESPACE {

/// @brief `ParameterBucketer` has no options.
struct ParameterBucketerOptions {};

/// @brief Makes one bucket per parameter: the most collectives and the finest overlap.
struct ParameterBucketer {
    using policy_category = BucketerCategory;
    using Options = ParameterBucketerOptions;
    static constexpr bool may_span_units = false;

    static void validate(Options const&) {}
    static std::size_t take(std::span<BucketItem const>, Options const&, std::size_t) { return 1; }
};
static_assert(Bucketer<ParameterBucketer>);

} // namespace ZERO_NAMESPACE
