#include "secondary_model.hpp"
#include "support/catch.hpp"
#include "support/sanitizers.hpp"
#include "support/temporary_folder.hpp"

#include <zero/backend/fence.hpp>
#include <zero/comm/detail/decorator.hpp>
#include <zero/core/host_memory_resource.hpp>
#include <zero/host/delaying_queue.hpp>
#include <zero/stage/gathered_parameters.hpp>
#include <zero/stage/offload_states.hpp>
#include <zero/stage/training_state.hpp>
#include <zero/stage/zero_stage.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// When secondary copies are written and dropped.

namespace zero::test::secondary_writes_test {

namespace {

using namespace secondary_model;

/// Parameters before and after a write, and what reading them took.
struct Write {
    Values before, after;
    std::uint64_t all_before = 0, inside_before = 0; ///< bytes of a read that finds copies
    std::uint64_t all_after = 0;                     ///< bytes of the first read after the write
};

/// Reads twice, so that the second read finds copies, writes, and reads again.
template <class Engine, class Change>
Write observe(Engine& engine, LoopbackCommunicator& all, LoopbackCommunicator* part,
              Change const& change) {
    Write write;
    (void)full_parameters(engine);
    all.reset_traffic();
    if (part != nullptr) {
        part->reset_traffic();
    }
    write.before = full_parameters(engine);
    write.all_before = gathered(all.traffic());
    write.inside_before = part == nullptr ? 0 : gathered(part->traffic());
    change(engine);
    all.reset_traffic();
    write.after = full_parameters(engine);
    write.all_after = gathered(all.traffic());
    return write;
}

/// Checks that a write is read by an engine that has copies of the values before it.
template <class... Policies, class Change>
void check_write(
    char const* what, Change const& change, bool is_same = false,
    typename ZeroStage<3, LoopbackCommunicator, Policies...>::Options const& options = {}) {
    CAPTURE(what);
    using T = typename ZeroStage<3, LoopbackCommunicator, Policies...>::ParameterType;
    auto const parameters = registration<T>(toy_specs());
    auto const flat = on_ranks<Write>(static_cast<int>(world), [&](LoopbackCommunicator& all) {
        ZeroStage<3, LoopbackCommunicator, Policies...> engine(all, parameters, options);
        return observe(engine, all, nullptr, change);
    });
    auto const ours = on_hosts<Write>([&](Hosts& hosts) {
        typename ZeroStage<3, Hosts, Policies...>::Options own;
        own.gather = options.gather;
        if (options.rebuild_buckets != nullptr) {
            own.rebuild_buckets = ZeroStage<3, Hosts, Policies...>::in_ready_order;
        }
        ZeroStage<3, Hosts, Policies...> engine(hosts, parameters, own);
        return observe(engine, hosts.everyone(), &hosts.secondary(), change);
    });
    for (std::size_t rank = 0; rank < world; ++rank) {
        CHECK((ours[rank].before == flat[rank].before));
        CHECK((ours[rank].after == flat[rank].after));
        // Controls: copies are in use before the write, and differ from what it leaves.
        CHECK(ours[rank].all_before == 0);
        CHECK(ours[rank].inside_before > 0);
        // every bucket once; the flat run gathers that of two units twice
        CHECK(ours[rank].all_after == 1728 * sizeof(T));
        CHECK(flat[rank].all_after == 2112 * sizeof(T));
        CHECK((ours[rank].after == ours[rank].before) == is_same);
    }
}

std::uint64_t rank_of(auto const& engine) {
    return engine.micro_batch(0);
}

} // namespace

TEST_CASE("Copies are dropped by every write of parameters") {
    auto const step = [](auto& engine) { (void)run_step(engine, rank_of(engine), 0, 2).report(); };
    check_write("step", step);
    check_write<Parameters<bfloat16>>("step of 16-bit parameters", step);
    check_write("step by the caller", [](auto& engine) {
        engine.begin_step();
        for (auto const micro_step : engine.micro_steps(1)) {
            run_micro_step(engine, rank_of(engine), 0, micro_step);
        }
        (void)engine.step(0.5, [](auto const& slice) {
            for (float& value : slice.weights()) {
                value = 0.25F;
            }
        });
    });
    check_write("two steps of which the first is skipped", [](auto& engine) {
        for (std::uint64_t number = 0; number < 2; ++number) {
            engine.begin_step();
            for (auto const micro_step : engine.micro_steps(1)) {
                run_micro_step(engine, rank_of(engine), 0, micro_step,
                               number == 0 ? std::numeric_limits<float>::infinity() : 1.0F);
            }
            (void)engine.step(0.5).report();
        }
    });
    check_write("GatheredParameters of one rank", [](auto& engine) {
        auto gathered = gather(engine, {"first.bias"}, Gather::one_rank_writes, 3);
        if (rank_of(engine) == 3) {
            gathered.writable("first.bias")[0] = 5.0F;
        }
    });
    check_write("GatheredParameters of all", [](auto& engine) {
        auto gathered = gather(engine, {"second.table"}, Gather::all_write_equally);
        gathered.writable("second.table")[39] = 5.0F;
    });
    check_write("set_full_fp32_parameter", [](auto& engine) {
        TrainingState(engine).set_full_fp32_parameter(2, std::vector<float>(7, 5.0F));
    });
    auto const write_slices = [](auto& engine) {
        engine.for_each_owned_slice([](auto const& slice) {
            for (std::size_t i = 0; i < slice.values.size(); ++i) {
                slice.values[i] = from_float<bfloat16>(5.0F);
            }
        });
    };
    check_write<Parameters<bfloat16>>("slices and publish_master_weights", [&](auto& engine) {
        write_slices(engine);
        TrainingState(engine).publish_master_weights();
    });
    check_write<Parameters<bfloat16>>("slices and parameters_changed", [&](auto& engine) {
        write_slices(engine);
        engine.parameters_changed();
    });
    check_write("set_local_fp32_parameter", [](auto& engine) {
        TrainingState state(engine);
        for (auto const& slice : state.local_fp32_parameter(1)) {
            state.set_local_fp32_parameter(1, slice.begin,
                                           std::vector<float>(slice.values.size(), 5.0F));
        }
        state.publish_master_weights();
    });
    ZeroStage<3>::Options rebuild;
    rebuild.rebuild_buckets = ZeroStage<3>::in_ready_order;
    check_write(
        "rebuild_buckets",
        [](auto& engine) {
            (void)run_step(engine, rank_of(engine), 0, 1, 0.01, 0, {1, 3, 0, 2, 4}).report();
        },
        false, rebuild);
}

TEST_CASE("Copies survive what writes no parameter, and a cancelled step drops them") {
    TemporaryFolder const folder;
    auto const read = on_hosts<std::array<std::uint64_t, 4>>([&](Hosts& hosts) {
        ZeroStage<3, Hosts> engine(hosts, registration<float>(toy_specs()));
        std::array<std::uint64_t, 4> bytes{};
        auto const count = [&](std::uint64_t& all, auto const& between) {
            (void)full_parameters(engine);
            between();
            hosts.everyone().reset_traffic();
            (void)full_parameters(engine);
            all = gathered(hosts.everyone().traffic());
        };
        count(bytes[0], [&] { (void)gather(engine, {"first.bias"}); });
        count(bytes[1], [&] {
            offload_states(engine, {.path = folder.path().string(), .allow_page_cache = true});
            bytes[3] = where(engine, BufferKind::secondary_copies) == StatesPlace::file ? 1 : 0;
            reload_states(engine);
        });
        count(bytes[2], [&] {
            engine.begin_step();
            engine.cancel_step();
        });
        return bytes;
    });
    for (auto const& bytes : read) {
        CHECK(bytes[0] == 0);
        CHECK(bytes[1] == 0);
        CHECK(bytes[2] > 0);
        CHECK(bytes[3] == 1);
    }
}

namespace {

/// Memory that is freed at the end: without a fence, a rank may read what a peer has freed.
class KeptMemory final : public MemoryResource {
public:
    KeptMemory() = default;
    KeptMemory(KeptMemory const&) = delete;
    KeptMemory& operator=(KeptMemory const&) = delete;
    ~KeptMemory() override {
        for (auto const& [memory, bytes] : _kept) {
            _heap.deallocate(memory, bytes, BufferKind::scratch);
        }
    }
    void* allocate(std::size_t bytes, BufferKind /*kind*/) override {
        return _heap.allocate(bytes, BufferKind::scratch);
    }
    void deallocate(void* memory, std::size_t bytes, BufferKind /*kind*/) noexcept override {
        std::lock_guard const lock(_mutex);
        _kept.emplace_back(memory, bytes);
    }

private:
    HostMemoryResource _heap;
    std::mutex _mutex;
    std::vector<std::pair<void*, std::size_t>> _kept;
};

thread_local bool is_gathering_copies = false;
thread_local bool is_in_collective = false;
thread_local std::size_t copies = 0; ///< that this rank enqueued outside of collectives
std::atomic<bool> is_fence_removed{false};

/// Does not wait for the data of peers in gathers of secondary copies, if that is chosen.
struct HastyBackend : HostBackend {
    static void wait(Queue queue, Event const& event, Fence fence) {
        if (!is_fence_removed || !is_gathering_copies || fence != Fence::peers_ready) {
            HostBackend::wait(queue, event, fence);
        }
    }
    static void copy_bytes(Queue queue, void* to, void const* from, std::size_t bytes) {
        copies += is_in_collective ? 0 : 1;
        HostBackend::copy_bytes(queue, to, from, bytes);
    }
};

class Marking : public zero::detail::CommunicatorDecorator<Marking, Loopback<HastyBackend>> {
    using Base = zero::detail::CommunicatorDecorator<Marking, Loopback<HastyBackend>>;
    friend Base;

public:
    explicit Marking(Loopback<HastyBackend>& inner) noexcept : Base(inner) {}

private:
    template <class T, class Forward>
    void around(zero::detail::DecoratedCall const& call, Queue /*queue*/, Forward const& forward) {
        is_gathering_copies = std::string_view(call.tag.what) == "secondary copy of bucket";
        is_in_collective = true;
        forward();
        is_in_collective = false;
        is_gathering_copies = false;
    }
};

/// Returns the parameters of all ranks after two steps without a wait in between, whose gathers in
/// advance run on queues that delay.
std::vector<Values> run_hastily(std::uint64_t seed, unsigned longest_delay) {
    using Hasty = Groups<Marking, Secondary>;
    KeptMemory memory;
    std::vector<Values> values(world);
    run_ranks<Loopback<HastyBackend>>(
        static_cast<int>(world), test_time_out, [&](Loopback<HastyBackend>& everyone) {
            auto const rank = static_cast<std::size_t>(everyone.rank());
            auto half = everyone.split(everyone.rank() / 2, everyone.rank());
            Marking all(everyone);
            Marking part(half);
            Hasty hasty(all, part);
            host::DelayingQueue queue(seed * world + rank, longest_delay);
            ZeroStage<3, Hasty> engine(
                hasty, registration<float>(even_specs(elements)),
                {.asynchronous = true, .communication_queue = &queue, .memory = &memory});
            copies = 0;
            for (std::uint64_t step = 0; step < 3; ++step) {
                engine.begin_step();
                for (auto const micro_step : engine.micro_steps(2)) {
                    for (std::size_t unit = 0; unit < engine.layout().units(); ++unit) {
                        auto const weights = engine.acquire(unit);
                    }
                    for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
                        auto const weights = engine.acquire(unit);
                        auto const gradients = engine.gradients(unit);
                        for (std::size_t const parameter : engine.layout().unit_parameters(unit)) {
                            auto const read = weights[parameter];
                            auto const written = gradients[parameter];
                            for (std::size_t i = 0; i < written.size(); ++i) {
                                written[i] += read[i] - static_cast<float>(rank + micro_step);
                            }
                        }
                        engine.gradients_ready(unit);
                    }
                }
                (void)engine.step(0.01);
            }
            if (copies != 3 * 2) { // of each bucket once in a step
                throw std::logic_error(std::to_string(copies) + " copies");
            }
            values[rank] = full_parameters(engine);
        });
    return values;
}

} // namespace

