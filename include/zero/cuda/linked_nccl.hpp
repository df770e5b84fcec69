#pragma once

#include "../core/detail/namespace.hpp"
#include "detail/runtime/check.hpp"
#include "nccl_library.hpp"
#include "nccl_options.hpp"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE::cuda {

static_assert(NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0),
              "zero: cuda::NcclCommunicator needs NCCL 2.19 or later (non-blocking communicators, "
              "ncclMemAlloc, ncclCommRegister).");
static_assert(sizeof(NcclUniqueId) == sizeof(ncclUniqueId));
#ifdef NCCL_CTA_POLICY_ZERO
static_assert(NCCL_CTA_POLICY_DEFAULT == 0 && NCCL_CTA_POLICY_EFFICIENCY == 1
              && NCCL_CTA_POLICY_ZERO == 2 && static_cast<int>(NcclCtaPolicy::zero) == 3);
#endif
static_assert(static_cast<int>(NcclResult::success) == ncclSuccess
              && static_cast<int>(NcclResult::unhandled_cuda_error) == ncclUnhandledCudaError
              && static_cast<int>(NcclResult::system_error) == ncclSystemError
              && static_cast<int>(NcclResult::internal_error) == ncclInternalError
              && static_cast<int>(NcclResult::invalid_argument) == ncclInvalidArgument
              && static_cast<int>(NcclResult::invalid_usage) == ncclInvalidUsage
              && static_cast<int>(NcclResult::remote_error) == ncclRemoteError
              && static_cast<int>(NcclResult::in_progress) == ncclInProgress);

/// @brief The `NcclLibrary` of real programs: the NCCL that the program is linked with. Stateless;
/// `linked_nccl()` returns it.
class LinkedNccl final : public NcclLibrary {
public:
    int header_version() noexcept override { return NCCL_VERSION_CODE; }
    NcclResult get_version(int& version) noexcept override { return of(ncclGetVersion(&version)); }
    char const* error_string(NcclResult result) noexcept override {
        return ncclGetErrorString(static_cast<ncclResult_t>(result));
    }
    char const* last_error(NcclHandle handle) noexcept override {
        return ncclGetLastError(comm(handle));
    }

    NcclResult get_unique_id(NcclUniqueId& id) noexcept override {
        ncclUniqueId theirs{};
        NcclResult const result = of(ncclGetUniqueId(&theirs));
        id = __builtin_bit_cast(NcclUniqueId, theirs);
        return result;
    }

    NcclResult init_rank(NcclHandle& handle, int world, NcclUniqueId const& id, int rank,
                         NcclOptions const& options) noexcept override {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = options.mode == NcclMode::blocking ? 1 : 0;
        config.minCTAs = options.min_ctas != 0 ? options.min_ctas : config.minCTAs;
        config.maxCTAs = options.max_ctas != 0 ? options.max_ctas : config.maxCTAs;
        config.cgaClusterSize = options.cluster_size.value_or(config.cgaClusterSize);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
        if (options.cta_policy != NcclCtaPolicy::library) { // NCCL's numbers begin with 0
            config.CTAPolicy = static_cast<int>(options.cta_policy) - 1;
        }
#endif
        ncclComm_t made = nullptr;
        NcclResult const result = of(ncclCommInitRankConfig(
            &made, world, __builtin_bit_cast(ncclUniqueId, id), rank, &config));
        handle = made;
        return result;
    }

    bool has_split() noexcept override { return true; } // since 2.18
    NcclResult split(NcclHandle handle, int color, int key, NcclHandle& part) noexcept override {
        // NCCL writes the pointer from its own thread, perhaps after this call, so it gets no
        // temporary.
        return of(
            ncclCommSplit(comm(handle), color, key, reinterpret_cast<ncclComm_t*>(&part), nullptr));
    }

    NcclResult count(NcclHandle handle, int& world) noexcept override {
        return of(ncclCommCount(comm(handle), &world));
    }
    NcclResult user_rank(NcclHandle handle, int& rank) noexcept override {
        return of(ncclCommUserRank(comm(handle), &rank));
    }

    NcclResult get_async_error(NcclHandle handle, NcclResult& error) noexcept override {
        ncclResult_t theirs = ncclSuccess;
        NcclResult const result = of(ncclCommGetAsyncError(comm(handle), &theirs));
        error = of(theirs);
        return result;
    }

    NcclResult finalize(NcclHandle handle) noexcept override {
        return of(ncclCommFinalize(comm(handle)));
    }
    NcclResult destroy(NcclHandle handle) noexcept override {
        return of(ncclCommDestroy(comm(handle)));
    }
    NcclResult abort(NcclHandle handle) noexcept override {
        return of(ncclCommAbort(comm(handle)));
    }
    NcclResult group_start() noexcept override { return of(ncclGroupStart()); }
    NcclResult group_end() noexcept override { return of(ncclGroupEnd()); }

