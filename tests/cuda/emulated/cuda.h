#pragma once

// The functions of the driver that map memory, on the host: pages without a mapping, or without
// access, cannot be accessed, and fresh ones hold garbage. Found through the runtime only.

#include "cuda_runtime_api.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <string_view>

#include <sys/mman.h>

enum CUresult {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_SUPPORTED = 801
};
enum CUmemAllocationType { CU_MEM_ALLOCATION_TYPE_PINNED = 1 };
enum CUmemLocationType { CU_MEM_LOCATION_TYPE_DEVICE = 1 };
enum CUmemAllocationGranularity_flags { CU_MEM_ALLOC_GRANULARITY_MINIMUM = 0 };
enum CUmemAccess_flags { CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3 };
using CUdeviceptr = unsigned long long;
using CUmemGenericAllocationHandle = unsigned long long;
struct CUmemLocation {
    CUmemLocationType type;
    int id;
};
struct CUmemAllocationProp {
    CUmemAllocationType type;
    CUmemLocation location;
};
struct CUmemAccessDesc {
    CUmemLocation location;
    CUmemAccess_flags flags;
};

namespace zero::test::emulated {

/// Addresses that were reserved, and the memory that is mapped there.
class MappedMemory {
public:
    static constexpr std::size_t page = 4096;

    struct Range {
        std::size_t bytes;
        CUmemGenericAllocationHandle mapped = 0; ///< 0: none
    };
    struct Piece {
        std::size_t bytes;
        int device;
        bool is_held; ///< its handle was not released
        bool is_mapped;
    };

    static MappedMemory& instance() {
        static auto& one = *new MappedMemory;
        return one;
    }

    std::mutex mutex{};
    std::map<CUdeviceptr, Range> ranges{};
    std::map<CUmemGenericAllocationHandle, Piece> pieces{};
    CUmemGenericAllocationHandle last = 0;
    std::atomic<std::size_t> room{~std::size_t{0}}; ///< bytes that may exist

    [[nodiscard]] std::size_t bytes() const {
        std::size_t sum = 0;
        for (auto const& piece : pieces) {
            sum += piece.second.bytes;
        }
        return sum;
    }

    /// Ends memory that nothing refers to.
    void drop(CUmemGenericAllocationHandle handle) {
        auto const found = pieces.find(handle);
        if (!found->second.is_held && !found->second.is_mapped) {
            pieces.erase(found);
        }
    }
};

inline int device_of_mapped(void const* memory) {
    auto& all = MappedMemory::instance();
    std::lock_guard const lock(all.mutex);
    auto const address = static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(memory));
    auto range = all.ranges.upper_bound(address);
    if (range == all.ranges.begin()) {
        return -1;
    }
    --range;
    bool const is_inside = address - range->first < range->second.bytes;
    return is_inside && range->second.mapped != 0 ? all.pieces.at(range->second.mapped).device : -1;
}

inline void* pointer_of(CUdeviceptr address) {
    return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
}

inline CUresult driver_failure_of(std::string_view call) {
    return static_cast<CUresult>(failure_of(call));
}

} // namespace zero::test::emulated

