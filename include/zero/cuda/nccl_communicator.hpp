#pragma once

#include "../comm/communicator.hpp"
#include "../comm/detail/collective_call.hpp"
#include "../comm/traffic_count.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/dtype.hpp"
#include "../core/hash.hpp"
#include "../core/policy_category.hpp"
#include "../core/storage_types.hpp"
#include "detail/nccl_require_matching_version.hpp"
#include "detail/nccl_require_success.hpp"
#include "detail/nccl_session.hpp"
#include "detail/nccl_start.hpp"
#include "nccl_interface.hpp"
#include "nccl_library.hpp"
#include "nccl_options.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::cuda {

/// @brief A communicator over NCCL, for any backend whose queues are streams. `cuda/nccl.hpp` has
/// the one that is meant for use, with NCCL's own types.
///
/// One object per rank; one thread at a time calls it, except for `abort`. Calls enqueue and
/// return; the first ones, in which NCCL connects the ranks, wait for the peers. Cuts in W equal
/// parts use NCCL's reduce-scatter and all-gather; others one group of reduce or broadcast per
/// non-empty extent. Sums are formed by NCCL in the element type, in the order of its algorithm:
/// the same for the same call on the same machines, but not the order of the ranks. An all-reduce
/// is a reduce-scatter and an all-gather, so that it has the same bits (unless `native_all_reduce`
/// is set). One rank alone copies.
///
/// Any error of NCCL, of a peer or of the clock aborts the communicator and throws; what the
/// watchdog finds is thrown by the next call. From then on every call throws `Aborted` with the
/// first cause. Ranks of one process learn each other's causes; those of other processes see an
/// error of NCCL or their time-out. The destructor waits for what was enqueued, at most
/// `finish_time_out`; then, or while an exception unwinds, it aborts. (That of a reference does
/// neither: see `refer_to`.) An abort is waited for at most 5 s. Destroy CUDA graphs that hold
/// collectives before the communicator: NCCL waits for them.
template <class B>
class BasicNcclCommunicator {
public:
    using policy_category = CommunicatorCategory;
    using Backend = B;
    using Queue = typename B::Queue;

    /// @brief Uses a communicator of the caller, whose it stays. Its device must be the current
    /// one. One that NCCL still sets up is waited for.
    ///
    /// The destructor of a reference neither waits nor aborts, also while an exception unwinds: the
    /// caller waits (`synchronise`) or lets the peers go (`abort`). Any failure aborts by itself,
    /// which frees NCCL's communicator. So the reference outlives the scope of the engine, is asked
    /// `is_aborted()` last, and goes before the handle, which its watchdog uses: that is destroyed
    /// only if the answer was no.
    /// @throws InvalidArgument; NcclVersionMismatch; NcclError; CommunicatorError; TimedOut when it
    /// is not set up in time
    static BasicNcclCommunicator refer_to(NcclInterface interfaces, NcclHandle handle,
                                          NcclOptions const& options = {}) {
        return BasicNcclCommunicator(detail::use_handle(interfaces, handle, false, options));
    }

    /// @brief Takes over a communicator of the caller, whose it stays when this throws. One that
    /// NCCL made non-blocking is destroyed in bounded time.
    /// @throws as `refer_to`
    static BasicNcclCommunicator take_over(NcclInterface interfaces, NcclHandle handle,
                                           NcclOptions const& options = {}) {
        return BasicNcclCommunicator(detail::use_handle(interfaces, handle, true, options));
    }

    /// @brief Joins a new group; collective. Uses the current device.
    /// @param id what one rank got from `make_unique_id` and sent to all
    /// @throws InvalidArgument, also where NCCL_COMM_BLOCKING contradicts the mode;
    /// NcclVersionMismatch; NcclError; CommunicatorError; TimedOut when ranks are missing
    static BasicNcclCommunicator from_unique_id(NcclInterface interfaces, NcclUniqueId const& id,
                                                int rank, int world,
                                                NcclOptions const& options = {}) {
        return BasicNcclCommunicator(detail::join_group(interfaces, id, rank, world, options));
    }