    NcclResult reduce(void const* send, void* receive, std::size_t count, NcclType type,
                      NcclReduction reduction, int root, NcclHandle handle,
                      StreamHandle stream) noexcept override {
        return of(ncclReduce(send, receive, count, type_of(type), operation_of(reduction), root,
                             comm(handle), stream_of(stream)));
    }
    NcclResult broadcast(void const* send, void* receive, std::size_t count, NcclType type,
                         int root, NcclHandle handle, StreamHandle stream) noexcept override {
        return of(ncclBroadcast(send, receive, count, type_of(type), root, comm(handle),
                                stream_of(stream)));
    }
    NcclResult all_reduce(void const* send, void* receive, std::size_t count, NcclType type,
                          NcclReduction reduction, NcclHandle handle,
                          StreamHandle stream) noexcept override {
        return of(ncclAllReduce(send, receive, count, type_of(type), operation_of(reduction),
                                comm(handle), stream_of(stream)));
    }
    NcclResult reduce_scatter(void const* send, void* receive, std::size_t count, NcclType type,
                              NcclReduction reduction, NcclHandle handle,
                              StreamHandle stream) noexcept override {
        return of(ncclReduceScatter(send, receive, count, type_of(type), operation_of(reduction),
                                    comm(handle), stream_of(stream)));
    }
    NcclResult all_gather(void const* send, void* receive, std::size_t count, NcclType type,
                          NcclHandle handle, StreamHandle stream) noexcept override {
        return of(
            ncclAllGather(send, receive, count, type_of(type), comm(handle), stream_of(stream)));
    }

    NcclResult send(void const* memory, std::size_t count, NcclType type, int peer,
                    NcclHandle handle, StreamHandle stream) noexcept override {
        return of(ncclSend(memory, count, type_of(type), peer, comm(handle), stream_of(stream)));
    }
    NcclResult receive(void* memory, std::size_t count, NcclType type, int peer, NcclHandle handle,
                       StreamHandle stream) noexcept override {
        return of(ncclRecv(memory, count, type_of(type), peer, comm(handle), stream_of(stream)));
    }

    NcclResult memory_allocate(void*& memory, std::size_t bytes) noexcept override {
        return of(ncclMemAlloc(&memory, bytes));
    }
    std::size_t memory_size(void* memory, std::size_t bytes) noexcept override {
        // The runtime does not tell the size of memory that the driver maps.
        using AddressRange = int (*)(unsigned long long*, std::size_t*, unsigned long long);
        cudaError_t error = cudaSuccess;
        void* const range = detail::driver_function("cuMemGetAddressRange", 12000, error);
        unsigned long long begin = 0;
        std::size_t size = 0;
        bool const is_known = range != nullptr
                              && reinterpret_cast<AddressRange>(range)(
                                     &begin, &size, reinterpret_cast<std::uintptr_t>(memory))
                                     == 0;
        return is_known ? size : bytes;
    }
    NcclResult memory_free(void* memory) noexcept override { return of(ncclMemFree(memory)); }
    NcclResult register_memory(NcclHandle handle, void* memory, std::size_t bytes,
                               void*& registration) noexcept override {
        return of(ncclCommRegister(comm(handle), memory, bytes, &registration));
    }
    NcclResult deregister_memory(NcclHandle handle, void* registration) noexcept override {
        return of(ncclCommDeregister(comm(handle), registration));
    }

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
    bool has_windows() noexcept override { return true; }
    NcclResult register_window(NcclHandle handle, void* memory, std::size_t bytes,
                               void*& window) noexcept override {
        return of(ncclCommWindowRegister(comm(handle), memory, bytes,
                                         reinterpret_cast<ncclWindow_t*>(&window),
                                         NCCL_WIN_COLL_SYMMETRIC));
    }
    NcclResult deregister_window(NcclHandle handle, void* window) noexcept override {
        return of(ncclCommWindowDeregister(comm(handle), static_cast<ncclWindow_t>(window)));
    }
#endif

private:
    static NcclResult of(ncclResult_t result) noexcept { return static_cast<NcclResult>(result); }
    static ncclComm_t comm(NcclHandle handle) noexcept { return static_cast<ncclComm_t>(handle); }
    static cudaStream_t stream_of(StreamHandle stream) noexcept {
        return static_cast<cudaStream_t>(stream);
    }
    static ncclRedOp_t operation_of(NcclReduction reduction) noexcept {
        return reduction == NcclReduction::sum ? ncclSum : ncclMin;
    }

    static ncclDataType_t type_of(NcclType type) noexcept {
        switch (type) {
        case NcclType::float32: return ncclFloat32;
        case NcclType::bfloat16: return ncclBfloat16;
        case NcclType::float16: return ncclFloat16;
        case NcclType::int64: return ncclInt64;
        case NcclType::uint8: break;
        }
        return ncclUint8;
    }
};

} // namespace ZERO_NAMESPACE::cuda
