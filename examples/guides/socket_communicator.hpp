// A communicator of your own: the ranks are processes (or threads) that exchange bytes over stream
// sockets. docs/guides/own_communicator.md explains it.

#pragma once

#include <zero/comm/communicator.hpp>
#include <zero/core/buffer.hpp>
#include <zero/core/error.hpp>
#include <zero/host/host_backend.hpp>
#include <zero/host/inline_queue.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <mutex>
#include <poll.h>
#include <span>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>
#include <vector>

/// One end of the connection between two ranks: two connected stream sockets.
struct Link {
    int data = -1;    ///< the bytes of the collectives
    int control = -1; ///< the cause of an abort, which must not wait behind those bytes
};

/// Two stream sockets that are connected with each other.
inline std::array<int, 2> socket_pair() {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
        throw zero::CommunicatorError("SocketCommunicator: socketpair failed.", errno);
    return ends;
}

/// Connects all ranks of one machine: links[a][b] is the end of rank a of its connection with
/// rank b. Call it before the processes are forked.
inline std::vector<std::vector<Link>> connect_ranks(int world) {
    auto const ranks = static_cast<std::size_t>(world);
    std::vector<std::vector<Link>> links(ranks, std::vector<Link>(ranks));
    for (std::size_t a = 0; a < ranks; ++a) {
        for (std::size_t b = 0; b < a; ++b) {
            auto const data = socket_pair(), control = socket_pair();
            links[a][b] = {data[0], control[0]};
            links[b][a] = {data[1], control[1]};
        }
    }
    return links;
}

struct SocketOptions {
    /// The longest time that a rank waits for a byte of another rank; at least 1 ms.
    std::chrono::milliseconds time_out = std::chrono::minutes(30);
    /// The size of the memory into which sums receive. Larger buckets are cut to fit. Equal on all
    /// ranks.
    std::size_t scratch_bytes = std::size_t{1} << 20U;
};

class SocketCommunicator {
public:
    using policy_category = zero::CommunicatorCategory;
    using Backend = zero::HostBackend; // where the memory is
    using Queue = Backend::Queue;
    using Cuts = std::span<std::size_t const>;
    static constexpr std::size_t most_ranks = 64;

    /// @param links the ends of this rank, one for each rank (that of the rank itself is not used);
    /// the communicator closes them
    SocketCommunicator(int rank, std::vector<Link> links, SocketOptions const& options = {})
        : _rank(static_cast<std::size_t>(rank)), _links(std::move(links)),
          _time_out(options.time_out), _calls(64) {
        if (world() == 0 || world() > most_ranks || _rank >= world())
            throw zero::InvalidArgument("SocketCommunicator: the group has 1 to 64 ranks, and the "
                                        "rank is one of them.");
        _piece_bytes = std::max<std::size_t>(options.scratch_bytes / world() / 8, 1) * 8;
        _scratch = {Backend::default_memory(), _piece_bytes * world(),
                    zero::BufferKind::communicator};
        auto const own = socket_pair(); // so that an abort by this rank also ends its own waits
        _links[_rank] = {-1, own[0]};
        _wake = own[1];
        for (Link const& link : _links) _sockets.push_back({link.control, POLLIN, 0});
        _sockets[_rank].fd = _wake;
        _sockets.resize(world() + 2, {-1, 0, 0}); // and the two data sockets of an exchange
    }
    SocketCommunicator(SocketCommunicator const&) = delete;
    SocketCommunicator& operator=(SocketCommunicator const&) = delete;

    ~SocketCommunicator() {
        _last.synchronise(); // commands use this object
        for (Link const& link : _links) {
            ::close(link.control);
            if (link.data >= 0) ::close(link.data);
        }
        ::close(_wake);
    }

    [[nodiscard]] int rank() const noexcept { return static_cast<int>(_rank); }
    [[nodiscard]] int size() const noexcept { return static_cast<int>(world()); }

