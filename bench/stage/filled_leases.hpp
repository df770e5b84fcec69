#pragma once

#include <zero/core/host_memory_resource.hpp>
#include <zero/core/memory_resource.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace bench {

/// The heap, with gradients of 0.5 in every lease, whichever bucket gets it in which step: nothing
/// else has to write them, and none is what the memory held before. That may be subnormal once it
/// is scaled or squared, and a processor takes ten times as long over it. Leases of parameters are
/// touched.
class FilledLeases final : public zero::MemoryResource {
public:
    [[nodiscard]] void* allocate(std::size_t bytes, zero::BufferKind kind) override {
        void* const memory = _heap.allocate(bytes, kind);
        if (kind == zero::BufferKind::gradient_leases) {
            std::fill_n(static_cast<float*>(memory), bytes / sizeof(float), 0.5F);
        } else if (kind == zero::BufferKind::parameter_leases) {
            std::memset(memory, 0, bytes);
        }
        return memory;
    }
    void deallocate(void* memory, std::size_t bytes, zero::BufferKind kind) noexcept override {
        _heap.deallocate(memory, bytes, kind);
    }

    [[nodiscard]] std::size_t allocated_bytes() const noexcept { return _heap.allocated_bytes(); }

private:
    zero::HostMemoryResource _heap;
};

} // namespace bench
