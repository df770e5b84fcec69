#include "comm/report.hpp"
#include "scripted_nccl.hpp"
#include "support/catch.hpp"

#include <zero/core/buffer.hpp>
#include <zero/core/host_memory_resource.hpp>
#include <zero/cuda/nccl_memory_resource.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace zero::test::nccl_memory_test {

using cuda::NcclArena;
using cuda::NcclError;
using cuda::NcclMemoryResource;
using cuda::NcclResult;

namespace {

using Lines = Script::Lines;

/// A script of one rank, which compares its arena with no other.
struct LoneScript : Script {
    LoneScript() {
        nccl.rank = 0;
        nccl.world = 1;
    }
};

MemoryPlan plan_of(std::size_t leases, std::size_t wire) {
    MemoryPlan plan;
    plan[BufferKind::gradient_leases].content_bytes = leases;
    plan[BufferKind::wire] = {wire / 2, wire - wire / 2, false};
    plan[BufferKind::optimizer_state].content_bytes = 1 << 20; // no collective moves it
    plan[BufferKind::parameters] = {1 << 20, 0, true};         // nor does the engine allocate these
    return plan;
}

} // namespace

TEST_CASE("Buffers of collectives come from NCCL and are registered, and all others come from the "
          "other resource") {
    Script script;
    auto communicator = script.communicator();
    HostMemoryResource other;
    NcclMemoryResource memory(communicator, other);
    {
        Buffer<float> const leases(memory, 100, BufferKind::gradient_leases);
        CHECK(script.journal.take() == Lines{"memory_allocate 400", "register_memory 400"});
        Buffer<float> const states(memory, 7, BufferKind::optimizer_state);
        CHECK(script.journal.take().empty());
        CHECK(other.allocated_bytes(BufferKind::optimizer_state) == 28);
    }
    CHECK(script.journal.take() == Lines{"deregister_memory", "memory_free"});
    CHECK(other.allocated_bytes() == 0);
}

TEST_CASE("A kind of buffer comes from NCCL exactly if collectives use it") {
    CHECK(NcclMemoryResource::is_moved_by_collectives(BufferKind::parameters));
    CHECK(NcclMemoryResource::is_moved_by_collectives(BufferKind::gradients));
    CHECK(NcclMemoryResource::is_moved_by_collectives(BufferKind::parameter_leases));
    CHECK(NcclMemoryResource::is_moved_by_collectives(BufferKind::wire));
    CHECK(NcclMemoryResource::is_moved_by_collectives(BufferKind::weight_codes));
    CHECK_FALSE(NcclMemoryResource::is_moved_by_collectives(BufferKind::master_weights));
    CHECK_FALSE(NcclMemoryResource::is_moved_by_collectives(BufferKind::control));
    CHECK_FALSE(NcclMemoryResource::is_moved_by_collectives(BufferKind::scratch));
}

TEST_CASE("A failed allocation or registration throws a typed error and keeps no memory") {
    Script script;
    auto communicator = script.communicator();
    HostMemoryResource other;
    NcclMemoryResource memory(communicator, other);
    SECTION("no memory") {
        script.nccl.results["memory_allocate"] = NcclResult::unhandled_cuda_error;
        CHECK_THAT(message_of<NcclError>([&] { (void)memory.allocate(64, BufferKind::wire); }),
                   contains_text("ncclMemAlloc of 64 bytes for wire failed"));
        CHECK(script.journal.take() == Lines{"memory_allocate 64"});
        CHECK_FALSE(communicator.is_aborted());
    }
    SECTION("no registration") {
        script.nccl.results["register_memory"] = NcclResult::internal_error;
        CHECK_THAT(message_of<NcclError>([&] { (void)memory.allocate(64, BufferKind::wire); }),
                   contains_text("ncclCommRegister on rank 1 of 3 failed"));
        CHECK(script.journal.take()
              == Lines{"memory_allocate 64", "register_memory 64", "abort", "memory_free"});
    }
}

