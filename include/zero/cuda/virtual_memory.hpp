#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/detail/text.hpp"
#include "../core/memory_resource.hpp"
#include "../core/source_location.hpp"
#include "allocator_memory.hpp"
#include "cuda_error.hpp"
#include "detail/runtime/check.hpp"
#include "detail/runtime/clean_up.hpp"
#include "detail/runtime/event_pool.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cuda.h>
#include <cuda_runtime_api.h>

namespace ZERO_NAMESPACE::cuda::detail {

/// @brief The functions of the driver that map memory, found through the runtime, so that programs
/// need not link the driver.
struct DriverMemory {
    decltype(&cuMemGetAllocationGranularity) granularity = find("cuMemGetAllocationGranularity");
    decltype(&cuMemAddressReserve) reserve = find("cuMemAddressReserve");
    decltype(&cuMemAddressFree) free = find("cuMemAddressFree");
    decltype(&cuMemCreate) create = find("cuMemCreate");
    decltype(&cuMemRelease) release = find("cuMemRelease");
    decltype(&cuMemMap) map = find("cuMemMap");
    decltype(&cuMemSetAccess) set_access = find("cuMemSetAccess");
    decltype(&cuMemUnmap) unmap = find("cuMemUnmap");

    /// @brief Returns them. @throws CudaError if the driver lacks one
    static DriverMemory const& instance() {
        static DriverMemory const one;
        return one;
    }

private:
    /// Converts to the type of the member that it initialises.
    struct Found {
        void* function;

        template <class Function>
        operator Function*() const noexcept { // NOLINT(google-explicit-constructor)
            return reinterpret_cast<Function*>(function);
        }
    };

    DriverMemory() = default;

    static Found find(char const* name) {
        cudaError_t error = cudaSuccess;
        void* const found = driver_function(name, 10020, error);
        check(found == nullptr && error == cudaSuccess ? cudaErrorNotSupported : error, name);
        return {found};
    }
};

/// @brief Returns the runtime's code, which has the number of the driver's.
[[nodiscard]] inline cudaError_t code_of(CUresult result) noexcept {
    return static_cast<cudaError_t>(result);
}

} // namespace ZERO_NAMESPACE::cuda::detail

namespace ZERO_NAMESPACE::cuda {

/// @brief An engine's memory resource on a device whose pages `offload_states` gives back. The
/// addresses stay, so captured graphs stay valid.
///
/// Each block of at least one page is a whole number of pages of its own (mostly 2 MiB); smaller
/// ones come from another resource and are never given back. Only the device of the resource can
/// access the pages. NCCL maps buffers of captured collectives for the peers, unless
/// NCCL_GRAPH_REGISTER is 0, and would keep the pages that are given back. Thread-safe.
class VirtualMemory final : public MemoryResource {
public:
    /// @brief Maps memory of the current device.
    /// @param other for blocks smaller than a page; must outlive this object
    /// @throws CudaError if the device or its driver cannot map memory
    explicit VirtualMemory(MemoryResource& other = default_memory())
        : _driver(&detail::DriverMemory::instance()), _other(&other),
          _device(detail::current_device()) {
        detail::SideStream const stream; // the device needs a context
        CUmemAllocationProp const pages = properties();
        check(_driver->granularity(&_page, &pages, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
              "cuMemGetAllocationGranularity");
    }

    /// @brief Bytes of a page.
    [[nodiscard]] std::size_t page_bytes() const noexcept { return _page; }

    /// @brief Bytes of this kind that have memory, in whole pages; without blocks of the other
    /// resource.
    [[nodiscard]] std::size_t resident_bytes(BufferKind kind) const noexcept {
        return _resident[static_cast<std::size_t>(kind)];
    }

    /// @brief Reserves addresses and maps pages, or passes small blocks on. Any device may be
    /// current. @throws CudaError; any exception of the other resource
    [[nodiscard]] void* allocate(std::size_t bytes, BufferKind kind) override {
        if (bytes < _page) {
            return _other->allocate(bytes, kind);
        }
        CUdeviceptr address = 0;
        check(_driver->reserve(&address, rounded(bytes), 0, 0, 0), "cuMemAddressReserve");
        auto* const memory = reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
        try {
            map(memory, bytes, kind);
        } catch (...) {
            clean_up(_driver->free(address, rounded(bytes)), "cuMemAddressFree");
            throw;
        }
        return memory;
    }

    /// @brief Frees memory that no stream uses any more. `take_clean_up_error` reports errors.
    void deallocate(void* memory, std::size_t bytes, BufferKind kind) noexcept override {
        if (bytes < _page) {
            _other->deallocate(memory, bytes, kind);
            return;
        }
        (void)unmap(memory, bytes, kind);
        clean_up(_driver->free(address_of(memory), rounded(bytes)), "cuMemAddressFree");
    }

    /// @brief Returns true.
    [[nodiscard]] bool can_give_back_pages() const noexcept override { return true; }

    /// @brief Gives back all pages of the block. Access to them is an error of the device.
    [[nodiscard]] bool give_back_pages(void* memory, std::size_t bytes,
                                       BufferKind kind) noexcept override {
        return bytes < _page || unmap(memory, bytes, kind);
    }

    /// @brief Maps pages under the addresses of the block. @throws CudaError if the device has none
    void take_pages_again(void* memory, std::size_t bytes, BufferKind kind) override {
        if (bytes >= _page) {
            map(memory, bytes, kind);
        }
    }

private:
    static void check(CUresult result, char const* call) {
        detail::check(detail::code_of(result), call);
    }
    static void clean_up(CUresult result, char const* call) noexcept {
        detail::CleanUp().check(detail::code_of(result), call);
    }
    static CUdeviceptr address_of(void* memory) noexcept {
        return static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(memory));
    }

