#include "cuda/device.hpp"

#include <zero/cuda/allocator_memory.hpp>
#include <zero/cuda/clean_up_error.hpp>
#include <zero/cuda/event.hpp>
#include <zero/cuda/owned_stream.hpp>
#include <zero/cuda/queue_clock.hpp>
#include <zero/cuda/runtime_backend.hpp>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

// Objects that are destroyed while another device is current, during a capture, or when CUDA
// refuses to release them.

namespace zero::test::clean_up_test {

namespace {

void use_device(int device) {
    cuda::detail::check(cudaSetDevice(device), "cudaSetDevice");
}

int current_device() {
    int device = -1;
    cuda::detail::check(cudaGetDevice(&device), "cudaGetDevice");
    return device;
}

std::string name_of_error() {
    cuda::CleanUpError const error = cuda::take_clean_up_error();
    return error.call + (' ' + std::to_string(error.code));
}

/// The state after a clean-up.
struct Left {
    std::size_t released_elsewhere;
    int device;
    cudaError_t last_error;
    std::string error;
    friend bool operator==(Left const&, Left const&) = default;
};

/// Makes an object on device 0 and destroys it while device 1 is current.
template <class Make>
Left left_by(Make const& make) {
    use_device(0);
    auto object = std::unique_ptr<decltype(make())>(new auto(make()));
    use_device(1);
    std::size_t const before = emulated::released_elsewhere;
    object.reset();
    Left const left{emulated::released_elsewhere - before, current_device(), cudaPeekAtLastError(),
                    name_of_error()};
    use_device(0);
    return left;
}

template <class Memory>
struct Allocation {
    explicit Allocation(Memory& from)
        : resource(&from), memory(from.allocate(64, BufferKind::control)) {}
    Allocation(Allocation const&) = delete;
    ~Allocation() { resource->deallocate(memory, 64, BufferKind::control); }
    Memory* resource;
    void* memory;
};

/// Captures on a stream and returns whether the capture survives the question.
template <class Question>
bool survives_capture(cudaStream_t stream, Question const& question) {
    cudaGraph_t graph = nullptr;
    cuda::detail::check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal),
                        "cudaStreamBeginCapture");
    question();
    cudaError_t const code = cudaStreamEndCapture(stream, &graph);
    cuda::detail::ignore(cudaGraphDestroy(graph));
    cuda::detail::ignore(cudaGetLastError());
    return code == cudaSuccess;
}

Left const clean{0, 1, cudaSuccess, " 0"};

} // namespace

TEST_CASE("Whatever is destroyed while another device is current is released on its own device, "
          "which is current only for that",
          "[cuda]") {
    (void)cuda::take_clean_up_error();
    CHECK(left_by([] { return cuda::OwnedStream(); }) == clean);
    CHECK(left_by([] { return cuda::Event::record(cudaStreamPerThread); }) == clean);
    CHECK(left_by([] { return Allocation(cuda::default_memory()); }) == clean);
    CHECK(left_by([] { return cuda::detail::EventClock(2); }) == clean);
    cuda::PlainAllocator plain;
    cuda::AllocatorMemory<cuda::PlainAllocator> memory(plain, cudaStreamPerThread);
    CHECK(left_by([&] { return Allocation(memory); }) == clean);
}

TEST_CASE("A clock whose spans are cleared while another device is current records on its own",
          "[cuda]") {
    use_device(0);
    cuda::detail::EventClock clock(1);
    use_device(1);
    CHECK_NOTHROW(clock.clear());
    CHECK(current_device() == 1);
    use_device(0);
}

TEST_CASE("Errors of a clean-up leave no last error, and the first one can be asked for",
          "[cuda]") {
    (void)cuda::take_clean_up_error();
    for (std::string const call : {"cudaStreamDestroy", "cudaEventDestroy", "cudaFreeHost"}) {
        CAPTURE(call);
        cuda::PinnedMemory pinned;
        auto stream = std::make_unique<cuda::OwnedStream>();
        auto event = std::make_unique<cuda::Event>(cuda::Event::record(stream->get()));
        auto locked = std::make_unique<Allocation<cuda::PinnedMemory>>(pinned);
        emulated::failures[call] = cudaErrorInvalidResourceHandle;
        event.reset();
        stream.reset();
        locked.reset();
        CHECK(emulated::failures.empty());
        CHECK(cudaPeekAtLastError() == cudaSuccess);
        CHECK(name_of_error() == call + " 400");
        CHECK(name_of_error() == " 0"); // reading the error clears it
    }
}

TEST_CASE("Memory that its pool does not take back is freed otherwise, and only a failure of that "
          "is an error",
          "[cuda]") {
    (void)cuda::take_clean_up_error();
    auto const free_with = [](auto... calls) {
        void* const memory = cuda::PoolAllocator::allocate(64, cudaStreamPerThread);
        (static_cast<void>(emulated::failures[calls] = cudaErrorInvalidValue), ...);
        cuda::PoolAllocator::deallocate(memory, 64, cudaStreamPerThread);
        CHECK(emulated::failures.empty());
        CHECK(cudaPeekAtLastError() == cudaSuccess);
        bool const is_held = emulated::GuardedMemory::holds(memory);
        if (is_held) {
            cuda::detail::check(cudaFree(memory), "cudaFree");
        }
        return is_held;
    };
    CHECK_FALSE(free_with());
    CHECK_FALSE(free_with("cudaFreeAsync"));
    CHECK(name_of_error() == " 0");
    CHECK(free_with("cudaFreeAsync", "cudaFree"));
    CHECK(name_of_error() == "cudaFree 1");
}

