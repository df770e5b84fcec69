#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/detail/throw_error.hpp"
#include "../core/error.hpp"
#include "../core/memory_resource.hpp"
#include "../core/storage_types.hpp"
#include "../host/host_backend.hpp"
#include "../host/inline_queue.hpp"

#include <c10/core/DeviceType.h>
#include <torch/types.h>
#include <type_traits>

namespace ZERO_NAMESPACE::torch {

/// @brief Where LibTorch computes with the memory of a backend. Specialised for the host here, and
/// for CUDA in `torch/cuda.hpp`.
template <class Backend>
struct DeviceOf {
    static constexpr bool is_supported = false; ///< modules can be on it
};

/// @brief The host. LibTorch computes on the calling thread.
template <class Backend>
    requires std::is_base_of_v<HostBackend, Backend>
struct DeviceOf<Backend> {
    using Queue = typename Backend::Queue; ///< queue of commands

    static constexpr bool is_supported = true;         ///< modules can be on it
    static constexpr c10::DeviceType type = c10::kCPU; ///< device of its tensors

    /// @brief Returns the compute queue of an engine: the given one. @throws InvalidArgument if it
    /// runs commands on another thread
    static Queue compute_queue(Queue given) {
        if (dynamic_cast<host::InlineQueue*>(given) == nullptr) {
            zero::detail::throw_error<InvalidArgument>(
                {"zero: options.compute_queue is not a host::InlineQueue, but LibTorch computes on "
                 "the calling thread; leave the option as it is."});
        }
        return given;
    }

    /// @brief Returns the memory of an engine: the given one, or null for the backend's own.
    static MemoryResource* memory(MemoryResource* given) noexcept { return given; }

    /// @brief Requires that LibTorch computes on the queue, which it always does here.
    static void require_current(Queue /*queue*/) {}
};

/// @brief LibTorch's name of a parameter type.
template <class T>
constexpr at::ScalarType scalar_type_of() noexcept {
    if constexpr (std::is_same_v<T, float>) {
        return at::kFloat;
    } else if constexpr (std::is_same_v<T, bfloat16>) {
        return at::kBFloat16;
    } else {
        static_assert(std::is_same_v<T, float16>, "zero: LibTorch has no such parameter type.");
        return at::kHalf;
    }
}

} // namespace ZERO_NAMESPACE::torch
