#pragma once

// The requirements of `Bucketer`, one concept each. The concept and its messages use them.

#include "../../core/detail/namespace.hpp"
#include "../../core/policy_category.hpp"
#include "../bucket_item.hpp"

#include <concepts>
#include <cstddef>
#include <span>

namespace ZERO_NAMESPACE::detail {

template <class B>
concept BucketerHasCategory = std::same_as<typename B::policy_category, BucketerCategory>;

template <class B>
concept BucketerHasOptions = requires { typename B::Options; };

template <class B>
concept BucketerHasSpanFlag = std::same_as<decltype(B::may_span_units), bool const>;

template <class B>
concept BucketerHasTake =
    requires(std::span<BucketItem const> items, typename B::Options const& options) {
        { B::take(items, options, std::size_t{}) } -> std::same_as<std::size_t>;
    };

template <class B>
concept BucketerHasValidate = requires(typename B::Options const& options) {
    { B::validate(options) } -> std::same_as<void>;
};

} // namespace ZERO_NAMESPACE::detail
