#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/detail/text.hpp"
#include "../core/memory_resource.hpp"
#include "detail/nccl_flights.hpp"
#include "detail/nccl_session.hpp"
#include "nccl_communicator.hpp"
#include "nccl_library.hpp"

#include <cstddef>
#include <mutex>
#include <vector>

namespace ZERO_NAMESPACE::cuda {

/// @brief An engine's memory resource that takes buffers of collectives from NCCL, registered with
/// a communicator, and everything else from another resource.
///
/// NCCL can access such buffers over NVLink and the network without staging copies. Each is a whole
/// number of device pages (mostly 2 MiB), so scalars, states and master weights stay with the other
/// resource. Owns the registrations. Destroy the owners of the memory first, then this resource,
/// then the communicator. Thread-safe.
class NcclMemoryResource final : public MemoryResource {
public:
    /// @param communicator must outlive this object, as must `other`
    template <class B>
    NcclMemoryResource(BasicNcclCommunicator<B>& communicator, MemoryResource& other) noexcept
        : _session(&communicator.session()), _other(&other) {}

    /// @brief Allocates from NCCL on the current device and registers the memory if
    /// `is_moved_by_collectives`; otherwise from the other resource.
    /// @throws NcclError; Aborted after an abort; any exception of the other resource
    [[nodiscard]] void* allocate(std::size_t bytes, BufferKind kind) override {
        if (!is_moved_by_collectives(kind)) {
            return _other->allocate(bytes, kind);
        }
        NcclLibrary& nccl = *_session->interfaces().nccl;
        void* memory = nullptr;
        detail::require_success(
            nccl, nccl.memory_allocate(memory, bytes),
            zero::detail::text({"ncclMemAlloc of ", bytes, " bytes for ", name_of(kind)}));
        try {
            keep(memory, bytes);
        } catch (...) {
            nccl.memory_free(memory);
            throw;
        }
        return memory;
    }

    /// @brief Ends the registration, unless an abort has ended it, and frees the memory. No stream
    /// may use the memory any more.
    void deallocate(void* memory, std::size_t bytes, BufferKind kind) noexcept override {
        if (!is_moved_by_collectives(kind)) {
            _other->deallocate(memory, bytes, kind);
            return;
        }
        _session->deregister_memory(forget(memory));
        _session->interfaces().nccl->memory_free(memory);
    }

    /// @brief Returns whether a buffer of this kind comes from NCCL: parameters, gradients, leases
    /// and the wire buffer.
    static constexpr bool is_moved_by_collectives(BufferKind kind) noexcept {
        return kind == BufferKind::parameters || kind == BufferKind::gradients
               || kind == BufferKind::gradient_leases || kind == BufferKind::parameter_leases
               || kind == BufferKind::wire;
    }

private:
    struct Registration {
        void* memory;
        void* handle;
    };

    void keep(void* memory, std::size_t bytes) {
        std::lock_guard const lock(_mutex);
        _registrations.push_back({memory, nullptr});
        try {
            _registrations.back().handle = _session->register_memory(memory, bytes);
        } catch (...) {
            _registrations.pop_back();
            throw;
        }
    }

    void* forget(void* memory) noexcept {
        std::lock_guard const lock(_mutex);
        for (Registration& registration : _registrations) {
            if (registration.memory == memory) {
                void* const handle = registration.handle;
                registration = _registrations.back();
                _registrations.pop_back();
                return handle;
            }
        }
        return nullptr;
    }

    detail::NcclSession* _session;
    MemoryResource* _other;
    std::mutex _mutex;
    std::vector<Registration> _registrations; ///< few, one per buffer of an engine
};

} // namespace ZERO_NAMESPACE::cuda
