#include "cuda/device_model.cuh"
#include "stage/offload_model.hpp"
#include "support/outcome.hpp"
#include "support/sanitizers.hpp"
#include "support/temporary_folder.hpp"

#include <zero/cuda/clean_up_error.hpp>
#include <zero/cuda/virtual_memory.hpp>
#include <zero/stage/offload_states.hpp>

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <sys/wait.h>
#include <unistd.h>

// What fails while states leave a device or come back, which only the emulated runtime can do on
// demand: nothing is lost, or the error says what is, and no memory or address leaks.

namespace zero::test::offload_faults_test {

namespace {

using DeviceLoopback = Loopback<cuda::Backend>;
using Stage = ZeroStage<2, Parameters<bfloat16>, DeviceLoopback>;

emulated::MappedMemory& mapped() {
    return emulated::MappedMemory::instance();
}

/// Checks that all memory of devices was released, with its addresses, and all page-locked memory.
void check_released() {
    CHECK(mapped().pieces.empty());
    CHECK(mapped().ranges.empty());
    CHECK(emulated::devices_of_memory().empty());
}

/// Memory whose pages the device does not unmap while a test asks for that. Failures belong to the
/// thread that makes the call.
class KeptMemory : public MemoryResource {
public:
    [[nodiscard]] void* allocate(std::size_t bytes, BufferKind kind) override {
        return _pages.allocate(bytes, kind);
    }
    void deallocate(void* memory, std::size_t bytes, BufferKind kind) noexcept override {
        _pages.deallocate(memory, bytes, kind);
    }
    [[nodiscard]] bool can_give_back_pages() const noexcept override { return true; }
    [[nodiscard]] bool give_back_pages(void* memory, std::size_t bytes,
                                       BufferKind kind) noexcept override {
        if (is_kept) {
            emulated::failures["cuMemUnmap"] = cudaErrorUnknown;
        }
        return _pages.give_back_pages(memory, bytes, kind);
    }
    void take_pages_again(void* memory, std::size_t bytes, BufferKind kind) override {
        _pages.take_pages_again(memory, bytes, kind);
    }
    [[nodiscard]] std::size_t resident_bytes(BufferKind kind) const {
        return _pages.resident_bytes(kind);
    }

    std::atomic<bool> is_kept{false};

private:
    cuda::VirtualMemory _pages{};
};

/// One rank's engine, with a step done, whose states are moved.
struct Alone {
    explicit Alone(DeviceLoopback& communicator)
        : engine(communicator, registration<bfloat16>({{"a", 9'000, {0}}, {"b", 7'001, {1}}}),
                 options()) {
        step(0);
    }

    Stage::Options options() {
        Stage::Options result;
        result.compute_queue = stream.get();
        result.memory = &memory;
        return result;
    }

    void step(std::uint64_t number) {
        (void)run_device_step(engine, stream.get(), 0, number, 1, 0.01, 8).report();
    }

    [[nodiscard]] OffloadStatesOptions to_file() {
        return {.path = folder.path(), .chunk_bytes = 4096, .calls = &files};
    }

    [[nodiscard]] std::size_t bytes() const {
        std::size_t sum = 0;
        for (std::size_t kind = 0; kind < buffer_kinds; ++kind) {
            sum += memory.resident_bytes(static_cast<BufferKind>(kind));
        }
        return sum;
    }

