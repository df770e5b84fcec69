#pragma once

#include "../backend/backend.hpp"
#include "../backend/fence.hpp"
#include "../comm/communicator.hpp"
#include "../comm/detail/collective_call.hpp"
#include "../comm/detail/group_place.hpp"
#include "../comm/traffic_count.hpp"
#include "../core/buffer.hpp"
#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/detail/throw_error.hpp"
#include "../core/dtype.hpp"
#include "../core/error.hpp"
#include "../core/hash.hpp"
#include "../core/memory_resource.hpp"
#include "../core/policy_category.hpp"
#include "../core/storage_types.hpp"
#include "../ops/tree_sum.hpp"
#include "detail/nccl/nccl_flights.hpp"
#include "detail/nccl/nccl_session.hpp"
#include "detail/nccl/nccl_start.hpp"
#include "nccl_library.hpp"
#include "nccl_options.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::cuda {

namespace detail {

/// @brief The memory through which `NcclOrder::rank` adds, and the addresses of its slots, which
/// never change: commands on a host queue read them later.
template <class B>
struct NcclSlots {
    NcclSlots(MemoryResource& memory, std::size_t bytes, std::size_t world)
        : slot_bytes(zero::detail::larger<std::size_t>(bytes / world, 1024) / 128 * 128),
          scratch(memory, slot_bytes * world, BufferKind::communicator) {
        auto const add_to = [&]<class T>(std::vector<T const*>& table, std::size_t rank) {
            void const* const slot = scratch.data() + rank * slot_bytes;
            table.push_back(static_cast<T const*>(slot));
        };
        for (std::size_t rank = 0; rank < world; ++rank) {
            std::apply([&](auto&... table) { (add_to(table, rank), ...); }, tables);
        }
    }
    NcclSlots(NcclSlots const&) = delete;
    NcclSlots& operator=(NcclSlots const&) = delete;

    /// @brief Waits for the commands that use the memory. The communicator has ended before, so no
    /// command waits for a peer.
    ~NcclSlots() {
        try {
            B::synchronise(used);
        } catch (...) { // a device that has failed runs no further commands
        }
    }

    template <class T>
    [[nodiscard]] T const* const* of() const noexcept {
        return std::get<std::vector<T const*>>(tables).data();
    }

    std::size_t slot_bytes;
    Buffer<std::byte> scratch;
    std::tuple<std::vector<float const*>, std::vector<bfloat16 const*>, std::vector<float16 const*>>
        tables;
    typename B::Event used{}; ///< the last use of the memory
};

} // namespace detail

/// @brief A communicator over NCCL for any backend whose queues are streams. `cuda/nccl.hpp` has
/// the one for programs, with NCCL's own types. Owns the rank's NCCL communicator, except as a
/// reference (see `refer_to`). Its calls of NCCL are in `detail/nccl/nccl_session.hpp`; errors,
/// time-outs and the abort are in `detail/nccl/nccl_lifetime.hpp`.
///
/// There is one object per rank, used by one thread at a time except for `abort`. Calls enqueue and
/// return; the first calls, in which NCCL connects the ranks, wait for the peers. Cuts into W equal
/// parts use NCCL's reduce-scatter and all-gather; other cuts use one group of reduce or broadcast
/// calls, one per non-empty extent. NCCL forms sums in the element type, in the order of its
/// algorithm: the same for the same call on the same machines, but not rank order. With
/// `NcclOptions::order` = `NcclOrder::rank` the ranks exchange pieces instead, and the backend adds
/// them in float from rank 0 on and rounds once: the bits of `Loopback`. An all-reduce is a
/// reduce-scatter and an all-gather, so it has the same bits (unless `native_all_reduce` is set). A
/// single rank copies.
///
/// Any error of NCCL, of a peer or of the clock aborts the communicator and throws. The next call
/// throws a failure that the watchdog found. From then on every call throws `Aborted` with the
/// first cause. Ranks of one process learn each other's causes; ranks of other processes see an
/// error of NCCL or their time-out. The destructor waits for enqueued collectives, at most
/// `finish_time_out`; after that, or while an exception unwinds, it aborts. It waits at most 5 s
/// for an abort. Destroy CUDA graphs that hold collectives before the communicator, because NCCL
/// waits for them.
template <class B>
class BasicNcclCommunicator {
public:
    using policy_category = CommunicatorCategory;
    using Backend = B;
    using Queue = typename B::Queue;

