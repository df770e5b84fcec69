#include "comm/conformance.hpp"
#include "comm/in_shared.hpp"
#include "comm/shared_threads.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <zero/comm/detail/shared_memory.hpp>
#include <zero/comm/run_ranks.hpp>
#include <zero/core/buffer.hpp>

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

// The memory that processes of one host read, here mostly between threads of one process.

namespace zero::test::shared_memory_test {

namespace {

using zero::detail::SharedMemory;
constexpr auto kind = BufferKind::gradients;

/// Returns the numbers at an offset of shared memory, as the reader sees them.
std::vector<std::int32_t> read(std::byte const* base, std::size_t offset, std::size_t count) {
    std::vector<std::int32_t> values(count);
    std::memcpy(values.data(), base + offset, count * sizeof(std::int32_t));
    return values;
}

/// @tparam is_mixed whether each rank leaves some of its memory where peers cannot read it
template <bool is_mixed>
struct Threads {
    inline static std::unique_ptr<std::barrier<>> met;

    static void meet(int /*world*/) { met->arrive_and_wait(); }

    template <class Body>
    static void run(int world, Body const& body) {
        met = std::make_unique<std::barrier<>>(world);
        run_ranks(world, [&](LoopbackCommunicator& inner) {
            SharedThreads ranks(inner);
            InShared<SharedThreads, is_mixed> communicator(ranks);
            body(communicator);
        });
    }
};

} // namespace

TEST_CASE("A peer reads shared memory, and maps none of another key") {
    SharedMemory writer(2);
    SharedMemory reader(2);
    REQUIRE(writer.reason().empty());
    Buffer<std::int32_t> values(writer, 5000, kind);
    auto const offset = writer.offset_of(values.data(), values.size_bytes());
    REQUIRE(offset != SharedMemory::nowhere);

    SharedMemory::Introduction wrong = writer.introduction();
    wrong.key ^= 1;
    reader.map(0, wrong);
    CHECK(reader.base(0) == nullptr);
    wrong = writer.introduction();
    wrong.bytes -= 4096;
    reader.map(0, wrong);
    CHECK(reader.base(0) == nullptr);
    int pipe[2];
    REQUIRE(::pipe(pipe) == 0);
    wrong.file = pipe[0]; // to open it would block
    reader.map(0, wrong);
    CHECK(reader.base(0) == nullptr);
    ::close(pipe[0]);
    ::close(pipe[1]);

    reader.map(0, writer.introduction());
    REQUIRE(reader.base(0) != nullptr);
    for (std::int32_t i = 0; i < 5000; ++i) {
        values.data()[i] = i * 7;
    }
    auto const found = read(reader.base(0), offset, 5000);
    CHECK(std::equal(found.begin(), found.end(), values.data()));
    reader.map(1, reader.introduction());
    CHECK(reader.base(1) != nullptr);
    CHECK(reader.base(1) != reader.base(0));

    auto const closed = writer.introduction();
    writer.close_file();
    SharedMemory late(1);
    late.map(0, closed);
    CHECK(late.base(0) == nullptr);
    CHECK(read(reader.base(0), offset, 2) == std::vector<std::int32_t>{0, 7}); // is mapped already
}

TEST_CASE("Shared memory of a process that is killed stays readable, and leaves nothing behind") {
    int ready[2];
    REQUIRE(::pipe(ready) == 0);
    pid_t const child = ::fork();
    if (child == 0) {
        SharedMemory writer(1);
        auto* const memory = static_cast<char*>(writer.allocate(100, kind));
        std::memset(memory, 'x', 100);
        auto const own = writer.introduction();
        (void)!::write(ready[1], &own, sizeof(own));
        ::pause();
        ::_exit(0);
    }
    SharedMemory::Introduction peer;
    REQUIRE(::read(ready[0], &peer, sizeof(peer)) == static_cast<ssize_t>(sizeof(peer)));
    SharedMemory reader(2);
    reader.map(0, peer);
    ::kill(child, SIGKILL);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    ::close(ready[0]);
    ::close(ready[1]);
    REQUIRE(reader.base(0) != nullptr);
    auto const page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    CHECK(std::count(reader.base(0) + page, reader.base(0) + page + 100, std::byte{'x'}) == 100);
    SharedMemory late(1);
    late.map(0, peer);
    CHECK(late.base(0) == nullptr);
}

TEST_CASE("Only what peers read is shared, and its pages are zero when they are lent again") {
    SharedMemory shared(1);
    for (std::size_t number = 0; number < buffer_kinds; ++number) {
        auto const one = static_cast<BufferKind>(number);
        Buffer<std::byte> memory(shared, 100, one);
        bool const is_shared = shared.offset_of(memory.data(), 100) != SharedMemory::nowhere;
        bool const is_private = one == BufferKind::master_weights
                                || one == BufferKind::optimizer_state || one == BufferKind::control
                                || one == BufferKind::scratch || one == BufferKind::commands
                                || one == BufferKind::staging || one == BufferKind::held_sums
                                || one == BufferKind::gradient_errors;
        CHECK(is_shared == !is_private);
    }
    void* first = nullptr;
    {
        Buffer<unsigned char> memory(shared, 10000, kind);
        first = memory.data();
        std::fill_n(memory.data(), 10000, static_cast<unsigned char>(1));
        CHECK(shared.give_back_pages(memory.data(), 10000, kind));
    }
    Buffer<unsigned char> again(shared, 10000, kind);
    CHECK(again.data() == first);
    CHECK(std::count(again.data(), again.data() + 10000, 0) == 10000);
    again.data()[9999] = 1;
    REQUIRE(shared.give_back_pages(again.data(), 10000, kind));
    shared.take_pages_again(again.data(), 10000, kind);
    CHECK(std::count(again.data(), again.data() + 10000, 0) == 10000);
    CHECK(shared.offset_of(again.data(), 10000) != SharedMemory::nowhere);
    int other = 0;
    CHECK(shared.offset_of(&other, sizeof(other)) == SharedMemory::nowhere);
    CHECK(shared.offset_of(again.data(), ~std::size_t{0}) == SharedMemory::nowhere);
    CHECK(shared.offset_of(nullptr, 0) == SharedMemory::nowhere);
}

TEST_CASE("Blocks of shared memory never overlap, and gaps are used again") {
    SharedMemory shared(1);
    struct Block {
        std::size_t begin;
        std::size_t bytes;
        void* memory;
    };
    std::vector<Block> blocks;
    std::size_t furthest = 0;
    std::size_t most = 0; // pages in use at a time
    std::size_t used = 0;
    auto const pages = [](std::size_t bytes) { return (bytes + 4095) / 4096; };
    for (std::uint64_t turn = 0; turn < 3000; ++turn) {
        std::uint64_t const random = mix(turn);
        if (random % 5 < 2 && !blocks.empty()) {
            auto const at =
                blocks.begin() + static_cast<std::ptrdiff_t>(random / 5 % blocks.size());
            shared.deallocate(at->memory, at->bytes, kind);
            used -= pages(at->bytes);
            blocks.erase(at);
            continue;
        }
        std::size_t const bytes = 1 + random / 5 % 20000;
        void* const memory = shared.allocate(bytes, kind);
        std::size_t const begin = shared.offset_of(memory, bytes);
        REQUIRE(begin != SharedMemory::nowhere);
        REQUIRE(begin % 4096 == 0);
        REQUIRE(begin != 0);
        for (Block const& other : blocks) {
            REQUIRE((begin >= other.begin + other.bytes || other.begin >= begin + bytes));
        }
        blocks.push_back({begin, bytes, memory});
        used += pages(bytes);
        most = std::max(most, used);
        furthest = std::max(furthest, begin / 4096 + pages(bytes));
    }
    CHECK(furthest <= 2 * most + 1);
    for (Block const& block : blocks) {
        shared.deallocate(block.memory, block.bytes, kind);
    }
    CHECK(shared.offset_of(shared.allocate(1, kind), 1) == 4096);
}

TEST_CASE("Ranks that map one another's memory sum in rank order") {
    check_sums_of<Threads<false>, float>();
    check_sums_of<Threads<true>, float>();
    check_sums_of<Threads<false>, bfloat16>();
}

TEST_CASE("Ranks that map one another's memory gather, exchange, broadcast and decide") {
    check_gathers_of<Threads<false>, float, unsigned char>();
    check_gathers_of<Threads<true>, std::int64_t>();
    check_exchanges_of<Threads<false>, float, unsigned char>();
    check_exchanges_of<Threads<true>, std::int64_t>();
    check_broadcasts_of<Threads<false>, float, unsigned char>();
    check_broadcasts_of<Threads<true>, std::int64_t>();
    check_integer_reductions<Threads<false>>();
}

TEST_CASE("Calls that differ are told by what the ranks show, also if the data would be alike") {
    auto const texts = on_ranks<std::string>(3, [](LoopbackCommunicator& inner) {
        auto const rank = static_cast<std::size_t>(inner.rank());
        zero::detail::GroupPlace const place{rank, 3};
        zero::detail::Flights flights(3);
        host::InlineQueue queue;
        zero::detail::SharedGroup group;
        SharedThreadsCollectives loopback(inner);
        group.join(place, "", [&](auto const& call, auto const& memory) {
            loopback.enqueue(call, memory, &queue);
        });
        std::array<float, 3> values{};
        std::array<std::size_t, 4> const cuts{0, 1, 2, 3};
        auto const call =
            place.all_gather(DType::float32, values.data() + rank, values.data(), cuts,
                             CollectiveTag{rank == 2 ? "weights" : "gradients", 1});
        std::string text;
        flights.enqueue(call, {values.data() + rank, values.data(), sizeof(float), cuts, {}},
                        &queue, [&](zero::detail::Flight const& flight) {
                            (void)group.run(flight, [&](zero::detail::Meeting meeting) {
                                group.come(meeting);
                                (void)group.wait(meeting, std::chrono::minutes(1));
                                text = group.difference();
                            });
                        });
        return text;
    });
    for (std::string const& text : texts) {
        CHECK(contains(text, "rank 0 called all-gather of 3 float32 ('gradients 1'"));
        CHECK(contains(text, "rank 2 called all-gather of 3 float32 ('weights 1'"));
    }
}

TEST_CASE("Only a process that has ended is told to have ended") {
    pid_t const child = ::fork();
    if (child == 0) {
        ::pause();
        ::_exit(0);
    }
    CHECK_FALSE(zero::detail::has_ended(child));
    CHECK_FALSE(zero::detail::has_ended(::getpid()));
    ::kill(child, SIGKILL);
    siginfo_t information;
    REQUIRE(::waitid(P_PID, static_cast<id_t>(child), &information, WEXITED | WNOWAIT) == 0);
    CHECK(zero::detail::has_ended(child)); // nobody has waited for it
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(zero::detail::has_ended(child));
}

} // namespace zero::test::shared_memory_test
