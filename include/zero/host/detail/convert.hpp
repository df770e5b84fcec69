#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/storage_types.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE::host::detail {

/// @brief `host::convert` as one of several conversions of an operation. Used by `HostBackend` for
/// copies between tensors and buckets.
/// @param moved_bytes bytes that all conversions of the operation read and write; decides whether
/// the results bypass the caches
template <StorageType To, StorageType From>
void convert(To* out, From const* in, std::size_t n, float factor,
             std::size_t moved_bytes) noexcept;

} // namespace ZERO_NAMESPACE::host::detail
