#pragma once

#include "../../../comm/collective_tag.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../layout/flat_layout.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE::detail {

/// @brief While an object lives, a backend that records timelines knows which bucket the calling
/// thread works on. For other backends the class is empty and does nothing.
template <class Backend>
struct BucketScope {
    constexpr BucketScope(FlatLayout const& /*layout*/, std::size_t /*bucket*/) noexcept {}
    BucketScope(BucketScope const&) = delete;
    BucketScope& operator=(BucketScope const&) = delete;
};

template <class Backend>
    requires requires { typename Backend::BucketScope; }
struct BucketScope<Backend> : Backend::BucketScope {
    using Base = typename Backend::BucketScope;
    using Base::Base;
};

/// @brief Returns the tag of a collective of an engine, with its number. Valid as long as the
/// layout and the texts. @param index `CollectiveTag::index`
inline CollectiveTag engine_tag(FlatLayout const& layout, char const* what, std::size_t index = 0,
                                char const* parameter = "", char const* context = "",
                                CollectivePurpose purpose = CollectivePurpose::other) noexcept {
    return {what, index, parameter, context, purpose, layout.tagged_number()};
}

/// @brief The same of a collective on a bucket, with the name of its first parameter.
/// @param what "gradients of bucket", ...
inline CollectiveTag bucket_tag(CollectivePurpose purpose, char const* what,
                                FlatLayout const& layout, std::size_t bucket) noexcept {
    return engine_tag(layout, what, bucket, layout.first_name(bucket), "", purpose);
}

} // namespace ZERO_NAMESPACE::detail
