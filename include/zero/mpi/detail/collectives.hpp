#pragma once

#include "../../comm/detail/collective_call.hpp"
#include "../../comm/detail/flight.hpp"
#include "../../comm/detail/group_place.hpp"
#include "../../core/buffer.hpp"
#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../host/queue.hpp"
#include "../options.hpp"
#include "mpi.hpp"
#include "peers.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace ZERO_NAMESPACE::mpi::detail {

/// @brief The collectives of one rank, as commands of a queue that only send, receive and poll.
/// Independent of element types. `mpi::Communicator` has one.
///
/// A collective is cut into rounds. Each round moves the same part of every extent; while one round
/// is in flight, the previous one is added. Each round receives into one half of the scratch
/// memory, so neither the scratch memory nor a message grows with the bucket, and counts never
/// exceed an int.
class Collectives {
public:
    static constexpr bool reduces_integers_together = true; ///< see `HostCommunicator`
    static constexpr bool compares_calls = true;            ///< see `Communicator`

    /// @brief Starts on a duplicate of a communicator. Collective; waits for the peers within the
    /// time-out. @throws InvalidArgument, MpiError, TimedOut, CommunicatorError
    static std::unique_ptr<Collectives> duplicate(MPI_Comm communicator, Options const& options);

    /// @param communicator owned
    Collectives(MPI_Comm communicator, std::shared_ptr<Family> family, Options const& options);
    Collectives(Collectives const&) = delete;
    Collectives& operator=(Collectives const&) = delete;

    /// @brief Waits until the enqueued commands have run, and leaves the group. While an exception
    /// unwinds it aborts first.
    ~Collectives();

    /// @brief Destroys the collectives of a communicator. While an exception unwinds, and if the
    /// family has other communicators, the next one that is destroyed waits for the peers.
    static void part(std::unique_ptr<Collectives> own) noexcept;

    [[nodiscard]] Peers& peers() noexcept { return _peers; }
    [[nodiscard]] Peers const& peers() const noexcept { return _peers; }
    [[nodiscard]] Options const& options() const noexcept { return _options; }
    [[nodiscard]] std::size_t scratch_bytes() const noexcept { return _scratch.size(); }
    [[nodiscard]] zero::detail::SharedGroup const& shared() const noexcept {
        return _peers.shared();
    }

    /// @brief Enqueues a collective whose arguments were checked. Waits only while all storage of
    /// pending collectives is in use.
    void enqueue(zero::detail::CollectiveCall const& call, zero::detail::CollectiveMemory memory,
                 host::Queue* queue);

    [[nodiscard]] zero::detail::GroupPlace place() const noexcept { return {rank(), world()}; }
    void abort(std::string_view cause, bool is_provisional) noexcept {
        _peers.abort(cause, is_provisional);
    }
    void rethrow_failure() { _peers.rethrow_failure(); }

    /// @brief Splits the group. Collective. @throws CommunicatorError
    [[nodiscard]] std::unique_ptr<Collectives> split(int color, int key);

private:
    void abort_if_unwinding() noexcept;
    void run(zero::detail::Flight const& flight);
    void exchange_extents(zero::detail::Flight const& flight, void* out);
    void reduce_extents_by_library(zero::detail::Flight const& flight, void* out);
    void gather_extents(zero::detail::Flight const& flight, void const* own);
    void broadcast(zero::detail::Flight const& flight);
    void reduce_integers(zero::detail::Flight const& flight);
    void compare_options();
    void share_memory();

    [[nodiscard]] std::size_t rank() const noexcept {
        return static_cast<std::size_t>(_peers.rank());
    }
    [[nodiscard]] std::size_t world() const noexcept {
        return static_cast<std::size_t>(_peers.world());
    }

    /// The peer to send to, or to receive from, in a step from 1 to W - 1 of a round. In each step
    /// every rank has one peer of each kind.
    [[nodiscard]] std::size_t next(std::size_t step) const noexcept {
        return (rank() + step) % world();
    }
    [[nodiscard]] std::size_t previous(std::size_t step) const noexcept {
        return (rank() + world() - step) % world();
    }

    [[nodiscard]] std::size_t half_bytes() const noexcept { return _scratch.size() / 2; }
    [[nodiscard]] std::size_t piece_elements(std::size_t element_bytes) const noexcept {
        return zero::detail::piece_of(half_bytes(), element_bytes, world() - 1);
    }
    [[nodiscard]] std::byte* scratch_of(std::size_t round, std::size_t peer,
                                        std::size_t bytes) const noexcept;

    Options _options;
    int _exceptions; ///< number of exceptions in flight at construction
    Buffer<std::byte> _scratch;
    zero::detail::List<void const*> _pieces;
    zero::detail::List<int> _counts; ///< counts of MPI's reduce-scatter, by rank
    zero::detail::Flights _flights;
    Peers _peers;
};

} // namespace ZERO_NAMESPACE::mpi::detail

#if !defined(ZERO_COMPILED)
#include "collectives.ipp"
#endif
