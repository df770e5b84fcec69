#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/sanitizers.hpp"
#include "support/temporary_folder.hpp"
#include "support/toy_model.hpp"

#include <zero/backend/fence.hpp>
#include <zero/comm/checked.hpp>
#include <zero/comm/detail/decorator.hpp>
#include <zero/comm/groups.hpp>
#include <zero/comm/model_parallel.hpp>
#include <zero/comm/recording.hpp>
#include <zero/comm/secondary.hpp>
#include <zero/core/host_memory_resource.hpp>
#include <zero/host/delaying_queue.hpp>
#include <zero/host/threaded_queue.hpp>
#include <zero/layout/communication_model.hpp>
#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/policy/gradient_reduction.hpp>
#include <zero/stage/describe.hpp>
#include <zero/stage/gathered_parameters.hpp>
#include <zero/stage/offload.hpp>
#include <zero/stage/offload_states.hpp>
#include <zero/stage/training_state.hpp>
#include <zero/stage/zero_stage.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Secondary copies: a run with them has the bits of the flat run, what is sent where, when copies
// are dropped, and what is allocated. The oracle compares the bits of random configurations.

namespace zero::test::secondary_test {

namespace {

using Hosts = Groups<LoopbackCommunicator, Secondary>;
using InReplicas = Groups<Groups<LoopbackCommunicator, Hybrid>, Secondary>;
static_assert(SecondaryCommunicator<Hosts> && !GroupedCommunicator<Hosts>);
static_assert(SecondaryCommunicator<InReplicas> && GroupedCommunicator<InReplicas>);
static_assert(!SecondaryCommunicator<LoopbackCommunicator>);

constexpr std::size_t world = 4;

using Values = std::vector<std::vector<float>>;

/// Runs `body(hosts)` on 4 ranks, of which 2 share a copy, and returns the results by rank.
template <class Result, class Body>
std::vector<Result> on_hosts(Body const& body) {
    std::vector<Result> results(world);
    run_ranks<Hosts>(static_cast<int>(world), test_time_out, {.secondary = 2}, [&](Hosts& hosts) {
        results[static_cast<std::size_t>(hosts.rank())] = body(hosts);
    });
    return results;
}

/// Four steps of two micro-steps on a delaying queue. @param set changes the options
template <class Stage>
Values train(auto& communicator, std::function<void(typename Stage::Options&)> const& set = {}) {
    auto const rank = static_cast<std::uint64_t>(communicator.rank());
    host::DelayingQueue queue(rank);
    typename Stage::Options options;
    options.communication_queue = &queue;
    if (set) {
        set(options);
    }
    Stage engine(communicator, registration<typename Stage::ParameterType>(toy_specs()), options);
    for (std::uint64_t step = 0; step < 4; ++step) {
        (void)run_step(engine, rank, step, 2).report();
    }
    return full_parameters(engine);
}

/// Compares runs with and without copies. @tparam Policies of both
template <class... Policies>
void compare(
    std::function<void(typename ZeroStage<3, LoopbackCommunicator, Policies...>::Options&)> const&
        flat,
    std::function<void(typename ZeroStage<3, Hosts, Policies...>::Options&)> const& ours) {
    auto const expected = on_ranks<Values>(static_cast<int>(world), [&](auto& all) {
        return train<ZeroStage<3, LoopbackCommunicator, Policies...>>(all, flat);
    });
    CHECK((on_hosts<Values>(
               [&](Hosts& hosts) { return train<ZeroStage<3, Hosts, Policies...>>(hosts, ours); })
           == expected));
}

std::uint64_t gathered(TrafficCount const& count) {
    return count[CollectiveKind::all_gather].bytes;
}

/// Two units of weights that are divided evenly by every number of ranks used here.
constexpr std::size_t elements = 2 * 64 * 24;

std::vector<ParameterSpec> even_specs() {
    return {{"first", elements / 2, {0}, 0, true}, {"second", elements / 2, {1}, 0, true}};
}

/// The bytes that a rank reads in gathers of one step.
struct Volume {
    std::uint64_t everyone = 0;
    std::uint64_t inside = 0;
    std::uint64_t recorded = 0; ///< elements of buckets gathered inside
    std::uint64_t calls = 0;    ///< their number
    std::uint64_t reduced = 0;  ///< over all ranks
};

std::vector<Volume> volumes(int ranks, int secondary, std::size_t micro_steps) {
    using Counted = Groups<Recording<LoopbackCommunicator>, Secondary>;
    return on_ranks<Volume>(ranks, [&](LoopbackCommunicator& everyone) {
        int const rank = everyone.rank();
        auto inside = everyone.split(rank / secondary, rank);
        Recording<LoopbackCommunicator> all(everyone);
        Recording<LoopbackCommunicator> part(inside);
        Counted groups(all, part);
        ZeroStage<3, Parameters<bfloat16>, Counted> engine(groups,
                                                           registration<bfloat16>(even_specs()));
        (void)run_step(engine, static_cast<std::uint64_t>(rank), 0, micro_steps).report();
        everyone.reset_traffic();
        inside.reset_traffic();
        part.reset_recorded();
        (void)run_step(engine, static_cast<std::uint64_t>(rank), 1, micro_steps).report();
        auto const& recorded = part.recorded()[CollectiveKind::all_gather];
        return Volume{gathered(everyone.traffic()), gathered(inside.traffic()), recorded.elements,
                      recorded.calls, everyone.traffic()[CollectiveKind::reduce_scatter].bytes};
    });
}

using Bytes = std::array<std::size_t, buffer_kinds>;

template <class Stage>
void check_memory(typename Stage::Options const& given, std::size_t expected) {
    using Communicator = typename Stage::Communicator;
    struct Account {
        Bytes planned{}, allocated{}, after{};
    };
    std::vector<Account> accounts(world);
    run_ranks<Communicator>(
        static_cast<int>(world), test_time_out, {.secondary = 2}, [&](Communicator& hosts) {
            HostMemoryResource memory;
            auto options = given;
            options.memory = &memory;
            Stage engine(hosts, registration<typename Stage::ParameterType>(toy_specs()), options);
            Account& own = accounts[static_cast<std::size_t>(hosts.rank())];
            auto const allocated = [&] {
                Bytes bytes{};
                for (std::size_t kind = 0; kind < buffer_kinds; ++kind) {
                    bytes[kind] = memory.allocated_bytes(static_cast<BufferKind>(kind));
                }
                bytes[static_cast<std::size_t>(BufferKind::communicator)] = hosts.scratch_bytes(0);
                return bytes;
            };
            auto const plan = engine.memory_plan();
            for (std::size_t kind = 0; kind < buffer_kinds; ++kind) {
                own.planned[kind] = plan.rows[kind].bytes();
            }
            own.allocated = allocated();
            (void)run_step(engine, static_cast<std::uint64_t>(hosts.rank()), 0, 2).report();
            own.after = allocated();
        });
    for (Account const& own : accounts) {
        CHECK(own.planned == own.allocated);
        CHECK(own.after == own.allocated);
    }
    CHECK(accounts[0].planned[static_cast<std::size_t>(BufferKind::secondary_copies)] == expected);
}

} // namespace

TEST_CASE("A run with secondary copies has the bits of the flat run for every number of ranks that "
          "share one") {
    for (int const ranks : {4, 6, 8}) {
        auto const flat = on_ranks<Values>(
            ranks, [](LoopbackCommunicator& all) { return train<ZeroStage<3>>(all); });
        for (int secondary = 2; secondary < ranks; ++secondary) {
            if (ranks % secondary == 0) {
                CAPTURE(ranks, secondary);
                std::vector<Values> seen(flat.size());
                run_ranks<Hosts>(ranks, test_time_out,
                                 {.secondary = static_cast<std::size_t>(secondary)},
                                 [&](Hosts& hosts) {
                                     seen[static_cast<std::size_t>(hosts.rank())] =
                                         train<ZeroStage<3, Hosts>>(hosts);
                                 });
                CHECK((seen == flat));
            }
        }
    }
}

TEST_CASE("Copies change no bit of parameters in files, of a tree of micro-batches, or under a "
          "checked communicator") {
    TemporaryFolder const folder;
    using All = Offload<To<FileTier, BufferKind::optimizer_state, BufferKind::master_weights,
                           BufferKind::parameters>>;
    auto const in_files = [&](auto& options) {
        options.offload.path = folder.path().string();
        options.offload.chunk_bytes = 4096;
        options.offload.allow_page_cache = true;
    };
    compare<Parameters<bfloat16>, All>(in_files, in_files);
    auto const in_tree = [](auto& options) { options.reduction.micro_batches = 8; };
    compare<TreeReduction<>>(in_tree, in_tree);
    auto const gather = [](auto& options) {
        options.gather = {.prefetch_elements = 4096, .persistence_threshold = 64};
    };
    compare<RoundRobinPartitioner>(gather, gather);
    using Named = Groups<Checked<LoopbackCommunicator>, Secondary>;
    auto const expected = on_ranks<Values>(static_cast<int>(world),
                                           [](auto& all) { return train<ZeroStage<3>>(all); });
    CHECK((on_ranks<Values>(static_cast<int>(world),
                            [](LoopbackCommunicator& all) {
                                auto half = all.split(all.rank() % 2, -all.rank());
                                Checked<LoopbackCommunicator> checked(all);
                                Checked<LoopbackCommunicator> part(half);
                                Named named(checked, part); // every other rank, the last one first
                                return train<ZeroStage<3, Named>>(named);
                            })
           == expected));
}

TEST_CASE("The ranks of one part of a model share secondary copies") {
    using Ranks = Groups<Hosts, ModelParallel>;
    static_assert(SecondaryCommunicator<Ranks> && ModelParallelCommunicator<Ranks>);
    auto const expected = on_ranks<Values>(static_cast<int>(world),
                                           [](auto& all) { return train<ZeroStage<3>>(all); });
    auto const seen = on_ranks<Values>(static_cast<int>(world), [](LoopbackCommunicator& all) {
        auto alone = all.split(all.rank(), 0);
        Hosts data(all, {.secondary = 2});
        Ranks ranks(data, alone);
        return run_rank(ranks, [](Ranks& own) { return train<ZeroStage<3, Ranks>>(own); });
    });
    CHECK((seen == expected));
}

TEST_CASE("Forward reads P' b (W-1)/W bytes from all ranks in the first micro-step, and every "
          "later gather P' b (k-1)/k inside") {
    for (auto const& [ranks, secondary] :
         {std::array{4, 2}, std::array{6, 3}, std::array{6, 2}, std::array{8, 4}}) {
        for (std::size_t const micro_steps : {1U, 3U}) {
            CAPTURE(ranks, secondary, micro_steps);
            auto const w = static_cast<std::size_t>(ranks);
            auto const k = static_cast<std::size_t>(secondary);
            for (auto const& volume : volumes(ranks, secondary, micro_steps)) {
                CHECK(volume.everyone == elements * 2 * (w - 1) / w);
                CHECK(volume.inside == (2 * micro_steps - 1) * elements * 2 * (k - 1) / k);
                CHECK(volume.recorded == (2 * micro_steps - 1) * elements);
                CHECK(volume.calls == (2 * micro_steps - 1) * 2);
                CHECK(volume.reduced == micro_steps * elements * 2 * (w - 1) / w);
            }
        }
    }
    // literals: 3072 bfloat16 elements, 2 x 2 ranks
    auto const literal = volumes(4, 2, 1)[0];
    CHECK(literal.everyone == 4608);
    CHECK(literal.inside == 3072);
    CHECK(literal.reduced == 4608);
}

TEST_CASE("The formula of what is read from all ranks and inside is exact for uneven extents, "
          "persistent and kept buckets") {
    using Stage = ZeroStage<3, RoundRobinPartitioner, Hosts>;
    GatherOptions const options[] = {
        {}, {.persistence_threshold = 64}, {.max_reuse_distance = 0}, {.max_reuse_distance = 400}};
    for (GatherOptions const& gather : options) {
        for (std::size_t const micro_steps : {1U, 2U}) {
            auto const counts = on_hosts<std::array<std::uint64_t, 7>>([&](Hosts& hosts) {
                auto const rank = static_cast<std::size_t>(hosts.rank());
                Stage engine(hosts, registration<float>(toy_specs()), {.gather = gather});
                std::vector<std::size_t> units;
                for (std::size_t pass = 0; pass < micro_steps; ++pass) {
                    for (std::size_t const unit : {0U, 1U, 2U, 3U, 4U, 4U, 3U, 2U, 1U, 0U}) {
                        units.push_back(unit);
                    }
                }
                (void)run_step(engine, rank, 0, micro_steps).report();
                hosts.everyone().reset_traffic();
                hosts.secondary().reset_traffic();
                (void)run_step(engine, rank, 1, micro_steps).report();
                auto const formula = step_traffic_with_secondary(
                    engine.layout(), rank, 2, engine.schedule(), micro_steps, units, gather);
                auto const terms = count_step_communication(
                    engine.layout(), rank, 3, engine.schedule(), micro_steps, units,
                    {.sizes = {.parameter = 4}, .gather = gather, .secondary_ranks = 2});
                auto const all = hosts.everyone().traffic()[CollectiveKind::all_gather];
                auto const inside = hosts.secondary().traffic()[CollectiveKind::all_gather];
                return std::array<std::uint64_t, 7>{formula.everyone.all_gather - all.elements,
                                                    formula.secondary - inside.elements,
                                                    terms.gathers.bytes - 4 * all.elements,
                                                    terms.secondary.bytes - 4 * inside.elements,
                                                    terms.gathers.calls - all.calls,
                                                    terms.secondary.calls - inside.calls,
                                                    inside.elements};
            });
            for (auto const& count : counts) {
                std::array<std::uint64_t, 7> expected{};
                expected[6] = count[6];
                CHECK(count == expected);
                CHECK(count[6] > 0);
            }
        }
    }
}

TEST_CASE("The cost model puts later gathers on the level of the ranks that share a copy") {
    // 2 x 2 ranks, one micro-step, links of 8 and 1 bytes per second used one after the other
    auto const layout = make_layout<ContiguousPartitioner, UnitBucketer>(
        even_specs(), {.world = 4, .element_bytes = 2, .buckets_inside_units = true});
    CommunicationModel const model({.bytes_per_second = 8}, {.bytes_per_second = 1}, 2,
                                   CollectiveAlgorithm::hierarchical);
    auto const seconds = [&](std::size_t secondary) {
        std::array<std::size_t, 4> const units{0, 1, 0, 1};
        StepCommunicationOptions const options{
            .sizes = {.parameter = 2, .gradient = 2, .communication = 2},
            .secondary_ranks = secondary};
        return model.predict(4, count_step_communication(layout, 0, 3,
                                                         ReductionSchedule::every_micro_step, 1,
                                                         units, options));
    };
    double const bytes = elements * 2;
    CHECK(seconds(0).gathers == 2 * (bytes / 2 / 8 + bytes / 2));
    CHECK(seconds(2).gathers == bytes / 2 / 8 + bytes / 2 + bytes / 2 / 8);
    CHECK(seconds(2).reductions == seconds(0).reductions);
    double const ratio = seconds(0).total() / seconds(2).total();
    CHECK(ratio == Approx(1.42).epsilon(0.01));
}

TEST_CASE("Copies of ranks that cannot share one have no formula") {
    auto const layout = make_layout<ContiguousPartitioner, UnitBucketer>(
        even_specs(), {.world = 4, .element_bytes = 2, .buckets_inside_units = true});
    for (std::size_t const secondary : {0U, 1U, 3U, 4U}) {
        CHECK_THROWS_WITH(step_traffic_with_secondary(layout, 0, secondary,
                                                      ReductionSchedule::every_micro_step, 1, {}),
                          contains_text("cannot share a secondary copy"));
    }
}

TEST_CASE("The memory plan of an engine with secondary copies equals what it allocates") {
    // halves of buckets of 512, 768, 256, 256, 256 and 256 elements
    check_memory<ZeroStage<3, Hosts>>({}, 1152 * 4);
    // parameters of up to 64 elements are persistent and have none
    check_memory<ZeroStage<3, Hosts>>({.gather = {.persistence_threshold = 64}}, 640 * 4);
    // first halves, up to the next multiple of 64, of 320, 576, 192, 64, 64 and 64 elements
    check_memory<ZeroStage<3, Parameters<bfloat16>, RoundRobinPartitioner, Hosts>>({}, 832 * 2);
    check_memory<ZeroStage<3, Hosts>>({.rebuild_buckets = ZeroStage<3, Hosts>::in_ready_order},
                                      1152 * 4);
    auto const parts = on_hosts<MemoryRow>([](Hosts& hosts) {
        ZeroStage<3, RoundRobinPartitioner, Hosts> const engine(hosts,
                                                                registration<float>(toy_specs()));
        return engine.memory_plan()[BufferKind::secondary_copies];
    });
    // 1041 elements in two halves, the second of which is empty for three buckets
    CHECK(parts[0].content_bytes + parts[1].content_bytes == 1041 * 4);
    CHECK(parts[1].bytes() == (128 + 256 + 64) * 4);
    CHECK(parts[2] == parts[0]);
    CHECK(parts[3] == parts[1]);
}

namespace {

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

TEST_CASE("A persistent bucket that was freed for want of room is gathered from its owners again") {
    std::vector<ParameterSpec> const specs{
        {"large", 512, {0}}, {"other", 256, {1}}, {"small", 10, {2}}};
    auto const right = on_hosts<std::size_t>([&](Hosts& hosts) {
        ZeroStage<3, Hosts> engine(
            hosts, registration<float>(specs),
            {.gather = {.persistence_threshold = 64, .max_live_elements = 768}, .poison = true});
        std::size_t equal = 0;
        for (int pass = 0; pass < 2; ++pass) {
            {
                auto const weights = engine.acquire(2);
                for (std::size_t i = 0; i < 10; ++i) {
                    equal += weights[2][i] == noise(1, 2, i) ? 1 : 0;
                }
            }
            auto const large = engine.acquire(0);
            auto const other = engine.acquire(1); // in the place of the persistent bucket
        }
        return equal + 100 * (gathered(hosts.secondary().traffic()) / 4);
    });
    for (std::size_t const equal : right) { // both halves of the other two from the second pass
        CHECK(equal == 20 + 100 * (512 + 256) / 2);
    }
}

TEST_CASE("A rank that still holds a unit, which the others have released, gathers it again from "
          "the copies like them") {
    auto const right = on_hosts<std::size_t>([&](Hosts& hosts) {
        ZeroStage<3, Hosts> engine(hosts, registration<float>(toy_specs()));
        std::size_t equal = 0;
        auto first = std::make_optional(engine.acquire(1));
        hosts.everyone().reset_traffic();
        if (hosts.rank() != 0) {
            first.reset();
        }
        auto const again = engine.acquire(1);
        for (std::size_t i = 0; i < 500; ++i) {
            equal += again[1][i] == noise(1, 1, i) ? 1 : 0;
        }
        return equal + gathered(hosts.everyone().traffic());
    });
    CHECK(right == std::vector<std::size_t>(world, 500));
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
                hasty, registration<float>(even_specs()),
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

TEST_CASE("An exception of the model on one rank reaches the ranks that wait for its copy") {
    for (std::size_t const fails : {std::size_t{0}, std::size_t{3}}) {
        std::vector<Outcome> outcomes(world);
        (void)outcome_of([&] {
            (void)on_hosts<int>([&](Hosts& hosts) {
                auto const rank = static_cast<std::size_t>(hosts.rank());
                try {
                    ZeroStage<3, Hosts> engine(hosts, registration<float>(toy_specs()));
                    engine.begin_step();
                    for (auto const micro_step : engine.micro_steps(1)) {
                        for (std::size_t unit = 0; unit < engine.layout().units(); ++unit) {
                            auto const weights = engine.acquire(unit);
                        }
                        if (rank == fails) { // after forward; the others gather from its copy
                            throw std::runtime_error("no more data");
                        }
                        run_micro_step(engine, rank, 0, micro_step);
                    }
                    (void)engine.step(0.01).report();
                } catch (...) {
                    outcomes[rank] = outcome_of_current_exception();
                    throw;
                }
                return 0;
            });
        });
        for (std::size_t rank = 0; rank < world; ++rank) {
            CHECK(outcomes[rank].type == (rank == fails ? "other" : "Aborted"));
            CHECK_THAT(outcomes[rank].message, contains_text("no more data"));
        }
    }
}

TEST_CASE("An engine with secondary copies says so") {
    auto const texts = on_hosts<std::string>([](Hosts& hosts) {
        ZeroStage<3, Hosts> const engine(hosts, registration<float>(toy_specs()));
        return describe(engine) + "\n" + engine.describe_memory();
    });
    CHECK_THAT(texts[0], contains_text("Secondary>"));
    CHECK_THAT(texts[0], contains_text(", secondary copies"));
    CHECK_THAT(texts[0], contains_text("secondary copies: "));
}

} // namespace zero::test::secondary_test
