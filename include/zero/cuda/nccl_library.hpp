#pragma once

#include "../core/detail/namespace.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE::cuda {

/// @brief The result of a function of NCCL, with NCCL's own numbers, so that code can distinguish
/// results without NCCL's header.
enum class NcclResult : int {
    success = 0,              ///< ncclSuccess
    unhandled_cuda_error = 1, ///< a call of the CUDA runtime failed inside NCCL
    system_error = 2,         ///< a call of the operating system failed inside NCCL
    internal_error = 3,       ///< a defect of NCCL, or overwritten memory
    invalid_argument = 4,     ///< an argument is wrong
    invalid_usage =
        5, ///< calls that contradict each other, or memory or devices that NCCL cannot use
    remote_error = 6, ///< a peer left, or the network failed
    in_progress = 7 ///< a non-blocking call is not done yet; `NcclLibrary::get_async_error` reports
                    ///< when it is
};

/// @brief The id of a group, which all its ranks must share before they can meet: 128 opaque bytes
/// that the program sends by any means.
struct NcclUniqueId {
    std::array<std::byte, 128> bytes{}; ///< as NCCL made them, equal on all ranks of the group
};

/// @brief The operation by which a reduction combines the ranks' values, per element.
enum class NcclReduction : std::uint8_t {
    sum, ///< in the order of NCCL's algorithm
    min  ///< the smallest
};

/// @brief Element types by size and meaning. The numbers are this library's, not NCCL's.
enum class NcclType : std::uint8_t { float32, bfloat16, float16, int64, uint8 };

/// @brief The behaviour of calls that NCCL cannot finish at once.
///
/// Blocking, the default, is faster: a collective costs the host about 20 us instead of about 100
/// (H100, NCCL 2.30.7), because each non-blocking call starts a thread inside NCCL. An absent peer
/// holds a blocking call until the watchdog aborts the communicator after the time-out, which NCCL
/// does not promise to survive. A start, a split and the end of a communicator have no handle that
/// could be aborted, or may survive the abort: they run on a thread of their own. After the
/// time-out the caller throws, or the destructor aborts, and the thread is left to itself until
/// NCCL returns.
///
/// Non-blocking calls return at once and are polled, so no thread is left behind. They need no
/// watchdog to end a call.
enum class NcclMode : std::uint8_t { non_blocking, blocking };

struct NcclOptions;

using NcclHandle = void*;   ///< an ncclComm_t
using StreamHandle = void*; ///< a cudaStream_t

/// @brief The functions of NCCL that the communicator calls, as a replaceable interface.
/// `cuda/linked_nccl.hpp` has the implementation for programs; tests provide fakes.
///
/// The functions behave as NCCL documents, throw nothing and return NCCL's codes. A unique id and a
/// handle are NCCL's, without their types. Collectives enqueue on `stream` and return. Every rank
/// calls the same collectives in the same order, with memory of its device. Any call on a
/// non-blocking communicator may return `in_progress`: then nothing else may be called on it until
/// `get_async_error` reports that the call is done.
class NcclLibrary {
public:
    NcclLibrary() = default;
    NcclLibrary(NcclLibrary const&) = delete;
    NcclLibrary& operator=(NcclLibrary const&) = delete;
    virtual ~NcclLibrary() = default;

    /// @brief Returns the version of the header that the program was compiled with, coded as in
    /// NCCL: 22809 is 2.28.9.
    virtual int header_version() noexcept = 0;
    /// @brief Gets the version of the library that was loaded, in the same code.
    virtual NcclResult get_version(int& version) noexcept = 0;
    /// @brief Returns NCCL's own text for a code; static.
    virtual char const* error_string(NcclResult result) noexcept = 0;
    /// @brief Returns NCCL's last log message, which may belong to another call.
    virtual char const* last_error(NcclHandle handle) noexcept = 0;

    /// @brief Makes the id of a new group. The process then listens for the ranks; if NCCL_COMM_ID
    /// is set, the id is that address.
    virtual NcclResult get_unique_id(NcclUniqueId& id) noexcept = 0;
    /// @brief Joins a group with the current device; collective. If this fails, `handle` is null or
    /// must be aborted. @param options the mode, and how collectives are launched
    virtual NcclResult init_rank(NcclHandle& handle, int world, NcclUniqueId const& id, int rank,
                                 NcclOptions const& options) noexcept = 0;
    /// @brief Returns whether `split` exists. Optional: without it communicators cannot be split.
    virtual bool has_split() noexcept { return false; }
    /// @brief Makes the communicator of the ranks of the same color, with the mode of `handle`;
    /// collective. Optional. No collective may be in flight. `part` is written when the call is
    /// done, and must stay valid until then. `color` is at least 0.
    virtual NcclResult split(NcclHandle /*handle*/, int /*color*/, int /*key*/,
                             NcclHandle& /*part*/) noexcept {
        return NcclResult::invalid_usage;
    }
    /// @brief Gets the number of ranks. Joins the last call, which must be done.
    virtual NcclResult count(NcclHandle handle, int& world) noexcept = 0;
    /// @brief Gets the rank, from 0.
    virtual NcclResult user_rank(NcclHandle handle, int& rank) noexcept = 0;
    /// @brief Polls: `error` is `in_progress` until the last call is done, then its result, or the
    /// error of a failure in the background.
    virtual NcclResult get_async_error(NcclHandle handle, NcclResult& error) noexcept = 0;
    /// @brief Starts the shutdown: enqueued work is flushed. `destroy` follows once this is done.
    virtual NcclResult finalize(NcclHandle handle) noexcept = 0;
    /// @brief Frees the communicator, after `finalize`. Waits for CUDA graphs that hold its
    /// collectives and for ranks on this machine.
    virtual NcclResult destroy(NcclHandle handle) noexcept = 0;
    /// @brief Ends kernels that wait for peers, which leaves their data undefined, and frees the
    /// communicator. Waits as `destroy` does.
    virtual NcclResult abort(NcclHandle handle) noexcept = 0;