    /// @brief Refers to a caller-owned communicator, whose device must be current. Waits for one
    /// that NCCL is still setting up.
    ///
    /// The destructor of a reference neither waits nor aborts, not even while an exception unwinds:
    /// the caller waits (`synchronise`) or releases the peers (`abort`). Any failure aborts by
    /// itself, which frees NCCL's communicator. Therefore the reference must outlive the engine,
    /// its `is_aborted()` is the last call on it, and it must be destroyed before the handle, which
    /// its watchdog uses. Destroy the handle only if `is_aborted()` returned false. With
    /// `NcclOrder::rank` the destructor waits for sums that are enqueued.
    /// @throws InvalidArgument; NcclVersionMismatch; NcclError; CommunicatorError; TimedOut if the
    /// communicator is not set up in time
    static BasicNcclCommunicator refer_to(NcclInterface interfaces, NcclHandle handle,
                                          NcclOptions const& options = {}) {
        return BasicNcclCommunicator(detail::use_handle(interfaces, handle, options));
    }

    /// @brief Takes ownership of a caller's communicator; if this throws, the caller still owns it.
    /// One that NCCL made non-blocking is destroyed in bounded time.
    /// @throws as `refer_to`
    static BasicNcclCommunicator take_over(NcclInterface interfaces, NcclHandle handle,
                                           NcclOptions const& options = {}) {
        auto communicator = refer_to(interfaces, handle, options);
        communicator._session->own();
        return communicator;
    }

    /// @brief Joins a new group with the current device; collective.
    /// @param id the id that `make_unique_id` returned on one rank, sent to all others
    /// @throws InvalidArgument, also if NCCL_COMM_BLOCKING contradicts the mode;
    /// NcclVersionMismatch; NcclError; CommunicatorError; TimedOut if ranks are missing
    static BasicNcclCommunicator from_unique_id(NcclInterface interfaces, NcclUniqueId const& id,
                                                int rank, int world,
                                                NcclOptions const& options = {}) {
        return BasicNcclCommunicator(detail::join_group(interfaces, id, rank, world, options));
    }

    /// @brief Joins the group of processes that torchrun, mpirun, mpiexec or srun started;
    /// collective. Makes the device of the rank on this machine current.
    ///
    /// Reads `launch::environment()` and MASTER_ADDR; the port is ZERO_NCCL_PORT or the one
    /// after MASTER_PORT. Changes NCCL_COMM_ID while it runs, so no other thread may access the
    /// environment then.
    /// @throws LauncherError; as `from_unique_id`
    static BasicNcclCommunicator from_environment(NcclInterface interfaces,
                                                  NcclOptions const& options = {}) {
        return BasicNcclCommunicator(detail::join_launched_group(interfaces, options));
    }

    /// @brief Creates a group in this process, one rank for each named device, in rank order.
    /// Leaves the current device unchanged.
    /// @param devices each at most once, except with NCCL 2.30 and later if the environment
    /// variable NCCL_MULTI_RANK_GPU_ENABLE is 1
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

    /// @brief See `SplittableCommunicator`. Blocks until all ranks have called and all collectives
    /// so far have run. The part has the options of the group.
    ///
    /// A failure reaches the groups that were split from one another in this process: calls throw
    /// at once, and a wait for the device ends within `NcclOptions::watch_interval`. Other
    /// processes see an error of NCCL or their time-out.
    /// @param color at least 0
    /// @throws InvalidArgument, also if the `NcclLibrary` has no split; CommunicatorError
    [[nodiscard]] BasicNcclCommunicator split(int color, int key) {
        return BasicNcclCommunicator(detail::split_group(*_session, color, key));
    }

