#include "cuda/ptx/findings.hpp"
#include "cuda/ptx/runtime/runtime.hpp"

#include <algorithm>
#include <cstdlib>
#include <string>

// Streams and events.

namespace zero::test::ptx {

namespace {

std::shared_ptr<Event>& event_of(cudaEvent_t handle) {
    return *reinterpret_cast<std::shared_ptr<Event>*>(handle);
}

void run_first(Stream* stream, Lock& lock) {
    Command const command = std::move(stream->commands.front());
    stream->commands.pop_front();
    if (command.calls_host) {
        stream->is_busy = true;
        lock.unlock();
        command.run();
        lock.lock();
        stream->is_busy = false;
    } else if (command.run) {
        command.run();
    }
    Runtime::instance().changed.notify_all();
}

/// Runs what brings a stream forward, and nothing else. Returns false if nothing does.
bool run_for(Stream* stream, Lock& lock, std::size_t depth = 0) {
    if (stream->commands.empty() || stream->is_busy || depth > Runtime::instance().streams.size()) {
        return false;
    }
    if (stream->can_run()) {
        run_first(stream, lock);
        return true;
    }
    Stream* const other = stream->commands.front().wait->stream;
    return other != stream && is_known(other) && run_for(other, lock, depth + 1);
}

/// Runs commands until `is_done()`: the least that is needed, or others as well, by chance.
template <class IsDone>
void run_until(Stream* stream, Lock& lock, IsDone const& is_done) {
    Runtime& runtime = Runtime::instance();
    bool const runs_least = runtime.random() % 2 == 0;
    auto const begin = std::chrono::steady_clock::now();
    while (!is_done()) {
        bool const prefers = stream != nullptr && (runs_least || runtime.random() % 4 == 0);
        if ((prefers && run_for(stream, lock)) || run_any(lock)) {
            continue;
        }
        runtime.changed.wait_for(lock, std::chrono::milliseconds(2));
        if (std::chrono::steady_clock::now() - begin > std::chrono::minutes(2)) {
            report("wait that never ends", "runtime", "two minutes");
            return;
        }
    }
}

/// The streams that work of the legacy stream waits for.
void wait_for_blocking(Lock& lock) {
    Runtime& runtime = Runtime::instance();
    auto const streams = runtime.streams;
    for (Stream* const stream : streams) {
        if (is_known(stream) && stream->is_blocking) {
            wait_for(stream, lock);
        }
    }
    wait_for(&runtime.legacy, lock);
}

thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

} // namespace

Runtime& Runtime::instance() {
    static Runtime& runtime = *new Runtime;
    return runtime;
}

Stream* stream_of(cudaStream_t handle) {
    Runtime& runtime = Runtime::instance();
    if (handle == nullptr || handle == cudaStreamLegacy) {
        return &runtime.legacy;
    }
    if (handle != cudaStreamPerThread) {
        return reinterpret_cast<Stream*>(handle);
    }
    thread_local Stream* const own = [&] {
        Lock const lock(runtime.mutex);
        auto* const stream = new Stream;
        stream->number = runtime.next_number++;
        runtime.streams.insert(stream);
        return stream;
    }();
    return own;
}

bool is_known(Stream* stream) {
    Runtime& runtime = Runtime::instance();
    return stream == &runtime.legacy || runtime.streams.count(stream) != 0;
}

bool run_any(Lock& lock) {
    Runtime& runtime = Runtime::instance();
    std::vector<Stream*> ready;
    for (Stream* const stream : runtime.streams) {
        if (stream->can_run()) {
            ready.push_back(stream);
        }
    }
    if (runtime.legacy.can_run()) {
        ready.push_back(&runtime.legacy);
    }
    if (ready.empty()) {
        return false;
    }
    std::sort(ready.begin(), ready.end(),
              [](Stream const* a, Stream const* b) { return a->number < b->number; });
    run_first(ready[runtime.random() % ready.size()], lock);
    return true;
}

void wait_for(Stream* stream, Lock& lock) {
    run_until(stream, lock, [&] { return stream->is_empty(); });
}

void wait_for_all(Lock& lock) {
    Runtime& runtime = Runtime::instance();
    run_until(nullptr, lock, [&] {
        return runtime.legacy.is_empty()
               && std::all_of(runtime.streams.begin(), runtime.streams.end(),
                              [](Stream const* stream) { return stream->is_empty(); });
    });
}

cudaError_t enqueue(cudaStream_t handle, std::function<void()> run, bool calls_host) {
    Runtime& runtime = Runtime::instance();
    Lock lock(runtime.mutex);
    Stream* const stream = stream_of(handle);
    if (!is_known(stream)) {
        return result(cudaErrorInvalidResourceHandle);
    }
    if (stream->capture != nullptr) {
        if (stream->capture->is_invalid) {
            return result(cudaErrorStreamCaptureInvalidated);
        }
        auto& nodes = stream->capture->nodes;
        nodes.push_back({std::move(run), stream->dependencies});
        stream->dependencies = {nodes.size() - 1};
        return cudaSuccess;
    }
    bool const is_legacy = stream == &runtime.legacy;
    if (is_legacy) {
        for (auto const& capture : runtime.captures) {
            if (capture->origin->is_blocking) {
                return result(cudaErrorStreamCaptureImplicit);
            }
        }
        wait_for_blocking(lock);
    }
    stream->commands.push_back({std::move(run), nullptr, calls_host});
    if (is_legacy) {
        wait_for(stream, lock);
    } else {
        for (auto left = runtime.random() % 3; left > 0; --left) {
            run_any(lock);
        }
    }
    return cudaSuccess;
}

cudaError_t error_of_wait() {
    if (thread_mode == cudaStreamCaptureModeRelaxed) {
        return cudaSuccess;
    }
    for (auto const& capture : Runtime::instance().captures) {
        bool const is_own = capture->thread == std::this_thread::get_id();
        bool const is_global = capture->mode == cudaStreamCaptureModeGlobal
                               && thread_mode == cudaStreamCaptureModeGlobal;
        if (is_global || (is_own && capture->mode != cudaStreamCaptureModeRelaxed)) {
            capture->is_invalid = true;
            return result(cudaErrorStreamCaptureUnsupported);
        }
    }
    return cudaSuccess;
}

} // namespace zero::test::ptx

