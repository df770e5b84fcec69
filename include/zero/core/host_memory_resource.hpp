#pragma once

#include "detail/namespace.hpp"
#include "memory_resource.hpp"

#include <array>
#include <atomic>
#include <cstddef>

namespace ZERO_NAMESPACE {

/// @brief Allocates from the heap and counts the bytes in use per kind. On Linux it asks for large
/// pages where they fit into a block, and can give back the whole pages of a block.
class HostMemoryResource final : public MemoryResource {
public:
    static constexpr std::size_t alignment = 128; ///< alignment of every allocation, in bytes

    /// @brief Allocates from the heap. @throws std::bad_alloc
    [[nodiscard]] void* allocate(std::size_t bytes, BufferKind kind) override;

    /// @brief Returns memory to the heap.
    void deallocate(void* memory, std::size_t bytes, BufferKind kind) noexcept override;

    /// @brief Bytes of this kind that are in use.
    [[nodiscard]] std::size_t allocated_bytes(BufferKind kind) const noexcept {
        return _allocated[static_cast<std::size_t>(kind)];
    }

    /// @brief Bytes of all kinds that are in use.
    [[nodiscard]] std::size_t allocated_bytes() const noexcept;

    /// @brief Returns whether the system is Linux.
    [[nodiscard]] bool can_give_back_pages() const noexcept override;

    /// @brief Gives back all whole pages of the block. Access to them ends the program.
    [[nodiscard]] bool give_back_pages(void* memory, std::size_t bytes,
                                       BufferKind kind) noexcept override;

    /// @brief Makes the pages of the block usable again. Their values are zero.
    void take_pages_again(void* memory, std::size_t bytes, BufferKind kind) override;

    /// @brief Bytes of this kind that are in use and have memory: `allocated_bytes` without those
    /// that were given back.
    [[nodiscard]] std::size_t resident_bytes(BufferKind kind) const noexcept {
        return allocated_bytes(kind) - _given_back[static_cast<std::size_t>(kind)];
    }

private:
    std::array<std::atomic<std::size_t>, buffer_kinds> _allocated{};
    std::array<std::atomic<std::size_t>, buffer_kinds> _given_back{};
};

} // namespace ZERO_NAMESPACE

#if !defined(ZERO_COMPILED)
#include "detail/host_memory_resource.ipp"
#endif
