#include "support/catch.hpp"
#include "support/sanitizers.hpp"

#include <zero/core/host_memory_resource.hpp>
#include <zero/core/memory_resource.hpp>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <new>
#include <sstream>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace zero::test::memory_resource_test {

TEST_CASE("The host memory resource counts the bytes in use per kind") {
    HostMemoryResource memory;
    CHECK(memory.allocated_bytes() == 0);
    void* const first = memory.allocate(1000, BufferKind::parameters);
    void* const second = memory.allocate(24, BufferKind::wire);
    void* const third = memory.allocate(1, BufferKind::parameters);
    CHECK(memory.allocated_bytes(BufferKind::parameters) == 1001);
    CHECK(memory.allocated_bytes(BufferKind::wire) == 24);
    CHECK(memory.allocated_bytes(BufferKind::gradients) == 0);
    CHECK(memory.allocated_bytes() == 1025);
    memory.deallocate(first, 1000, BufferKind::parameters);
    CHECK(memory.allocated_bytes(BufferKind::parameters) == 1);
    memory.deallocate(second, 24, BufferKind::wire);
    memory.deallocate(third, 1, BufferKind::parameters);
    CHECK(memory.allocated_bytes() == 0);
}

#if defined(__linux__)
/// Returns whether the system was asked for large pages behind an address.
bool has_large_pages(void const* memory) {
    auto const address = reinterpret_cast<std::uintptr_t>(memory);
    std::ifstream maps("/proc/self/smaps");
    bool is_there = false;
    for (std::string line; std::getline(maps, line);) {
        std::uintptr_t begin = 0;
        std::uintptr_t end = 0;
        char dash = 0;
        if (std::istringstream(line) >> std::hex >> begin >> dash >> end && dash == '-') {
            is_there = begin <= address && address < end;
        } else if (is_there && line.rfind("VmFlags:", 0) == 0) {
            return line.find(" hg") != std::string::npos;
        }
    }
    return false;
}

TEST_CASE("Large pages are asked for where they fit into a block, and its bytes stay") {
    HostMemoryResource memory;
    bool const exist = std::filesystem::exists("/sys/kernel/mm/transparent_hugepage/enabled");
    std::size_t const page = std::size_t{2} << 20U;
    for (std::size_t const bytes : {page / 2, 5 * page / 2, 40 * page + 1}) {
        CAPTURE(bytes);
        auto* const block = static_cast<char*>(memory.allocate(bytes, BufferKind::optimizer_state));
        std::memset(block, 7, bytes);
        std::uintptr_t const gap = (page - reinterpret_cast<std::uintptr_t>(block) % page) % page;
        if (gap + page <= bytes) {
            CHECK(has_large_pages(block + gap) == exist);
        }
        CHECK(block[bytes - 1] == 7);
        memory.deallocate(block, bytes, BufferKind::optimizer_state);
    }
}
#endif

TEST_CASE("Host memory is aligned to 128 bytes, whatever its size") {
    HostMemoryResource memory;
    for (std::size_t const bytes : std::vector<std::size_t>{0, 1, 2, 127, 128, 129, 4097}) {
        void* const pointer = memory.allocate(bytes, BufferKind::control);
        CHECK(reinterpret_cast<std::uintptr_t>(pointer) % HostMemoryResource::alignment == 0);
        std::memset(pointer, 0x5a, bytes);
        memory.deallocate(pointer, bytes, BufferKind::control);
    }
    CHECK(memory.allocated_bytes() == 0);
}

TEST_CASE("A block of host memory gives back its whole pages, keeps its address, and can be used "
          "again") {
    HostMemoryResource memory;
    constexpr auto kind = BufferKind::optimizer_state;
    REQUIRE(memory.can_give_back_pages());
    auto const page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    for (std::size_t const bytes : {std::size_t{1}, page, 3 * page + 5, 300 * page}) {
        INFO(bytes << " bytes");
        auto* const block = static_cast<unsigned char*>(memory.allocate(bytes, kind));
        std::memset(block, 0x5a, bytes);
        auto const address = reinterpret_cast<std::uintptr_t>(block);
        std::size_t const edge = (page - address % page) % page;
        std::size_t const pages = bytes > edge ? (bytes - edge) / page : 0;
        auto const in_memory = [&] { // as the system says it
            std::vector<unsigned char> states(pages + 1);
            CHECK(mincore(block + edge, pages * page, states.data()) == 0);
            std::size_t count = 0;
            for (std::size_t i = 0; i < pages; ++i) {
                count += states[i] & 1U;
            }
            return count;
        };
        CHECK(in_memory() == pages);
        REQUIRE(memory.give_back_pages(block, bytes, kind));
        CHECK(in_memory() == 0);
        CHECK(memory.resident_bytes(kind) == bytes - pages * page);
        CHECK(memory.allocated_bytes(kind) == bytes);
        memory.take_pages_again(block, bytes, kind);
        CHECK(memory.resident_bytes(kind) == bytes);
        std::memset(block, 0x5a, bytes);
        CHECK(in_memory() == pages);
        memory.deallocate(block, bytes, kind);
    }
    CHECK(memory.resident_bytes(kind) == 0);
}

TEST_CASE("A failed allocation does not change the counts") {
    if (has_address_sanitizer || has_thread_sanitizer) {
        std::puts(
            "skipped: no exception of a failed allocation, since a sanitizer ends the process");
        return;
    }
    HostMemoryResource memory;
    std::size_t const too_much = std::numeric_limits<std::size_t>::max() / 4;
    CHECK_THROWS_AS(memory.allocate(too_much, BufferKind::gradients), std::bad_alloc);
    CHECK(memory.allocated_bytes() == 0);
}

TEST_CASE("The counts are correct when several threads allocate concurrently") {
    HostMemoryResource memory;
    std::vector<void*> kept(4, nullptr);
    std::vector<std::thread> threads;
    for (void*& last : kept) {
        threads.emplace_back([&memory, &last] {
            for (int round = 0; round < 500; ++round) {
                void* const pointer = memory.allocate(64, BufferKind::control);
                memory.deallocate(pointer, 64, BufferKind::control);
            }
            last = memory.allocate(100, BufferKind::wire);
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    CHECK(memory.allocated_bytes(BufferKind::control) == 0);
    CHECK(memory.allocated_bytes(BufferKind::wire) == 400);
    for (void* const last : kept) {
        memory.deallocate(last, 100, BufferKind::wire);
    }
    CHECK(memory.allocated_bytes() == 0);
}

TEST_CASE("Each kind of buffer has its own name") {
    std::vector<std::string> names;
    for (std::size_t kind = 0; kind < buffer_kinds; ++kind) {
        names.emplace_back(name_of(static_cast<BufferKind>(kind)));
    }
    CHECK(names
          == std::vector<std::string>{
              "parameters", "gradients", "master weights", "optimizer state", "gradient leases",
              "parameter leases", "wire", "control", "scratch", "communicator", "commands",
              "staging", "held sums", "secondary copies", "weight codes", "gradient errors"});
}

} // namespace zero::test::memory_resource_test
