#pragma once

#include "../../core/buffer.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/memory_resource.hpp"
#include "../../layout/detail/count_blocks.hpp"
#include "../../layout/flat_layout.hpp"
#include "../../layout/placement.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE::detail {

/// @brief Memory for some numbers per block of 64 elements. Blocks begin with each slice of a
/// parameter, so in adopted blocks of the caller, where slices start anywhere, two slices never
/// share one.
template <class T>
class PerBlockBuffer {
public:
    PerBlockBuffer() = default;

    PerBlockBuffer(FlatLayout const& layout, std::size_t type, std::size_t rank,
                   Placement placement, std::size_t numbers, MemoryResource& memory,
                   BufferKind kind)
        : _numbers(numbers) {
        std::size_t blocks = 0;
        for (std::size_t bucket = 0; bucket < layout.trainable_buckets(); ++bucket) {
            blocks += layout.bucket(bucket).type == type
                          ? count_blocks(layout, bucket, rank, placement)
                          : 0;
        }
        _buffer = Buffer<T>(memory, blocks * _numbers, kind);
    }

    /// @brief The numbers of the next slice.
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
