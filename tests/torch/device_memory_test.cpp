// Where engines of modules on a device take their memory from. LibTorch's streams and allocator are
// stand-ins on the emulated device (emulated/), so nothing here needs a device.

#include <zero/torch/cuda.hpp>

#include "support/catch.hpp"

#include <zero/core/buffer.hpp>
#include <zero/cuda/owned_stream.hpp>
#include <zero/host/host_backend.hpp>

#include <vector>

namespace zero::test::device_memory_test {

TEST_CASE("On a device an engine takes its memory from LibTorch's allocator, in the order of the "
          "current stream, unless the program names another") {
    using Device = torch::DeviceOf<cuda::RuntimeBackend>;
    namespace allocator = c10::cuda::CUDACachingAllocator;
    cuda::OwnedStream const stream;
    c10::cuda::current_stream = stream.get();
    MemoryResource* const memory = Device::memory(nullptr);
    REQUIRE(memory != nullptr);
    {
        Buffer<float> const buffer(*memory, 10, BufferKind::parameters);
        CHECK(allocator::live == 1);
        CHECK(allocator::streams == std::vector<cudaStream_t>{stream.get()});
    }
    CHECK(allocator::live == 0);
    MemoryResource& other = cuda::default_memory();
    CHECK(Device::memory(&other) == &other);
    c10::cuda::current_stream = nullptr;
}

TEST_CASE(
    "On the host an engine takes the memory of the backend unless the program names another") {
    using Host = torch::DeviceOf<HostBackend>;
    CHECK(Host::memory(nullptr) == nullptr);
    CHECK(Host::memory(&HostBackend::default_memory()) == &HostBackend::default_memory());
}

} // namespace zero::test::device_memory_test