    /// Optional: the memory plan shows it.
    [[nodiscard]] std::size_t scratch_bytes(std::size_t /*largest_bucket_bytes*/) const noexcept {
        return _scratch.size_bytes();
    }

    template <zero::StorageType T>
    void reduce_scatter(T const* send, T* receive, Cuts cuts, Queue queue,
                        zero::CollectiveTag tag = {}) {
        require_cuts(cuts, tag);
        require_memory(send, cuts.back(), tag);
        require_memory(receive, cuts[_rank + 1] - cuts[_rank], tag);
        enqueue({&SocketCommunicator::scatter_sums, bytes(send), bytes(receive), sizeof(T), sum<T>},
                cuts, queue);
    }

    template <class T>
    void all_gather(T const* send, T* receive, Cuts cuts, Queue queue,
                    zero::CollectiveTag tag = {}) {
        require_cuts(cuts, tag);
        require_memory(send, cuts[_rank + 1] - cuts[_rank], tag);
        require_memory(receive, cuts.back(), tag);
        enqueue({&SocketCommunicator::gather, bytes(send), bytes(receive), sizeof(T)}, cuts, queue);
    }

    template <zero::StorageType T>
    void all_reduce(T const* send, T* receive, Cuts cuts, Queue queue,
                    zero::CollectiveTag tag = {}) {
        require_cuts(cuts, tag);
        require_memory(send, cuts.back(), tag);
        require_memory(receive, cuts.back(), tag);
        enqueue({&SocketCommunicator::gather_sums, bytes(send), bytes(receive), sizeof(T), sum<T>},
                cuts, queue);
    }

    template <class T>
    void broadcast(T* buffer, std::size_t elements, int root, Queue queue,
                   zero::CollectiveTag tag = {}) {
        if (root < 0 || root >= size())
            throw zero::InvalidArgument("SocketCommunicator: the root of a broadcast is a rank.");
        require_memory(buffer, elements, tag);
        enqueue({&SocketCommunicator::spread, bytes(buffer), bytes(buffer), sizeof(T), nullptr,
                 elements, static_cast<std::size_t>(root)},
                {}, queue);
    }

    void all_reduce_integers(std::int64_t* values, std::size_t elements,
                             zero::IntegerReduction reduction, Queue queue,
                             zero::CollectiveTag tag = {}) {
        require_memory(values, elements, tag);
        enqueue({&SocketCommunicator::scatter_sums, bytes(values), bytes(values),
                 sizeof(std::int64_t),
                 reduction == zero::IntegerReduction::sum ? sum_integers : min_integers, elements},
                {}, queue);
    }

    /// Any thread may call it. Each rank keeps the first cause that reaches it; a provisional one
    /// gives way to a better one.
    void abort(std::string_view cause, bool is_provisional = false) noexcept {
        Cause record{};
        record.state = is_provisional ? State::provisional : State::aborted;
        cause.copy(record.text.data(), record.text.size() - 1);
        pass_on(record);
    }

private:
    struct Call;

    /// Adds the W pieces of the scratch memory.
    using Sum = void (*)(std::byte* out, std::byte const* pieces, std::size_t piece_bytes,
                         std::size_t world, std::size_t elements);

    /// The arguments of a command, except for the cuts.
    struct Plan {
        void (SocketCommunicator::*run)(Call const&) = nullptr;
        std::byte const* send = nullptr;
        std::byte* receive = nullptr;
        std::size_t element_bytes = 1;
        Sum sum = nullptr;
        std::size_t elements = 0; ///< elements of the buffer, if there are no cuts
        std::size_t root = 0;
    };

    /// A collective in flight: the arguments that its command reads after the call has returned.
    struct Call {
        Plan plan;
        std::vector<std::size_t> cuts;
        std::uint64_t number = 0;
        Backend::Event done;
    };

    /// A part of a buffer, in bytes.
    struct Part {
        std::size_t begin = 0;
        std::size_t bytes = 0;
    };

    enum class State : std::uint8_t { alive, provisional, aborted };

