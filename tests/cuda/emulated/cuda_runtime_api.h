#pragma once

// A runtime without a device, for tests: what of CUDA's runtime interface the library and its tests use, over the host's memory and queues. Streams are queues
// with a worker thread that pauses at random, so a fence that is missing shows; kernels run on fibers (fibers.hpp). Found instead of NVIDIA's header of this name by
// the tests that are compiled for it. It emulates no graph and no error, and says nothing about speed.

#include <zero/host/delaying_queue.hpp>
#include <zero/host/event.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <utility>

#include <sys/mman.h>

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorStreamCaptureIsolation = 905,
    cudaErrorStreamCaptureImplicit = 906,
    cudaErrorCapturedEvent = 907
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2, cudaMemcpyDefault = 4 };
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone = 0, cudaStreamCaptureStatusActive = 1 };
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount = 16 };
constexpr unsigned cudaEventDisableTiming = 2;
constexpr unsigned cudaEventWaitDefault = 0;
constexpr unsigned cudaStreamNonBlocking = 1;

struct CUstream_st {
    CUstream_st(std::uint64_t seed, int of) : queue(seed, 100), device(of) {}
    zero::host::DelayingQueue queue;
    int device;
    std::mutex mutex; ///< any thread may enqueue on a stream, but only one at a time on a queue
};
struct CUevent_st {
    int device;
    zero::host::Event event;
};
using cudaStream_t = CUstream_st*;
using cudaEvent_t = CUevent_st*;

namespace zero::test::emulated {

inline std::mutex streams_mutex;
inline std::set<cudaStream_t>& streams() {
    static std::set<cudaStream_t> all;
    return all;
}

/// What the calling thread did that a step must not do, and that no device tells.
inline thread_local std::size_t waits = 0;
inline thread_local std::size_t allocations = 0;
inline thread_local std::size_t events_made = 0;

inline thread_local cudaError_t last_error = cudaSuccess;
inline thread_local int device = 0;            ///< the current one; all have the same memory
inline thread_local bool is_capturing = false; ///< what the calling thread's streams say; nothing is captured

/// Memory that ends where a page begins that nobody may touch: what goes beyond the end dies there, and so does what uses memory that was freed.
class GuardedMemory {
public:
    static void* allocate(std::size_t bytes) {
        std::size_t const used = (bytes + alignment - 1) / alignment * alignment;
        std::size_t const mapped = (used + page - 1) / page * page + page;
        void* const base = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
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

private:
    static constexpr std::size_t alignment = 16; ///< less than a device gives, so that the end is near; as much as a pack needs
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

/// The null stream and that of the calling thread run at once.
inline bool runs_at_once(cudaStream_t stream) { return reinterpret_cast<std::uintptr_t>(stream) <= 2; }

/// Enqueues something that is too large for a queue's ring, or runs it at once.
template <class Command>
void enqueue(cudaStream_t stream, Command const& command) {
    if (runs_at_once(stream)) {
        command();
        return;
    }
    auto* const copy = new Command(command);
    std::lock_guard const lock(stream->mutex);
    stream->queue.enqueue([copy] {
        (*copy)();
        delete copy;
    });
}

} // namespace zero::test::emulated

inline cudaStream_t const cudaStreamLegacy = reinterpret_cast<cudaStream_t>(std::uintptr_t{1});
inline cudaStream_t const cudaStreamPerThread = reinterpret_cast<cudaStream_t>(std::uintptr_t{2});

inline char const* cudaGetErrorName(cudaError_t) { return "cudaErrorOfAnEmulatedDevice"; }
inline char const* cudaGetErrorString(cudaError_t) { return "an error of the emulated device"; }

inline cudaError_t cudaGetDevice(int* device) {
    *device = zero::test::emulated::device;
    return cudaSuccess;
}
inline cudaError_t cudaGetDeviceCount(int* devices) {
    *devices = 2;
    return cudaSuccess;
}
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
    *value = 1; // few blocks: each of an inspection takes several chunks
    return cudaSuccess;
}

inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
    std::lock_guard const lock(zero::test::emulated::streams_mutex);
    *stream = new CUstream_st(zero::test::emulated::streams().size(), zero::test::emulated::device);
    zero::test::emulated::streams().insert(*stream);
    return cudaSuccess;
}
inline cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    {
        std::lock_guard const lock(zero::test::emulated::streams_mutex);
        zero::test::emulated::streams().erase(stream);
    }
    stream->queue.synchronize();
    delete stream;
    return cudaSuccess;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    ++zero::test::emulated::waits;
    if (!zero::test::emulated::runs_at_once(stream)) {
        zero::host::Event event;
        {
            std::lock_guard const lock(stream->mutex);
            event = stream->queue.record();
        }
        event.synchronize();
    }
    return cudaSuccess;
}
inline cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
    *status = zero::test::emulated::is_capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
