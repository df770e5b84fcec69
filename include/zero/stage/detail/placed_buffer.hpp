#pragma once

#include "../../core/buffer.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/memory_resource.hpp"
#include "../../layout/flat_layout.hpp"
#include "../../layout/placement.hpp"
#include "../../layout/shard_map.hpp"

#include <cstddef>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Memory for one number per element of those of the first `buckets` buckets that hold
/// parameters of a type: of all elements (replicated) or of this rank's extents.
///
/// Parameters, accumulation buffer, master weights and moments are all of this kind; stages differ
/// only in which collective runs.
template <class T>
class PlacedBuffer {
public:
    PlacedBuffer() = default;

    PlacedBuffer(FlatLayout const& layout, std::size_t buckets, std::size_t type, std::size_t rank,
                 Placement placement, MemoryResource& memory, BufferKind kind) {
        bool const is_sharded = placement == Placement::sharded;
        std::vector<std::size_t> const begins =
            is_sharded ? shard_begins(layout, rank, type) : replica_begins(layout, type);
        for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
            _first.push_back(is_sharded ? layout.extent(bucket, rank).begin : 0);
            _storage_begin.push_back(begins[bucket]);
        }
        _buffer = Buffer<T>(memory, begins[buckets], kind);
    }

    /// @brief Element `index` of a bucket, which must be held.
    [[nodiscard]] T* at(std::size_t bucket, std::size_t index) const noexcept {
        return _buffer.data() + _storage_begin[bucket] + (index - _first[bucket]);
    }

    [[nodiscard]] T* data() const noexcept { return _buffer.data(); }
    [[nodiscard]] std::size_t size() const noexcept { return _buffer.size(); }

private:
    Buffer<T> _buffer;
    std::vector<std::size_t> _first;
    std::vector<std::size_t> _storage_begin;
};

} // namespace ZERO_NAMESPACE::detail