    [[nodiscard]] int rank() const noexcept { return _session->rank(); }
    [[nodiscard]] int size() const noexcept { return _session->world(); }

    /// @brief See `Communicator`: the rank.
    [[nodiscard]] int position() const noexcept { return rank(); }

    /// @brief Hashes the options that must be equal on all ranks, see `Communicator`: the order of
    /// sums and the rounds in which they are formed, and whether NCCL's own all-reduce is used.
    [[nodiscard]] std::uint64_t options_hash() const noexcept {
        return Hash().add(_session->options().native_all_reduce).add(scratch_bytes(0)).value();
    }

    /// @brief See `Communicator`: the buffer of `NcclOrder::rank`, whatever the size of the largest
    /// bucket is.
    [[nodiscard]] std::size_t scratch_bytes(std::size_t /*largest_bucket_bytes*/) const noexcept {
        return _slots == nullptr ? 0 : _slots->scratch.size_bytes();
    }

    /// @brief See `Communicator`. @throws CommunicatorError; InvalidArgument before anything is
    /// enqueued
    template <class T>
    void reduce_scatter(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                        CollectiveTag tag = {}) {
        require_summable<T>();
        reduce(place().reduce_scatter(dtype_of<T>(), send, receive, cuts, tag), send, receive, cuts,
               queue);
    }

    /// @brief A reduce-scatter that adds as a subtree of micro-batches. Optional operation of a
    /// `Communicator`: the pieces are exchanged as for `NcclOrder::rank`.
    /// @throws as `reduce_scatter`; InvalidArgument with `NcclOrder::library`
    template <class T, class A>
        requires zero::detail::BackendSumsTree<B, A, T>
    void reduce_scatter(T const* send, ops::TreeSum<A> const& sum,
                        std::span<std::size_t const> cuts, Queue queue, CollectiveTag tag = {}) {
        require_summable<T>();
        if (std::string_view const reason = reason_against_tree(); !reason.empty()) {
            zero::detail::throw_error<InvalidArgument>(
                {"zero: a reduce-scatter in a tree on rank ", rank(), ": ", reason, '.'});
        }
        auto const call = place().reduce_scatter(dtype_of<T>(), send, sum.out, cuts, tag);
        if (_slots == nullptr) {
            require_usable(queue);
            _session->check(call.tag.what);
            T const* const peers[] = {send};
            B::sum_tree(queue, sum, peers, 1, call.count);
            if constexpr (!copies_arguments) {
                B::synchronise(B::record(queue)); // the command reads the table
            }
            return;
        }
        exchange_and_add(
            call, send, sum.out, cuts, queue,
            [&](void* out, std::size_t begin, std::size_t elements) {
                B::sum_tree(queue,
                            ops::TreeSum<A>{static_cast<A*>(out) + begin, sum.held.from(begin)},
                            _slots->template of<T>(), size(), elements);
            });
    }

    /// @brief See `Communicator`: NCCL's own reductions cannot add in a tree.
    [[nodiscard]] std::string_view reason_against_tree() const noexcept {
        return _session->options().order == NcclOrder::rank
                   ? std::string_view()
                   : "NCCL adds in an order of its own; set cuda::NcclOptions::order = "
                     "cuda::NcclOrder::rank";
    }

    /// @copydoc reduce_scatter
    template <class T>
    void all_gather(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                    CollectiveTag tag = {}) {
        auto const call = place().all_gather(dtype_of<T>(), send, receive, cuts, tag);
        run(call, send, receive, call.count * sizeof(T), cuts, queue);
    }

    /// @brief See `ExchangingCommunicator`: one group of sends and receives. @throws as
    /// `reduce_scatter`
    template <class T>
    void exchange(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                  CollectiveTag tag = {}) {
        auto const call = place().exchange(dtype_of<T>(), send, receive, cuts, tag);
        run(call, send, receive, call.count * sizeof(T), cuts, queue);
    }

