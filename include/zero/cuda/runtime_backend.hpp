#pragma once

#include "../backend/fence.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/detail/text.hpp"
#include "../core/detail/throw_error.hpp"
#include "../core/error.hpp"
#include "../core/memory_resource.hpp"
#include "allocator_memory.hpp"
#include "capture_lock.hpp"
#include "detail/runtime/check.hpp"
#include "detail/runtime/clean_up.hpp"
#include "detail/runtime/event_pool.hpp"
#include "detail/runtime/stream_capture.hpp"
#include "event.hpp"
#include "owned_stream.hpp"
#include "slice_table.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>

namespace ZERO_NAMESPACE::cuda {

/// @brief The part of the CUDA backend that needs no kernel, and hence no nvcc: streams, events,
/// memory and copies. `cuda::Backend` adds the rest.
struct RuntimeBackend {
    using Queue = cudaStream_t;
    using Event = cuda::Event;
    /// @brief The stream that an engine owns for its communication. A collective that is ready
    /// starts before further blocks of the model: other ranks wait for it.
    struct OwnedQueue : OwnedStream {
        /// @brief Creates a stream of the current device. @throws CudaError
        OwnedQueue() : OwnedStream(StreamPriority::highest) {}
    };

    /// @brief Slices in device memory; `range(first, count)` is the argument of `inspect`, `update`
    /// and the other operations on slices.
    template <class Slice>
    using SliceTable = cuda::SliceTable<Slice>;

    static constexpr bool is_device = true; ///< the host cannot access the memory
    static constexpr bool copies_arguments =
        true; ///< a table of pointers may change as soon as the operation is enqueued

    static Queue handle(OwnedStream& stream) noexcept { return stream.get(); }

    /// @brief Returns no stream: the caller must name the stream on which the model runs.
    static Queue default_compute_queue() noexcept { return unset_stream(); }

    static MemoryResource& default_memory() noexcept { return cuda::default_memory(); }

    /// @brief Returns host memory that kernels write and the device copies at full speed: the
    /// reports of steps lie there, and data passes through it between files and a device.
    static MemoryResource& staging_memory() noexcept {
        static PinnedMemory memory;
        return memory;
    }

    static Event record(Queue queue) { return Event::record(queue); }
    static void wait(Queue queue, Event const& event, Fence) { event.make_wait(queue); }
    static void synchronise(Event const& event) { event.synchronise(); }
    /// @brief Waits for a stream of any device. Recording an event would require the stream's own
    /// device to be current, and an engine may be destroyed while another one is.
    static void drain(Queue queue) noexcept { drain(queue, {}); }
    /// @brief Waits for a stream, or for `before_capture` if the stream is being captured and
    /// cannot be waited for. Do not launch the captured graph after that.
    static void drain(Queue queue, Event const& before_capture) noexcept {
        bool const is_capturing = detail::is_capturing(queue);
        detail::CleanUp const clean_up; // allows the wait while another stream is captured; the
                                        // next call reports a failure of the work
        if (!is_capturing) {
            detail::ignore(cudaStreamSynchronize(queue));
        } else if (before_capture.handle() != nullptr) {
            detail::ignore(cudaEventSynchronize(before_capture.handle()));
        }
    }

    /// @brief Returns why kernels on the current device cannot access this memory, and the remedy;
    /// an empty text if they can. They access memory of the device, memory of another device with
    /// peer access, managed memory, page-locked memory, and any memory if the device shares the
    /// host's page tables. @throws CudaError
    static std::string reason_against(void const* memory) {
        cudaPointerAttributes attributes{};
        detail::check(cudaPointerGetAttributes(&attributes, memory), "cudaPointerGetAttributes");
        int const device = detail::current_device();
        if (attributes.type == cudaMemoryTypeUnregistered) {
            int shares_page_tables = 0;
            detail::check(cudaDeviceGetAttribute(&shares_page_tables,
                                                 cudaDevAttrPageableMemoryAccess, device),
                          "cudaDeviceGetAttribute");
            return shares_page_tables != 0
                       ? ""
                       : "host memory, which kernels cannot use; give device memory";
        }
        if (attributes.type != cudaMemoryTypeDevice || attributes.device == device) {
            return "";
        }
        int has_peer_access = 0;
        detail::check(cudaDeviceCanAccessPeer(&has_peer_access, device, attributes.device),
                      "cudaDeviceCanAccessPeer");
        if (has_peer_access != 0 && attributes.devicePointer != nullptr) {
            return ""; // the pointer is null as long as the program has not enabled peer access
        }
        return zero::detail::text({"memory of CUDA device ", attributes.device,
                                   ", which kernels on the current device of this thread, device ",
                                   device, ", cannot use; call cudaSetDevice(", attributes.device,
                                   ") at the beginning of the rank's thread, enable peer access"});
    }

