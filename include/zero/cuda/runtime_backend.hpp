#pragma once

#include "../backend/fence.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/detail/throw_error.hpp"
#include "../core/error.hpp"
#include "../core/memory_resource.hpp"
#include "default_memory.hpp"
#include "detail/check.hpp"
#include "detail/stream_capture.hpp"
#include "event.hpp"
#include "owned_stream.hpp"
#include "slice_table.hpp"
#include "unset_stream.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>

namespace ZERO_NAMESPACE::cuda {

/// @brief What of the CUDA backend needs no kernel: streams, events, memory and copies.
/// `cuda::Backend` adds the rest.
struct RuntimeBackend {
    using Queue = cudaStream_t;
    using Event = cuda::Event;
    using OwnedQueue = OwnedStream; ///< what an engine makes for its communication

    /// @brief Slices in device memory that kernels walk; `range(first, count)` is what `inspect`,
    /// `update` and the like take.
    template <class Slice>
    using SliceTable = cuda::SliceTable<Slice>;

    static constexpr bool is_device = true; ///< the host cannot read or write the memory
    static constexpr bool copies_arguments =
        true; ///< a table of pointers may change as soon as an operation was enqueued

    static Queue handle(OwnedQueue& stream) noexcept { return stream.get(); }

    /// @brief None: the caller has to name the stream that the model runs on.
    static Queue default_compute_queue() noexcept { return unset_stream(); }

    static MemoryResource& default_memory() noexcept { return cuda::default_memory(); }

    static Event record(Queue queue) { return Event::record(queue); }
    static void wait(Queue queue, Event const& event, Fence) { event.make_wait(queue); }
    static void synchronise(Event const& event) { event.synchronise(); }
    /// @brief Waits for a stream of any device: recording an event takes the stream's own, and an
    /// engine may be destroyed where another is current.
    static void drain(Queue queue) noexcept { drain(queue, {}); }
    /// @brief The same, but a stream that is captured cannot be waited for: then for
    /// `before_capture`, and the graph is not to be launched any more.
    static void drain(Queue queue, Event const& before_capture) noexcept {
        bool const is_capturing = detail::is_capturing(queue);
        detail::OutsideCapture const outside; // one of another stream
        if (!is_capturing) {
            detail::ignore(cudaStreamSynchronize(queue));
        } else if (before_capture.handle() != nullptr) {
            detail::ignore(cudaEventSynchronize(before_capture.handle()));
        }
    }

    /// @brief Whether kernels can read and write this memory: the device's, managed, page-locked,
    /// or any where the device shares the host's page tables. @throws CudaError
    static bool is_accessible(void const* memory) {
        cudaPointerAttributes attributes{};
        detail::check(cudaPointerGetAttributes(&attributes, memory), "cudaPointerGetAttributes");
        int device = 0;
        int shares_page_tables = 0;
        detail::check(cudaGetDevice(&device), "cudaGetDevice");
        detail::check(
            cudaDeviceGetAttribute(&shares_page_tables, cudaDevAttrPageableMemoryAccess, device),
            "cudaDeviceGetAttribute");
        return attributes.type != cudaMemoryTypeUnregistered || shares_page_tables != 0;
    }

    /// @brief Throws when work that was enqueued earlier has failed, as far as that is known.
    /// @throws CudaError; InvalidArgument without a stream
    static void rethrow_failure(Queue queue) {
        if (queue == unset_stream()) {
            zero::detail::throw_error<InvalidArgument>(
                {"zero: no compute queue was given; set the option compute_queue to the stream "
                 "that the model runs on."});
        }
        cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
        cudaError_t const code = cudaStreamIsCapturing(
            queue, &status); // legal during a capture, and reports failures of earlier work
        if (code != cudaErrorStreamCaptureImplicit) {
            detail::check(code, "work that was enqueued earlier");
        }
    }

    /// @brief Reads one value on the host; what wrote it is complete. @throws CudaError; OutOfOrder
    /// while a graph is captured
    template <class T>
    static T load(T const* value) {
        T result{};
        detail::check(
            cudaMemcpyAsync(&result, value, sizeof(T), cudaMemcpyDeviceToHost, cudaStreamPerThread),
            "cudaMemcpyAsync");
        detail::check(cudaStreamSynchronize(cudaStreamPerThread), "cudaStreamSynchronize");
        return result;
    }

    /// @brief Enqueued: a copy between ranges that do not overlap; nothing when they are the same.
    /// Either side may be host memory. @throws CudaError
    static void copy_bytes(Queue queue, void* out, void const* in, std::size_t bytes) {
        if (bytes != 0 && out != in) {
            detail::check(cudaMemcpyAsync(out, in, bytes, cudaMemcpyDefault, queue),
                          "cudaMemcpyAsync");
        }
    }
};

} // namespace ZERO_NAMESPACE::cuda