using namespace zero::test::ptx;

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* handle, unsigned flags) {
    Runtime& runtime = Runtime::instance();
    Lock const lock(runtime.mutex);
    auto* const stream = new Stream;
    stream->is_blocking = (flags & cudaStreamNonBlocking) == 0;
    stream->number = runtime.next_number++;
    runtime.streams.insert(stream);
    *handle = reinterpret_cast<cudaStream_t>(stream);
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* handle, unsigned flags, int priority) {
    cudaError_t const code = cudaStreamCreateWithFlags(handle, flags);
    stream_of(*handle)->priority = priority;
    return code;
}
cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
    *priority = stream_of(handle)->priority;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}
cudaError_t cudaStreamGetDevice(cudaStream_t handle, int* device) {
    Runtime& runtime = Runtime::instance();
    Lock const lock(runtime.mutex);
    if (Stream* const stream = stream_of(handle); stream->capture != nullptr) {
        stream->capture->is_invalid = true;
        return result(cudaErrorStreamCaptureUnsupported);
    }
    *device = 0; // there is one
    return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can_access, int, int) {
    *can_access = 0;
    return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t* handle) {
    return cudaStreamCreateWithFlags(handle, cudaStreamDefault);
}
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
    Runtime& runtime = Runtime::instance();
    Lock lock(runtime.mutex);
    Stream* const stream = stream_of(handle);
    if (!is_known(stream)) {
        return result(cudaErrorInvalidResourceHandle);
    }
    wait_for(stream, lock);
    runtime.streams.erase(stream);
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
    Runtime& runtime = Runtime::instance();
    Lock lock(runtime.mutex);
    Stream* const stream = stream_of(handle);
    if (!is_known(stream)) {
        return result(cudaErrorInvalidResourceHandle);
    }
    if (stream->capture != nullptr) {
        stream->capture->is_invalid = true;
        return result(cudaErrorStreamCaptureUnsupported);
    }
    if (cudaError_t const code = error_of_wait(); code != cudaSuccess) {
        return code;
    }
    stream == &runtime.legacy ? wait_for_blocking(lock) : wait_for(stream, lock);
    return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t handle) {
    Lock lock(Runtime::instance().mutex);
    run_any(lock);
    return stream_of(handle)->is_empty() ? cudaSuccess : result(cudaErrorNotReady);
}
cudaError_t cudaDeviceSynchronize() {
    Lock lock(Runtime::instance().mutex);
    cudaError_t const code = error_of_wait();
    if (code == cudaSuccess) {
        wait_for_all(lock);
    }
    return code;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
    return enqueue(
        stream, [=] { function(data); }, true);
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
    std::swap(*mode, thread_mode);
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* handle, unsigned) {
    *handle = reinterpret_cast<cudaEvent_t>(new std::shared_ptr<Event>(std::make_shared<Event>()));
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* handle) {
    return cudaEventCreateWithFlags(handle, cudaEventDefault);
}
cudaError_t cudaEventDestroy(cudaEvent_t handle) {
    Lock const lock(Runtime::instance().mutex);
    delete &event_of(handle);
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream_handle) {
    Lock const lock(Runtime::instance().mutex);
    auto const event = event_of(handle);
    Stream* const stream = stream_of(stream_handle);
    if (stream->capture != nullptr) {
        event->captured = stream->capture;
        event->dependencies = stream->dependencies;
        return cudaSuccess;
    }
    event->captured = nullptr;
    auto const point = std::make_shared<Point>();
    point->stream = stream;
    event->point = point;
    return enqueue(stream_handle, [=] {
        point->is_done = true;
        event->time = std::chrono::steady_clock::now();
    });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream_handle, cudaEvent_t handle, unsigned) {
    Lock const lock(Runtime::instance().mutex);
    auto const event = event_of(handle);
    Stream* const stream = stream_of(stream_handle);
    if (event->captured != nullptr) {
        if (stream->capture == nullptr) { // the stream joins the capture
            if (event->captured->origin == nullptr) {
                return result(cudaErrorCapturedEvent);
            }
            stream->capture = event->captured;
            stream->dependencies.clear();
            stream->capture->streams.push_back(stream);
        }
        if (stream->capture != event->captured) {
            return result(cudaErrorStreamCaptureMerge);
        }
        stream->dependencies.insert(stream->dependencies.end(), event->dependencies.begin(),
                                    event->dependencies.end());
        return cudaSuccess;
    }
    if (event->point == nullptr || (event->point->is_done && stream->capture == nullptr)) {
        return cudaSuccess;
    }
    if (stream->capture != nullptr) {
        stream->capture->is_invalid = true;
        return result(cudaErrorStreamCaptureIsolation);
    }
    stream->commands.push_back({nullptr, event->point, false});
    return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
    Lock lock(Runtime::instance().mutex);
    auto const event = event_of(handle);
    if (event->captured != nullptr) {
        return result(cudaErrorCapturedEvent);
    }
    cudaError_t const code = error_of_wait();
    auto const point = event->point;
    if (code == cudaSuccess && point != nullptr) {
        run_until(point->stream, lock, [&] { return point->is_done; });
    }
    return code;
}
cudaError_t cudaEventQuery(cudaEvent_t handle) {
    Lock lock(Runtime::instance().mutex);
    auto const event = event_of(handle);
    if (event->captured != nullptr) {
        return result(cudaErrorCapturedEvent);
    }
    if (cudaError_t const code = error_of_wait(); code != cudaSuccess) {
        return code;
    }
    run_any(lock);
    return event->point == nullptr || event->point->is_done ? cudaSuccess
                                                            : result(cudaErrorNotReady);
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
    Lock const lock(Runtime::instance().mutex);
    *milliseconds =
        std::chrono::duration<float, std::milli>(event_of(end)->time - event_of(begin)->time)
            .count();
    return cudaSuccess;
}

} // extern "C"
