// Gathers on a communicator and a queue of their own (`GatherOptions::own_communicator`): the bits,
// plans and refusals, and what changes the state between two steps. The oracle compares the bits of
// random configurations, and removes the fences.

#include "secondary_model.hpp"
#include "support/catch.hpp"
#include "support/temporary_folder.hpp"

#include <zero/comm/checked.hpp>
#include <zero/comm/detail/decorator.hpp>
#include <zero/comm/model_parallel.hpp>
#include <zero/comm/timed.hpp>
#include <zero/host/delaying_queue.hpp>
#include <zero/policy/averaged.hpp>
#include <zero/policy/gradient_reduction.hpp>
#include <zero/stage/averaged_weights.hpp>
#include <zero/stage/describe.hpp>
#include <zero/stage/gathered_parameters.hpp>
#include <zero/stage/live_changes.hpp>
#include <zero/stage/offload.hpp>
#include <zero/stage/offload_states.hpp>
#include <zero/stage/wire.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace zero::test::own_gathers_test {

namespace {

using namespace secondary_model;

/// Three steps of two micro-steps, on a delaying queue of communication. @param set changes the
/// options
template <class Stage>
Values train(auto& communicator, bool is_apart,
             std::function<void(typename Stage::Options&)> const& set = {}) {
    auto const rank = static_cast<std::uint64_t>(communicator.rank());
    host::DelayingQueue queue(rank);
    typename Stage::Options options;
    options.communication_queue = &queue;
    options.gather.own_communicator = is_apart;
    if (set) {
        set(options);
    }
    Stage engine(communicator, registration<typename Stage::ParameterType>(toy_specs()), options);
    for (std::uint64_t step = 0; step < 3; ++step) {
        (void)run_step(engine, rank, step, 2).report();
    }
    return full_parameters(engine);
}

/// Compares runs with and without gathers of their own. @tparam Policies of both
template <class... Policies>
void compare(
    std::function<void(typename ZeroStage<3, LoopbackCommunicator, Policies...>::Options&)> const&
        set = {},
    int ranks = static_cast<int>(world)) {
    auto const values = [&](bool is_apart) {
        return on_ranks<Values>(ranks, [&](LoopbackCommunicator& all) {
            return train<ZeroStage<3, LoopbackCommunicator, Policies...>>(all, is_apart, set);
        });
    };
    CHECK((values(true) == values(false)));
}

/// The same on groups.
template <class Ranks>
void compare_groups(typename Ranks::Options const& groups) {
    auto const values = [&](bool is_apart) {
        std::vector<Values> seen(world);
        run_ranks<Ranks>(static_cast<int>(world), test_time_out, groups, [&](Ranks& ranks) {
            auto rank = static_cast<std::size_t>(ranks.rank());
            if constexpr (ModelParallelCommunicator<Ranks>) {
                rank = 2 * rank + static_cast<std::size_t>(ranks.model().rank());
            }
            seen[rank] = train<ZeroStage<3, Ranks>>(ranks, is_apart);
        });
        return seen;
    };
    CHECK((values(true) == values(false)));
}

/// The message of the InvalidArgument of `body(communicator)` on rank 1 of two.
template <class Body>
std::string refusal(Body const& body) {
    return on_ranks<std::string>(2, [&](LoopbackCommunicator& all) {
        Outcome const outcome = outcome_of([&] { body(all); });
        return outcome.type == "InvalidArgument" ? outcome.message : outcome.type;
    })[1];
}

/// Parameters in files.
using ParametersInFiles = Offload<
    To<FileTier, BufferKind::optimizer_state, BufferKind::master_weights, BufferKind::parameters>>;

} // namespace

TEST_CASE("Gathers of their own change no bit for any number of ranks, and with every kind of "
          "gather") {
    for (int const ranks : {1, 2, 3, 5}) {
        CAPTURE(ranks);
        compare<>({}, ranks);
    }
    compare<>([](auto& options) {
        options.gather.prefetch_elements = 4096;
        options.gather.persistence_threshold = 64;
        options.poison = true;
    });
    compare<>([](auto& options) { options.gather.keep_until_update = 600; });
    compare<>([](auto& options) { options.communication_queue.reset(); });
    compare<Parameters<bfloat16>, Wire<Int8Blocks>>();
    compare<Parameters<bfloat16>, FrozenWeights<Int4Blocks>>();
    compare<TreeReduction<>>([](auto& options) { options.reduction.micro_batches = 8; });
}