    /// A message of the control sockets. All have one size, so a stream needs no framing.
    struct Cause {
        State state = State::alive;
        std::array<char, 1023> text{};
    };

    // The calling side: check, keep the arguments, enqueue one command.

    void enqueue(Plan const& plan, Cuts cuts, Queue queue) {
        Backend::rethrow_failure(queue); // an earlier command may have failed
        require_no_abort();
        Call& call = _calls[_count % _calls.size()];
        Backend::synchronise(call.done); // until its slot is free
        call.plan = plan;
        call.cuts.assign(cuts.begin(), cuts.end());
        call.number = ++_count;
        queue->wait(_last); // bytes of two collectives must not mix, even from two queues
        queue->enqueue([this, kept = &call] { run(*kept); });
        _last = call.done = Backend::record(queue);
    }

    void require_cuts(Cuts cuts, zero::CollectiveTag tag) const {
        if (cuts.size() != world() + 1 || cuts.front() != 0
            || !std::is_sorted(cuts.begin(), cuts.end()))
            throw zero::InvalidArgument("SocketCommunicator: '" + std::string(tag.what)
                                        + "' needs W + 1 ascending cuts from 0.");
    }

    static void require_memory(void const* memory, std::size_t elements, zero::CollectiveTag tag) {
        if (memory == nullptr && elements != 0)
            throw zero::InvalidArgument("SocketCommunicator: '" + std::string(tag.what)
                                        + "' needs memory.");
    }

    // The queue's side: one command at a time moves bytes.

    void run(Call const& call) {
        try {
            _running = call.number;
            watch_data(-1, -1);
            wait(std::chrono::milliseconds(0)); // an abort that has arrived ends this one as well
            (this->*call.plan.run)(call);
        } catch (std::exception const& failure) { // the other ranks must not wait for this one
            abort(failure.what());
            throw;
        }
    }

    void scatter_sums(Call const& call) { sum_parts(call, call.plan.receive); }

    void gather(Call const& call) { gather_parts(call, call.plan.send); }

    void gather_sums(Call const& call) {
        std::byte* const own = call.plan.receive + part_of(call, _rank).begin;
        sum_parts(call, own);
        gather_parts(call, own);
    }

    void spread(Call const& call) {
        std::size_t const size = call.plan.elements * call.plan.element_bytes;
        if (_rank != call.plan.root) {
            exchange(call.plan.root, nullptr, 0, call.plan.root, call.plan.receive, size);
            return;
        }
        for (std::size_t step = 1; step < world(); ++step)
            exchange(next(step), call.plan.send, size, next(step), nullptr, 0);
    }

    /// Sends every part to its rank, and adds the parts that arrive, in rank order. Works in
    /// rounds, so that the scratch memory suffices for a bucket of any size.
    void sum_parts(Call const& call, std::byte* out) {
        std::size_t const round = _piece_bytes / call.plan.element_bytes * call.plan.element_bytes;
        std::size_t longest = 0;
        for (std::size_t rank = 0; rank < world(); ++rank)
            longest = std::max(longest, part_of(call, rank).bytes);
        for (std::size_t begin = 0; begin < longest; begin += round) {
            Part const mine = clipped(part_of(call, _rank), begin, round);
            for (std::size_t step = 1; step < world(); ++step) {
                Part const theirs = clipped(part_of(call, next(step)), begin, round);
                exchange(next(step), call.plan.send + theirs.begin, theirs.bytes, previous(step),
                         piece(previous(step)), mine.bytes);
            }
            if (mine.bytes == 0) continue;
            std::memcpy(piece(_rank), call.plan.send + mine.begin, mine.bytes);
            call.plan.sum(out + begin, _scratch.data(), _piece_bytes, world(),
                          mine.bytes / call.plan.element_bytes);
        }
    }

