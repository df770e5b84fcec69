#pragma once

#include "../core/detail/namespace.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE::cuda {

/// @brief What a function of NCCL returns: NCCL's own numbers, so that they can be told apart
/// without its header.
enum class NcclResult : int {
    success = 0,              ///< ncclSuccess
    unhandled_cuda_error = 1, ///< a call of the CUDA runtime failed inside NCCL
    system_error = 2,         ///< a call of the operating system failed inside NCCL
    internal_error = 3,       ///< NCCL itself, or memory that was written over
    invalid_argument = 4,     ///< one argument is wrong
    invalid_usage = 5, ///< calls that do not go together, or memory or devices that NCCL cannot use
    remote_error = 6,  ///< a peer left or the network failed
    in_progress =
        7 ///< a non-blocking call goes on; `NcclLibrary::get_async_error` says when it is done
};

/// @brief What the ranks of a group have to share before they can meet (128 opaque bytes; send them
/// to the others by any means).
struct NcclUniqueId {
    std::array<std::byte, 128> bytes{}; ///< as NCCL made them, the same on every rank of the group
};

/// @brief What a reduction makes of the ranks' values, element by element.
enum class NcclReduction : std::uint8_t {
    sum, ///< in the order of NCCL's algorithm
    min  ///< the smallest
};

/// @brief Element types by size and meaning; the numbers are this library's, not NCCL's.
enum class NcclType : std::uint8_t { float32, bfloat16, float16, int64, uint8 };

/// @brief How calls behave that NCCL cannot finish at once.
///
/// Non-blocking ones return, are asked about and can be given up: an absent peer is an exception
/// after the time-out. Each costs the start of a thread inside NCCL. Blocking ones save it (it
/// matters for many small buckets) and can hang the calling thread: in the start and in a
/// destructor for good, in a collective until an abort from another thread, for instance the
/// watchdog's, which NCCL does not promise to survive.
enum class NcclMode : std::uint8_t { non_blocking, blocking };

using NcclHandle = void*;   ///< an ncclComm_t
using StreamHandle = void*; ///< a cudaStream_t

/// @brief The functions of NCCL that the communicator calls, as a replaceable table:
/// `cuda/nccl.hpp` has the real one.
///
/// They mean what NCCL documents, throw nothing and return its codes. A unique id and a handle are
/// NCCL's, without their types. Collectives enqueue on `stream` and return; every rank calls the
/// same ones in the same order, with memory of its device. Those of a non-blocking communicator may
/// return `in_progress`, as may its other calls: then nothing else is called on it until
/// `get_async_error` says that this one is done.
class NcclLibrary {
public:
    NcclLibrary() = default;
    NcclLibrary(NcclLibrary const&) = delete;
    NcclLibrary& operator=(NcclLibrary const&) = delete;
    virtual ~NcclLibrary() = default;

    /// @brief The version of the header that the program was compiled with, coded as NCCL does:
    /// 22809 is 2.28.9.
    virtual int header_version() noexcept = 0;
    /// @brief The version of the library that was loaded, coded alike.
    virtual NcclResult get_version(int& version) noexcept = 0;
    /// @brief NCCL's own text for a code; static.
    virtual char const* error_string(NcclResult result) noexcept = 0;
    /// @brief What NCCL logged last, which may be of another call.
    virtual char const* last_error(NcclHandle handle) noexcept = 0;

    /// @brief The id of a new group; the process listens for its ranks, or, where NCCL_COMM_ID is
    /// set, the id is that address.
    virtual NcclResult get_unique_id(NcclUniqueId& id) noexcept = 0;
    /// @brief Joins a group with the current device; collective. When this fails, `handle` is null
    /// or must be aborted.
    virtual NcclResult init_rank(NcclHandle& handle, int world, NcclUniqueId const& id, int rank,
                                 NcclMode mode) noexcept = 0;
    /// @brief How many ranks the group has. Joins the last call, which must be done.
    virtual NcclResult count(NcclHandle handle, int& world) noexcept = 0;
    /// @brief The number of this rank, from 0.
    virtual NcclResult user_rank(NcclHandle handle, int& rank) noexcept = 0;
    /// @brief Asks without waiting: `error` is `in_progress` until the last call is done, then its
    /// result, or what failed in the background.
    virtual NcclResult get_async_error(NcclHandle handle, NcclResult& error) noexcept = 0;
    /// @brief Begins the end: what was enqueued is flushed; `destroy` follows when that is done.
    virtual NcclResult finalize(NcclHandle handle) noexcept = 0;
    /// @brief Frees the communicator; after `finalize`. Waits for CUDA graphs that hold its
    /// collectives and for ranks on this machine.
    virtual NcclResult destroy(NcclHandle handle) noexcept = 0;
    /// @brief Ends kernels that wait for peers, which leave their data undefined, and frees the
    /// communicator. Waits as `destroy` does.
    virtual NcclResult abort(NcclHandle handle) noexcept = 0;

    /// @brief Collectives of this thread from here to `group_end` start together.
    virtual NcclResult group_start() noexcept = 0;
    /// @brief Starts the collectives since `group_start`; their failures may be returned here.
    virtual NcclResult group_end() noexcept = 0;
    /// @brief `receive` of `root` gets the reduction of `count` elements; elsewhere it may be null.
    virtual NcclResult reduce(void const* send, void* receive, std::size_t count, NcclType type,
                              NcclReduction reduction, int root, NcclHandle handle,
                              StreamHandle stream) noexcept = 0;
    /// @brief `receive` of every rank gets the `count` elements that `send` of `root` holds.
    virtual NcclResult broadcast(void const* send, void* receive, std::size_t count, NcclType type,
                                 int root, NcclHandle handle, StreamHandle stream) noexcept = 0;
    /// @brief `receive` of every rank gets the reduction of `count` elements.
    virtual NcclResult all_reduce(void const* send, void* receive, std::size_t count, NcclType type,
                                  NcclReduction reduction, NcclHandle handle,
                                  StreamHandle stream) noexcept = 0;
    /// @brief `send` holds W * `count` elements; `receive` of rank r gets the reduction of the r-th
    /// part of `count`.
    virtual NcclResult reduce_scatter(void const* send, void* receive, std::size_t count,
                                      NcclType type, NcclReduction reduction, NcclHandle handle,
                                      StreamHandle stream) noexcept = 0;
    /// @brief `send` holds `count` elements; `receive` gets W * `count`, by rank.
    virtual NcclResult all_gather(void const* send, void* receive, std::size_t count, NcclType type,
                                  NcclHandle handle, StreamHandle stream) noexcept = 0;

    /// @brief Memory of the current device that NCCL can map into peers; whole pages.
    virtual NcclResult memory_allocate(void*& memory, std::size_t bytes) noexcept = 0;
    /// @brief Takes back what `memory_allocate` gave.
    virtual NcclResult memory_free(void* memory) noexcept = 0;
    /// @brief Lets collectives of the communicator use the memory without staging copies.
    /// `registration` may be null: NCCL keeps none.
    virtual NcclResult register_memory(NcclHandle handle, void* memory, std::size_t bytes,
                                       void*& registration) noexcept = 0;
    /// @brief Ends a registration, before the memory is freed.
    virtual NcclResult deregister_memory(NcclHandle handle, void* registration) noexcept = 0;
};

} // namespace ZERO_NAMESPACE::cuda