TEST_CASE("Gathers of their own change no bit of states in files, at once or delayed") {
    TemporaryFolder const folder;
    auto const in_files = [&](auto& options) {
        options.offload.path = folder.path().string();
        options.offload.chunk_bytes = 4096;
        options.offload.allow_page_cache = true;
    };
    using States = To<FileTier, BufferKind::optimizer_state, BufferKind::master_weights>;
    compare<Parameters<bfloat16>, Offload<States>>(in_files);
    compare<Parameters<bfloat16>, Offload<States, DelayedUpdate>>(in_files);
}

TEST_CASE("Gathers of their own change no bit on groups: inside replicas, before secondary copies, "
          "and between the data ranks of a cut model") {
    compare_groups<Groups<LoopbackCommunicator, Hybrid>>({.shard = 2});
    compare_groups<Hosts>({.secondary = 2});
    compare_groups<Groups<LoopbackCommunicator, ModelParallel>>({.model = 2});
}

TEST_CASE("Gathers of their own are refused where they cannot be, before anything is sent") {
    auto const parameters = registration<float>(toy_specs());
    std::string const checked = refusal([&](LoopbackCommunicator& all) {
        Checked<LoopbackCommunicator> communicator(all);
        ZeroStage<3, Checked<LoopbackCommunicator>> const engine(
            communicator, parameters, {.gather = {.own_communicator = true}});
    });
    CHECK(checked
          == "zero: gather.own_communicator on rank 1: this communicator has no 'split'; use one "
             "that has (Loopback, mpi::Communicator, cuda::NcclCommunicator, Timed around one of "
             "them), "
             "or leave the option out.");
    std::string const in_files = refusal([&](LoopbackCommunicator& all) {
        using Stage = ZeroStage<3, Parameters<bfloat16>, ParametersInFiles>;
        Stage const engine(all, registration<bfloat16>(toy_specs()),
                           {.gather = {.own_communicator = true}});
    });
    CHECK(in_files
          == "zero: gather.own_communicator on rank 1: gathers of parameters that Offload keeps "
             "elsewhere need the order of one queue; leave BufferKind::parameters out of Offload, "
             "or leave the option out.");
}

TEST_CASE("A description names gathers of their own in stage 3; other stages do not use them, and "
          "a single rank has none") {
    auto const text = []<int N>(int ranks) {
        return on_ranks<std::string>(ranks, [](LoopbackCommunicator& all) {
            ZeroStage<N> const engine(all, registration<float>(even_specs(64)),
                                      {.gather = {.own_communicator = true}});
            return describe(engine);
        })[0];
    };
    CHECK(text.operator()<3>(2)
          == describe<ZeroStage<3>>() + ", gathers on a communicator of their own");
    CHECK(text.operator()<3>(1) == describe<ZeroStage<3>>());
    CHECK(text.operator()<2>(2)
          == describe<ZeroStage<2>>()
                 + "\nnot used in this stage: gather.own_communicator (stage 3 uses it)");
}

TEST_CASE("The memory plan of gathers of their own is what is allocated: a queue, and what the "
          "split holds") {
    struct Account {
        std::vector<std::size_t> planned, allocated;
        std::size_t communicator = 0, left = 0;
    };
    auto const account = [](bool is_apart, int ranks) {
        return on_ranks<Account>(ranks, [&](LoopbackCommunicator& all) {
            HostMemoryResource memory;
            Account own;
            {
                ZeroStage<3> engine(all, registration<float>(toy_specs()),
                                    {.gather = {.own_communicator = is_apart}, .memory = &memory});
                (void)run_step(engine, static_cast<std::uint64_t>(all.rank()), 0).report();
                MemoryPlan const plan = engine.memory_plan();
                for (std::size_t kind = 0; kind < buffer_kinds; ++kind) {
                    auto const buffer = static_cast<BufferKind>(kind);
                    if (buffer != BufferKind::communicator) {
                        own.planned.push_back(plan[buffer].bytes());
                        own.allocated.push_back(memory.allocated_bytes(buffer));
                    }
                }
                own.communicator = plan[BufferKind::communicator].bytes();
            }
            own.left = memory.allocated_bytes();
            return own;
        })[0];
    };
    auto const together = account(false, 2);
    auto const apart = account(true, 2);
    CHECK(apart.allocated == apart.planned);
    CHECK(apart.left == 0);
    CHECK(apart.communicator == 2 * together.communicator);
    std::size_t differences = 0;
    for (std::size_t kind = 0; kind < apart.planned.size(); ++kind) {
        differences += apart.planned[kind] == together.planned[kind] ? 0 : 1;
    }
    CHECK(differences == 1); // the commands
    CHECK(account(true, 1).planned == account(false, 1).planned);
    CHECK(account(true, 1).communicator == account(false, 1).communicator);
}

