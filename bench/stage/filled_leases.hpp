#pragma once

#include <zero/core/convert.hpp>
#include <zero/core/host_memory_resource.hpp>
#include <zero/core/memory_resource.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace bench {

/// Allocates on the heap and fills gradient leases, of type `G`, with 0.5, so that nothing else
/// needs to write gradients. Uninitialised values could become subnormal when scaled or squared,
/// and a processor takes ten times as long for those. Parameter leases are cleared, which touches
/// their pages.
template <class G>
class FilledLeases final : public zero::MemoryResource {
public:
    [[nodiscard]] void* allocate(std::size_t bytes, zero::BufferKind kind) override {
        void* const memory = _heap.allocate(bytes, kind);
        if (kind == zero::BufferKind::gradient_leases) {
            std::fill_n(static_cast<G*>(memory), bytes / sizeof(G), zero::from_float<G>(0.5F));
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
