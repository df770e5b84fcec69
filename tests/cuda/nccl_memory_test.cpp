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

TEST_CASE(
    "what collectives move is NCCL's memory and registered; all else is the other resource's") {
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

TEST_CASE("each kind of buffer is NCCL's or not, as collectives use it") {
    CHECK(NcclMemoryResource::is_moved_by_collectives(BufferKind::parameters));
    CHECK(NcclMemoryResource::is_moved_by_collectives(BufferKind::gradients));
    CHECK(NcclMemoryResource::is_moved_by_collectives(BufferKind::parameter_leases));
    CHECK(NcclMemoryResource::is_moved_by_collectives(BufferKind::wire));
    CHECK_FALSE(NcclMemoryResource::is_moved_by_collectives(BufferKind::master_weights));
    CHECK_FALSE(NcclMemoryResource::is_moved_by_collectives(BufferKind::control));
    CHECK_FALSE(NcclMemoryResource::is_moved_by_collectives(BufferKind::scratch));
}

TEST_CASE("memory that NCCL does not give or register is a typed error, and none is kept") {
    Script script;
    auto communicator = script.communicator();
    HostMemoryResource other;
    NcclMemoryResource memory(communicator, other);
    SECTION("none") {
        script.nccl.results["memory_allocate"] = NcclResult::unhandled_cuda_error;
        CHECK_THAT(message_of<NcclError>([&] { (void)memory.allocate(64, BufferKind::wire); }),
                   contains_text("ncclMemAlloc of 64 bytes for wire failed"));
        CHECK(script.journal.take() == Lines{"memory_allocate 64"});
        CHECK_FALSE(communicator.is_aborted());
    }
    SECTION("not registered") {
        script.nccl.results["register_memory"] = NcclResult::internal_error;
        CHECK_THAT(message_of<NcclError>([&] { (void)memory.allocate(64, BufferKind::wire); }),
                   contains_text("ncclCommRegister on rank 1 of 3 failed"));
        CHECK(script.journal.take()
              == Lines{"memory_allocate 64", "register_memory 64", "abort", "memory_free"});
    }
}

TEST_CASE("after an abort memory is given back without its registration") {
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
