#include "comm/values.hpp"
#include "support/catch.hpp"

#include <zero/comm/detail/shared_memory.hpp>
#include <zero/core/buffer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

// The memory that processes of one host read, here mostly between two of one process.

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

} // namespace zero::test::shared_memory_test