TEST_CASE("After an abort memory is freed without ending its registration") {
    Script script;
    auto communicator = script.communicator();
    HostMemoryResource other;
    NcclMemoryResource memory(communicator, other);
    std::optional<Buffer<float>> buffer(std::in_place, memory, 16, BufferKind::parameters);
    communicator.abort("the reason");
    (void)script.journal.take();
    buffer.reset();
    CHECK(script.journal.take() == Lines{"memory_free"});
    CHECK_THROWS_AS(memory.allocate(64, BufferKind::parameters), Aborted);
    CHECK(script.journal.take() == Lines{"memory_allocate 64", "memory_free"});
}

TEST_CASE("An arena is allocated and registered once, and its buffers take nothing else from "
          "NCCL") {
    LoneScript script;
    auto communicator = script.communicator();
    HostMemoryResource other;
    std::size_t const bytes = (4096 + 4096) + (8192 + 4096); // each part is 4 KiB longer
    {
        NcclMemoryResource memory(communicator, other, Script::queue(),
                                  {.plan = plan_of(4096, 4097)});
        CHECK(script.journal.take()
              == Lines{"memory_allocate " + std::to_string(bytes),
                       "register_memory " + std::to_string(bytes)});
        CHECK(memory.nccl_bytes() == bytes);
        CHECK_FALSE(memory.is_symmetric());
        {
            Buffer<float> const leases(memory, 33, BufferKind::gradient_leases);
            Buffer<float> const more(memory, 1, BufferKind::gradient_leases);
            Buffer<std::byte> const wire(memory, 4097, BufferKind::wire);
            Buffer<float> const states(memory, 7, BufferKind::optimizer_state);
            auto const* const first = reinterpret_cast<std::byte const*>(leases.data());
            CHECK(reinterpret_cast<std::byte const*>(more.data()) - first == 256);
            CHECK(wire.data() - first == 8192);
            CHECK(memory.arena_bytes_in_use() == 256 + 128 + 4224);
            CHECK(other.allocated_bytes() == 28);
        }
        CHECK(memory.arena_bytes_in_use() == 0);
        CHECK(script.journal.take().empty());
    }
    CHECK(script.journal.take() == Lines{"deregister_memory", "memory_free"});
    CHECK(other.allocated_bytes() == 0);
}

TEST_CASE("A symmetric arena is a window, and where the machine can have none it is registered") {
    LoneScript script;
    auto communicator = script.communicator();
    HostMemoryResource other;
    SECTION("a window") {
        {
            NcclMemoryResource const memory(communicator, other, Script::queue(),
                                            {.plan = plan_of(1, 0), .symmetric = true});
            CHECK(memory.is_symmetric());
        }
        CHECK(script.journal.take()
              == Lines{"memory_allocate 8192", "register_window 8192", "deregister_window",
                       "memory_free"});
    }
    SECTION("no window") {
        script.nccl.can_have_windows = false;
        {
            NcclMemoryResource const memory(communicator, other, Script::queue(),
                                            {.plan = plan_of(1, 0), .symmetric = true});
            CHECK_FALSE(memory.is_symmetric());
        }
        CHECK(script.journal.take()
              == Lines{"memory_allocate 8192", "register_window 8192", "register_memory 8192",
                       "deregister_memory", "memory_free"});
    }
    SECTION("after an abort") {
        {
            NcclMemoryResource const memory(communicator, other, Script::queue(),
                                            {.plan = plan_of(1, 0), .symmetric = true});
            communicator.abort("the reason");
        }
        CHECK(script.journal.take()
              == Lines{"memory_allocate 8192", "register_window 8192", "abort", "memory_free"});
    }
}

