#include "secondary_model.hpp"
#include "support/catch.hpp"
#include "support/temporary_folder.hpp"

#include <zero/comm/checked.hpp>
#include <zero/comm/model_parallel.hpp>
#include <zero/host/delaying_queue.hpp>
#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/policy/gradient_reduction.hpp>
#include <zero/stage/describe.hpp>
#include <zero/stage/offload.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

// Secondary copies: a run with them has the bits of the flat run. The oracle compares the bits of
// random configurations.

namespace zero::test::secondary_test {

namespace {

using namespace secondary_model;

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
    CHECK_THAT(texts[0], contains_text(", secondary copies on 2 ranks each"));
    CHECK_THAT(texts[0], contains_text("secondary copies: "));
}

} // namespace zero::test::secondary_test