TEST_CASE("A runtime that shuts down has released everything, which is no error of a clean-up",
          "[cuda]") {
    (void)cuda::take_clean_up_error();
    for (cudaError_t const code : {cudaErrorCudartUnloading, cudaErrorContextIsDestroyed}) {
        auto stream = std::make_unique<cuda::OwnedStream>();
        emulated::failures["cudaStreamDestroy"] = code;
        stream.reset();
        CHECK(name_of_error() == " 0");
    }
}

TEST_CASE("The program's own last error survives a clean-up", "[cuda]") {
    auto stream = std::make_unique<cuda::OwnedStream>();
    auto locked =
        std::make_unique<Allocation<MemoryResource>>(cuda::RuntimeBackend::staging_memory());
    CHECK(cudaSetDevice(-1) == cudaErrorInvalidDevice);
    stream.reset();
    locked.reset();
    CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
}

TEST_CASE("Memory, streams and events that are released during a capture leave it valid, also "
          "memory in the order of the captured stream",
          "[cuda]") {
    (void)cuda::take_clean_up_error();
    cuda::OwnedStream const stream;
    cuda::PoolAllocator pool;
    cuda::PlainAllocator plain;
    cuda::AllocatorMemory<cuda::PoolAllocator> pool_memory(pool, stream.get());
    cuda::AllocatorMemory<cuda::PlainAllocator> plain_memory(plain, stream.get());
    std::optional<Allocation<MemoryResource>> own;
    std::optional<Allocation<MemoryResource>> locked;
    std::optional<Allocation<MemoryResource>> pooled;
    std::optional<Allocation<MemoryResource>> of_plain;
    std::optional<cuda::OwnedStream> other;
    own.emplace(cuda::default_memory());
    locked.emplace(cuda::RuntimeBackend::staging_memory());
    pooled.emplace(pool_memory);
    of_plain.emplace(plain_memory);
    other.emplace();
    void* const memory[] = {own->memory, locked->memory, pooled->memory, of_plain->memory};
    CHECK(survives_capture(stream.get(), [&] {
        own.reset();
        locked.reset();
        pooled.reset();
        of_plain.reset();
        other.reset();
        CHECK(cudaPeekAtLastError() == cudaSuccess);
    }));
    for (void* const each : memory) {
        CHECK_FALSE(emulated::GuardedMemory::holds(each));
    }
    CHECK(name_of_error() == " 0");
}

TEST_CASE("Memory is released while a capture of the stream in whose order it is freed is invalid",
          "[cuda]") {
    (void)cuda::take_clean_up_error();
    cuda::OwnedStream const stream;
    cuda::PoolAllocator pool;
    cuda::AllocatorMemory<cuda::PoolAllocator> resource(pool, stream.get());
    std::optional<Allocation<MemoryResource>> own;
    own.emplace(resource);
    void* const memory = own->memory;
    CHECK_FALSE(survives_capture(stream.get(), [&] {
        CHECK(cudaStreamSynchronize(stream.get()) == cudaErrorStreamCaptureUnsupported);
        CHECK(cudaGetLastError() == cudaErrorStreamCaptureUnsupported);
        own.reset();
        CHECK(cudaPeekAtLastError() == cudaSuccess);
    }));
    CHECK_FALSE(emulated::GuardedMemory::holds(memory));
    CHECK(name_of_error() == " 0");
}

TEST_CASE("A drain that fails leaves no last error", "[cuda]") {
    cuda::OwnedStream const stream;
    emulated::failures["cudaStreamSynchronize"] = cudaErrorInvalidResourceHandle;
    cuda::RuntimeBackend::drain(stream.get());
    CHECK(emulated::failures.empty());
    CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("An allocator that throws from deallocate is an error of the clean-up", "[cuda]") {
    struct Throwing {
        static void* allocate(std::size_t bytes, cudaStream_t stream) {
            return cuda::PoolAllocator::allocate(bytes, stream);
        }
        static void deallocate(void* memory, std::size_t bytes, cudaStream_t stream) {
            cuda::PoolAllocator::deallocate(memory, bytes, stream);
            throw std::runtime_error("no");
        }
    };
    (void)cuda::take_clean_up_error();
    Throwing throwing;
    cuda::AllocatorMemory<Throwing> memory(throwing, cudaStreamPerThread);
    { Allocation const own(memory); }
    CHECK(name_of_error() == "deallocate of the allocator 999");
}

TEST_CASE("An error that is thrown does not stay behind as the last error as well", "[cuda]") {
    CHECK_THROWS_AS(cuda::detail::check(cudaSetDevice(-1), "cudaSetDevice"), CudaError);
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    CHECK(cudaSetDevice(-1) == cudaErrorInvalidDevice);
    CHECK_THROWS_AS(cuda::detail::check(cudaErrorCapturedEvent, "a query that was not made"),
                    OutOfOrder);
    CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
}

} // namespace zero::test::clean_up_test
