#pragma once

// A CUDA runtime without a device, for tests: the part of CUDA's runtime interface that the library
// and its tests use, on the host's memory and queues. Streams are queues with a worker thread
// that pauses at random, so a missing fence shows; kernels run on fibers (fibers.hpp). Its tests
// find it instead of NVIDIA's header of this name. It emulates no errors but those of captures and
// those that a test asks for (`failures`), and its speed means nothing.

#include "capture.hpp"

#include <zero/host/delaying_queue.hpp>
#include <zero/host/queue.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <string_view>
#include <utility>

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

} // namespace zero::test::emulated

namespace zero::test::emulated {

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

inline cudaStream_t const cudaStreamLegacy = reinterpret_cast<cudaStream_t>(std::uintptr_t{1});
inline cudaStream_t const cudaStreamPerThread = reinterpret_cast<cudaStream_t>(std::uintptr_t{2});

inline char const* cudaGetErrorName(cudaError_t) {
    return "cudaErrorOfAnEmulatedDevice";
}
inline char const* cudaGetErrorString(cudaError_t) {
    return "an error of the emulated device";
}

inline cudaError_t cudaGetDevice(int* device) {
    *device = zero::test::emulated::device;
    return cudaSuccess;
}
inline cudaError_t cudaGetDeviceCount(int* devices) {
    *devices = 4;
    return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int device) {
    if (device < 0) {
        return zero::test::emulated::failed(cudaErrorInvalidDevice);
    }
    zero::test::emulated::device = device;
    return cudaSuccess;
}
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
    *value = attribute == cudaDevAttrMemoryPoolsSupported
                 ? static_cast<int>(zero::test::emulated::has_pools)
             : attribute == cudaDevAttrPageableMemoryAccess
                 ? 0
                 : 1; // few blocks: each of an inspection takes several chunks
    return cudaSuccess;
}
inline cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, void const* memory) {
    using namespace zero::test::emulated;
    attributes->type = !GuardedMemory::holds(memory)      ? cudaMemoryTypeUnregistered
                       : owner_of(memory) == every_device ? cudaMemoryTypeHost
                                                          : cudaMemoryTypeDevice;
    attributes->device = device_of(memory);
    bool const is_accessible =
        attributes->type != cudaMemoryTypeUnregistered
        && (attributes->device == device || has_peer_access(device, attributes->device));
    attributes->devicePointer = is_accessible ? const_cast<void*>(memory) : nullptr;
    return cudaSuccess;
}
inline cudaError_t cudaDeviceCanAccessPeer(int* can_access, int device, int peer) {
    *can_access = device != peer ? 1 : 0;
    return cudaSuccess;
}
inline cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
    std::lock_guard const lock(zero::test::emulated::devices_mutex);
    zero::test::emulated::peers().insert({zero::test::emulated::device, peer});
    return cudaSuccess;
}
inline cudaError_t cudaDeviceDisablePeerAccess(int peer) {
    std::lock_guard const lock(zero::test::emulated::devices_mutex);
    zero::test::emulated::peers().erase({zero::test::emulated::device, peer});
    return cudaSuccess;
}

inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
    std::lock_guard const lock(zero::test::emulated::streams_mutex);
    *stream = new CUstream_st(zero::test::emulated::streams().size(), zero::test::emulated::device);
    zero::test::emulated::streams().insert(*stream);
    return cudaSuccess;
}
inline cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}
inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags,
                                                int priority) {
    cudaError_t const code = cudaStreamCreateWithFlags(stream, flags);
    (*stream)->priority = priority;
    return code;
}
inline cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
    *priority = stream->priority;
    return cudaSuccess;
}
inline cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    if (auto const code = zero::test::emulated::failure_of("cudaStreamDestroy");
        code != cudaSuccess) {
        return code;
    }
    zero::test::emulated::note_release(stream->device);
    {
        std::lock_guard const lock(zero::test::emulated::streams_mutex);
        zero::test::emulated::streams().erase(stream);
    }
    zero::test::emulated::leave_capture(stream->captured);
    stream->queue.synchronise();
    delete stream;
    return cudaSuccess;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    if (auto const code = zero::test::emulated::failure_of("cudaStreamSynchronize");
        code != cudaSuccess) {
        return code;
    }
    ++zero::test::emulated::waits;
    zero::test::emulated::note_use(stream);
    if (!zero::test::emulated::runs_at_once(stream)) {
        if (zero::test::emulated::spoils(stream->captured)
            || zero::test::emulated::is_forbidden()) {
            return zero::test::emulated::failed(cudaErrorStreamCaptureUnsupported);
        }
        zero::host::Event event;
        {
            std::lock_guard const lock(stream->mutex);
            event = stream->queue.record();
        }
        event.synchronise();
    }
    return cudaSuccess;
}
inline cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
    bool const is_special = zero::test::emulated::runs_at_once(stream);
    if (!is_special && zero::test::emulated::spoils(stream->captured)) {
        return zero::test::emulated::failed(cudaErrorStreamCaptureUnsupported);
    }
    *device = is_special ? zero::test::emulated::device : stream->device;
    return cudaSuccess;
}
inline cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
    using zero::test::emulated::Capturing;
    if (stream == reinterpret_cast<cudaStream_t>(std::uintptr_t{1})
        && zero::test::emulated::is_any_capture()) {
        return zero::test::emulated::failed(cudaErrorStreamCaptureImplicit);
    }
    Capturing const capturing = zero::test::emulated::runs_at_once(stream)
                                    ? Capturing::no
                                    : zero::test::emulated::state_of(stream->captured);
    *status = capturing == Capturing::no    ? cudaStreamCaptureStatusNone
              : capturing == Capturing::yes ? cudaStreamCaptureStatusActive
                                            : cudaStreamCaptureStatusInvalidated;
    return cudaSuccess;
}
inline cudaError_t cudaDeviceSynchronize() {
    if (zero::test::emulated::is_forbidden()) {
        return zero::test::emulated::failed(cudaErrorStreamCaptureUnsupported);
    }
    std::set<cudaStream_t> all;
    {
        std::lock_guard const lock(zero::test::emulated::streams_mutex);
        all = zero::test::emulated::streams();
    }
    for (cudaStream_t const stream : all) {
        if (stream->device == zero::test::emulated::device) {
            cudaStreamSynchronize(stream);
        }
    }
    return cudaSuccess;
}

inline cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*function)(void*), void* data) {
    return zero::test::emulated::enqueue(stream, [=] { function(data); });
}

inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
    ++zero::test::emulated::events_made;
    *event = new CUevent_st{zero::test::emulated::device, {}};
    (*event)->has_timing = (flags & cudaEventDisableTiming) == 0;
    return cudaSuccess;
}
inline cudaError_t cudaEventDestroy(cudaEvent_t event) {
    if (auto const code = zero::test::emulated::failure_of("cudaEventDestroy");
        code != cudaSuccess) {
        return code;
    }
    zero::test::emulated::note_release(event->device);
    if (event->has_timing) {
        event->event.synchronise(); // a command writes the time
    }
    delete event;
    return cudaSuccess;
}
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    zero::test::emulated::note_use(stream);
    event->captured = {};
    event->event = {};
    auto const note_time = [event] {
        event->time = std::chrono::duration_cast<std::chrono::nanoseconds>(
                          std::chrono::steady_clock::now().time_since_epoch())
                          .count();
    };
    bool const is_at_once = zero::test::emulated::runs_at_once(stream);
    if (event->device != (is_at_once ? zero::test::emulated::device : stream->device)) {
        return zero::test::emulated::failed(cudaErrorInvalidResourceHandle);
    }
    if (is_at_once) {
        note_time();
        return cudaSuccess;
    }
    if (zero::test::emulated::state_of(stream->captured)
        == zero::test::emulated::Capturing::spoilt) {
        return zero::test::emulated::failed(cudaErrorStreamCaptureInvalidated);
    }
    zero::test::emulated::note_change_of_graph(stream->captured);
    event->captured = zero::test::emulated::point_of(stream->captured);
    if (event->captured.capture == nullptr) {
        std::lock_guard const lock(stream->mutex);
        if (event->has_timing) {
            stream->queue.enqueue(note_time);
        }
        event->event = stream->queue.record();
    }
    return cudaSuccess;
}
inline cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
    if (!begin->has_timing || !end->has_timing) {
        return zero::test::emulated::failed(cudaErrorInvalidResourceHandle);
    }
    *milliseconds = static_cast<float>(static_cast<double>(end->time - begin->time) * 1e-6);
    return cudaSuccess;
}
inline cudaError_t cudaPeekAtLastError() {
    return zero::test::emulated::last_error;
}
inline cudaError_t cudaGetLastError() {
    return std::exchange(zero::test::emulated::last_error, cudaSuccess);
}
inline cudaError_t cudaEventQuery(cudaEvent_t event) {
    if (zero::test::emulated::spoils(event->captured)) {
        return zero::test::emulated::failed(cudaErrorCapturedEvent);
    }
    if (zero::test::emulated::is_forbidden()) {
        return zero::test::emulated::failed(cudaErrorStreamCaptureUnsupported);
    }
    if (event->event.is_complete()) {
        return cudaSuccess;
    }
    return zero::test::emulated::failed(cudaErrorNotReady);
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    ++zero::test::emulated::waits;
    if (zero::test::emulated::spoils(event->captured)) {
        return zero::test::emulated::failed(cudaErrorCapturedEvent);
    }
    if (zero::test::emulated::is_forbidden()) {
        return zero::test::emulated::failed(cudaErrorStreamCaptureUnsupported);
    }
    event->event.synchronise();
    return cudaSuccess;
}
inline cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    using zero::test::emulated::Joined;
    if (zero::test::emulated::runs_at_once(stream)) {
        if (zero::test::emulated::spoils(event->captured)) {
            return zero::test::emulated::failed(cudaErrorStreamCaptureImplicit);
        }
        event->event.synchronise();
        return cudaSuccess;
    }
    switch (zero::test::emulated::join_capture(stream->captured, event->captured)) {
    case Joined::yes: return cudaSuccess;
    case Joined::spoilt: return zero::test::emulated::failed(cudaErrorStreamCaptureInvalidated);
    case Joined::from_outside: return zero::test::emulated::failed(cudaErrorStreamCaptureIsolation);
    case Joined::from_another: return zero::test::emulated::failed(cudaErrorStreamCaptureMerge);
    case Joined::too_late: return zero::test::emulated::failed(cudaErrorCapturedEvent);
    case Joined::no: break;
    }
    std::lock_guard const lock(stream->mutex);
    stream->queue.wait(event->event);
    return cudaSuccess;
}

inline cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
    std::swap(*mode, zero::test::emulated::capture_mode);
    return cudaSuccess;
}
inline cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
    if (zero::test::emulated::runs_at_once(stream)
        || zero::test::emulated::state_of(stream->captured)
               != zero::test::emulated::Capturing::no) {
        return zero::test::emulated::failed(cudaErrorStreamCaptureUnsupported);
    }
    zero::test::emulated::begin_capture(stream->captured, mode);
    return cudaSuccess;
}
inline cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    *graph = nullptr;
    auto const ended = zero::test::emulated::end_capture(stream->captured);
    if (ended.capture == nullptr) {
        return zero::test::emulated::failed(ended.is_of_another_thread
                                                ? cudaErrorStreamCaptureWrongThread
                                                : cudaErrorStreamCaptureUnmatched);
    }
    if (ended.capture->is_spoilt) {
        return zero::test::emulated::failed(cudaErrorStreamCaptureInvalidated);
    }
    if (!ended.is_joined) {
        return zero::test::emulated::failed(cudaErrorStreamCaptureUnjoined);
    }
    *graph = new CUgraph_st{std::move(ended.capture->nodes)};
    return cudaSuccess;
}
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                        unsigned long long) {
    *executable = new CUgraphExec_st{std::make_shared<CUgraph_st const>(*graph)};
    return cudaSuccess;
}
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
    return zero::test::emulated::enqueue(
        stream, [graph = executable->graph, seed = ++executable->launches] {
            zero::test::emulated::replay(graph->nodes, seed);
        });
}
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
    delete executable;
    return cudaSuccess;
}
inline cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    delete graph; // may be null
    return cudaSuccess;
}