    TemporaryFolder folder{};
    DelayedFiles files{1};
    cuda::OwnedStream stream{};
    KeptMemory memory{};
    Stage engine;
    std::size_t all = bytes();
};

Trained state_of(Stage& engine) {
    Trained state;
    collect(engine, {{"a", 9'000, {0}}, {"b", 7'001, {1}}}, state);
    return state;
}

/// Calls `body(Alone&)` and returns what it threw; checks that the engine then goes on as one that
/// never parked, and that nothing leaks.
template <class Body>
Outcome with_one_rank(Body const& body) {
    auto const outcomes = run_and_observe<DeviceLoopback>(1, [&](DeviceLoopback& communicator) {
        Alone parked(communicator);
        Alone expected(communicator);
        body(parked);
        parked.step(1);
        expected.step(1);
        CHECK((state_of(parked.engine) == state_of(expected.engine)));
    });
    check_released();
    return outcomes.ranks[0];
}

} // namespace

TEST_CASE("An access to pages of a device that were given back ends the program") {
    if (has_address_sanitizer || has_thread_sanitizer) {
        SUCCEED("a sanitizer reports the signal");
        return;
    }
    cuda::VirtualMemory memory;
    std::size_t const bytes = 2 * memory.page_bytes();
    auto* const block = static_cast<char*>(memory.allocate(bytes, BufferKind::parameters));
    auto const signal_of_access = [&] {
        pid_t const child = ::fork();
        if (child == 0) {
            *static_cast<char volatile*>(block + bytes - 1) = 1;
            ::_exit(0);
        }
        int status = 0;
        ::waitpid(child, &status, 0);
        return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    };
    CHECK(signal_of_access() == 0);
    REQUIRE(memory.give_back_pages(block, bytes, BufferKind::parameters));
    CHECK(signal_of_access() == SIGSEGV);
    memory.take_pages_again(block, bytes, BufferKind::parameters);
    CHECK(signal_of_access() == 0);
    memory.deallocate(block, bytes, BufferKind::parameters);
    check_released();
}

TEST_CASE("A call of the driver that fails leaves neither memory nor addresses behind") {
    cuda::VirtualMemory memory;
    constexpr auto kind = BufferKind::optimizer_state;
    std::size_t const bytes = 3 * memory.page_bytes();
    void* const block = memory.allocate(bytes, kind);
    REQUIRE(memory.give_back_pages(block, bytes, kind));
    for (char const* const call : {"cuMemCreate", "cuMemMap", "cuMemSetAccess"}) {
        INFO(call);
        for (bool const again : {false, true}) {
            emulated::failures[call] = cudaErrorUnknown;
            std::string message;
            try {
                if (again) {
                    memory.take_pages_again(block, bytes, kind);
                } else {
                    (void)memory.allocate(bytes, kind);
                }
            } catch (CudaError const& error) {
                message = error.what();
            }
            CHECK_THAT(message, contains_text(std::string(call) + " failed: "));
            CHECK(emulated::failures.empty());
            CHECK(mapped().pieces.empty());
            CHECK(mapped().ranges.size() == 1);
            CHECK(memory.resident_bytes(kind) == 0);
        }
    }
    memory.take_pages_again(block, bytes, kind);
    emulated::failures["cuMemUnmap"] = cudaErrorUnknown;
    CHECK(!memory.give_back_pages(block, bytes, kind));
    CHECK(memory.resident_bytes(kind) == bytes);
    CHECK(cuda::take_clean_up_error().code == static_cast<int>(cudaErrorUnknown));
    memory.deallocate(block, bytes, kind);
    check_released();
    emulated::failures["cuMemGetAllocationGranularity"] = cudaErrorNotSupported;
    CHECK_THROWS_AS(cuda::VirtualMemory(), CudaError);
}

TEST_CASE("A device that another program has filled keeps the states away until there is room") {
    auto const outcome = with_one_rank([](Alone& alone) {
        for (bool const is_file : {false, true}) {
            INFO(is_file);
            offload_states(alone.engine, is_file ? alone.to_file() : OffloadStatesOptions{});
            auto const place = is_file ? StatesPlace::file : StatesPlace::host_memory;
            CHECK(alone.bytes() == 0);
            mapped().room = mapped().bytes() + alone.all - 1;
            auto const found = outcome_of([&] { reload_states(alone.engine); });
            CHECK_THAT(found.message, contains_text("zero: CUDA device 0 has no ")
                                          && contains_text(" free bytes for ")
                                          && contains_text("free other memory of the device"));
            CHECK(alone.bytes() == 0);
            CHECK(where(alone.engine, BufferKind::parameters) == place);
            CHECK(outcome_of([&] { alone.engine.begin_step(); }).type == "OutOfOrder");
            mapped().room = ~std::size_t{0};
            reload_states(alone.engine);
            CHECK(alone.bytes() == alone.all);
        }
    });
    CHECK(outcome.message.empty());
}

TEST_CASE("Without page-locked memory, or with a full disk, the states stay on the device") {
    auto const outcome = with_one_rank([](Alone& alone) {
        for (bool const is_file : {false, true}) {
            INFO(is_file);
            auto options = is_file ? alone.to_file() : OffloadStatesOptions{};
            emulated::failures["cudaMallocHost"] = cudaErrorMemoryAllocation;
            auto found = outcome_of([&] { offload_states(alone.engine, options); });
            CHECK_THAT(found.message, contains_text("cudaMallocHost failed"));
            CHECK(alone.bytes() == alone.all);
            CHECK(where(alone.engine, BufferKind::gradients) == StatesPlace::memory);
        }
        alone.files.room = alone.files.allocated;
        auto const found = outcome_of([&] { offload_states(alone.engine, alone.to_file()); });
        CHECK_THAT(found.message, contains_text("rank 0: offload_states()")
                                      && contains_text("has no room for a file of"));
        CHECK(alone.files.created == alone.files.closed);
        CHECK(alone.bytes() == alone.all);
    });
    CHECK(outcome.message.empty());
}

TEST_CASE("A device that unmaps no page keeps the states, and the error says who knows why") {
    auto const outcome = with_one_rank([](Alone& alone) {
        for (bool const is_file : {false, true}) {
            for (bool const blocking : {false, true}) {
                INFO(is_file << blocking);
                auto options = is_file ? alone.to_file() : OffloadStatesOptions{};
                options.blocking = blocking;
                alone.memory.is_kept = true;
                auto found = outcome_of([&] { offload_states(alone.engine, options); });
                if (!blocking) {
                    found = outcome_of([&] { reload_states(alone.engine); });
                }
                CHECK_THAT(
                    found.message,
                    contains_text("zero: rank 0: offload_states(): the memory of ")
                        && contains_text(" was not given back: the device unmapped no page "
                                         "(zero::cuda::take_clean_up_error() says why), or "
                                         "give_back_pages() of the memory resource returned false. "
                                         "Nothing is lost: these states are in memory"));
                CHECK(cuda::take_clean_up_error().code == static_cast<int>(cudaErrorUnknown));
                alone.memory.is_kept = false;
                CHECK(alone.bytes() == alone.all);
                CHECK(where(alone.engine, BufferKind::optimizer_state) == StatesPlace::memory);
                offload_states(alone.engine, alone.to_file()); // once more
                CHECK(alone.bytes() == 0);
                reload_states(alone.engine);
            }
        }
    });
    CHECK(outcome.message.empty());
}

TEST_CASE("Page-locked memory holds what left the device, and ends with the reload") {
    auto const outcome = with_one_rank([](Alone& alone) {
        std::size_t const before = emulated::page_locked_bytes;
        offload_states(alone.engine, {BufferKind::optimizer_state}, {.blocking = false});
        std::size_t const state = 2 * sizeof(float) * (9'000 + 7'001);
        CHECK(emulated::page_locked_bytes >= before + state);
        CHECK(emulated::page_locked_bytes < before + state + 6 * 4096); // and commands
        reload_states(alone.engine);
        CHECK(emulated::page_locked_bytes == before);
    });
    CHECK(outcome.message.empty());
}

TEST_CASE("A damaged file breaks the engine of a device, and the error says what is lost") {
    auto const outcomes = run_and_observe<DeviceLoopback>(1, [&](DeviceLoopback& communicator) {
        Alone alone(communicator);
        offload_states(alone.engine, alone.to_file());
        alone.files.bytes(0)[5000] ^= std::byte{1};
        try {
            reload_states(alone.engine);
        } catch (...) {
            CHECK(outcome_of([&] { alone.engine.begin_step(); }).type == "BrokenEngine");
            throw;
        }
    });
    CHECK_THAT(outcomes.ranks[0].message,
               contains_text("rank 0: reload_states(): ") && contains_text("checksum")
                   && contains_text("The states are lost; load the last checkpoint"));
    check_released();
}

TEST_CASE("An engine of a device ends while its states are away, leave, or come back") {
    for (bool const is_file : {false, true}) {
        for (int const moment : {0, 1, 2, 3}) {
            INFO(is_file << moment);
            auto const outcomes = run_and_observe<DeviceLoopback>(1, [&](auto& communicator) {
                Alone alone(communicator);
                auto options = is_file ? alone.to_file() : OffloadStatesOptions{};
                options.blocking = moment != 0;
                offload_states(alone.engine, options);
                if (moment == 2) {
                    reload_states(alone.engine, {.blocking = false});
                }
                if (moment == 3) {
                    mapped().room = mapped().bytes(); // the addresses cannot be freed
                }
            });
            CHECK(outcomes.ranks[0].message.empty());
            mapped().room = ~std::size_t{0};
            CHECK((moment != 3 || !mapped().ranges.empty()));
            if (moment == 3) {
                mapped().ranges.clear();
            }
            check_released();
        }
    }
}

TEST_CASE("The thread that copies uses the device of the engine and no other, and may copy while "
          "another thread captures") {
    cuda::detail::check(cudaSetDevice(2), "cudaSetDevice");
    {
        cuda::VirtualMemory memory;
        std::size_t const bytes = memory.page_bytes();
        void* const block = memory.allocate(bytes, BufferKind::parameters);
        cuda::RuntimeBackend::Copier const copy;
        int used = 0;
        std::byte read{0};
        cuda::OwnedStream const captured;
        cuda::detail::check(cudaStreamBeginCapture(captured.get(), cudaStreamCaptureModeGlobal),
                            "cudaStreamBeginCapture");
        std::thread([&] {
            std::byte const value{7};
            copy(block, &value, 1);
            copy(&read, block, 1);
            cuda::detail::check(cudaGetDevice(&used), "cudaGetDevice");
        }).join();
        cudaGraph_t graph = nullptr;
        cuda::detail::check(cudaStreamEndCapture(captured.get(), &graph), "cudaStreamEndCapture");
        cuda::detail::check(cudaGraphDestroy(graph), "cudaGraphDestroy");
        CHECK(used == 2);
        CHECK(read == std::byte{7});
        memory.deallocate(block, bytes, BufferKind::parameters);
    }
    cuda::detail::check(cudaSetDevice(0), "cudaSetDevice");
    check_released();
}

} // namespace zero::test::offload_faults_test
