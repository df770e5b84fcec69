#pragma once

// What the emulated runtime of cuda_runtime_api.h consists of: its types, what it counts, the
// memory of its devices, and how a command reaches a stream.

#include "capture.hpp"

#include <zero/host/delaying_queue.hpp>
#include <zero/host/queue.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/mman.h>

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorCudartUnloading = 4,
    cudaErrorInvalidDevice = 101,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600,
    cudaErrorContextIsDestroyed = 709,
    cudaErrorNotSupported = 801,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorStreamCaptureInvalidated = 901,
    cudaErrorStreamCaptureMerge = 902,
    cudaErrorStreamCaptureUnmatched = 903,
    cudaErrorStreamCaptureUnjoined = 904,
    cudaErrorStreamCaptureIsolation = 905,
    cudaErrorStreamCaptureImplicit = 906,
    cudaErrorCapturedEvent = 907,
    cudaErrorStreamCaptureWrongThread = 908,
    cudaErrorUnknown = 999
};
enum cudaMemcpyKind {
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDefault = 4
};
enum cudaStreamCaptureStatus {
    cudaStreamCaptureStatusNone = 0,
    cudaStreamCaptureStatusActive = 1,
    cudaStreamCaptureStatusInvalidated = 2
};
enum cudaDeviceAttr {
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrPageableMemoryAccess = 88,
    cudaDevAttrConcurrentManagedAccess = 89,
    cudaDevAttrMemoryPoolsSupported = 115
};
enum cudaMemoryType {
    cudaMemoryTypeUnregistered = 0,
    cudaMemoryTypeHost = 1,
    cudaMemoryTypeDevice = 2
};
struct cudaPointerAttributes {
    cudaMemoryType type;
    int device;
    void* devicePointer;
};
#define CUDART_VERSION 13000
constexpr unsigned cudaEventDefault = 0;
constexpr unsigned cudaEventDisableTiming = 2;
constexpr unsigned cudaEventWaitDefault = 0;
constexpr unsigned cudaStreamNonBlocking = 1;

struct CUstream_st {
    CUstream_st(std::uint64_t seed, int of)
        : queue(seed, 100, capacity, zero::host::WhenFull::wait), device(of) {}
    static constexpr std::size_t capacity = 1024; ///< as on a device, and quick to make
    zero::host::DelayingQueue queue;
    int device;
    int priority = 0; ///< smaller numbers go first
    std::mutex mutex; ///< any thread may enqueue on a stream, but only one at a time on a queue
    zero::test::emulated::CapturePoint captured{};
};
struct CUevent_st {
    int device;
    zero::host::Event event;
    zero::test::emulated::CapturePoint captured{};
    bool has_timing = false;
    std::atomic<std::int64_t> time{0}; ///< when the stream reached the event, in nanoseconds
};
struct CUgraph_st {
    std::vector<zero::test::emulated::GraphNode> nodes;
};
struct CUgraphExec_st {
    std::shared_ptr<CUgraph_st const> graph;
    std::uint64_t launches = 0;
};
using cudaStream_t = CUstream_st*;
using cudaEvent_t = CUevent_st*;
using cudaGraph_t = CUgraph_st*;
using cudaGraphExec_t = CUgraphExec_st*;

namespace zero::test::emulated {

inline std::mutex streams_mutex;
inline std::set<cudaStream_t>& streams() {
    static std::set<cudaStream_t> all;
    return all;
}

/// Counts calls of this thread that a step must not make and that no device reports.
inline thread_local std::size_t waits = 0;
inline thread_local std::size_t allocations = 0;
inline thread_local std::size_t events_made = 0;
inline thread_local std::size_t page_locked_bytes = 0; ///< page-locked bytes that this thread holds
inline thread_local std::size_t page_locked_peak = 0;

/// Counts this thread's commands on streams that wait for the legacy stream, or are it, and its
/// waits for them.
inline thread_local std::size_t waits_for_legacy = 0;

/// Counts the commands that this thread enqueued.
inline thread_local std::size_t kernels = 0;
inline thread_local std::size_t fills = 0;
inline thread_local std::size_t copies = 0;

inline thread_local cudaError_t last_error = cudaSuccess;
inline thread_local int device = 0; ///< the current device; all share one memory

/// Leaves an error as the last one of this thread, as each failed call does.
inline cudaError_t failed(cudaError_t code) {
    return last_error = code;
}

/// The next call of a function that this thread makes fails with this error, and does nothing else.
inline thread_local std::map<std::string_view, cudaError_t> failures;

inline cudaError_t failure_of(std::string_view call) {
    auto const found = failures.find(call);
    if (found == failures.end()) {
        return cudaSuccess;
    }
    cudaError_t const code = found->second;
    failures.erase(found);
    return failed(code);
}

/// Counts calls of this thread that release an object of a device other than the current one. CUDA
/// allows some of them and does not specify the others.
inline thread_local std::size_t released_elsewhere = 0;

inline void note_release(int of) {
    released_elsewhere += of != device ? 1 : 0;
}

/// Allocates memory that ends at a guarded page: accesses beyond the end crash, as do accesses to
/// freed memory.
class GuardedMemory {
public:
    static void* allocate(std::size_t bytes) {
        std::size_t const used = (bytes + alignment - 1) / alignment * alignment;
        std::size_t const mapped = (used + page - 1) / page * page + page;
        void* const base =
            ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (base == MAP_FAILED) {
            return nullptr;
        }
        auto* const end = static_cast<char*>(base) + mapped - page;
        ::mprotect(end, page, PROT_NONE);
        std::lock_guard const lock(mutex());
        mappings()[end - used] = {base, mapped};
        return end - used;
    }