    void gather_parts(Call const& call, std::byte const* own) {
        Part const mine = part_of(call, _rank);
        std::byte* const receive = call.plan.receive;
        if (own != receive + mine.begin && mine.bytes != 0)
            std::memcpy(receive + mine.begin, own, mine.bytes);
        for (std::size_t step = 1; step < world(); ++step) {
            Part const theirs = part_of(call, previous(step));
            exchange(next(step), own, mine.bytes, previous(step), receive + theirs.begin,
                     theirs.bytes);
        }
    }

    /// Sends to one rank and receives from another at the same time: if all ranks sent first, all
    /// would wait when the sockets are full. Bytes come before causes, so a collective whose bytes
    /// have arrived succeeds.
    void exchange(std::size_t to, std::byte const* out, std::size_t out_bytes, std::size_t from,
                  std::byte* in, std::size_t in_bytes) {
        while (out_bytes != 0 || in_bytes != 0) {
            std::size_t sent = 0, received = 0;
            if (out_bytes != 0)
                sent =
                    moved(to, ::send(_links[to].data, out, out_bytes, MSG_NOSIGNAL | MSG_DONTWAIT));
            if (in_bytes != 0)
                received = moved(from, ::recv(_links[from].data, in, in_bytes, MSG_DONTWAIT));
            out += sent;
            out_bytes -= sent;
            in += received;
            in_bytes -= received;
            if (sent != 0 || received != 0) continue;
            watch_data(out_bytes != 0 ? _links[to].data : -1,
                       in_bytes != 0 ? _links[from].data : -1);
            if (wait(_time_out) == 0)
                throw zero::TimedOut("rank " + std::to_string(_rank) + " waited "
                                     + std::to_string(_time_out.count()) + " ms for rank "
                                     + std::to_string(in_bytes != 0 ? from : to) + " in collective "
                                     + std::to_string(_running)
                                     + "; every rank must call the same collectives.");
        }
    }