namespace {

/// Changes the state between steps in every way. @return all parameters after each
template <class Communicator>
std::vector<Values> change_between_steps(Communicator& all, bool is_apart,
                                         std::string const& folder) {
    using Stage = ZeroStage<3, Averaged<AdamW>, Communicator>;
    auto const rank = static_cast<std::uint64_t>(all.rank());
    host::DelayingQueue queue(rank + 7);
    Stage engine(all, registration<float>(toy_specs()),
                 {.rebuild_buckets = Stage::in_ready_order,
                  .leases_until_rebuild = 5,
                  .gather = {.prefetch_elements = 1000, .own_communicator = is_apart},
                  .communication_queue = &queue});
    std::vector<std::size_t> const order{1, 3, 0, 2, 4};
    std::vector<Values> seen;
    std::uint64_t step = 0;
    // Without a wait, so that gathers may still be under way.
    auto const train = [&] { (void)run_step(engine, rank, step++, 2, 0.01, 0, order); };
    auto const evaluate = [&] {
        for (std::size_t unit = 0; unit < engine.layout().units(); ++unit) {
            (void)engine.acquire(unit);
        }
    };
    auto const note = [&] { seen.push_back(full_parameters(engine)); };
    train(); // rebuilds the buckets
    note();
    train();
    evaluate();
    {
        auto weights = gather(engine, {"first.weight"}, Gather::one_rank_writes);
        for (float& value : weights.writable("first.weight")) {
            value = 0.5F * value + 0.25F;
        }
    }
    note();
    evaluate();
    engine.for_each_owned_slice([](auto const& slice) {
        for (float& value : slice.values) {
            value *= 0.75F;
        }
    });
    engine.parameters_changed();
    note();
    engine.begin_step();
    engine.begin_micro_step();
    run_micro_step(engine, rank, 90, 0, 1.0F, 0, order);
    engine.cancel_step();
    train();
    evaluate();
    {
        AveragedWeights const averages(engine);
        note();
    }
    evaluate();
    set_trainable(engine, {"first.weight"}, false);
    train();
    note();
    set_trainable(engine, {"first.weight"}, true);
    evaluate();
    offload_states(engine, {.path = folder, .allow_page_cache = true});
    reload_states(engine);
    train();
    note();
    return seen;
}

} // namespace

TEST_CASE("Whatever changes the state between two steps waits for gathers of their own, and they "
          "for it") {
    TemporaryFolder const folder;
    auto const values = [&](bool is_apart) {
        return on_ranks<std::vector<Values>>(3, [&](LoopbackCommunicator& all) {
            return change_between_steps(all, is_apart, folder.path().string());
        });
    };
    auto const expected = values(false);
    CHECK(expected[0].size() == 6);
    for (int run = 0; run < 3; ++run) {
        CHECK((values(true) == expected));
    }
}

namespace {

/// What a rank called, over which communicator.
struct Called {
    std::string what;
    std::size_t index;
    bool is_split;

    bool operator==(Called const&) const = default;
};

/// Writes the calls of a communicator and its splits into one list.
class Listing : public zero::detail::CommunicatorDecorator<Listing, LoopbackCommunicator> {
    using Base = zero::detail::CommunicatorDecorator<Listing, LoopbackCommunicator>;
    friend Base;

public:
    Listing(LoopbackCommunicator& inner, std::vector<Called>& calls)
        : Base(inner), _calls(&calls) {}

    Listing split(int color, int key) {
        return Listing(std::make_unique<LoopbackCommunicator>(inner().split(color, key)), _calls);
    }

private:
    Listing(std::unique_ptr<LoopbackCommunicator> part, std::vector<Called>* calls)
        : Base(*part), _part(std::move(part)), _calls(calls) {}

    template <class T, class Forward>
    void around(zero::detail::DecoratedCall const& call, Queue /*queue*/, Forward const& forward) {
        bool const is_integers = call.kind == CollectiveKind::integers; // of which some are hashes
        _calls->push_back({call.tag.what, is_integers ? 0 : call.tag.index, _part != nullptr});
        forward();
    }

    std::unique_ptr<LoopbackCommunicator> _part;
    std::vector<Called>* _calls;
};

} // namespace

