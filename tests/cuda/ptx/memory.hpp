#pragma once

#include "values.hpp"

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

// Global memory: the allocations that kernels may access, which of their bytes were written, and
// which threads of a launch touched them.

namespace zero::test::ptx {

enum class MemoryKind : u8 { device, managed, host, variable };

struct Allocation {
    u64 begin;
    u64 bytes;
    MemoryKind kind;
    std::vector<u8> written; ///< one for each byte
};

/// All allocations. Memory of the device lies at addresses that the host cannot read; its bytes are
/// mapped a second time elsewhere.
class Memory {
public:
    static Memory& instance() {
        static auto& memory = *new Memory; // used by threads that outlive main()
        return memory;
    }

    void add(void* at, u64 bytes, MemoryKind kind, bool is_written);
    void remove(void* at);

    /// Returns the allocation that contains an address, or null.
    Allocation* find(u64 address);
    Allocation* find(void const* address) { return find(reinterpret_cast<u64>(address)); }

    void mark_written(void const* at, u64 bytes);
    /// Copied bytes are as written as their source.
    void copy_marks(void const* to, void const* from, u64 bytes);

    /// Addresses of [begin, begin + bytes) are accessed at `mapped`.
    void map_device(void* begin, u64 bytes, void* mapped) {
        _device_begin = reinterpret_cast<u64>(begin);
        _device_bytes = bytes;
        _mapped = static_cast<u8*>(mapped);
    }
    [[nodiscard]] bool is_device_address(u64 address) const {
        return address - _device_begin < _device_bytes;
    }
    /// Returns where the host accesses an address.
    [[nodiscard]] u8* access(u64 address) const {
        return is_device_address(address) ? _mapped + (address - _device_begin)
                                          : reinterpret_cast<u8*>(address);
    }
    [[nodiscard]] u8* access(void const* address) const {
        return access(reinterpret_cast<u64>(address));
    }

private:
    std::map<u64, Allocation> _allocations;
    Allocation* _last = nullptr; ///< the one that was found last
    u64 _device_begin = 0;
    u64 _device_bytes = 0;
    u8* _mapped = nullptr;
};

/// A race on a byte of global memory: what it is, and with whom.
struct Race {
    char const* what;
    u32 other; ///< thread or reading warp of the launch, from 1; or `several`
};

/// Which threads touched each byte of global memory in this launch. Readers are counted by warp,
/// because the lanes of one exchange values through shuffles.
class GlobalTouches {
public:
    static constexpr u32 several = 0xfffffffeU;

    enum class Access : u8 { read, write, atomic };

    /// Notes an access. @param thread and `warp` count from 1 over all blocks
    std::optional<Race> touch(u64 address, Access access, u32 thread, u32 warp);
    void clear() {
        _pages.clear();
        _last = nullptr;
    }

private:
    static constexpr u32 atomics = 0xffffffffU; ///< as a writer
    static constexpr u64 page_bytes = 4096;
    struct Touch {
        u32 writer = 0;
        u32 reader = 0;
    };
    Touch& at(u64 address);

    std::unordered_map<u64, std::unique_ptr<Touch[]>> _pages;
    u64 _last_page = 0;
    Touch* _last = nullptr;
};
inline GlobalTouches global_touches;

} // namespace zero::test::ptx