    /// Returns how many bytes a call on the socket of a peer has moved.
    std::size_t moved(std::size_t peer, ::ssize_t result) {
        if (result > 0) return static_cast<std::size_t>(result);
        if (result < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
        watch_data(-1, -1);
        while (wait(std::chrono::milliseconds(100)) != 0) { // a cause would say more
        }
        throw zero::Aborted("rank " + std::to_string(peer) + " left the group while rank "
                            + std::to_string(_rank) + " waited for it.");
    }

    void watch_data(int out, int in) {
        _sockets[world()] = {out, POLLOUT, 0};
        _sockets[world() + 1] = {in, POLLIN, 0};
    }

    /// Waits for the sockets, and throws if the group was aborted. Returns 0 after the time.
    int wait(std::chrono::milliseconds time) {
        int const ready = read_causes(_sockets.size(), time);
        while (is_provisional() && read_causes(world(), std::chrono::milliseconds(200)) != 0) {}
        require_no_abort();
        return ready;
    }

    int read_causes(std::size_t sockets, std::chrono::milliseconds time) {
        int const ready = ::poll(_sockets.data(), sockets, static_cast<int>(time.count()));
        for (std::size_t rank = 0; ready > 0 && rank < world(); ++rank) {
            if (_sockets[rank].revents == 0) continue;
            Cause record{};
            if (::recv(_sockets[rank].fd, &record, sizeof(record), MSG_WAITALL)
                == static_cast<::ssize_t>(sizeof(record))) {
                pass_on(record); // the sender may have told only some ranks
            } else {
                _sockets[rank].fd = -1; // that rank has left, which matters only if it is needed
            }
        }
        return ready;
    }

    /// Keeps a cause and tells all ranks, unless one that is as good is known already.
    void pass_on(Cause const& record) noexcept {
        std::lock_guard const lock(_mutex);
        if (record.state <= _cause.state) return;
        _cause = record;
        for (Link const& link : _links) // fails for a rank that has left
            (void)::send(link.control, &record, sizeof(record), MSG_NOSIGNAL | MSG_DONTWAIT);
    }

    [[nodiscard]] bool is_provisional() {
        std::lock_guard const lock(_mutex);
        return _cause.state == State::provisional;
    }

    void require_no_abort() {
        std::lock_guard const lock(_mutex);
        if (_cause.state != State::alive)
            throw zero::Aborted("the group was aborted: " + std::string(_cause.text.data()));
    }

    template <class T, class Run>
    static void with_pieces(std::byte const* pieces, std::size_t piece_bytes, std::size_t world,
                            Run const& run) {
        std::array<T const*, most_ranks> table{};
        for (std::size_t rank = 0; rank < world; ++rank)
            table[rank] = reinterpret_cast<T const*>(pieces + rank * piece_bytes);
        zero::host::InlineQueue at_once;
        run(&at_once, table.data(), static_cast<int>(world));
    }

    // The kernels of the library: float sums in rank order, rounded once.

    template <class T>
    static void sum(std::byte* out, std::byte const* pieces, std::size_t piece_bytes,
                    std::size_t world, std::size_t elements) {
        with_pieces<T>(pieces, piece_bytes, world, [&](Queue queue, auto table, int ranks) {
            Backend::sum_ranks(queue, reinterpret_cast<T*>(out), table, ranks, elements);
        });
    }

    static void sum_integers(std::byte* out, std::byte const* pieces, std::size_t piece_bytes,
                             std::size_t world, std::size_t elements) {
        with_pieces<std::int64_t>(
            pieces, piece_bytes, world, [&](Queue queue, auto table, int ranks) {
                Backend::sum_integers(queue, reinterpret_cast<std::int64_t*>(out), table, ranks,
                                      elements);
            });
    }

    static void min_integers(std::byte* out, std::byte const* pieces, std::size_t piece_bytes,
                             std::size_t world, std::size_t elements) {
        with_pieces<std::int64_t>(
            pieces, piece_bytes, world, [&](Queue queue, auto table, int ranks) {
                Backend::min_integers(queue, reinterpret_cast<std::int64_t*>(out), table, ranks,
                                      elements);
            });
    }

    [[nodiscard]] std::size_t world() const noexcept { return _links.size(); }

    /// The peers of a step: each rank has one to send to and one to receive from.
    [[nodiscard]] std::size_t next(std::size_t step) const { return (_rank + step) % world(); }
    [[nodiscard]] std::size_t previous(std::size_t step) const {
        return (_rank + world() - step) % world();
    }

    /// The extent of a rank; without cuts, the whole buffer.
    static Part part_of(Call const& call, std::size_t rank) {
        std::size_t const size = call.plan.element_bytes;
        if (call.cuts.empty()) return {0, call.plan.elements * size};
        return {call.cuts[rank] * size, (call.cuts[rank + 1] - call.cuts[rank]) * size};
    }

    static Part clipped(Part part, std::size_t begin, std::size_t most) {
        begin = std::min(begin, part.bytes);
        return {part.begin + begin, std::min(most, part.bytes - begin)};
    }

    [[nodiscard]] std::byte* piece(std::size_t rank) const {
        return _scratch.data() + rank * _piece_bytes;
    }

    template <class T>
    static std::byte const* bytes(T const* memory) {
        return reinterpret_cast<std::byte const*>(memory);
    }
    template <class T>
    static std::byte* bytes(T* memory) {
        return reinterpret_cast<std::byte*>(memory);
    }

    std::size_t _rank;
    std::vector<Link> _links;
    int _wake = -1;
    std::chrono::milliseconds _time_out;
    std::size_t _piece_bytes = 0;
    zero::Buffer<std::byte> _scratch;
    std::vector<Call> _calls; ///< a ring; its size limits the collectives in flight
    std::uint64_t _count = 0; ///< number of calls
    Backend::Event _last{};   ///< end of the last command
    // Used by commands:
    std::uint64_t _running = 0;     ///< number of the collective
    std::vector<::pollfd> _sockets; ///< W control sockets, then those of an exchange
    // Shared by all threads:
    std::mutex _mutex;
    Cause _cause;
};
static_assert(zero::diagnose_communicator<SocketCommunicator>());
