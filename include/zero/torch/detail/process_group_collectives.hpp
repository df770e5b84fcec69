#pragma once

#include "../../comm/detail/collective_call.hpp"
#include "../../comm/detail/flight.hpp"
#include "../../comm/detail/group_place.hpp"
#include "../../comm/detail/shared_memory.hpp"
#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../host/queue.hpp"
#include "../process_group_options.hpp"
#include "group_records.hpp"

#include <ATen/core/Tensor.h>
#include <algorithm>
#include <array>
#include <c10/util/intrusive_ptr.h>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

namespace ZERO_NAMESPACE::torch::detail {

/// @brief The collectives of one rank over a `c10d::Backend`, as commands of a queue. Independent
/// of element types. `ProcessGroupCommunicator` has one.
///
/// A collective is cut into rounds. Each round moves the same part of every extent; while one round
/// is in flight, the previous one is added. All transfers use tensors of this object. The backend
/// keeps them as long as it uses them, so a transfer that never ends is harmless.
class ProcessGroupCollectives {
public:
    /// @throws InvalidArgument
    ProcessGroupCollectives(c10::intrusive_ptr<c10d::Backend> group,
                            ProcessGroupOptions const& options);
    ProcessGroupCollectives(ProcessGroupCollectives const&) = delete;
    ProcessGroupCollectives& operator=(ProcessGroupCollectives const&) = delete;

    /// @brief Waits until the enqueued commands have run, and tells the peers that this rank
    /// leaves. While an exception unwinds it aborts first.
    ~ProcessGroupCollectives();

    /// @brief Compares the options that must be equal on all ranks, and maps the memory of those on
    /// this host. From then on calls are compared, if the options say so. Collective; waits.
    /// @throws LayoutMismatch, CommunicatorError
    void join();

    [[nodiscard]] zero::detail::GroupPlace place() const noexcept { return _place; }
    [[nodiscard]] std::size_t scratch_bytes() const noexcept { return 4 * _quarter_bytes; }
    [[nodiscard]] zero::detail::SharedGroup const& shared() const noexcept { return _shared; }

    /// @brief Enqueues a collective whose arguments were checked.
    void enqueue(zero::detail::CollectiveCall const& call,
                 zero::detail::CollectiveMemory const& memory, host::Queue* queue);

    /// @brief Fails the group. Any thread may call it.
    void abort(std::string_view cause, bool is_provisional) noexcept {
        _records.fail(FailureKind::aborted, cause, is_provisional);
    }

    /// @brief Throws if there is a final failure. @throws Aborted, CollectiveMismatch
    void rethrow_failure() {
        if (_records.has_failed()) {
            _records.throw_if_final();
        }
    }

private:
    using Flight = zero::detail::Flight;
    using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

    void run(Flight const& flight);
    void compare(Flight const& flight);
    void meet(zero::detail::Meeting meeting);
    void exchange_extents(Flight const& flight, void* out);
    void gather_extents(Flight const& flight, void const* own);
    void broadcast(Flight const& flight);
    void reduce_integers(Flight const& flight);

    void start_broadcast(Works& works, at::Tensor const& buffer, std::size_t root);
    void finish(Works& works);
    void finish(c10d::Work& work);
    template <class Over>
    void wait_until(Over const& is_over);
    void refuse(std::string_view difference);
    [[noreturn]] void throw_time_out();
    [[noreturn]] void throw_failure(std::string_view what);

    [[nodiscard]] static at::Tensor bytes_of(at::Tensor const& buffer, std::size_t begin,
                                             std::size_t bytes) {
        return buffer.narrow(0, static_cast<std::int64_t>(begin), static_cast<std::int64_t>(bytes));
    }

    /// Returns a later time-out than that of the group, whose message names the missing rank.
    [[nodiscard]] std::chrono::milliseconds backend_time_out() const {
        using std::chrono::milliseconds;
        auto const more = std::clamp(_options.time_out, milliseconds(1000), milliseconds(60000));
        return _options.time_out < milliseconds::max() - more ? _options.time_out + more
                                                              : _options.time_out;
    }

    [[nodiscard]] std::byte* send_memory(std::size_t round) const {
        return static_cast<std::byte*>(_send[round % 2].data_ptr());
    }
    [[nodiscard]] std::byte* receive_memory(std::size_t round) const {
        return static_cast<std::byte*>(_receive[round % 2].data_ptr());
    }

    c10::intrusive_ptr<c10d::Backend> _group;
    ProcessGroupOptions _options;
    int _exceptions; ///< number of exceptions in flight at construction
    zero::detail::GroupPlace _place;
    std::size_t _quarter_bytes;
    std::array<at::Tensor, 2> _send;    ///< by parity of the round
    std::array<at::Tensor, 2> _receive; ///< by parity of the round
    std::array<Works, 2> _works;        ///< by parity of the round
    at::Tensor _signature;              ///< signature of this rank's call
    at::Tensor _signatures;             ///< signatures of all ranks, by rank
    zero::detail::List<void const*> _pieces;
    bool _compares_calls = false;
    GroupRecords _records;
    zero::detail::SharedGroup _shared;
    zero::detail::Flights _flights;
};

/// @brief Lets a write to a connection that the peer has closed fail. By default such a write ends
/// the process with SIGPIPE, because gloo writes without MSG_NOSIGNAL, on threads of its own.
/// Changes nothing if the program handles or ignores the signal already, as Python does.
inline void ignore_broken_pipes() noexcept {
#ifdef SIGPIPE
    struct sigaction action {};
    if (::sigaction(SIGPIPE, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) {
        action.sa_handler = SIG_IGN;
        (void)::sigaction(SIGPIPE, &action, nullptr);
    }
#endif
}

} // namespace ZERO_NAMESPACE::torch::detail

#if !defined(ZERO_COMPILED)
#include "process_group_collectives.ipp"
#endif