TEST_CASE("An arena that cannot be made is refused in a sentence and leaves the communicator as it "
          "was") {
    LoneScript script;
    auto communicator = script.communicator();
    HostMemoryResource other;
    auto const text_of = [&]<class E>(NcclArena const& arena) {
        return message_of<E>(
            [&] { NcclMemoryResource const memory(communicator, other, Script::queue(), arena); });
    };
    SECTION("without windows") {
        script.nccl.knows_windows = false;
        script.nccl.header = 22501;
        CHECK(
            text_of.operator()<InvalidArgument>({.plan = plan_of(1, 0), .symmetric = true})
            == "zero: cuda::NcclArena::symmetric on rank 0: this cuda::NcclLibrary has no windows "
               "(ncclCommWindowRegister, in NCCL since 2.27; the program was compiled with the "
               "header of NCCL 2.25.1); leave it false, or compile with a newer one.");
        CHECK(script.journal.take().empty());
    }
    SECTION("without bytes") {
        CHECK_THAT(
            text_of.operator()<InvalidArgument>({.plan = plan_of(0, 0)}),
            contains_text("cuda::NcclArena::plan has no bytes of parameters, gradients, leases, "
                          "wire or weight codes (rank 0)")
                && contains_text("give it Engine::memory_plan()"));
        CHECK(script.journal.take().empty());
    }
    SECTION("without memory") {
        script.nccl.results["memory_allocate"] = NcclResult::unhandled_cuda_error;
        CHECK_THAT(text_of.operator()<NcclError>({.plan = plan_of(1, 0)}),
                   contains_text("ncclMemAlloc of 8192 bytes for an arena on rank 0 failed"));
        CHECK(script.journal.take() == Lines{"memory_allocate 8192"});
    }
    CHECK_FALSE(communicator.is_aborted());
    CHECK(other.allocated_bytes() == 0);
}

TEST_CASE("A window that fails, or for which a rank is missing, aborts and leaves nothing behind") {
    LoneScript script;
    HostMemoryResource other;
    NcclArena const arena{.plan = plan_of(1, 0), .symmetric = true};
    SECTION("at once") {
        auto communicator = script.communicator();
        script.nccl.results["register_window"] = NcclResult::internal_error;
        CHECK_THAT(message_of<NcclError>([&] {
                       NcclMemoryResource const memory(communicator, other, Script::queue(), arena);
                   }),
                   contains_text("ncclCommWindowRegister (all ranks must make the arena of their "
                                 "cuda::NcclMemoryResource) on rank 0 of 1 failed"));
        CHECK(script.journal.take()
              == Lines{"memory_allocate 8192", "register_window 8192", "abort", "memory_free"});
    }
    SECTION("after the time-out of a call that is polled") {
        auto communicator = script.communicator();
        script.nccl.results["register_window"] = NcclResult::in_progress;
        script.nccl.on_call = [&](std::string const& function) {
            if (function == "register_window") {
                script.nccl.later = NcclResult::in_progress;
            }
        };
        CHECK_THAT(message_of<TimedOut>([&] {
                       NcclMemoryResource const memory(communicator, other, Script::queue(), arena);
                   }),
                   contains_text("waited 100 ms for ncclCommWindowRegister"));
        CHECK(script.journal.take()
              == Lines{"memory_allocate 8192", "register_window 8192", "abort", "memory_free"});
    }
    SECTION("after the time-out of a call that blocks, whose late result is dropped") {
        script.options.mode = cuda::NcclMode::blocking;
        auto communicator = script.communicator();
        script.nccl.on_call = [&](std::string const& function) {
            script.system.hanging_runs = function == "memory_allocate" ? 1 : 0;
        };
        CHECK_THAT(message_of<TimedOut>([&] {
                       NcclMemoryResource const memory(communicator, other, Script::queue(), arena);
                   }),
                   contains_text("waited 100 ms for ncclCommWindowRegister"));
        CHECK(script.journal.take()
              == Lines{"memory_allocate 8192", "left to itself after 100 ms, on device 0", "abort",
                       "memory_free"});
        script.system.end_of_hanging_run();
        CHECK(script.journal.take() == Lines{"register_window 8192"});
    }
}

