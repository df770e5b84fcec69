// The communicator over the real NCCL, compiled by the host compiler alone. Without a device it
// links, compares versions, makes an id, and fails to start with typed errors. With devices it
// starts a rank on each (threads of this process) and moves data: one device is enough to call
// NCCL, several move data between ranks. With --ranks-per-device N one device has several ranks and
// runs NCCL's kernels (NCCL 2.30 and later, NCCL_MULTI_RANK_GPU_ENABLE=1).

#include <zero/core/buffer.hpp>
#include <zero/core/convert.hpp>
#include <zero/core/host_memory_resource.hpp>
#include <zero/cuda/nccl.hpp>
#include <zero/cuda/nccl_memory_resource.hpp>
#include <zero/cuda/runtime_backend.hpp>

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using zero::cuda::NcclOptions;

/// A backend without kernels: the host adds.
struct StreamBackend : zero::cuda::RuntimeBackend {
    template <class T>
    static void sum_ranks(Queue stream, T* out, T const* const* peers, int world,
                          std::size_t elements) {
        std::vector<T> sums(elements);
        std::vector<T> values(elements);
        for (int rank = 0; rank < world; ++rank) {
            synchronise(record(stream));
            copy_bytes(stream, values.data(), peers[rank], elements * sizeof(T));
            synchronise(record(stream));
            for (std::size_t i = 0; i < elements; ++i) {
                float const sum = rank == 0 ? 0.0F : zero::to_float(sums[i]);
                sums[i] = zero::from_float<T>(sum + zero::to_float(values[i]));
            }
        }
        synchronise(record(stream));
        copy_bytes(stream, out, sums.data(), elements * sizeof(T));
        synchronise(record(stream));
    }
};

using Communicator = zero::cuda::NcclCommunicatorOn<StreamBackend>;
static_assert(zero::ExchangingCommunicator<Communicator>);

std::atomic<int> failures{0};

void expect(bool holds, std::string const& what) {
    std::printf("%s: %s\n", holds ? "ok" : "FAILED", what.c_str());
    failures += holds ? 0 : 1;
}

template <class E, class Body>
void expect_error(char const* part, Body const& body) {
    std::string text = "nothing was thrown";
    try {
        body();
    } catch (E const& error) {
        text = error.what();
    } catch (std::exception const& error) {
        text = std::string("another type: ") + error.what();
    }
    expect(text.find(part) != std::string::npos, text);
}

void require(cudaError_t code, char const* what) {
    if (code != cudaSuccess) {
        throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(code));
    }
}

/// Device memory that is filled from the host and can be copied back. It is allocated and freed in
/// the order of a stream: cudaFree waits for the whole device, where a kernel of another rank may
/// wait for a later call of this one.
template <class T>
class Memory {
public:
    Memory(std::vector<T> const& values, cudaStream_t stream)
        : _elements(values.size()), _stream(stream) {
        require(cudaMallocAsync(&_data, (_elements + 1) * sizeof(T), stream), "cudaMallocAsync");
        set(values);
    }
    Memory(Memory const&) = delete;
    Memory& operator=(Memory const&) = delete;
    ~Memory() { static_cast<void>(cudaFreeAsync(_data, _stream)); }

    /// Waits first: a copy of pageable memory would wait inside of the driver, where other ranks
    /// may wait for it.
    void set(std::vector<T> const& values) {
        require(cudaStreamSynchronize(_stream), "cudaStreamSynchronize");
        require(cudaMemcpyAsync(_data, values.data(), _elements * sizeof(T), cudaMemcpyHostToDevice,
                                _stream),
                "cudaMemcpyAsync");
        require(cudaStreamSynchronize(_stream), "cudaStreamSynchronize");
    }

    [[nodiscard]] std::vector<T> get() const {
        std::vector<T> values(_elements);
        require(cudaStreamSynchronize(_stream), "cudaStreamSynchronize");
        require(cudaMemcpyAsync(values.data(), _data, _elements * sizeof(T), cudaMemcpyDeviceToHost,
                                _stream),
                "cudaMemcpyAsync");
        require(cudaStreamSynchronize(_stream), "cudaStreamSynchronize");
        return values;
    }

