#pragma once

#include <zero/core/host_memory_resource.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace zero::test {

/// @brief Memory of the host that is full of a pattern, and knows where the buffer of one kind is.
class FilledMemory final : public MemoryResource {
public:
    explicit FilledMemory(BufferKind kind) noexcept : _kind(kind) {}

    void* allocate(std::size_t bytes, BufferKind kind) override {
        void* const memory = _memory.allocate(bytes, kind);
        std::memset(memory, 0xa5, bytes);
        if (kind == _kind) {
            codes = {static_cast<std::uint8_t const*>(memory), bytes};
        }
        return memory;
    }
    void deallocate(void* memory, std::size_t bytes, BufferKind kind) noexcept override {
        _memory.deallocate(memory, bytes, kind);
    }

    std::span<std::uint8_t const> codes{}; ///< the last buffer of that kind

private:
    BufferKind _kind;
    HostMemoryResource _memory;
};

} // namespace zero::test
