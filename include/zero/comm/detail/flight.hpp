#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/dtype.hpp"
#include "../../host/inline_queue.hpp"
#include "../../host/queue.hpp"
#include "../../ops/tree_sum.hpp"
#include "../collective_tag.hpp"
#include "../traffic_count.hpp"
#include "collective_call.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace ZERO_NAMESPACE::detail {

/// @brief Adds one piece of each rank, from element `begin` of the extent on: in rank order, where
/// `out[i]` gets the sum of `pieces[rank][i]` or that is added to it, or as a subtree.
using SumPieces = void (*)(void* out, ops::HeldSums const& held, std::size_t begin,
                           void const* const* pieces, int world, std::size_t elements);

/// @brief How an extent is summed in the type of the caller's elements.
struct ExtentSum {
    SumPieces add = nullptr;    ///< null for operations that do not add, as an exchange
    bool is_tree = false;       ///< `add` adds as a subtree of micro-batches
    bool is_by_library = false; ///< the transport adds, and `add` only stores
    ops::HeldSums held{};       ///< of a subtree
};

/// @brief The memory of a collective between processes.
struct CollectiveMemory {
    void const* send;
    void* receive;
    std::size_t element_bytes;
    std::span<std::size_t const> cuts; ///< empty for operations that take none
    ExtentSum sum;
};

/// @brief One pending collective: the arguments that its command reads. The storage of the cuts is
/// reused when `done` is complete.
struct Flight {
    CollectiveKind kind{};
    std::size_t element_bytes = 0;
    std::size_t count = 0;  ///< elements of all extents
    std::size_t detail = 0; ///< as in a CollectiveCall, for a broadcast and for integers
    void const* send = nullptr;
    void* receive = nullptr;
    ExtentSum sum{};
    CallSignature::Words signature{};
    List<std::size_t> cuts; ///< W + 1, for operations that take cuts
    host::Event done{};
};

/// @brief A part of a buffer, in bytes.
struct Part {
    std::size_t offset;
    std::size_t bytes;
};

/// @brief The extents of a collective, cut into rounds of at most `piece` elements of each extent.
struct Extents {
    Extents(Flight const& of, std::size_t piece_elements) noexcept
        : flight(&of), piece(piece_elements) {
        std::size_t largest = 0;
        for (std::size_t rank = 0; rank + 1 < of.cuts.size(); ++rank) {
            largest = larger(largest, of.cuts[rank + 1] - of.cuts[rank]);
        }
        rounds = (largest + piece - 1) / piece;
    }

    /// @brief Returns the part of a rank's extent that a round moves.
    [[nodiscard]] Part part(std::size_t rank, std::size_t round) const noexcept {
        std::size_t const begin =
            smaller(flight->cuts[rank] + round * piece, flight->cuts[rank + 1]);
        std::size_t const end = smaller(begin + piece, flight->cuts[rank + 1]);
        return {begin * flight->element_bytes, (end - begin) * flight->element_bytes};
    }

    /// @brief Returns a rank's extent.
    [[nodiscard]] Part whole(std::size_t rank) const noexcept {
        return {flight->cuts[rank] * flight->element_bytes,
                (flight->cuts[rank + 1] - flight->cuts[rank]) * flight->element_bytes};
    }

    Flight const* flight;
    std::size_t piece;
    std::size_t rounds = 0;
};

/// @brief Returns the number of elements per message with which `messages` messages fit into
/// `bytes`. It is a multiple of 64 where possible, so that kernels find whole vectors.
[[nodiscard]] inline std::size_t piece_of(std::size_t bytes, std::size_t element_bytes,
                                          std::size_t messages) noexcept {
    std::size_t const elements = bytes / (element_bytes * larger<std::size_t>(1, messages));
    return elements < 64 ? elements : elements / 64 * 64;
}

/// @brief Calls `post(round)` for each round, and `take(round)`, which waits for it, after the next
/// one was posted. So two rounds are in flight at a time.
template <class Post, class Take>
void in_rounds(std::size_t rounds, Post const& post, Take const& take) {
    for (std::size_t number = 0; number <= rounds && rounds != 0; ++number) {
        if (number < rounds) {
            post(number);
        }
        if (number > 0) {
            take(number - 1);
        }
    }
}

/// @brief The collectives that were called and have not run, as commands of a host queue. The
/// arguments of a call are copied into storage that is reused when its command is done. Transports
/// between processes use it.
class Flights {
public:
    Flights() = default;
    [[gnu::cold]] explicit Flights(std::size_t world)
        : _flights(larger<std::size_t>(
            16, smaller<std::size_t>(512, (std::size_t{1} << 16U) / (world + 1)))) {
        for (Flight& flight : _flights) {
            flight.cuts = List<std::size_t>(world + 1);
        }
    }

    /// @brief Enqueues `run(flight)`. Collectives run in the order of the calls, even on several
    /// queues. Waits only while all storage is in flight.
    /// @param call a call whose arguments were checked
    /// @param run a trivially copyable functor
    /// @throws OutOfOrder if another thread is in a call
    template <class Run>
    void enqueue(CollectiveCall const& call, CollectiveMemory const& memory, host::Queue* queue,
                 Run const& run) {
        SoleThread const sole(_is_in_use, call.tag);
        Flight& flight = next(call, memory);
        queue->wait(_last);
        queue->enqueue([run, &flight] { run(flight); });
        flight.done = queue->record();
        _last = flight.done;
    }

    /// @brief Waits until all commands are done.
    [[gnu::cold]] void synchronise() const {
        for (Flight const& flight : _flights) {
            flight.done.synchronise();
        }
    }

private:
    [[nodiscard]] Flight& next(CollectiveCall const& call, CollectiveMemory const& memory) {
        Flight& flight = _flights[_count % _flights.size()];
        flight.done.synchronise();
        flight.kind = call.kind;
        flight.element_bytes = memory.element_bytes;
        flight.count = call.count;
        flight.detail = static_cast<std::size_t>(call.detail);
        flight.send = memory.send;
        flight.receive = memory.receive;
        flight.sum = memory.sum;
        flight.signature = CallSignature::of(call);
        for (std::size_t cut = 0; cut < memory.cuts.size(); ++cut) {
            flight.cuts[cut] = memory.cuts[cut];
        }
        ++_count;
        return flight;
    }

    bool _is_in_use = false; ///< a thread enqueues
    List<Flight> _flights;
    std::size_t _count = 0; ///< number of calls
    host::Event _last{};
};

/// @brief Returns whether a hash is equal on all ranks of a group. Collective; waits. See
/// `HostCommunicator` for the type. @throws CommunicatorError
template <class Collectives>
bool is_equal_on_all_ranks(Collectives& collectives, std::uint64_t hash) {
    auto const own = static_cast<std::int64_t>(hash >> 2U);
    std::int64_t least[2] = {own, -own}; // becomes the minimum, and the maximum negated
    host::InlineQueue queue;
    CollectiveCall const call{CollectiveKind::integers, DType::int64, 2,
                              static_cast<std::uint64_t>(IntegerReduction::min),
                              CollectiveTag{"options of the communicator", 0}};
    collectives.enqueue(call, {least, least, sizeof(std::int64_t), {}, {}}, &queue);
    return least[0] == -least[1];
}

} // namespace ZERO_NAMESPACE::detail