    /// @brief See `Communicator`: the all-gathers that `body` calls on `queue` are one group of
    /// NCCL.
    /// @throws what `all_gather` and `body` throw, which aborts the communicator
    template <class Body>
    void grouped(Queue queue, Body const& body) {
        if (size() == 1) {
            body();
        } else {
            require_usable(queue);
            _session->grouped(queue, body);
        }
    }

    /// @copydoc reduce_scatter
    template <class T>
    void all_reduce(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                    CollectiveTag tag = {}) {
        require_summable<T>();
        reduce(place().all_reduce(dtype_of<T>(), send, receive, cuts, tag), send, receive, cuts,
               queue);
    }

    /// @copydoc reduce_scatter
    template <class T>
    void broadcast(T* buffer, std::size_t elements, int root, Queue queue, CollectiveTag tag = {}) {
        auto const call = place().broadcast(dtype_of<T>(), buffer, elements, root, tag);
        run(call, buffer, buffer, elements * sizeof(T), {}, queue);
    }

    /// @copydoc reduce_scatter
    void all_reduce_integers(std::int64_t* values, std::size_t elements, IntegerReduction reduction,
                             Queue queue, CollectiveTag tag = {}) {
        auto const call = place().integers(values, elements, reduction, tag);
        run(call, values, values, elements * sizeof(std::int64_t), {}, queue);
    }

    /// @brief Sums the first `sums` integers and minimises the next `minima`. Optional operation of
    /// a `Communicator`: one group of calls of NCCL.
    void all_reduce_integers(std::int64_t* values, std::size_t sums, std::size_t minima,
                             Queue queue, CollectiveTag tag = {}) {
        auto const call = place().integers(values, sums, minima, tag);
        run(call, values, values, call.count * sizeof(std::int64_t), {}, queue);
    }

    /// @brief Ends every wait of this rank, on the host and on the device, and frees NCCL's
    /// communicator. Thread-safe.
    void abort(std::string_view cause, bool is_provisional = false) noexcept {
        _session->abort(cause, is_provisional);
    }

    /// @brief Throws the failure since the last call, if there is one: an asynchronous error, a
    /// time-out or an abort. Does not wait. Call it on the rank's own thread.
    ///
    /// Call it after waiting for the device by other means: an abort ends such a wait and leaves
    /// the data undefined.
    void rethrow_failure() { _session->check("a query for failures"); }

    /// @brief Waits until all collectives so far have run, within the time-out.
    /// @throws TimedOut, NcclError, Aborted
    void synchronise() { _session->synchronise(); }

    /// @brief See `Communicator`: true for groups of `make_group`, and their parts. The library
    /// does not know whether the caller's own communicators, or ranks that joined by a unique id,
    /// are threads; such threads wait themselves (`StepTicket::wait`).
    [[nodiscard]] bool shares_process() const noexcept { return _session->shares_process(); }

    /// @brief See `Communicator`.
    void forget_events() noexcept {
        if (_slots != nullptr) {
            _slots->used = {};
        }
    }

    /// @brief Returns whether an abort, of any cause, has freed NCCL's communicator; every call
    /// throws then. Thread-safe.
    [[nodiscard]] bool is_aborted() const noexcept { return _session->handle() == nullptr; }

    /// @brief Returns the ncclComm_t; null after an abort.
    [[nodiscard]] NcclHandle handle() const noexcept { return _session->handle(); }

    /// @brief Returns the NCCL and the system that this communicator was made with.
    [[nodiscard]] NcclInterface interfaces() const noexcept { return _session->interfaces(); }

    /// @brief Returns the session, for the parts of this library that share the communicator.
    [[nodiscard]] detail::NcclSession& session() const noexcept { return *_session; }

protected:
    /// @brief Takes the open session of a rank; must not be null.
    /// @throws std::bad_alloc
    explicit BasicNcclCommunicator(std::unique_ptr<detail::NcclSession> session)
        : _slots(slots_of(*session)), _session(std::move(session)) {}

private:
    /// As a member, because nvcc 13 rejects the expression inside a member template.
    static constexpr bool copies_arguments = requires { requires B::copies_arguments; };