    [[nodiscard]] T* data() const { return static_cast<T*>(_data); }

private:
    void* _data = nullptr;
    std::size_t _elements;
    cudaStream_t _stream;
};

/// Small whole numbers, whose sums are exact in any order.
float value_of(std::size_t rank, std::size_t i) {
    return static_cast<float>((rank * 31 + i * 7) % 64);
}

std::vector<float> values_of(std::size_t rank, std::size_t elements) {
    std::vector<float> values(elements);
    for (std::size_t i = 0; i < elements; ++i) {
        values[i] = value_of(rank, i);
    }
    return values;
}

std::vector<float> sums_of(std::size_t world, std::size_t begin, std::size_t end) {
    std::vector<float> sums;
    for (std::size_t i = begin; i < end; ++i) {
        sums.push_back(0.0F);
        for (std::size_t rank = 0; rank < world; ++rank) {
            sums.back() += value_of(rank, i);
        }
    }
    return sums;
}

void check_collectives(Communicator& communicator, std::vector<std::size_t> const& cuts,
                       cudaStream_t stream, std::string const& name) {
    auto const rank = static_cast<std::size_t>(communicator.rank());
    auto const world = static_cast<std::size_t>(communicator.size());
    std::size_t const total = cuts.back();
    Memory<float> all(values_of(rank, total), stream);
    float const* const in = all.data();
    std::vector<float> const own = sums_of(world, cuts[rank], cuts[rank + 1]);
    std::vector<float> const sums = sums_of(world, 0, total);

    communicator.reduce_scatter(in, all.data() + cuts[rank], cuts, stream); // in place
    std::vector<float> const reduced = all.get();
    expect(std::vector<float>(reduced.begin() + static_cast<std::ptrdiff_t>(cuts[rank]),
                              reduced.begin() + static_cast<std::ptrdiff_t>(cuts[rank + 1]))
               == own,
           name + " reduce-scatter");
    communicator.all_gather(in + cuts[rank], all.data(), cuts, stream);
    expect(all.get() == sums, name + " all-gather");
    all.set(values_of(rank, total));
    communicator.all_reduce(in, all.data(), cuts, stream);
    expect(all.get() == sums, name + " all-reduce");
    all.set(values_of(rank, total));
    communicator.broadcast(all.data(), total, static_cast<int>(world - 1), stream);
    expect(all.get() == values_of(world - 1, total), name + " broadcast");
    all.set(values_of(rank, total));
    Memory<float> pieces(std::vector<float>(own.size() * world), stream);
    communicator.exchange(in, pieces.data(), cuts, stream);
    std::vector<float> expected;
    for (std::size_t from = 0; from < world; ++from) {
        auto const sent = values_of(from, total);
        expected.insert(expected.end(), sent.begin() + static_cast<std::ptrdiff_t>(cuts[rank]),
                        sent.begin() + static_cast<std::ptrdiff_t>(cuts[rank + 1]));
    }
    expect(pieces.get() == expected, name + " exchange");

    std::int64_t const mine = (std::int64_t{1} << 40) + static_cast<std::int64_t>(rank);
    Memory<std::int64_t> integers({mine, -mine}, stream);
    communicator.all_reduce_integers(integers.data(), 1, zero::IntegerReduction::sum, stream);
    communicator.all_reduce_integers(integers.data() + 1, 1, zero::IntegerReduction::min, stream);
    auto const ranks = static_cast<std::int64_t>(world);
    expect(
        integers.get()
            == std::vector<std::int64_t>{ranks * (std::int64_t{1} << 40) + ranks * (ranks - 1) / 2,
                                         -((std::int64_t{1} << 40) + ranks - 1)},
        name + " integers");
    communicator.synchronise();
}

/// Where the ranks of a device meet before calls of CUDA that may wait for the whole device, on
/// which the kernel of one rank would wait for another.
using Meeting = std::barrier<>;

