#pragma once

// A CUDA runtime without a device, for tests: the part of CUDA's runtime interface that the library
// and its tests use, on the host's memory and queues. Streams are queues with a worker thread
// that pauses at random, so a missing fence shows; kernels run on fibers (fibers.hpp). Its tests
// find it instead of NVIDIA's header of this name. It emulates no errors but those of captures and
// those that a test asks for (`failures`), and its speed means nothing.

#include "runtime_state.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string_view>
#include <utility>

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
    int const mapped = mapped_device_of(memory);
    attributes->type = mapped >= 0                        ? cudaMemoryTypeDevice
                       : !GuardedMemory::holds(memory)    ? cudaMemoryTypeUnregistered
                       : owner_of(memory) == every_device ? cudaMemoryTypeHost
                                                          : cudaMemoryTypeDevice;
    attributes->device = mapped >= 0 ? mapped : device_of(memory);
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

enum cudaDriverEntryPointQueryResult { cudaDriverEntryPointSuccess = 0 };
constexpr unsigned long long cudaEnableDefault = 0;

namespace zero::test::emulated {
inline std::map<std::string_view, void*> driver_functions; ///< by name; cuda.h defines them
} // namespace zero::test::emulated

inline cudaError_t cudaGetDriverEntryPointByVersion(char const* name, void** function,
                                                    unsigned version, unsigned long long,
                                                    cudaDriverEntryPointQueryResult*) {
    auto const& all = zero::test::emulated::driver_functions;
    auto const found = all.find(name);
    *function = found != all.end() && version >= 10020 ? found->second : nullptr;
    return cudaSuccess;
}