inline CUresult cuMemGetAllocationGranularity(std::size_t* bytes, CUmemAllocationProp const*,
                                              CUmemAllocationGranularity_flags) {
    *bytes = zero::test::emulated::MappedMemory::page;
    return zero::test::emulated::driver_failure_of("cuMemGetAllocationGranularity");
}
inline CUresult cuMemAddressReserve(CUdeviceptr* address, std::size_t bytes, std::size_t,
                                    CUdeviceptr, unsigned long long) {
    auto& all = zero::test::emulated::MappedMemory::instance();
    std::lock_guard const lock(all.mutex);
    void* const begin = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bytes % all.page != 0 || begin == MAP_FAILED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *address = reinterpret_cast<std::uintptr_t>(begin);
    all.ranges[*address] = {bytes};
    return CUDA_SUCCESS;
}
inline CUresult cuMemAddressFree(CUdeviceptr address, std::size_t bytes) {
    auto& all = zero::test::emulated::MappedMemory::instance();
    std::lock_guard const lock(all.mutex);
    auto const found = all.ranges.find(address);
    if (found == all.ranges.end() || found->second.bytes != bytes || found->second.mapped != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    ::munmap(zero::test::emulated::pointer_of(address), bytes);
    all.ranges.erase(found);
    return CUDA_SUCCESS;
}
inline CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t bytes,
                            CUmemAllocationProp const* properties, unsigned long long) {
    if (auto const code = zero::test::emulated::driver_failure_of("cuMemCreate");
        code != CUDA_SUCCESS) {
        return code;
    }
    auto& all = zero::test::emulated::MappedMemory::instance();
    std::lock_guard const lock(all.mutex);
    if (all.bytes() + bytes > all.room) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *handle = ++all.last;
    all.pieces[*handle] = {bytes, properties->location.id, true, false};
    return CUDA_SUCCESS;
}
inline CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    auto& all = zero::test::emulated::MappedMemory::instance();
    std::lock_guard const lock(all.mutex);
    auto const found = all.pieces.find(handle);
    if (found == all.pieces.end() || !found->second.is_held) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    found->second.is_held = false;
    all.drop(handle);
    return CUDA_SUCCESS;
}
inline CUresult cuMemMap(CUdeviceptr address, std::size_t bytes, std::size_t,
                         CUmemGenericAllocationHandle handle, unsigned long long) {
    if (auto const code = zero::test::emulated::driver_failure_of("cuMemMap");
        code != CUDA_SUCCESS) {
        return code;
    }
    auto& all = zero::test::emulated::MappedMemory::instance();
    std::lock_guard const lock(all.mutex);
    auto const range = all.ranges.find(address);
    auto const piece = all.pieces.find(handle);
    if (range == all.ranges.end() || piece == all.pieces.end() || range->second.mapped != 0
        || range->second.bytes != bytes || piece->second.bytes != bytes) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    range->second.mapped = handle;
    piece->second.is_mapped = true;
    return CUDA_SUCCESS;
}
inline CUresult cuMemSetAccess(CUdeviceptr address, std::size_t bytes,
                               CUmemAccessDesc const* access, std::size_t) {
    using namespace zero::test::emulated;
    if (auto const code = driver_failure_of("cuMemSetAccess"); code != CUDA_SUCCESS) {
        return code;
    }
    auto& all = MappedMemory::instance();
    std::lock_guard const lock(all.mutex);
    auto const range = all.ranges.find(address);
    if (range == all.ranges.end() || range->second.bytes != bytes || range->second.mapped == 0
        || all.pieces[range->second.mapped].device != access->location.id) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    ::mprotect(pointer_of(address), bytes, PROT_READ | PROT_WRITE);
    std::memset(pointer_of(address), 0xff, bytes);
    return CUDA_SUCCESS;
}
inline CUresult cuMemUnmap(CUdeviceptr address, std::size_t bytes) {
    using namespace zero::test::emulated;
    if (auto const code = driver_failure_of("cuMemUnmap"); code != CUDA_SUCCESS) {
        return code;
    }
    auto& all = MappedMemory::instance();
    std::lock_guard const lock(all.mutex);
    auto const range = all.ranges.find(address);
    if (range == all.ranges.end() || range->second.bytes != bytes || range->second.mapped == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    ::mprotect(pointer_of(address), bytes, PROT_NONE);
    ::madvise(pointer_of(address), bytes, MADV_DONTNEED);
    all.pieces[range->second.mapped].is_mapped = false;
    all.drop(std::exchange(range->second.mapped, 0));
    return CUDA_SUCCESS;
}

inline bool const zero_finds_driver_functions = [] {
    zero::test::emulated::driver_functions = {
        {"cuMemGetAllocationGranularity", reinterpret_cast<void*>(&cuMemGetAllocationGranularity)},
        {"cuMemAddressReserve", reinterpret_cast<void*>(&cuMemAddressReserve)},
        {"cuMemAddressFree", reinterpret_cast<void*>(&cuMemAddressFree)},
        {"cuMemCreate", reinterpret_cast<void*>(&cuMemCreate)},
        {"cuMemRelease", reinterpret_cast<void*>(&cuMemRelease)},
        {"cuMemMap", reinterpret_cast<void*>(&cuMemMap)},
        {"cuMemSetAccess", reinterpret_cast<void*>(&cuMemSetAccess)},
        {"cuMemUnmap", reinterpret_cast<void*>(&cuMemUnmap)}};
    zero::test::emulated::mapped_device_of = &zero::test::emulated::device_of_mapped;
    return true;
}();

inline cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
    auto& all = zero::test::emulated::MappedMemory::instance();
    std::lock_guard const lock(all.mutex);
    *total = std::size_t{1} << 40U;
    *free = *total - all.bytes();
    return cudaSuccess;
}
