#pragma once

#include "../../comm/detail/collective_call.hpp"
#include "../../comm/detail/shared_memory.hpp"
#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/detail/text.hpp"
#include "../options.hpp"
#include "family.hpp"
#include "mpi.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace ZERO_NAMESPACE::mpi::detail {

using zero::detail::Meeting;

/// @brief The kind of a message without data.
enum class MessageKind : std::uint8_t { heartbeat, provisional_failure, failure, goodbye };
inline constexpr std::size_t message_kinds = 4; ///< number of enumerators

/// @brief A message between the ranks of a communicator that carries no data. Its size stays below
/// the limit up to which MPI sends without asking the receiver.
struct Message {
    static constexpr std::size_t text_bytes = 512;

    MessageKind kind{};
    FailureKind failure{};
    std::uint64_t number = 0; ///< number of the sender's last collective
    zero::detail::CallSignature::Words call{};
    std::array<char, text_bytes> text{}; ///< ends with a zero

    void set_text(std::string_view from) noexcept {
        std::size_t const size = zero::detail::smaller(from.size(), text_bytes - 1);
        std::memcpy(text.data(), from.data(), size);
        text[size] = '\0';
    }
};

/// @brief A message to all peers, and the requests of its transfer.
struct Outgoing {
    Message message;
    zero::detail::List<MPI_Request> requests;
    bool is_sent = false;
};

/// @brief The transfers of one round of a collective: at most one in each direction per peer.
struct Round {
    static constexpr int every_peer = -1; ///< the peer of a request that waits for all of them

    zero::detail::List<MPI_Request> requests;
    zero::detail::List<int> peers;       ///< by request
    zero::detail::List<char> is_receive; ///< by request; only a receive can be cancelled
    std::size_t used = 0;
    bool is_reducing = false;        ///< whether MPI adds
    Meeting meeting = Meeting::none; ///< waited for, without requests

    explicit Round(std::size_t capacity)
        : requests(capacity), peers(capacity), is_receive(capacity) {
        for (MPI_Request& request : requests) {
            request = MPI_REQUEST_NULL;
        }
    }
    Round() = default;

    /// @brief Takes the next request.
    MPI_Request& add(int peer, bool receives) noexcept {
        peers[used] = peer;
        is_receive[used] = receives ? 1 : 0;
        return requests[used++];
    }
};

/// @brief The peers of one rank: sends and receives without blocking, polls with the deadline and
/// the failures of the family in one loop, exchanges heartbeats, and leaves the group so that no
/// transfer stays pending. Owns its MPI_Comm. `Collectives` uses it, and finds out which ranks
/// share memory (`Collectives::share_memory`).
///
/// Every transfer of data ends in one of three ways: it completes; after a failure the peer
/// receives and discards it, which it does until this rank has said goodbye; or the peer is silent
/// for `Options::finish_time_out`, and then the process cannot finalise MPI
/// (`process_must_abort`).
class Peers {
public:
    using Clock = Family::Clock;
    using Lock = Family::Lock;

    /// @param communicator owned; frees it where possible
    Peers(MPI_Comm communicator, std::shared_ptr<Family> family, Options const& options);
    Peers(Peers const&) = delete;
    Peers& operator=(Peers const&) = delete;

    ~Peers() { (void)close(); }

    /// @brief Leaves the group and frees the MPI_Comm; waits for the peers at most
    /// `Options::finish_time_out`, less what a failure has waited before. Returns false if a
    /// transfer stays pending: then the memory that it uses must not be freed. A no-op the second
    /// time.
    bool close() noexcept;

    [[nodiscard]] int rank() const noexcept { return _rank; }
    [[nodiscard]] int world() const noexcept { return _world; }
    [[nodiscard]] MPI_Comm communicator() const noexcept { return _communicator; }
    [[nodiscard]] std::shared_ptr<Family> const& family() const noexcept { return _family; }
    [[nodiscard]] Round& round(std::size_t number) noexcept { return _rounds[number % 2]; }

    /// @brief Sets the memory into which unwanted data is received; as large as any transfer.
    void discard_into(void* memory, std::size_t bytes) noexcept;

    /// @brief Begins a collective. @throws CommunicatorError if there was a failure
    void begin(zero::detail::CallSignature::Words const& call);

    /// @brief Starts to send to, or to receive from, a peer; at most 2^31 - 1 bytes, because
    /// `Collectives` cuts its transfers into rounds.
    void send(Round& round, int peer, void const* data, std::size_t bytes);
    void receive(Round& round, int peer, void* data, std::size_t bytes);

    /// @brief Starts MPI's own sum of floats at one rank.
    void reduce(Round& round, int owner, float const* data, float* sum, std::size_t elements);

    /// @brief Starts MPI's own sums of floats, of which rank r gets counts[r] elements. `counts`
    /// must stay valid until the round is finished.
    void reduce_scatter(Round& round, float const* data, float* sum, int const* counts);

    /// @brief The memory in which the ranks of one host meet.
    [[nodiscard]] zero::detail::SharedGroup& shared() noexcept { return _shared; }
    [[nodiscard]] zero::detail::SharedGroup const& shared() const noexcept { return _shared; }

    /// @brief Waits until all ranks have come to a meeting of the same call. If calls differ, the
    /// heartbeats of both ranks tell why. @throws CommunicatorError
    void meet(Meeting meeting) {
        _shared.come(meeting);
        round(0).meeting = meeting;
        finish(round(0));
    }