    /// @brief Joins the group of the processes that torchrun, or a launcher that sets the same
    /// variables, started; collective. Makes LOCAL_RANK the current device.
    ///
    /// Reads RANK, WORLD_SIZE, LOCAL_RANK and MASTER_ADDR; the port is ZERO_NCCL_PORT or the one
    /// after MASTER_PORT. Changes NCCL_COMM_ID while it runs, so no other thread may read or change
    /// the environment then.
    /// @throws LauncherError; as `from_unique_id`
    static BasicNcclCommunicator from_environment(NcclInterface interfaces,
                                                  NcclOptions const& options = {}) {
        return BasicNcclCommunicator(detail::join_launched_group(interfaces, options));
    }

    /// @brief A new group in this process, one rank per device, by rank. The current device stays
    /// as it is.
    /// @param devices each at most once, of one rank each
    /// @throws InvalidArgument; as `from_unique_id`
    static std::vector<BasicNcclCommunicator> make_group(NcclInterface interfaces,
                                                         std::span<int const> devices,
                                                         NcclOptions const& options = {}) {
        auto sessions = detail::start_group(interfaces, devices, options);
        std::vector<BasicNcclCommunicator> ranks;
        ranks.reserve(sessions.size());
        for (auto& session : sessions) {
            ranks.push_back(BasicNcclCommunicator(std::move(session)));
        }
        return ranks;
    }

    [[nodiscard]] int rank() const noexcept { return _session->rank(); }
    [[nodiscard]] int size() const noexcept { return _session->world(); }

    /// @brief What of the options ranks have to choose alike, see `Communicator`: whether NCCL's
    /// own all-reduce is used.
    [[nodiscard]] std::uint64_t options_hash() const noexcept {
        return Hash().add(_session->uses_native_all_reduce()).value();
    }

    /// @brief As `Communicator` says. @throws CommunicatorError; InvalidArgument before anything
    /// was enqueued.
    template <class T>
    void reduce_scatter(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                        CollectiveTag tag = {}) {
        require_summable<T>();
        auto const call = cut_call(CollectiveKind::reduce_scatter, dtype_of<T>(), cuts, tag);
        require_memory(call, send, call.count);
        require_memory(call, receive, own_extent(cuts));
        run(call, send, receive, call.count * sizeof(T), cuts, queue);
    }

    /// @copydoc reduce_scatter
    template <class T>
    void all_gather(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                    CollectiveTag tag = {}) {
        auto const call = cut_call(CollectiveKind::all_gather, dtype_of<T>(), cuts, tag);
        require_memory(call, send, own_extent(cuts));
        require_memory(call, receive, call.count);
        run(call, send, receive, call.count * sizeof(T), cuts, queue);
    }

    /// @copydoc reduce_scatter
    template <class T>
    void all_reduce(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                    CollectiveTag tag = {}) {
        require_summable<T>();
        auto const call = cut_call(CollectiveKind::all_reduce, dtype_of<T>(), cuts, tag);
        require_memory(call, send, call.count);
        require_memory(call, receive, call.count);
        run(call, send, receive, call.count * sizeof(T), cuts, queue);
    }

    /// @copydoc reduce_scatter
    template <class T>
    void broadcast(T* buffer, std::size_t elements, int root, Queue queue, CollectiveTag tag = {}) {
        auto const call = zero::detail::broadcast_call(dtype_of<T>(), elements, root, tag, world());
        require_memory(call, buffer, elements);
        run(call, buffer, buffer, elements * sizeof(T), {}, queue);
    }

    /// @copydoc reduce_scatter
    void all_reduce_integers(std::int64_t* values, std::size_t elements, IntegerReduction reduction,
                             Queue queue, CollectiveTag tag = {}) {
        zero::detail::CollectiveCall const call{CollectiveKind::integers, DType::int64, elements,
                                                static_cast<std::uint64_t>(reduction), tag};
        require_memory(call, values, elements);
        run(call, values, values, elements * sizeof(std::int64_t), {}, queue);
    }