    /// @brief Refuses a missing stream, and a stream of another device than the current one. The
    /// runtime cannot tell the device of a stream that is being captured, nor, before CUDA 12.8, of
    /// any stream; the first event on it then fails.
    /// @throws InvalidArgument naming both devices; CudaError
    static void require_queue(Queue queue) {
        require_set(queue);
#if CUDART_VERSION >= 12080
        bool const is_special =
            queue == nullptr || queue == cudaStreamLegacy || queue == cudaStreamPerThread;
        // The special streams belong to the current device. The query would invalidate a capture.
        if (!is_special && !detail::is_capturing(queue)) {
            int device = 0;
            detail::check(cudaStreamGetDevice(queue, &device), "cudaStreamGetDevice");
            require_device(device, "a stream");
        }
#endif
    }

    /// @brief Refuses to use something of another device than the current one.
    /// @param what that which belongs to `device`, for the message
    /// @throws InvalidArgument naming both devices; CudaError
    static void require_device(int device, char const* what) {
        int const current = detail::current_device();
        if (device != current) {
            zero::detail::throw_error<InvalidArgument>(
                {"zero: ", what, " of CUDA device ", device,
                 " is used by a thread whose current device is ", current, "; call cudaSetDevice(",
                 device,
                 ") at the beginning of the rank's thread, before it creates streams and memory."});
        }
    }

    /// @brief Throws if work that was enqueued earlier is known to have failed.
    /// @throws CudaError; InvalidArgument without a stream
    static void rethrow_failure(Queue queue) {
        require_set(queue);
        cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
        cudaError_t const code = detail::query_capture(
            queue, status); // legal during a capture, and reports failures of earlier work
        if (code != cudaErrorStreamCaptureImplicit) {
            detail::check(code, "work that was enqueued earlier");
        }
    }

    /// @brief Reads one value on the host. The caller has waited for the work that writes it.
    /// @throws CudaError; OutOfOrder while a graph is captured
    template <class T>
    static T load(T const* value) {
        T result{};
        detail::SideStream const stream;
        detail::check(
            cudaMemcpyAsync(&result, value, sizeof(T), cudaMemcpyDeviceToHost, stream.get()),
            "cudaMemcpyAsync");
        detail::check(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
        return result;
    }

    /// @brief Enqueues a copy between ranges that do not overlap; a no-op if they are the same.
    /// Either side may be host memory. @throws CudaError
    static void copy_bytes(Queue queue, void* out, void const* in, std::size_t bytes) {
        if (bytes != 0 && out != in) {
            CaptureLock const lock(queue);
            detail::check(cudaMemcpyAsync(out, in, bytes, cudaMemcpyDefault, queue),
                          "cudaMemcpyAsync");
        }
    }

    /// @brief Enqueues a call of `function` on the host, which must not call CUDA, throw or wait
    /// for work of a stream. Later work of the stream waits for it. @throws CudaError
    static void run_on_host(Queue queue, void (*function)(void*), void* argument) {
        CaptureLock const lock(queue);
        detail::check(cudaLaunchHostFunc(queue, function, argument), "cudaLaunchHostFunc");
    }

    /// @brief Copies on a stream of its own, in a thread of the library. Either side may be host
    /// memory.
    class Copier {
    public:
        /// @brief For memory of the current device. @throws CudaError
        Copier() : _device(detail::current_device()) {}

        /// @brief Copies, and waits for that. The device stays current for the thread, which then
        /// needs no context on another one. @throws CudaError
        void operator()(void* to, void const* from, std::size_t bytes) const {
            detail::OutsideCapture const outside; // another thread may capture
            detail::check(cudaSetDevice(_device), "cudaSetDevice");
            copy_bytes(_stream.get(), to, from, bytes);
            detail::check(cudaStreamSynchronize(_stream.get()), "cudaStreamSynchronize");
        }

    private:
        int _device;
        OwnedStream _stream;
    };

private:
    static void require_set(Queue queue) {
        if (queue == unset_stream()) {
            zero::detail::throw_error<InvalidArgument>(
                {"zero: no compute queue was given; set the option compute_queue to the stream "
                 "on which the model runs."});
        }
    }
};

} // namespace ZERO_NAMESPACE::cuda
