#pragma once

#include "../../core/buffer.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/memory_resource.hpp"
#include "../../layout/detail/count_blocks.hpp"
#include "../../layout/flat_layout.hpp"
#include "../../layout/placement.hpp"
#include "count_placed_blocks.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE::detail {

/// @brief Owns memory for a few numbers per block of 64 elements. Blocks begin with each slice of a
/// parameter, so two slices never share one, even in adopted blocks, where slices start at any
/// offset.
template <class T>
class PerBlockBuffer {
public:
    PerBlockBuffer() = default;

    /// @param numbers count of numbers per block
    [[gnu::cold]] PerBlockBuffer(FlatLayout const& layout, std::size_t type, std::size_t rank,
                                 Placement placement, std::size_t numbers, MemoryResource& memory,
                                 BufferKind kind)
        : _buffer(memory, count_placed_blocks(layout, type, rank, placement) * numbers, kind),
          _numbers(numbers) {}

    /// @brief Returns the numbers of the next slice, which has this many elements.
    [[nodiscard]] T* take(std::size_t elements) noexcept {
        T* const begin = _buffer.data() + _taken;
        _taken += blocks_of(elements) * _numbers;
        return begin;
    }

    [[nodiscard]] T* data() const noexcept { return _buffer.data(); }
    [[nodiscard]] std::size_t size() const noexcept { return _buffer.size(); }

private:
    Buffer<T> _buffer;
    std::size_t _numbers = 0;
    std::size_t _taken = 0;
};

} // namespace ZERO_NAMESPACE::detail