TEST_CASE("Every rank enqueues the collectives of both communicators in one order, whenever it "
          "releases units, also after buckets are rebuilt") {
    auto const calls = [](std::uint64_t seed) {
        return on_ranks<std::vector<Called>>(3, [&](LoopbackCommunicator& all) {
            auto const rank = static_cast<std::uint64_t>(all.rank());
            std::vector<Called> own;
            Listing communicator(all, own);
            using Stage = ZeroStage<3, Listing>;
            bool const rebuilds = seed % 2 == 1;
            Stage engine(
                communicator, registration<float>(toy_specs()),
                {.extra_leases = 2,
                 .rebuild_buckets = rebuilds ? Stage::in_ready_order : nullptr,
                 .leases_until_rebuild = rebuilds ? std::size_t{5} : 0,
                 .gather = {.prefetch_elements = seed % 3 * 300, .own_communicator = true}});
            std::vector<std::size_t> const backward = rebuilds
                                                          ? std::vector<std::size_t>{1, 3, 0, 2, 4}
                                                          : std::vector<std::size_t>{4, 3, 2, 1, 0};
            own.clear();
            for (std::uint64_t step = 0; step < 4; ++step) {
                engine.begin_step();
                engine.begin_micro_step();
                std::optional<typename Stage::Weights> held; // until after the next acquisition
                auto const use = [&](std::size_t unit) {
                    auto weights = engine.acquire(unit);
                    held.reset();
                    if (noise(seed, rank, step, unit) < 0) {
                        held.emplace(std::move(weights));
                    }
                };
                for (std::size_t unit = 0; unit < engine.layout().units(); ++unit) {
                    use(unit);
                }
                for (std::size_t const unit : backward) {
                    use(unit);
                    auto const gradients = engine.gradients(unit);
                    for (std::size_t const parameter : engine.layout().unit_parameters(unit)) {
                        (void)gradients[parameter];
                    }
                    engine.gradients_ready(unit);
                }
                held.reset();
                engine.end_micro_step();
                (void)engine.step(0.01).report();
            }
            return own;
        });
    };
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
        CAPTURE(seed);
        auto const ranks = calls(seed);
        CHECK((ranks[1] == ranks[0]));
        CHECK((ranks[2] == ranks[0]));
        std::set<std::string> split;
        for (Called const& call : ranks[0]) {
            if (call.is_split) {
                split.insert(call.what);
            }
            CHECK(call.is_split == (call.what == "parameters of bucket"));
        }
        CHECK(split == std::set<std::string>{"parameters of bucket"});
    }
}

TEST_CASE("A rank that fails releases those that wait in a gather of their own, and in a "
          "reduction") {
    for (bool const in_gather : {true, false}) {
        CAPTURE(in_gather);
        auto const outcomes = run_and_observe(3, [&](LoopbackCommunicator& all) {
            auto const rank = static_cast<std::uint64_t>(all.rank());
            ZeroStage<3> engine(all, registration<float>(toy_specs()),
                                {.gather = {.own_communicator = true}});
            (void)run_step(engine, rank, 0).report();
            engine.begin_step();
            engine.begin_micro_step();
            if (rank == 1 && in_gather) {
                throw std::runtime_error("no more data");
            }
            (void)engine.acquire(0);
            (void)engine.acquire(4);
            (void)engine.gradients(4);
            if (rank == 1) {
                throw std::runtime_error("no more data");
            }
            engine.gradients_ready(4);
            (void)engine.acquire(3);
        });
        for (std::size_t const rank : {0U, 2U}) {
            CHECK(outcomes.ranks[rank].type == "Aborted");
            CHECK_THAT(outcomes.ranks[rank].message, contains_text("no more data"));
        }
        CHECK(outcomes.ranks[1].message == "no more data");
    }
}

TEST_CASE("A timeline shows gathers of their own on a queue of their own, and reductions on that "
          "of communication") {
    auto const queues = [](bool is_apart) {
        return on_ranks<std::vector<std::set<void const*>>>(2, [&](LoopbackCommunicator& all) {
            Timeline timeline;
            Timed<LoopbackCommunicator> communicator(all, &timeline);
            ZeroStage<3, Timed<LoopbackCommunicator>> engine(
                communicator, registration<float>(toy_specs()),
                {.gather = {.own_communicator = is_apart}});
            timeline.clear();
            (void)run_step(engine, static_cast<std::uint64_t>(all.rank()), 0).report();
            std::vector<std::set<void const*>> of_phase(2);
            for (std::size_t span = 0; span < timeline.size(); ++span) {
                if (timeline[span].is_collective && timeline[span].phase != TimelinePhase::decide) {
                    of_phase[timeline[span].phase == TimelinePhase::gather ? 0 : 1].insert(
                        timeline[span].queue);
                }
            }
            return of_phase;
        })[0];
    };
    auto const together = queues(false);
    CHECK(together[0].size() == 1);
    CHECK(together[0] == together[1]);
    auto const apart = queues(true);
    CHECK(apart[0].size() == 1);
    CHECK(apart[1].size() == 1);
    CHECK(apart[0] != apart[1]);
}

} // namespace zero::test::own_gathers_test
