#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../layout/flat_layout.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE::detail {

/// @brief Tells a backend that records which bucket the calling thread works on, while it lives.
/// Empty, and without code, for the others.
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

} // namespace ZERO_NAMESPACE::detail
