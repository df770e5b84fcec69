#include "comm/report.hpp"
#include "scripted_nccl.hpp"
#include "support/catch.hpp"

#include <zero/core/buffer.hpp>
#include <zero/core/host_memory_resource.hpp>
#include <zero/cuda/nccl_memory_resource.hpp>

#include <optional>

namespace zero::test::nccl_memory_test {

using cuda::NcclError;
using cuda::NcclMemoryResource;
using cuda::NcclResult;

namespace {

using Lines = Script::Lines;

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

} // namespace zero::test::nccl_memory_test
