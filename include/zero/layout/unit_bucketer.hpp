#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/policy_category.hpp"
#include "bucket_item.hpp"
#include "bucketer.hpp"

#include <cstddef>
#include <span>

namespace ZERO_NAMESPACE {

/// @brief `UnitBucketer` has no options.
struct UnitBucketerOptions {};

/// @brief Makes one bucket per unit. The default in stage 3.
struct UnitBucketer {
    using policy_category = BucketerCategory;
    using Options = UnitBucketerOptions;
    static constexpr bool may_span_units = false;

    static void validate(Options const&) {}

    static std::size_t take(std::span<BucketItem const> items, Options const&, std::size_t) {
        std::size_t taken = 1;
        while (taken < items.size() && items[taken].unit == items[0].unit) {
            ++taken;
        }
        return taken;
    }
};
static_assert(Bucketer<UnitBucketer>);

} // namespace ZERO_NAMESPACE