    /// @brief Ends every wait of this rank, on the host and on the device, and frees NCCL's
    /// communicator. Any thread.
    void abort(std::string_view cause, bool is_provisional = false) noexcept {
        _session->abort(cause, is_provisional);
    }

    /// @brief Throws what has gone wrong since the last call (asynchronous errors, time-outs,
    /// aborts). Waits for nothing; for the rank's own thread.
    ///
    /// Call it after having waited for the device by other means: an abort ends such a wait, and
    /// leaves the data undefined.
    void rethrow_failure() { _session->check("a question for failures"); }

    /// @brief Waits until all collectives so far have run, as long as the time-out allows. @throws
    /// TimedOut, NcclError, Aborted
    void synchronise() { _session->synchronise(); }

    /// @brief Whether NCCL's communicator was freed by an abort, of whatever cause; then every call
    /// throws. Any thread.
    [[nodiscard]] bool is_aborted() const noexcept { return _session->handle() == nullptr; }

    /// @brief The ncclComm_t, null after an abort.
    [[nodiscard]] NcclHandle handle() const noexcept { return _session->handle(); }

    /// @brief NCCL and the system, as they were given.
    [[nodiscard]] NcclInterface interfaces() const noexcept { return _session->interfaces(); }

    /// @brief For the parts of this library that work on the same communicator.
    [[nodiscard]] detail::NcclSession& session() const noexcept { return *_session; }

protected:
    /// @brief Takes a rank's session that has been opened; not null.
    explicit BasicNcclCommunicator(std::unique_ptr<detail::NcclSession> session) noexcept
        : _session(std::move(session)) {}

private:
    template <class T>
    static constexpr void require_summable() {
        static_assert(StorageType<T>, "zero: NcclCommunicator sums float, bfloat16 and float16; "
                                      "integers go through all_reduce_integers.");
    }

    [[nodiscard]] std::size_t world() const noexcept { return static_cast<std::size_t>(size()); }

    [[nodiscard]] std::size_t own_extent(std::span<std::size_t const> cuts) const noexcept {
        auto const own = static_cast<std::size_t>(rank());
        return cuts[own + 1] - cuts[own];
    }

    [[nodiscard]] zero::detail::CollectiveCall cut_call(CollectiveKind kind, DType type,
                                                        std::span<std::size_t const> cuts,
                                                        CollectiveTag tag) const {
        return zero::detail::cut_call(kind, type, cuts, tag, static_cast<std::size_t>(rank()),
                                      world());
    }

    void require_memory(zero::detail::CollectiveCall const& call, void const* memory,
                        std::size_t elements) const {
        zero::detail::require_memory(call, memory, elements, static_cast<std::size_t>(rank()));
    }

    void run(zero::detail::CollectiveCall const& call, void const* send, void* receive,
             std::size_t bytes, std::span<std::size_t const> cuts, Queue queue) {
        static_assert(std::is_convertible_v<Queue, StreamHandle>,
                      "zero: NcclCommunicator needs a backend whose queue is a pointer, as a "
                      "cudaStream_t is.");
        B::rethrow_failure(queue);
        if (size() == 1) {
            _session->check(call.tag.what);
            B::copy_bytes(queue, receive, send, bytes);
        } else {
            _session->run(call, send, receive, cuts, queue);
        }
    }

    std::unique_ptr<detail::NcclSession> _session;
};

/// @brief A new group's id, to be sent to all its ranks. @throws NcclError
inline NcclUniqueId make_unique_id(NcclInterface interfaces) {
    detail::require_matching_version(*interfaces.nccl);
    NcclUniqueId id;
    detail::require_success(*interfaces.nccl, interfaces.nccl->get_unique_id(id),
                            "ncclGetUniqueId");
    return id;
}

} // namespace ZERO_NAMESPACE::cuda
