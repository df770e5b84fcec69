#include "cuda/device.hpp"
#include "support/outcome.hpp"

#include <zero/cuda/allocator_memory.hpp>
#include <zero/cuda/owned_stream.hpp>
#include <zero/cuda/runtime_backend.hpp>

// Queries that the library makes leave no error behind that the program could mistake for an error
// of one of its own launches.

namespace zero::test::last_error_test {

TEST_CASE("Asking for failures of the legacy stream while another stream is captured leaves no "
          "last error, and keeps the program's own",
          "[cuda]") {
    cuda::OwnedStream const stream;
    cuda::detail::check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal),
                        "cudaStreamBeginCapture");
    (void)cudaGetLastError();
    CHECK_NOTHROW(cuda::RuntimeBackend::rethrow_failure(cudaStreamLegacy));
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    CHECK_FALSE(cuda::detail::is_capturing(cudaStreamLegacy));
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    CHECK(cudaSetDevice(-1) == cudaErrorInvalidDevice);
    CHECK(cuda::detail::is_capturing(stream.get()));
    CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(stream.get(), &graph) == cudaSuccess);
    cuda::detail::check(cudaGraphDestroy(graph), "cudaGraphDestroy");
}

TEST_CASE("Memory of another device than the current one is freed there, and leaves no last error",
          "[cuda]") {
    void* const memory = cuda::PoolAllocator::allocate(64, cudaStreamPerThread);
    CHECK(emulated::GuardedMemory::holds(memory));
    cuda::detail::check(cudaSetDevice(1), "cudaSetDevice");
    cuda::PoolAllocator::deallocate(memory, 64, cudaStreamPerThread);
    CHECK_FALSE(emulated::GuardedMemory::holds(memory));
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    int current = 0;
    cuda::detail::check(cudaGetDevice(&current), "cudaGetDevice");
    CHECK(current == 1);
    cuda::detail::check(cudaSetDevice(0), "cudaSetDevice");
}

TEST_CASE("On a device without memory pools the default memory is plain, and its errors say so",
          "[cuda]") {
    MemoryResource& pooled = cuda::default_memory();
    emulated::has_pools = false;
    MemoryResource& plain = cuda::default_memory();
    CHECK(&plain != &pooled);
    CHECK(outcome_of([&] { (void)pooled.allocate(64, BufferKind::control); }).type != "returned");
    void* const memory = plain.allocate(64, BufferKind::control);
    CHECK(emulated::GuardedMemory::holds(memory));
    plain.deallocate(memory, 64, BufferKind::control);
    CHECK_FALSE(emulated::GuardedMemory::holds(memory));
    CHECK_THAT(outcome_of([&] {
                   (void)plain.allocate(std::size_t{1} << 62U, BufferKind::control);
               }).message,
               contains_text("the device has no memory pools"));
    emulated::has_pools = true;
    CHECK(&cuda::default_memory() == &pooled);
}

} // namespace zero::test::last_error_test
