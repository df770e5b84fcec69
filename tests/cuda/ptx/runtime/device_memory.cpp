#include "cuda/ptx/findings.hpp"
#include "cuda/ptx/memory.hpp"
#include "cuda/ptx/runtime/runtime.hpp"

#include <cstdlib>
#include <cstring>
#include <cuda.h>
#include <map>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

// Memory and copies. Memory of the device comes from one range of addresses, which the host cannot
// read and which is mapped a second time. Fresh and freed memory holds garbage.

using namespace zero::test::ptx;

namespace {

constexpr u64 arena_bytes = u64{1} << 36U;
constexpr u64 gap_bytes = 512; ///< between allocations, so that a neighbour is no valid address
constexpr u64 alignment = 256;
constexpr u64 page_bytes = 4096; ///< of mapped memory
constexpr int fresh = 0xcb;
constexpr int freed = 0xdd;

u64 rounded(u64 bytes) {
    return (bytes + alignment - 1) / alignment * alignment;
}

class Arena {
public:
    static Arena& instance() {
        static auto& arena = *new Arena;
        return arena;
    }

    void* allocate(u64 bytes) {
        u64 const needed = rounded(bytes) + gap_bytes;
        auto const reused = _free.find(needed);
        u64 at = _used;
        if (reused != _free.end() && Runtime::instance().random() % 2 == 0) {
            at = reused->second;
            _free.erase(reused);
        } else if (needed > arena_bytes - _used) {
            return nullptr;
        } else {
            _used += needed;
        }
        std::memset(_mapped + at, fresh, bytes);
        Memory::instance().add(_begin + at, bytes, MemoryKind::device, false);
        return _begin + at;
    }
    void deallocate(void* memory, u64 bytes) {
        std::memset(Memory::instance().access(memory), freed, bytes);
        _free.emplace(rounded(bytes) + gap_bytes, static_cast<u8*>(memory) - _begin);
    }
    /// Returns addresses without memory, which are not used again.
    void* reserve(u64 bytes) {
        _used = (_used + page_bytes - 1) / page_bytes * page_bytes;
        void* const begin = _begin + _used;
        _used += bytes + page_bytes;
        _unmapped += bytes + page_bytes;
        return begin;
    }
    /// Gives reserved addresses their memory.
    void map(void* begin, u64 bytes) {
        _unmapped -= bytes;
        std::memset(Memory::instance().access(begin), fresh, bytes);
        Memory::instance().add(begin, bytes, MemoryKind::device, false);
    }
    void unmap(void* begin, u64 bytes) {
        _unmapped += bytes;
        madvise(Memory::instance().access(begin), bytes, MADV_REMOVE);
        Memory::instance().remove(begin);
    }
    [[nodiscard]] u64 left() const { return arena_bytes - _used + _unmapped; }

private:
    Arena() {
        int const file = memfd_create("device", 0);
        if (file < 0 || ftruncate(file, static_cast<off_t>(arena_bytes)) != 0) {
            std::abort();
        }
        auto const map = [&](int protection) {
            void* const at =
                mmap(nullptr, arena_bytes, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
            return at != MAP_FAILED ? static_cast<u8*>(at) : nullptr;
        };
        _begin = map(PROT_NONE);
        _mapped = map(PROT_READ | PROT_WRITE);
        if (_begin == nullptr || _mapped == nullptr) {
            std::abort();
        }
        Memory::instance().map_device(_begin, arena_bytes, _mapped);
    }

    u8* _begin = nullptr;
    u8* _mapped = nullptr;
    u64 _used = 0;
    u64 _unmapped = 0;             ///< of these, reserved addresses without memory
    std::multimap<u64, u64> _free; ///< by size
};

void* allocate_on_host(std::size_t bytes, MemoryKind kind) {
    void* const memory = std::aligned_alloc(alignment, rounded(bytes));
    std::memset(memory, fresh, bytes);
    Memory::instance().add(memory, bytes, kind, true);
    return memory;
}

void check_range(void const* at, std::size_t bytes, char const* call) {
    Memory& memory = Memory::instance();
    Allocation const* const of = memory.find(at);
    auto const address = reinterpret_cast<u64>(at);
    if (of == nullptr) {
        if (memory.is_device_address(address)) {
            report("address of device memory outside every allocation", call,
                   std::to_string(bytes) + " bytes");
        }
    } else if (address + bytes > of->begin + of->bytes) {
        report("range past the end of an allocation", call,
               std::to_string(address - of->begin) + " + " + std::to_string(bytes) + " of "
                   + std::to_string(of->bytes));
    }
}

void copy(void* to, void const* from, std::size_t bytes) {
    check_range(to, bytes, "copy (destination)");
    check_range(from, bytes, "copy (source)");
    Memory& memory = Memory::instance();
    std::memmove(memory.access(to), memory.access(from), bytes);
    memory.copy_marks(to, from, bytes);
}

void check_kind(cudaMemcpyKind kind, Allocation const* to, Allocation const* from) {
    auto const is_on_device = [](Allocation const* of) {
        return of != nullptr && of->kind != MemoryKind::host;
    };
    bool const is_wrong =
        (kind == cudaMemcpyHostToDevice && !is_on_device(to))
        || (kind == cudaMemcpyDeviceToHost && !is_on_device(from))
        || (kind == cudaMemcpyDeviceToDevice && !(is_on_device(to) && is_on_device(from)));
    if (is_wrong) {
        report("copy whose kind does not match its addresses", "cudaMemcpyAsync",
               "kind " + std::to_string(kind));
    }
}

/// The driver's memory: reserved addresses, and pieces that are mapped there.
class MappedMemory {
public:
    static CUresult granularity(std::size_t* bytes, CUmemAllocationProp const*,
                                CUmemAllocationGranularity_flags) {
        *bytes = page_bytes;
        return CUDA_SUCCESS;
    }
    static CUresult reserve(CUdeviceptr* address, std::size_t bytes, std::size_t, CUdeviceptr,
                            unsigned long long) {
        Lock const lock(Runtime::instance().mutex);
        *address = reinterpret_cast<u64>(Arena::instance().reserve(bytes));
        ranges()[*address] = {bytes, false, false};
        return bytes % page_bytes == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    static CUresult free(CUdeviceptr address, std::size_t bytes) {
        Lock const lock(Runtime::instance().mutex);
        Range const* const range = find(address, bytes);
        if (range == nullptr || range->is_mapped) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        ranges().erase(address);
        return CUDA_SUCCESS;
    }
    static CUresult create(CUmemGenericAllocationHandle* handle, std::size_t bytes,
                           CUmemAllocationProp const*, unsigned long long) {
        *handle = bytes; // a piece is told from others by its size alone
        return bytes <= Arena::instance().left() ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    static CUresult release(CUmemGenericAllocationHandle) { return CUDA_SUCCESS; }
    static CUresult map(CUdeviceptr address, std::size_t bytes, std::size_t,
                        CUmemGenericAllocationHandle handle, unsigned long long) {
        Lock const lock(Runtime::instance().mutex);
        Range* const range = find(address, bytes);
        if (range == nullptr || range->is_mapped || handle != bytes) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        range->is_mapped = true;
        return CUDA_SUCCESS;
    }
    static CUresult set_access(CUdeviceptr address, std::size_t bytes, CUmemAccessDesc const*,
                               std::size_t) {
        Lock const lock(Runtime::instance().mutex);
        Range* const range = find(address, bytes);
        if (range == nullptr || !range->is_mapped || range->is_accessible) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        range->is_accessible = true;
        Arena::instance().map(reinterpret_cast<void*>(address), bytes);
        return CUDA_SUCCESS;
    }
    static CUresult unmap(CUdeviceptr address, std::size_t bytes) {
        Lock const lock(Runtime::instance().mutex);
        Range* const range = find(address, bytes);
        if (range == nullptr || !range->is_mapped) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (std::exchange(range->is_accessible, false)) {
            Arena::instance().unmap(reinterpret_cast<void*>(address), bytes);
        }
        range->is_mapped = false;
        return CUDA_SUCCESS;
    }

private:
    struct Range {
        std::size_t bytes;
        bool is_mapped;
        bool is_accessible;
    };
    static std::map<CUdeviceptr, Range>& ranges() {
        static auto& all = *new std::map<CUdeviceptr, Range>;
        return all;
    }
    static Range* find(CUdeviceptr address, std::size_t bytes) {
        auto const found = ranges().find(address);
        return found != ranges().end() && found->second.bytes == bytes ? &found->second : nullptr;
    }
};

template <class Function>
void* pointer_to(Function* function) {
    return reinterpret_cast<void*>(function);
}

} // namespace

void zero::test::ptx::free_device_memory(void* memory) {
    Allocation const* const of = Memory::instance().find(memory);
    if (of == nullptr || of->begin != reinterpret_cast<u64>(memory)) {
        report("free of an address that is no allocation", "runtime", "");
        return;
    }
    Allocation const allocation{of->begin, of->bytes, of->kind, {}};
    if (allocation.kind == MemoryKind::device) {
        Arena::instance().deallocate(memory, allocation.bytes);
    } else {
        std::free(memory);
    }
    Memory::instance().remove(memory);
}

extern "C" {

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
    Lock const lock(Runtime::instance().mutex);
    if (cudaError_t const code = error_of_wait(); code != cudaSuccess) {
        return code;
    }
    return cudaMallocAsync(memory, bytes, nullptr);
}
cudaError_t cudaMallocAsync(void** memory, std::size_t bytes, cudaStream_t) {
    Lock const lock(Runtime::instance().mutex);
    *memory = bytes != 0 ? Arena::instance().allocate(bytes) : nullptr;
    return *memory != nullptr || bytes == 0 ? cudaSuccess : result(cudaErrorMemoryAllocation);
}
cudaError_t cudaFree(void* memory) {
    Lock lock(Runtime::instance().mutex);
    if (memory == nullptr) {
        return cudaSuccess;
    }
    cudaError_t const code = error_of_wait();
    if (code == cudaSuccess) {
        wait_for_all(lock);
        free_device_memory(memory);
    }
    return code;
}
cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) {
    return memory == nullptr ? cudaSuccess : enqueue(stream, [=] { free_device_memory(memory); });
}
cudaError_t cudaMallocManaged(void** memory, std::size_t bytes, unsigned) {
    Lock const lock(Runtime::instance().mutex);
    *memory = allocate_on_host(bytes, MemoryKind::managed);
    return cudaSuccess;
}
cudaError_t cudaMallocHost(void** memory, std::size_t bytes) {
    Lock const lock(Runtime::instance().mutex);
    cudaError_t const code = error_of_wait();
    if (code == cudaSuccess) {
        *memory = allocate_on_host(bytes, MemoryKind::host);
    }
    return code;
}
cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned) {
    return cudaMallocHost(memory, bytes);
}
cudaError_t cudaFreeHost(void* memory) {
    return cudaFree(memory);
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
    Lock const lock(Runtime::instance().mutex);
    *total = arena_bytes;
    *free = Arena::instance().left();
    return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPointByVersion(char const* name, void** function, unsigned,
                                             unsigned long long, cudaDriverEntryPointQueryResult*) {
    static std::map<std::string, void*> const all{
        {"cuMemGetAllocationGranularity", pointer_to(&MappedMemory::granularity)},
        {"cuMemAddressReserve", pointer_to(&MappedMemory::reserve)},
        {"cuMemAddressFree", pointer_to(&MappedMemory::free)},
        {"cuMemCreate", pointer_to(&MappedMemory::create)},
        {"cuMemRelease", pointer_to(&MappedMemory::release)},
        {"cuMemMap", pointer_to(&MappedMemory::map)},
        {"cuMemSetAccess", pointer_to(&MappedMemory::set_access)},
        {"cuMemUnmap", pointer_to(&MappedMemory::unmap)}};
    auto const found = all.find(name);
    *function = found != all.end() ? found->second : nullptr;
    return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, void const* memory) {
    Lock const lock(Runtime::instance().mutex);
    *attributes = {};
    Allocation const* const of = Memory::instance().find(memory);
    if (of == nullptr) {
        attributes->type = cudaMemoryTypeUnregistered;
        return cudaSuccess;
    }
    attributes->type = of->kind == MemoryKind::host      ? cudaMemoryTypeHost
                       : of->kind == MemoryKind::managed ? cudaMemoryTypeManaged
                                                         : cudaMemoryTypeDevice;
    attributes->devicePointer = const_cast<void*>(memory);
    attributes->hostPointer = of->kind == MemoryKind::device ? nullptr : const_cast<void*>(memory);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, void const* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
    Lock lock(Runtime::instance().mutex);
    if (bytes == 0) {
        return cudaSuccess;
    }
    Allocation const* const target = Memory::instance().find(to);
    Allocation const* const source = Memory::instance().find(from);
    check_kind(kind, target, source);
    bool const is_captured = stream_of(stream)->capture != nullptr;
    if (source == nullptr && !is_captured) { // pageable memory is read before the call returns
        auto const* const begin = static_cast<u8 const*>(from);
        return enqueue(stream, [=, data = std::vector<u8>(begin, begin + bytes)] {
            copy(to, data.data(), bytes);
        });
    }
    cudaError_t const code = enqueue(stream, [=] { copy(to, from, bytes); });
    if (code == cudaSuccess && target == nullptr && !is_captured) { // and written as well
        wait_for(stream_of(stream), lock);
    }
    return code;
}
cudaError_t cudaMemcpy(void* to, void const* from, std::size_t bytes, cudaMemcpyKind kind) {
    Lock const lock(Runtime::instance().mutex);
    cudaError_t const code = error_of_wait();
    return code != cudaSuccess ? code : cudaMemcpyAsync(to, from, bytes, kind, nullptr);
}
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
    return enqueue(stream, [=] {
        check_range(memory, bytes, "memset");
        std::memset(Memory::instance().access(memory), value, bytes);
        Memory::instance().mark_written(memory, bytes);
    });
}
cudaError_t cudaMemset(void* memory, int value, std::size_t bytes) {
    return cudaMemsetAsync(memory, value, bytes, nullptr);
}

} // extern "C"
