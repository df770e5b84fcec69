#pragma once

// The trainer of the random-configuration oracle on a device. Its model stays on the host: engine
// and model use managed memory, and a command of the model is a host function on a stream. So a
// wait that the engine omits shows as it does on the host.

#include "stage/oracle/driver.hpp"

#include <zero/cuda/backend.cuh>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace zero::test::oracle {

/// Allocates managed memory, which the host may use while kernels run.
struct ManagedMemory {
    static void* allocate(std::size_t bytes, cudaStream_t = {}) {
        void* memory = nullptr;
        cuda::detail::check(cudaMallocManaged(&memory, bytes), "cudaMallocManaged");
        return memory;
    }
    static void deallocate(void* memory, std::size_t = 0, cudaStream_t = {}) noexcept {
        cuda::detail::ignore(cudaFree(memory));
    }
};

template <class T>
struct ManagedAllocator {
    using value_type = T;
    ManagedAllocator() = default;
    template <class U>
    ManagedAllocator(ManagedAllocator<U> const&) noexcept {} // NOLINT: allocators convert
    T* allocate(std::size_t elements) {
        return static_cast<T*>(ManagedMemory::allocate(elements * sizeof(T)));
    }
    void deallocate(T* memory, std::size_t) noexcept { ManagedMemory::deallocate(memory); }
    friend bool operator==(ManagedAllocator, ManagedAllocator) noexcept { return true; }
};

template <>
struct Side<cuda::Backend> {
    using OwnedQueue = std::unique_ptr<cuda::OwnedStream>;
    template <class T>
    using Vector = std::vector<T, ManagedAllocator<T>>;

    /// Streams run freely; streams of the emulated device pause.
    static OwnedQueue make_queue(Compute, std::uint64_t, unsigned) {
        return std::make_unique<cuda::OwnedStream>();
    }
    static cudaStream_t handle(OwnedQueue const& queue) noexcept {
        return queue == nullptr ? cuda::unset_stream() : queue->get();
    }
    static void synchronise(cudaStream_t stream) noexcept {
        cuda::detail::ignore(cudaStreamSynchronize(stream));
    }
    static void make_wait(cudaStream_t stream, cuda::Event const& event) {
        event.make_wait(stream);
    }
    static cuda::Event record(cudaStream_t stream) { return cuda::Event::record(stream); }

    template <class Command>
    static void run(cudaStream_t stream, Command const& command) {
        auto kept = std::make_unique<Command>(command);
        auto const call = [](void* data) {
            std::unique_ptr<Command> const own(static_cast<Command*>(data));
            (*own)();
        };
        cuda::detail::check(cudaLaunchHostFunc(stream, call, kept.get()), "cudaLaunchHostFunc");
        static_cast<void>(kept.release());
    }

    static MemoryResource* memory() {
        static ManagedMemory allocator;
        static cuda::AllocatorMemory<ManagedMemory> managed(allocator, cudaStreamPerThread);
        return &managed;
    }
};

} // namespace zero::test::oracle
