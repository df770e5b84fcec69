#pragma once

#include "../../core/buffer.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/memory_resource.hpp"
#include "../../layout/flat_layout.hpp"
#include "../../layout/placement.hpp"
#include "placed_offsets.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE::detail {

/// @brief Owns memory for one T per element of the first `buckets` buckets of a parameter type: of
/// all elements if replicated, of this rank's extents if sharded.
///
/// Parameters, accumulation buffer, master weights and moments are stored in it; stages differ only
/// in which collective runs.
template <class T>
class PlacedBuffer {
public:
    PlacedBuffer() = default;

    [[gnu::cold]] PlacedBuffer(FlatLayout const& layout, std::size_t buckets, std::size_t type,
                               std::size_t rank, Placement placement, MemoryResource& memory,
                               BufferKind kind)
        : _offsets(layout, buckets, type, rank, placement),
          _buffer(memory, _offsets.elements(), kind) {}

    /// @brief The address of element `index` of a bucket, which this rank must hold.
    [[nodiscard]] T* at(std::size_t bucket, std::size_t index) const noexcept {
        return _buffer.data() + _offsets.at(bucket, index);
    }

    [[nodiscard]] T* data() const noexcept { return _buffer.data(); }
    [[nodiscard]] std::size_t size() const noexcept { return _buffer.size(); }

private:
    PlacedOffsets _offsets;
    Buffer<T> _buffer;
};

} // namespace ZERO_NAMESPACE::detail
