#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/memory_resource.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE {

/// @brief The options of a `Hierarchical` communicator. `scratch_bytes` must be equal on all ranks.
struct HierarchicalOptions {
    /// @brief The size of the buffer between the two levels of a reduction, at least 128 bytes. If
    /// the part of an inner rank in a bucket is larger, the bucket is reduced in several
    /// collectives of this size, which is slower. Not allocated if one level has a single rank.
    std::size_t scratch_bytes = std::size_t{8} << 20U;

    /// @brief The resource of that buffer, which must outlive the communicator; null:
    /// `Backend::default_memory()`.
    MemoryResource* memory = nullptr;
};

} // namespace ZERO_NAMESPACE