    template <class T>
    static constexpr void require_summable() {
        static_assert(StorageType<T>,
                      "zero: cuda::NcclCommunicator sums float, bfloat16 and float16; "
                      "integers go through all_reduce_integers.");
    }

    static std::unique_ptr<detail::NcclSlots<B>> slots_of(detail::NcclSession const& session) {
        NcclOptions const& options = session.options();
        if (options.order == NcclOrder::library || session.world() == 1) {
            return nullptr;
        }
        NcclSystem& system = *session.interfaces().system;
        detail::DeviceScope const scope(system);
        detail::require_success(system, system.set_device(session.device()), "cudaSetDevice");
        return std::make_unique<detail::NcclSlots<B>>(
            options.memory != nullptr ? *options.memory : B::default_memory(),
            options.scratch_bytes, static_cast<std::size_t>(session.world()));
    }

    [[nodiscard]] zero::detail::GroupPlace place() const noexcept {
        return {static_cast<std::size_t>(rank()), static_cast<std::size_t>(size())};
    }

    void require_usable(Queue queue) const {
        B::rethrow_failure(queue);
        if constexpr (requires { B::require_device(0, ""); }) {
            B::require_device(_session->device(), "a communicator");
        }
    }

    /// A reduction, in the order of the options.
    template <class T>
    void reduce(zero::detail::CollectiveCall const& call, T const* send, T* receive,
                std::span<std::size_t const> cuts, Queue queue) {
        if (_slots == nullptr) {
            run(call, send, receive, call.count * sizeof(T), cuts, queue);
            return;
        }
        exchange_and_add(call, send, receive, cuts, queue,
                         [&](void* out, std::size_t begin, std::size_t elements) {
                             B::sum_ranks(queue, static_cast<T*>(out) + begin,
                                          _slots->template of<T>(), size(), elements);
                         });
    }

    /// A reduction whose pieces arrive in the slots, where `add` adds them.
    void exchange_and_add(zero::detail::CollectiveCall const& call, void const* send, void* receive,
                          std::span<std::size_t const> cuts, Queue queue,
                          zero::detail::FunctionRef<void*, std::size_t, std::size_t> add) {
        require_usable(queue);
        detail::NcclRankSum const sum{_slots->scratch.data(), _slots->slot_bytes, add};
        B::wait(queue, _slots->used, Fence::peers_done); // the caller may have changed the queue
        try {
            _session->run(call, send, receive, cuts, queue, &sum);
        } catch (...) {
            _slots->used = B::record(queue);
            throw;
        }
        _slots->used = B::record(queue);
    }

    void run(zero::detail::CollectiveCall const& call, void const* send, void* receive,
             std::size_t bytes, std::span<std::size_t const> cuts, Queue queue) {
        static_assert(std::is_convertible_v<Queue, StreamHandle>,
                      "zero: cuda::NcclCommunicator needs a backend whose queue is a pointer, as a "
                      "cudaStream_t is.");
        require_usable(queue);
        if (size() == 1) {
            _session->check(call.tag.what);
            B::copy_bytes(queue, receive, send, bytes);
        } else {
            _session->run(call, send, receive, cuts, queue);
        }
    }

    std::unique_ptr<detail::NcclSlots<B>> _slots; ///< null if NCCL adds; destroyed last
    std::unique_ptr<detail::NcclSession> _session;
};

/// @brief Returns the id of a new group, to be sent to all its ranks. @throws NcclError
inline NcclUniqueId make_unique_id(NcclInterface interfaces) {
    detail::require_matching_version(*interfaces.nccl);
    NcclUniqueId id;
    detail::require_success(*interfaces.nccl, interfaces.nccl->get_unique_id(id),
                            "ncclGetUniqueId");
    return id;
}

} // namespace ZERO_NAMESPACE::cuda