/// Calls NCCL directly, which the communicator of a single rank does not do, and replays the calls
/// from a graph.
void check_native_calls(Communicator& communicator, cudaStream_t stream, Meeting& meeting,
                        std::string const& name) {
    auto const rank = static_cast<std::size_t>(communicator.rank());
    auto const world = static_cast<std::size_t>(communicator.size());
    std::size_t const elements = 64 * world;
    Memory<float> all(values_of(rank, elements), stream);
    std::vector<std::size_t> cuts(world + 1);
    for (std::size_t cut = 0; cut <= world; ++cut) {
        cuts[cut] = 64 * cut;
    }
    zero::detail::CollectiveCall const call{
        zero::CollectiveKind::all_reduce, zero::DType::float32, elements, 0, {"native", 0}};
    communicator.session().run(call, all.data(), all.data(), cuts, stream);
    expect(all.get() == sums_of(world, 0, elements), name + " NCCL's own calls");

    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
            "cudaStreamBeginCapture");
    communicator.session().run(call, all.data(), all.data(), cuts, stream);
    require(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    meeting.arrive_and_wait();
    require(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
    require(cudaGraphUpload(executable, stream), "cudaGraphUpload");
    require(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    meeting.arrive_and_wait();
    for (int replay = 0; replay < 3; ++replay) {
        all.set(values_of(rank, elements));
        require(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
        expect(all.get() == sums_of(world, 0, elements),
               name + " NCCL's calls in a graph, replay " + std::to_string(replay));
    }
    meeting.arrive_and_wait();
    require(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
    require(cudaGraphDestroy(graph), "cudaGraphDestroy");
}

void check_registered_memory(Communicator& communicator, cudaStream_t stream,
                             std::string const& name) {
    zero::HostMemoryResource other;
    zero::cuda::NcclMemoryResource memory(communicator, other);
    zero::Buffer<float> const buffer(memory, 1024, zero::BufferKind::wire);
    auto const values = values_of(static_cast<std::size_t>(communicator.rank()), 1024);
    require(cudaMemcpyAsync(buffer.data(), values.data(), buffer.size_bytes(),
                            cudaMemcpyHostToDevice, stream),
            "cudaMemcpyAsync");
    communicator.broadcast(buffer.data(), buffer.size(), 0, stream);
    std::vector<float> found(1024);
    require(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    require(cudaMemcpyAsync(found.data(), buffer.data(), buffer.size_bytes(),
                            cudaMemcpyDeviceToHost, stream),
            "cudaMemcpyAsync");
    require(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    expect(found == values_of(0, 1024), name + " registered memory");
}

/// Reduces and gathers in memory of an arena, also in a window where NCCL and the machine have
/// them.
void check_arena(Communicator& communicator, cudaStream_t stream, Meeting& meeting,
                 std::string const& name, bool symmetric) {
    auto const rank = static_cast<std::size_t>(communicator.rank());
    auto const world = static_cast<std::size_t>(communicator.size());
    std::size_t const elements = 64 * world;
    zero::MemoryPlan plan;
    plan[zero::BufferKind::gradients].content_bytes = 64 * sizeof(float);
    plan[zero::BufferKind::wire].content_bytes = elements * sizeof(float);
    zero::cuda::NcclMemoryResource memory(communicator, StreamBackend::default_memory(), stream,
                                          {.plan = plan, .symmetric = symmetric});
    std::size_t const block = memory.nccl_bytes();
    zero::Buffer<float> const sums(memory, 64, zero::BufferKind::gradients);
    zero::Buffer<float> const all(memory, elements, zero::BufferKind::wire);
    std::vector<std::size_t> cuts(world + 1);
    for (std::size_t cut = 0; cut <= world; ++cut) {
        cuts[cut] = 64 * cut;
    }
    auto values = values_of(rank, elements);
    require(cudaMemcpyAsync(all.data(), values.data(), all.size_bytes(), cudaMemcpyHostToDevice,
                            stream),
            "cudaMemcpyAsync");
    require(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    communicator.reduce_scatter(static_cast<float const*>(all.data()), sums.data(), cuts, stream);
    communicator.all_gather(static_cast<float const*>(sums.data()), all.data(), cuts, stream);
    require(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    require(cudaMemcpyAsync(values.data(), all.data(), all.size_bytes(), cudaMemcpyDeviceToHost,
                            stream),
            "cudaMemcpyAsync");
    require(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    expect(values == sums_of(world, 0, elements) && memory.nccl_bytes() == block
               && block >= elements * sizeof(float),
           name + " an arena of " + std::to_string(block) + " bytes"
               + (memory.is_symmetric() ? ", a window" : ""));
    communicator.synchronise();
    meeting.arrive_and_wait();
}

void run_rank(Communicator& communicator, int device, Meeting& meeting) {
    std::string const name = "rank " + std::to_string(communicator.rank()) + " of "
                             + std::to_string(communicator.size()) + ":";
    try {
        require(cudaSetDevice(device), "cudaSetDevice");
        cudaStream_t stream = nullptr;
        require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
        auto const world = static_cast<std::size_t>(communicator.size());
        std::vector<std::size_t> even(world + 1);
        std::vector<std::size_t> uneven(world + 1);
        for (std::size_t rank = 0; rank < world; ++rank) {
            even[rank + 1] = even[rank] + 256;
            uneven[rank + 1] = uneven[rank] + (rank % 2 == 1 ? 0 : 7 + rank);
        }
        check_collectives(communicator, even, stream, name + " even");
        check_collectives(communicator, uneven, stream, name + " uneven");
        check_native_calls(communicator, stream, meeting, name);
        meeting.arrive_and_wait();
        check_registered_memory(communicator, stream, name);
        meeting.arrive_and_wait();
        check_arena(communicator, stream, meeting, name, false);
        if (zero::cuda::linked_nccl().nccl->has_windows()) {
            meeting.arrive_and_wait();
            check_arena(communicator, stream, meeting, name, true);
        }
        meeting.arrive_and_wait();
        require(cudaStreamDestroy(stream), "cudaStreamDestroy");
    } catch (std::exception const& error) {
        expect(false, name + ' ' + error.what());
        communicator.abort(error.what());
        meeting.arrive_and_drop();
    }
}

void check_devices(int count, int ranks_per_device, NcclOptions const& options) {
    std::vector<int> devices;
    for (int rank = 0; rank < count * ranks_per_device; ++rank) {
        devices.push_back(rank / ranks_per_device);
    }
    auto ranks = Communicator::make_group(devices, options);
    Meeting meeting(static_cast<std::ptrdiff_t>(ranks.size()));
    std::vector<std::thread> threads;
    for (Communicator& rank : ranks) {
        threads.emplace_back(
            [&rank, &meeting, device = devices[static_cast<std::size_t>(rank.rank())]] {
                run_rank(rank, device, meeting);
            });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    ranks.back().abort("the end of the test");
    expect(ranks.back().is_aborted(), "an abort frees the communicator");
    std::int64_t unused = 0;
    expect_error<zero::Aborted>("the end of the test",
                                [&] { ranks.front().broadcast(&unused, 1, 0, nullptr); });
}

/// Blocks a call that runs with a limit. The gate is opened after the wait, so a wait without a
/// limit would never end.
struct Gate {
    std::promise<void> opened;
    std::promise<void> passed;
};

void check_bounded_runs() {
    auto const [nccl, system] = zero::cuda::linked_nccl();
    static Gate gate; // outlives the thread
    auto const pass = [](zero::cuda::NcclLibrary&, zero::cuda::NcclHandle handle) {
        auto& at = *static_cast<Gate*>(handle);
        at.opened.get_future().wait();
        at.passed.set_value();
    };
    expect(!system->run_bounded(0, pass, *nccl, &gate, std::chrono::milliseconds(1)),
           "a call that hangs is left to itself");
    gate.opened.set_value();
    gate.passed.get_future().wait();
    expect(true, "it goes on by itself");

    std::thread::id thread;
    auto const look = [](zero::cuda::NcclLibrary&, zero::cuda::NcclHandle handle) {
        *static_cast<std::thread::id*>(handle) = std::this_thread::get_id();
    };
    expect(system->run_bounded(0, look, *nccl, &thread, std::chrono::minutes(1)),
           "one that ends is waited for");
    expect(thread != std::this_thread::get_id() && thread != std::thread::id(),
           "it has a thread of its own");

    static Gate late;
    auto const wait = [] {
        late.opened.get_future().wait();
        return 1;
    };
    expect(!zero::cuda::detail::run_within({nccl, system}, 0, std::chrono::milliseconds(1), wait,
                                           [](int) { late.passed.set_value(); }),
           "a result that is late is not returned");
    late.opened.set_value();
    late.passed.get_future().wait();
    expect(true, "it is discarded by the thread");
}

} // namespace

int main(int count, char** arguments) {
    int ranks_per_device = 1;
    if (count == 3 && std::strcmp(arguments[1], "--ranks-per-device") == 0) {
        ranks_per_device = std::atoi(arguments[2]);
    }
    if ((count != 1 && count != 3) || ranks_per_device < 1
        || (count == 3 && std::strcmp(arguments[1], "--ranks-per-device") != 0)) {
        std::fprintf(stderr, "usage: %s [--ranks-per-device N]\n", arguments[0]);
        return 2;
    }
    ::unsetenv("WORLD_SIZE");
    ::unsetenv("RANK");
    int devices = 0;
    bool const has_device = cudaGetDeviceCount(&devices) == cudaSuccess && devices != 0;
    NcclOptions options;
    options.time_out = std::chrono::seconds(20);
    if (ranks_per_device > 1) { // kernels that wait for one another must fit on the device together
        options.max_ctas = 4;
    }

    check_bounded_runs();
    zero::cuda::detail::require_matching_version(*zero::cuda::linked_nccl().nccl);
    ncclUniqueId const id = Communicator::make_unique_id();
    ncclUniqueId const empty{};
    expect(std::memcmp(&id, &empty, sizeof(id)) != 0, "NCCL makes a unique id");
    expect_error<zero::InvalidArgument>(
        "rank 2 of a group of 2", [&] { (void)Communicator::from_unique_id(id, 2, 2, options); });
    expect_error<zero::cuda::LauncherError>("RANK is missing",
                                            [&] { (void)Communicator::from_environment(options); });
    if (has_device) {
        for (auto const mode :
             {zero::cuda::NcclMode::non_blocking, zero::cuda::NcclMode::blocking}) {
            for (auto const order : {zero::cuda::NcclOrder::library, zero::cuda::NcclOrder::rank}) {
                options.mode = mode;
                options.order = order;
                std::printf("%d devices, %d ranks on each, %s, in %s order\n", devices,
                            ranks_per_device,
                            mode == zero::cuda::NcclMode::blocking ? "blocking" : "non-blocking",
                            order == zero::cuda::NcclOrder::rank ? "rank" : "NCCL's");
                check_devices(devices, ranks_per_device, options);
            }
        }
    } else {
        std::printf("skipped: no CUDA device: everything that moves data\n");
        expect_error<zero::CommunicatorError>(
            "cudaGetDevice failed", [&] { (void)Communicator::from_unique_id(id, 0, 1, options); });
        zero::cuda::NcclHandle handle = nullptr;
        auto const result = zero::cuda::linked_nccl().nccl->init_rank(
            handle, 1, zero::cuda::make_unique_id(zero::cuda::linked_nccl()), 0, options);
        expect(result == zero::cuda::NcclResult::unhandled_cuda_error && handle == nullptr,
               "NCCL makes nothing");
        expect_error<zero::CommunicatorError>("cudaGetDeviceCount failed", [&] {
            (void)Communicator::make_group(std::vector<int>{0, 1}, options);
        });
    }
    return failures == 0 ? 0 : 1;
}