    static void free(void* memory) {
        std::lock_guard const lock(mutex());
        auto const found = mappings().find(memory);
        if (found != mappings().end()) {
            ::munmap(found->second.first, found->second.second);
            mappings().erase(found);
        }
    }

    /// Returns the size of an allocation, in whole pages.
    static std::size_t bytes_of(void* memory) {
        std::lock_guard const lock(mutex());
        auto const found = mappings().find(memory);
        return found == mappings().end() ? 0 : found->second.second - page;
    }

    /// Returns the begin of the allocation that holds an address, or null.
    static void const* begin_of(void const* memory) {
        std::lock_guard const lock(mutex());
        auto const after = mappings().upper_bound(const_cast<void*>(memory));
        if (after == mappings().begin()) {
            return nullptr;
        }
        auto const& [begin, mapping] = *std::prev(after);
        return memory < static_cast<char*>(mapping.first) + mapping.second ? begin : nullptr;
    }

    static bool holds(void const* memory) { return begin_of(memory) != nullptr; }

private:
    static constexpr std::size_t alignment =
        16; ///< less than on a device, so that the guard is near; enough for a pack
    static constexpr std::size_t page = 4096;

    static std::mutex& mutex() {
        static std::mutex one;
        return one;
    }
    static std::map<void*, std::pair<void*, std::size_t>>& mappings() {
        static std::map<void*, std::pair<void*, std::size_t>> all;
        return all;
    }
};

/// Returns whether commands run at once, as on the null stream and that of the calling thread.
inline bool runs_at_once(cudaStream_t stream) {
    return reinterpret_cast<std::uintptr_t>(stream) <= 2;
}

inline void note_use(cudaStream_t stream) {
    waits_for_legacy += runs_at_once(stream) ? 1 : 0;
}

/// Enqueues a command that is too large for a queue's ring, runs it at once, or adds it to the
/// captured graph.
template <class Command>
cudaError_t enqueue(cudaStream_t stream, Command const& command) {
    note_use(stream);
    if (runs_at_once(stream)) {
        command();
        return cudaSuccess;
    }
    if (Capturing const capturing = add_node(stream->captured, command);
        capturing != Capturing::no) {
        return capturing == Capturing::yes ? cudaSuccess
                                           : failed(cudaErrorStreamCaptureInvalidated);
    }
    auto* const copy = new Command(command);
    std::lock_guard const lock(stream->mutex);
    stream->queue.enqueue([copy] {
        (*copy)();
        delete copy;
    });
    return cudaSuccess;
}

inline std::atomic<bool> has_pools{true};
inline std::mutex devices_mutex;

/// The device on which each allocation was made.
inline std::map<void const*, int>& devices_of_memory() {
    static std::map<void const*, int> devices;
    return devices;
}

/// The device of memory that every device can access.
constexpr int every_device = -1;

/// Returns the device of memory, `every_device`, or the current device for memory of no device.
inline int owner_of(void const* memory) {
    std::lock_guard const lock(devices_mutex);
    auto const found = devices_of_memory().find(GuardedMemory::begin_of(memory));
    return found == devices_of_memory().end() ? device : found->second;
}

inline int device_of(void const* memory) {
    int const owner = owner_of(memory);
    return owner == every_device ? device : owner;
}

/// Returns the device of memory that `cuMemMap` has mapped, and otherwise -1. The driver sets it.
inline int (*mapped_device_of)(void const*) = [](void const*) { return -1; };

inline void share_with_every_device(void const* memory) {
    std::lock_guard const lock(devices_mutex);
    devices_of_memory()[memory] = every_device;
}

/// Pairs of a device and another one whose memory it may access.
inline std::set<std::pair<int, int>>& peers() {
    static std::set<std::pair<int, int>> all;
    return all;
}

inline bool has_peer_access(int from, int to) {
    std::lock_guard const lock(devices_mutex);
    return peers().count({from, to}) != 0;
}

inline void release(void* memory) {
    {
        std::lock_guard const lock(devices_mutex);
        devices_of_memory().erase(memory);
    }
    GuardedMemory::free(memory);
}

} // namespace zero::test::emulated
