#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/policy_category.hpp"
#include "bucket_item.hpp"
#include "bucketer.hpp"

#include <cstddef>
#include <span>

namespace ZERO_NAMESPACE {

/// @brief `SingleBucketer` has no options.
struct SingleBucketerOptions {};

/// @brief Puts all parameters into one bucket: one reduction after the backward pass, without
/// overlap. It does not serve stage 3.
struct SingleBucketer {
    using policy_category = BucketerCategory;
    using Options = SingleBucketerOptions;
    static constexpr bool may_span_units = true;

    static void validate(Options const&) {}
    static std::size_t take(std::span<BucketItem const> items, Options const&, std::size_t) {
        return items.size();
    }
};
static_assert(Bucketer<SingleBucketer>);

} // namespace ZERO_NAMESPACE