TEST_CASE("A gather that does not wait until the others have written their copies is found") {
    auto const expected = run_hastily(0, 0);
    for (std::uint64_t seed = 1; seed < 4; ++seed) {
        CHECK((run_hastily(seed, 300) == expected));
    }
    if (has_thread_sanitizer) {
        return; // it reports the race itself
    }
    is_fence_removed = true;
    std::uint64_t attempts = 0;
    unsigned delay = 300;
    while (attempts < 60 && run_hastily(attempts + 4, delay) == expected) {
        delay *= ++attempts % 15 == 0 ? 2 : 1; // a busy machine outlasts short delays
    }
    is_fence_removed = false;
    CHECK(attempts < 60);
}

TEST_CASE("A rank that holds a unit over a cancelled step keeps the copies that the others keep") {
    using Ranks = Groups<LoopbackCommunicator, Secondary>;
    std::vector<std::vector<std::vector<float>>> values(4);
    run_ranks<Ranks>(4, test_time_out, {.secondary = 2}, [&](Ranks& ranks) {
        ZeroStage<3, Ranks> engine(ranks, registration<float>(toy_specs()));
        engine.begin_step();
        engine.begin_micro_step();
        {
            std::optional held(engine.acquire(1));
            if (ranks.rank() != 0) {
                held.reset();
            }
            engine.cancel_step(); // drops all copies
            engine.begin_step();
            engine.begin_micro_step();
            (void)engine.acquire(1); // on three ranks a gather, on one again
        }
        (void)engine.acquire(2);
        (void)engine.acquire(1); // from copies on every rank
        engine.cancel_step();
        values[static_cast<std::size_t>(ranks.rank())] = full_parameters(engine);
    });
    CHECK(values[0] == values[1]);
    CHECK(values[0] == values[3]);
}

} // namespace zero::test::secondary_writes_test
