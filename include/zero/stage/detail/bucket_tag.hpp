#pragma once

#include "../../comm/collective_tag.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../layout/flat_layout.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE::detail {

/// @brief Returns the tag of a collective on a bucket, with the name of its first parameter. Valid
/// as long as the layout. @param what "gradients of bucket", ...
inline CollectiveTag bucket_tag(char const* what, FlatLayout const& layout,
                                std::size_t bucket) noexcept {
    return {what, bucket, layout.first_name(bucket)};
}

} // namespace ZERO_NAMESPACE::detail