inline cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
    if (zero::test::emulated::is_forbidden()) {
        return zero::test::emulated::failed(cudaErrorStreamCaptureUnsupported);
    }
    ++zero::test::emulated::allocations;
    *memory = zero::test::emulated::GuardedMemory::allocate(bytes);
    if (*memory == nullptr) {
        return zero::test::emulated::failed(cudaErrorMemoryAllocation);
    }
    std::memset(*memory, 0xff, bytes);
    std::lock_guard const lock(zero::test::emulated::devices_mutex);
    zero::test::emulated::devices_of_memory()[*memory] = zero::test::emulated::device;
    return cudaSuccess;
}
inline cudaError_t cudaFree(void* memory) {
    if (auto const code = zero::test::emulated::failure_of("cudaFree"); code != cudaSuccess) {
        return code;
    }
    zero::test::emulated::note_release(zero::test::emulated::device_of(memory));
    if (zero::test::emulated::is_forbidden()) {
        return zero::test::emulated::failed(cudaErrorStreamCaptureUnsupported);
    }
    zero::test::emulated::release(memory);
    return cudaSuccess;
}
inline cudaError_t cudaMallocHost(void** memory, std::size_t bytes) {
    cudaError_t code = zero::test::emulated::failure_of("cudaMallocHost");
    code = code == cudaSuccess ? cudaMalloc(memory, bytes) : code;
    if (code == cudaSuccess) {
        using namespace zero::test::emulated;
        page_locked_bytes += GuardedMemory::bytes_of(*memory);
        page_locked_peak = std::max(page_locked_peak, page_locked_bytes);
        share_with_every_device(*memory);
    }
    return code;
}
inline cudaError_t cudaFreeHost(void* memory) {
    if (auto const code = zero::test::emulated::failure_of("cudaFreeHost"); code != cudaSuccess) {
        return code;
    }
    if (zero::test::emulated::is_forbidden()) {
        return zero::test::emulated::failed(cudaErrorStreamCaptureUnsupported);
    }
    zero::test::emulated::page_locked_bytes -=
        zero::test::emulated::GuardedMemory::bytes_of(memory);
    zero::test::emulated::release(memory);
    return cudaSuccess;
}
inline cudaError_t cudaMallocManaged(void** memory, std::size_t bytes) {
    cudaError_t const code = cudaMalloc(memory, bytes);
    if (code == cudaSuccess) {
        zero::test::emulated::share_with_every_device(*memory);
    }
    return code;
}
inline cudaError_t cudaMallocAsync(void** memory, std::size_t bytes, cudaStream_t stream) {
    zero::test::emulated::note_use(stream);
    if (!zero::test::emulated::has_pools) {
        return zero::test::emulated::failed(cudaErrorInvalidValue);
    }
    return cudaMalloc(memory, bytes);
}
inline cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) {
    using namespace zero::test::emulated;
    if (auto const code = failure_of("cudaFreeAsync"); code != cudaSuccess) {
        return code;
    }
    note_release(device_of(memory));
    note_use(stream);
    if (stream == cudaStreamPerThread && device_of(memory) != device) {
        return failed(cudaErrorInvalidValue);
    }
    if (!runs_at_once(stream)) {
        if (spoils(stream->captured)) { // a node that frees, but no node has allocated
            return failed(cudaErrorInvalidValue);
        }
        std::unique_lock lock(stream->mutex);
        zero::host::Event const event = stream->queue.record();
        lock.unlock();
        event.synchronise();
    }
    release(memory);
    return cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void* out, void const* in, std::size_t bytes, cudaMemcpyKind,
                                   cudaStream_t stream) {
    ++zero::test::emulated::copies;
    return zero::test::emulated::enqueue(stream, [=] { std::memmove(out, in, bytes); });
}
inline cudaError_t cudaMemcpy(void* out, void const* in, std::size_t bytes, cudaMemcpyKind kind) {
    return zero::test::emulated::is_forbidden()
               ? zero::test::emulated::failed(cudaErrorStreamCaptureImplicit)
               : cudaMemcpyAsync(out, in, bytes, kind, nullptr);
}
inline cudaError_t cudaMemsetAsync(void* out, int value, std::size_t bytes, cudaStream_t stream) {
    ++zero::test::emulated::fills;
    return zero::test::emulated::enqueue(stream, [=] { std::memset(out, value, bytes); });
}
inline cudaError_t cudaMemset(void* out, int value, std::size_t bytes) {
    return cudaMemsetAsync(out, value, bytes, nullptr);
}