TEST_CASE("A buffer without a place in the arena has a block of its own, and in a symmetric arena "
          "is refused with the bytes that are in use") {
    LoneScript script;
    auto communicator = script.communicator();
    HostMemoryResource other;
    NcclArena arena{.plan = plan_of(4096, 0)};
    SECTION("a block") {
        NcclMemoryResource memory(communicator, other, Script::queue(), arena);
        (void)script.journal.take();
        {
            Buffer<std::byte> const leases(memory, 8193, BufferKind::gradient_leases);
            Buffer<std::byte> const wire(memory, 1, BufferKind::wire); // has no part
            CHECK(memory.nccl_bytes() == 8192 + 8193 + 1);
            CHECK(memory.arena_bytes_in_use() == 0);
            CHECK(script.journal.take()
                  == Lines{"memory_allocate 8193", "register_memory 8193", "memory_allocate 1",
                           "register_memory 1"});
        }
        CHECK(memory.nccl_bytes() == 8192);
        CHECK(script.journal.take()
              == Lines{"deregister_memory", "memory_free", "deregister_memory", "memory_free"});
    }
    SECTION("refused, also where the machine can have no window") {
        arena.symmetric = true;
        script.nccl.can_have_windows = GENERATE(true, false);
        NcclMemoryResource memory(communicator, other, Script::queue(), arena);
        (void)script.journal.take();
        Buffer<std::byte> const leases(memory, 4000, BufferKind::gradient_leases);
        CHECK_THAT(
            message_of<InvalidArgument>(
                [&] { (void)memory.allocate(4097, BufferKind::gradient_leases); }),
            contains_text("the arena on rank 0 has no place for 4097 bytes of gradient leases: it "
                          "has 8192, of which 4096 are in use")
                && contains_text("twice the plan with rebuild_buckets"));
        CHECK_THROWS_AS(memory.allocate(std::numeric_limits<std::size_t>::max() - 1,
                                        BufferKind::gradient_leases),
                        InvalidArgument);
        CHECK(memory.arena_bytes_in_use() == 4096);
        CHECK_NOTHROW(Buffer<std::byte>(memory, 4096, BufferKind::gradient_leases));
        CHECK(script.journal.take().empty());
    }
}

TEST_CASE("Places in an arena never overlap, are reused, and have the address that the same calls "
          "give elsewhere") {
    LoneScript script;
    auto communicator = script.communicator();
    HostMemoryResource other;
    NcclArena const arena{.plan = plan_of(60000, 0)};
    NcclMemoryResource memory(communicator, other, Script::queue(), arena);
    NcclMemoryResource twin(communicator, other, Script::queue(), arena);
    struct Block {
        Buffer<std::byte> own;
        Buffer<std::byte> twin;
    };
    std::vector<Block> blocks;
    std::mt19937_64 random(7);
    std::size_t const part = 61440 + 4096; // also the size of the arena
    std::byte const* const base = Buffer<std::byte>(memory, 1, BufferKind::gradient_leases).data();
    std::byte const* const twin_base =
        Buffer<std::byte>(twin, 1, BufferKind::gradient_leases).data();
    std::size_t full = 0;
    std::size_t overlaps = 0;
    for (int turn = 0; turn < 4000; ++turn) {
        if (!blocks.empty() && random() % 5 < 2) {
            blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(random() % blocks.size()));
            continue;
        }
        std::size_t const bytes = 1 + random() % (random() % 2 == 0 ? 300 : 9000);
        std::vector<bool> is_used(part / 128); // by a straight-line search for the first gap
        for (Block const& block : blocks) {
            std::size_t const begin = static_cast<std::size_t>(block.own.data() - base);
            for (std::size_t at = begin / 128; at * 128 < begin + block.own.size(); ++at) {
                overlaps += is_used[at] ? 1 : 0;
                is_used[at] = true;
            }
        }
        std::size_t const length = (bytes + 127) / 128;
        std::size_t run = 0;
        std::size_t at = 0;
        for (; at < is_used.size() && run < length; ++at) {
            run = is_used[at] ? 0 : run + 1;
        }
        if (run < length) {
            ++full;
            continue;
        }
        Block block{Buffer<std::byte>(memory, bytes, BufferKind::gradient_leases),
                    Buffer<std::byte>(twin, bytes, BufferKind::gradient_leases)};
        REQUIRE(static_cast<std::size_t>(block.own.data() - base) == (at - length) * 128);
        REQUIRE(block.twin.data() - twin_base == block.own.data() - base);
        blocks.push_back(std::move(block));
    }
    CHECK(overlaps == 0);
    CHECK(full > 100);
    CHECK(memory.nccl_bytes() == part);
    blocks.clear();
    CHECK(memory.arena_bytes_in_use() == 0);
}

} // namespace zero::test::nccl_memory_test