    /// @brief Waits for the transfers of a round. @throws CommunicatorError
    void finish(Round& round);

    /// @brief Fails the family and informs all peers. Any thread may call it.
    void abort(std::string_view cause, bool is_provisional) noexcept;

    /// @brief Throws if there is a final failure. @throws Aborted, CollectiveMismatch
    void rethrow_failure();

    /// @brief Promises the peers that this rank sends nothing more. Does not wait; `close` does.
    void say_goodbye() noexcept;

    /// @brief Ends after the current exception: informs the peers, and waits until no transfer is
    /// pending, at most `Options::finish_time_out`.
    void part_after_failure() noexcept;

    /// @brief Returns whether MPI_Finalize might not return: a transfer of a communicator of this
    /// process stays pending, or a peer gave no answer after a failure.
    static std::atomic<bool>& process_must_abort() noexcept;

private:
    /// The state of a peer, as this rank knows it.
    struct Peer {
        Clock::time_point heard{}; ///< never: the time of construction
        std::uint64_t number = 0;  ///< number of its last known collective
        bool is_gone = false;
    };

    static constexpr int message_tag = 0;
    static constexpr unsigned turns_after_goodbye = 256; ///< polls in which data may still arrive

    /// The polls after the start of a round that do not give the core to another thread. A transfer
    /// of a few kilobytes is complete by then.
    static constexpr unsigned turns_before_pause = 100;

    static constexpr unsigned turns_at_once = 16; ///< the first polls, without the clock

    /// The time noted for a peer whose data arrived while the clock was not read. The next wait
    /// replaces it with the time of its own start.
    static constexpr Clock::time_point before_next_wait = Clock::time_point::max();

    /// The buffers of messages. They stay allocated if a transfer was lost.
    struct Buffers {
        Message incoming;
        std::array<Outgoing, message_kinds> outgoing;
    };

    [[nodiscard]] Outgoing& outgoing(MessageKind kind) noexcept {
        return _outgoing[static_cast<std::size_t>(kind)];
    }
    void pause(Round const& round, Clock::duration waited);
    [[nodiscard]] bool is_complete(Round& round);
    [[nodiscard]] bool finishes_at_once(Round& round);
    void end(Round& round, Clock::time_point now) noexcept;
    void post_message_receive() noexcept;
    void receive_messages() noexcept;
    void progress_family() noexcept;
    void take(Message const& message, int source);
    void tell(MessageKind kind, FailureKind failure, std::string_view text) noexcept;
    void tell_failure() noexcept;
    void tell_family() noexcept;
    [[nodiscard]] bool is_outgoing_done(MessageKind kind) noexcept;
    [[nodiscard]] static bool is_pending(MPI_Request request) noexcept;
    void throw_if_final();
    [[noreturn]] void throw_time_out(Round const& round);
    void require_present(Round& round, unsigned& turns);
    [[nodiscard]] bool is_awaited(Round const& round, int peer) const noexcept;
    [[nodiscard]] std::string missing_peers(Round const& round) const;
    [[nodiscard]] std::string current_call() const;
    [[nodiscard]] bool drain(bool needs_goodbyes) noexcept;
    [[nodiscard]] bool are_transfers_done() noexcept;
    [[nodiscard]] bool discard() noexcept;

    MPI_Comm _communicator;
    std::shared_ptr<Family> _family;
    Options _options;
    Clock::duration _beat;
    Clock::duration _finish_left; ///< of `Options::finish_time_out`
    int _rank = 0;
    int _world = 1;
    int _largest_tag = 32767;
    int _tag = 1;
    std::uint64_t _number = 0;
    zero::detail::CallSignature::Words _call{};
    zero::detail::SharedGroup _shared;
    std::array<Round, 2> _rounds;
    zero::detail::List<Peer> _peers;
    std::unique_ptr<Buffers> _buffers;
    std::array<Outgoing, message_kinds>& _outgoing;
    MPI_Request _incoming = MPI_REQUEST_NULL;
    MPI_Request _discarding = MPI_REQUEST_NULL;
    void* _discard_memory = nullptr;
    std::size_t _discard_bytes = 0;
    bool _has_parted = false;
    bool _is_closed = false;
    bool _has_lost_transfers = false;
};

inline constexpr std::size_t scratch_bytes_per_rank = 1024;              ///< minimum
inline constexpr std::size_t most_scratch_bytes = std::size_t{1} << 30U; ///< a message is an int

/// @brief Checks the result of a function of MPI. @param what the function, for the message
/// @throws MpiError
void require_success(int result, char const* what);

[[noreturn]] [[gnu::cold]] inline void throw_mpi_error(int result, char const* what) {
    std::array<char, MPI_MAX_ERROR_STRING> message{};
    int length = 0;
    int error_class = result;
    MPI_Error_string(result, message.data(), &length);
    MPI_Error_class(result, &error_class);
    throw MpiError(
        zero::detail::text({"zero: ", what, " failed: ",
                            std::string_view(message.data(), static_cast<std::size_t>(length))}),
        SourceLocation::current(), error_class);
}

inline void require_success(int result, char const* what) {
    if (result != MPI_SUCCESS) {
        throw_mpi_error(result, what);
    }
}

} // namespace ZERO_NAMESPACE::mpi::detail

#if !defined(ZERO_COMPILED)
#include "peers.ipp"
#endif