    [[nodiscard]] CUmemAllocationProp properties() const noexcept {
        CUmemAllocationProp pages{};
        pages.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        pages.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        pages.location.id = _device;
        return pages;
    }

    [[nodiscard]] std::size_t rounded(std::size_t bytes) const noexcept {
        return (bytes + _page - 1) / _page * _page;
    }

    void map(void* memory, std::size_t bytes, BufferKind kind) {
        CUdeviceptr const address = address_of(memory);
        std::size_t const size = rounded(bytes);
        CUmemAllocationProp const pages = properties();
        CUmemGenericAllocationHandle handle{};
        CUresult const created = _driver->create(&handle, size, &pages, 0);
        if (created == CUDA_ERROR_OUT_OF_MEMORY) {
            throw CudaError(zero::detail::text({"zero: CUDA device ", _device, " has no ", size,
                                                " free bytes for ", name_of(kind),
                                                " (cuMemCreate); free other memory of the device, "
                                                "choose a later stage or smaller buckets."}),
                            SourceLocation::current(), CUDA_ERROR_OUT_OF_MEMORY);
        }
        check(created, "cuMemCreate");
        CUresult const mapped = _driver->map(address, size, 0, handle, 0);
        clean_up(_driver->release(handle), "cuMemRelease"); // the mapping keeps the memory
        check(mapped, "cuMemMap");
        CUmemAccessDesc access{};
        access.location = pages.location;
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        CUresult const accessible = _driver->set_access(address, size, &access, 1);
        if (accessible != CUDA_SUCCESS) {
            clean_up(_driver->unmap(address, size), "cuMemUnmap");
            check(accessible, "cuMemSetAccess");
        }
        _resident[static_cast<std::size_t>(kind)] += size;
    }

    [[nodiscard]] bool unmap(void* memory, std::size_t bytes, BufferKind kind) noexcept {
        CUresult const result = _driver->unmap(address_of(memory), rounded(bytes));
        if (result != CUDA_SUCCESS) {
            clean_up(result, "cuMemUnmap");
            return false;
        }
        _resident[static_cast<std::size_t>(kind)] -= rounded(bytes);
        return true;
    }

    detail::DriverMemory const* _driver;
    MemoryResource* _other;
    int _device;
    std::size_t _page = 0;
    std::array<std::atomic<std::size_t>, buffer_kinds> _resident{};
};

} // namespace ZERO_NAMESPACE::cuda