    /// @brief Starts a group: collectives of this thread up to `group_end` start together.
    virtual NcclResult group_start() noexcept = 0;
    /// @brief Starts the collectives since `group_start` and may return their failures.
    virtual NcclResult group_end() noexcept = 0;
    /// @brief Reduces `count` elements into `receive` of `root`; on other ranks `receive` may be
    /// null.
    virtual NcclResult reduce(void const* send, void* receive, std::size_t count, NcclType type,
                              NcclReduction reduction, int root, NcclHandle handle,
                              StreamHandle stream) noexcept = 0;
    /// @brief Copies `count` elements from `send` of `root` to `receive` of every rank.
    virtual NcclResult broadcast(void const* send, void* receive, std::size_t count, NcclType type,
                                 int root, NcclHandle handle, StreamHandle stream) noexcept = 0;
    /// @brief Reduces `count` elements into `receive` of every rank.
    virtual NcclResult all_reduce(void const* send, void* receive, std::size_t count, NcclType type,
                                  NcclReduction reduction, NcclHandle handle,
                                  StreamHandle stream) noexcept = 0;
    /// @brief Reduces W * `count` elements of `send`; `receive` of rank r gets the r-th `count` of
    /// them.
    virtual NcclResult reduce_scatter(void const* send, void* receive, std::size_t count,
                                      NcclType type, NcclReduction reduction, NcclHandle handle,
                                      StreamHandle stream) noexcept = 0;
    /// @brief Concatenates `count` elements of each rank's `send`, in rank order, in `receive` of
    /// every rank.
    virtual NcclResult all_gather(void const* send, void* receive, std::size_t count, NcclType type,
                                  NcclHandle handle, StreamHandle stream) noexcept = 0;

    /// @brief Sends `count` elements to `peer`, which receives them by the call of the same number
    /// between the two. Called inside a group, also for this rank itself.
    virtual NcclResult send(void const* memory, std::size_t count, NcclType type, int peer,
                            NcclHandle handle, StreamHandle stream) noexcept = 0;
    /// @brief Receives what `send` of `peer` sends.
    virtual NcclResult receive(void* memory, std::size_t count, NcclType type, int peer,
                               NcclHandle handle, StreamHandle stream) noexcept = 0;

    /// @brief Allocates memory of the current device that NCCL can map into peers, in whole pages.
    virtual NcclResult memory_allocate(void*& memory, std::size_t bytes) noexcept = 0;
    /// @brief Returns the bytes that `memory_allocate` took from the device for `bytes`, rounding
    /// included. Optional: without it `bytes` counts.
    virtual std::size_t memory_size(void* /*memory*/, std::size_t bytes) noexcept { return bytes; }
    /// @brief Frees memory from `memory_allocate`.
    virtual NcclResult memory_free(void* memory) noexcept = 0;
    /// @brief Registers memory, so that collectives of the communicator use it without staging
    /// copies. `registration` is null if NCCL keeps none.
    virtual NcclResult register_memory(NcclHandle handle, void* memory, std::size_t bytes,
                                       void*& registration) noexcept = 0;
    /// @brief Ends a registration; call it before the memory is freed.
    virtual NcclResult deregister_memory(NcclHandle handle, void* registration) noexcept = 0;

    /// @brief Returns whether `register_window` exists. Optional: without it `NcclArena::symmetric`
    /// is refused.
    virtual bool has_windows() noexcept { return false; }
    /// @brief Registers memory of `memory_allocate` as a symmetric window; collective, with equal
    /// sizes. Optional. `window` is null if the machine cannot have one; it is written when the
    /// call is done, and must stay valid until then.
    virtual NcclResult register_window(NcclHandle /*handle*/, void* /*memory*/,
                                       std::size_t /*bytes*/, void*& /*window*/) noexcept {
        return NcclResult::invalid_usage;
    }
    /// @brief Ends a window; call it before the memory is freed. Waits for no rank.
    virtual NcclResult deregister_window(NcclHandle /*handle*/, void* /*window*/) noexcept {
        return NcclResult::invalid_usage;
    }
};

} // namespace ZERO_NAMESPACE::cuda