inline cudaError_t cudaDeviceSynchronize() {
    std::set<cudaStream_t> all;
    {
        std::lock_guard const lock(zero::test::emulated::streams_mutex);
        all = zero::test::emulated::streams();
    }
    for (cudaStream_t const stream : all) {
        cudaStreamSynchronize(stream);
    }
    return cudaSuccess;
}

inline cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*function)(void*), void* data) {
    zero::test::emulated::enqueue(stream, [=] { function(data); });
    return cudaSuccess;
}

inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
    ++zero::test::emulated::events_made;
    *event = new CUevent_st{zero::test::emulated::device, {}};
    return cudaSuccess;
}
inline cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete event;
    return cudaSuccess;
}
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    if (zero::test::emulated::runs_at_once(stream)) {
        event->event = {};
    } else if (event->device != stream->device) {
        return cudaErrorInvalidResourceHandle;
    } else {
        std::lock_guard const lock(stream->mutex);
        event->event = stream->queue.record();
    }
    return cudaSuccess;
}
inline cudaError_t cudaPeekAtLastError() { return zero::test::emulated::last_error; }
inline cudaError_t cudaGetLastError() { return std::exchange(zero::test::emulated::last_error, cudaSuccess); }
inline cudaError_t cudaEventQuery(cudaEvent_t event) {
    if (event->event.is_complete()) {
        return cudaSuccess;
    }
    return zero::test::emulated::last_error = cudaErrorNotReady;
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    ++zero::test::emulated::waits;
    event->event.synchronize();
    return cudaSuccess;
}
inline cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    if (zero::test::emulated::runs_at_once(stream)) {
        event->event.synchronize();
    } else {
        std::lock_guard const lock(stream->mutex);
        stream->queue.wait(event->event);
    }
    return cudaSuccess;
}

inline cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
    ++zero::test::emulated::allocations;
    *memory = zero::test::emulated::GuardedMemory::allocate(bytes);
    if (*memory == nullptr) {
        return cudaErrorMemoryAllocation;
    }
    std::memset(*memory, 0xff, bytes);
    return cudaSuccess;
}
inline cudaError_t cudaFree(void* memory) {
    zero::test::emulated::GuardedMemory::free(memory);
    return cudaSuccess;
}
inline cudaError_t cudaMallocManaged(void** memory, std::size_t bytes) { return cudaMalloc(memory, bytes); }
inline cudaError_t cudaMallocAsync(void** memory, std::size_t bytes, cudaStream_t) { return cudaMalloc(memory, bytes); }
inline cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) {
    cudaStreamSynchronize(stream);
    return cudaFree(memory);
}
inline cudaError_t cudaMemcpyAsync(void* out, void const* in, std::size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
    zero::test::emulated::enqueue(stream, [=] { std::memmove(out, in, bytes); });
    return cudaSuccess;
}
inline cudaError_t cudaMemcpy(void* out, void const* in, std::size_t bytes, cudaMemcpyKind kind) { return cudaMemcpyAsync(out, in, bytes, kind, nullptr); }
inline cudaError_t cudaMemsetAsync(void* out, int value, std::size_t bytes, cudaStream_t stream) {
    zero::test::emulated::enqueue(stream, [=] { std::memset(out, value, bytes); });
    return cudaSuccess;
}
inline cudaError_t cudaMemset(void* out, int value, std::size_t bytes) { return cudaMemsetAsync(out, value, bytes, nullptr); }
