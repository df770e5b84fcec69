#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/toy_model.hpp"
#include "support/trained.hpp"

#include "tree_model.hpp"

#include <zero/comm/hierarchical.hpp>
#include <zero/comm/recording.hpp>
#include <zero/core/host_memory_resource.hpp>
#include <zero/layout/communication_model.hpp>
#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/zero.hpp>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

// An engine on two levels of loopback groups: in rank order with bits of its own, in a tree with
// those of one rank.

namespace zero::test::hierarchical_test {

namespace {

using Levels = Hierarchical<LoopbackCommunicator, LoopbackCommunicator>;
using Values = std::vector<std::vector<float>>;

struct Result {
    Values parameters;
    std::size_t planned = 0;   ///< scratch memory of communicators
    std::size_t allocated = 0; ///< the same
};

template <class Stage>
Values train(auto& communicator, Result& result) {
    Stage engine(communicator, registration<float>(toy_specs()),
                 {.reduction = {.schedule = ReductionSchedule::boundary}});
    for (std::uint64_t step = 0; step < 4; ++step) {
        (void)run_step(engine, static_cast<std::uint64_t>(communicator.rank()), step, 2, 0.01, 24);
    }
    result.planned = engine.memory_plan()[BufferKind::communicator].bytes();
    return full_parameters(engine);
}

template <int N, class Partitioner>
Result in_levels(int inner_ranks, int outer_ranks) {
    return on_ranks<Result>(inner_ranks * outer_ranks, [&](LoopbackCommunicator& parent) {
        HostMemoryResource own;
        LoopbackCommunicator intra = parent.split(parent.rank() % outer_ranks, parent.rank());
        LoopbackCommunicator inter = parent.split(parent.rank() / outer_ranks, parent.rank());
        Levels communicator(intra, inter, {.scratch_bytes = 512, .memory = &own});
        Result result;
        result.parameters = train<ZeroStage<N, Partitioner, Levels>>(communicator, result);
        result.allocated = own.allocated_bytes(BufferKind::communicator) + intra.scratch_bytes(0)
                           + inter.scratch_bytes(0);
        return result;
    })[0];
}

/// Runs `body(communicator, intra, inter)` on two levels and returns the results by rank.
/// @tparam C the communicator, two levels of `Level`
template <class C, class Level, class Body>
auto on_levels(int inner_ranks, int outer_ranks, std::size_t scratch, Body const& body) {
    using Found =
        decltype(body(std::declval<C&>(), std::declval<Level&>(), std::declval<Level&>()));
    return on_ranks<Found>(inner_ranks * outer_ranks, [&](LoopbackCommunicator& parent) {
        LoopbackCommunicator inside = parent.split(parent.rank() % outer_ranks, parent.rank());
        LoopbackCommunicator between = parent.split(parent.rank() / outer_ranks, parent.rank());
        if constexpr (std::is_same_v<Level, LoopbackCommunicator>) {
            C communicator(inside, between, {.scratch_bytes = scratch});
            return body(communicator, inside, between);
        } else {
            Level intra(inside);
            Level inter(between);
            C communicator(intra, inter, {.scratch_bytes = scratch});
            return body(communicator, intra, inter);
        }
    });
}

template <int N, class C = Levels>
using Float = ZeroStage<N, TreeReduction<>, C, Adam, tree::Cutter<N>>;
template <int N, class C = Levels>
using Half = ZeroStage<N, Parameters<bfloat16>, TreeReduction<>, C>;
template <int N, class C = Levels>
using HalfSums = ZeroStage<N, Parameters<bfloat16>, TreeReduction<bfloat16, float, bfloat16>, C,
                           Lamb, BalancedPartitioner, ParameterBucketer>;
template <int N, class C = Levels>
using Scaled = ZeroStage<N, Parameters<float16>, TreeReduction<>, DynamicLossScaler, C, Adagrad,
                         tree::OtherCutter<N>>;

/// Trains in a tree on two levels.
template <class Stage>
std::vector<tree::Seen> train_in_tree(int inner_ranks, int outer_ranks,
                                      typename Stage::Options const& options, tree::Job const& job,
                                      std::size_t scratch = 1024,
                                      tree::Delivery delivery = tree::Delivery::leases) {
    using C = typename Stage::Communicator;
    return tree::joined(on_levels<C, LoopbackCommunicator>(
        inner_ranks, outer_ranks, scratch, [&](C& communicator, auto&, auto&) {
            return tree::train_on<Stage>(communicator, options, job, delivery);
        }));
}

/// Compares one stage, drawn for each pair of levels, with the run of one rank.
template <template <int, class> class Stage>
std::size_t compare_levels(tree::Job job, ReductionKind kind, std::mt19937_64& random,
                           char const* name) {
    std::size_t compared = 0;
    job.has_empty_batches = kind == ReductionKind::weighted_mean;
    job.specs = random() % 4 == 0 ? toy_specs() : tree::random_model(random);
    job.leaves_out = random() % 2 == 0;
    auto const unused = random() % 2 == 0 ? UnusedParameters::leave : UnusedParameters::zero;
    typename Stage<2, LoopbackCommunicator>::Options one;
    one.reduction.kind = kind;
    one.unused_parameters = unused;
    auto const expected = tree::train<Stage<2, LoopbackCommunicator>>(1, one, job);
    for (auto const& levels :
         {std::pair(2U, 2U), std::pair(2U, 4U), std::pair(4U, 2U), std::pair(3U, 2U),
          std::pair(3U, 4U), std::pair(2U, 3U), std::pair(4U, 3U), std::pair(6U, 2U),
          std::pair(2U, 6U), std::pair(1U, 4U), std::pair(4U, 1U)}) {
        unsigned const inner = levels.first;
        unsigned const outer = levels.second;
        ops::MicroBatchTree const tree{job.micro_batches, job.group, inner * outer};
        if (!tree.is_admissible() || !tree.inside(inner).is_admissible()) {
            continue;
        }
        ++compared;
        auto const stage = static_cast<int>(random() % 4);
        job.storage = stage == 3 ? Storage::owned : static_cast<Storage>(random() % 3);
        job.delays = random() % 2 == 0 ? std::optional(random()) : std::nullopt;
        INFO(name << ", V = " << job.micro_batches << ", b = " << job.group << ", " << inner
                  << " x " << outer << " ranks, stage " << stage << ", storage "
                  << static_cast<int>(job.storage) << ", unused " << static_cast<int>(unused));
        with_stage(stage, [&]<int N>() {
            typename Stage<N, Levels>::Options options;
            options.reduction.kind = kind;
            options.unused_parameters = unused;
            if (job.storage == Storage::adopted && !tree::cuts_contiguously<Stage<N, Levels>>) {
                job.storage = Storage::scattered;
            }
            options.reduction.wire_bytes = 300 + random() % 3000;
            options.poison = random() % 2 == 0;
            if constexpr (requires { options.bucketer.bucket_bytes; }) {
                options.bucketer.bucket_bytes = 400 + random() % 4000;
            }
            // memory of the caller delivers a gradient of zeros, which is one
            bool const leaves = unused == UnusedParameters::leave && job.leaves_out;
            auto const found = train_in_tree<Stage<N, Levels>>(
                static_cast<int>(inner), static_cast<int>(outer), options, job,
                256 + random() % 4096, static_cast<tree::Delivery>(random() % (leaves ? 2 : 3)));
            for (std::size_t step = 0; step < found.size(); ++step) {
                INFO("step " << step);
                CHECK((found[step] == expected[step]));
            }
        });
    }
    return compared;
}

/// A set of types, as `communicator_adds_in_tree` reads it.
template <class T>
struct TypesOf {
    using Communication = T;
    using Accumulation = T;
};

/// Levels whose micro-batches are numbered by rank.
struct NumberedByRank : Levels {
    using Levels::Levels;
    [[nodiscard]] int position() const noexcept { return rank(); }
};

/// Levels that do not say by which positions they add.
struct WithoutPosition : Levels {
    using Levels::Levels;
    int position() const noexcept = delete;
};
using FloatTypes = std::tuple<TypesOf<float>> const*;
static_assert(zero::detail::communicator_adds_in_tree<Levels>(FloatTypes()));
static_assert(!zero::detail::communicator_adds_in_tree<WithoutPosition>(FloatTypes()));

/// Counts what the engine sends and what the transport reads.
struct Counted : Recording<LoopbackCommunicator> {
    explicit Counted(LoopbackCommunicator& level)
        : Recording<LoopbackCommunicator>(level), transport(&level) {}
    void reset() {
        reset_recorded();
        transport->reset_traffic();
    }
    LoopbackCommunicator* transport;
};

/// The traffic of one rank in a step.
struct Moved {
    TrafficCount inside, between, read_inside, read_between;
    LevelTraffic formula;
};

Values flat(int world) {
    return on_ranks<Values>(world, [](LoopbackCommunicator& communicator) {
        Result result;
        return train<ZeroStage<2>>(communicator, result);
    })[0];
}

} // namespace

TEST_CASE(
    "Every stage and partitioner ends with the same bits on the same two levels, and the plan "
    "holds their scratch memory") {
    for (auto const& [inner, outer] :
         {std::pair(2, 2), std::pair(4, 1), std::pair(1, 4), std::pair(2, 3)}) {
        Result const first = in_levels<0, ContiguousPartitioner>(inner, outer);
        CHECK(in_levels<1, ContiguousPartitioner>(inner, outer).parameters == first.parameters);
        CHECK(in_levels<2, ContiguousPartitioner>(inner, outer).parameters == first.parameters);
        CHECK(in_levels<3, ContiguousPartitioner>(inner, outer).parameters == first.parameters);
        CHECK(in_levels<2, RoundRobinPartitioner>(inner, outer).parameters == first.parameters);
        CHECK(in_levels<3, RoundRobinPartitioner>(inner, outer).parameters == first.parameters);
        CHECK(first.planned == first.allocated);
        CHECK(first.planned == (inner == 1 || outer == 1 ? 0U : 512U) + 2 * 512U);
        bool const is_flat = inner == 1 || outer == 1;
        CHECK((first.parameters == flat(inner * outer)) == is_flat);
    }
}

TEST_CASE("Two levels add in the tree: every stage trains to the bits of one rank") {
    std::mt19937_64 random(4);
    std::size_t compared = 0;
    for (auto const& [count, group] :
         {std::pair(8U, 1U), std::pair(16U, 1U), std::pair(24U, 1U), std::pair(12U, 3U),
          std::pair(24U, 3U), std::pair(24U, 6U), std::pair(24U, 12U), std::pair(16U, 8U)}) {
        tree::Job job{.micro_batches = count, .group = group};
        compared += compare_levels<Float>(job, ReductionKind::mean, random, "float");
        compared += compare_levels<Half>(job, ReductionKind::weighted_mean, random, "bfloat16");
        compared += compare_levels<HalfSums>(job, ReductionKind::mean, random, "bfloat16 sums");
        job.overflows = 0;
        compared += compare_levels<Scaled>(job, ReductionKind::mean, random, "float16, scaled");
    }
    CHECK(compared == 4 * 34);
}

TEST_CASE("A micro-batch has the number of the position, and that of the rank gives other bits") {
    tree::Job const job{.micro_batches = 8, .steps = 1};
    auto const numbers =
        on_levels<Levels, LoopbackCommunicator>(2, 4, 512, [&](Levels& communicator, auto&, auto&) {
            Half<2>::Options options;
            tree::configure(options, job);
            Half<2> const engine(communicator, registration<bfloat16>(job.specs), options);
            return engine.micro_batch(0);
        });
    CHECK(numbers == std::vector<std::size_t>{0, 2, 4, 6, 1, 3, 5, 7});
    auto const expected = tree::train<Half<2, LoopbackCommunicator>>(8, {}, job);
    CHECK((train_in_tree<Half<2>>(2, 4, {}, job) == expected));
    CHECK_FALSE((train_in_tree<Half<2, NumberedByRank>>(2, 4, {}, job) == expected));
}

TEST_CASE("Inner ranks whose sum is no part of the tree are refused with the numbers") {
    auto const message = [](int inner, int outer, tree::Job const& job) {
        return outcome_of([&] { (void)train_in_tree<Float<2>>(inner, outer, {}, job); }).message;
    };
    CHECK(message(2, 3, {.micro_batches = 12, .group = 3})
          == "zero: the inner level of Hierarchical has 2 of 6 ranks, whose sum is no part of the "
             "tree of 12 micro-batches in groups of 3; possible numbers of inner ranks are 1, 3, "
             "6. Use one of these, or change reduction.micro_batches or "
             "reduction.micro_batch_group, which changes bits.");
    CHECK(message(2, 3, {.micro_batches = 12}).find("zero: 6 ranks cannot add the tree of 12")
          == 0);
    CHECK(message(2, 2, {.micro_batches = 0}).find("zero: reduction.micro_batches is 0") == 0);
    CHECK(message(2, 2, {.micro_batches = 8, .group = 0}).find("micro_batch_group is 0")
          != std::string::npos);
}

TEST_CASE("Between the levels a tree sends floats, and each level moves what the formula says") {
    using C = Hierarchical<Counted, Counted>;
    tree::Job const job{.micro_batches = 16, .steps = 1};
    in_every_stage([&]<int N>() {
        for (auto const& levels : {std::pair(2U, 2U), std::pair(2U, 4U), std::pair(4U, 2U)}) {
            std::size_t const inner = levels.first;
            std::size_t const outer = levels.second;
            INFO("stage " << N << ", " << inner << " x " << outer << " ranks");
            std::size_t const world = inner * outer;
            auto const ranks = on_levels<C, Counted>(
                static_cast<int>(inner), static_cast<int>(outer), std::size_t{1} << 20U,
                [&](C& communicator, Counted& intra, Counted& inter) {
                    typename Half<N, C>::Options options;
                    tree::configure(options, job);
                    Half<N, C> engine(communicator, registration<bfloat16>(job.specs), options);
                    intra.reset();
                    inter.reset();
                    (void)tree::run_step(engine, job, 0);
                    std::vector<std::size_t> units;
                    for (std::size_t number = 0; number < 16 / world; ++number) {
                        for (std::size_t unit = 0; unit < engine.layout().units(); ++unit) {
                            units.push_back(unit);
                        }
                        for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
                            units.push_back(unit);
                        }
                    }
                    auto const rank = static_cast<std::size_t>(communicator.rank());
                    return Moved{intra.recorded(), inter.recorded(), intra.transport->traffic(),
                                 inter.transport->traffic(),
                                 step_traffic_of_levels(engine.layout(), rank, inner, N,
                                                        ReductionSchedule::every_micro_step,
                                                        16 / world, units)};
                });
            constexpr auto scatters = CollectiveKind::reduce_scatter;
            constexpr auto gathers = CollectiveKind::all_gather;
            // gathers are of parameters, or of the sums of gradients
            std::size_t const gathered = N == 0 ? sizeof(float) : sizeof(bfloat16);
            std::uint64_t payload = 0;
            std::uint64_t read = 0;
            for (Moved const& rank : ranks) {
                Traffic const& inside = rank.formula.inside;
                Traffic const& between = rank.formula.between;
                CHECK(inside.reduce_scatter > 0);
                CHECK(rank.read_inside[scatters].elements == inside.reduce_scatter);
                CHECK(rank.read_inside[scatters].bytes == inside.reduce_scatter * sizeof(bfloat16));
                CHECK(rank.read_inside[gathers].bytes == inside.all_gather * gathered);
                CHECK(rank.read_between[scatters].elements == between.reduce_scatter);
                CHECK(rank.read_between[scatters].bytes == between.reduce_scatter * sizeof(float));
                CHECK(rank.read_between[gathers].bytes == between.all_gather * gathered);
                CHECK(rank.read_between[CollectiveKind::all_reduce].calls == 0);
                payload += rank.between[scatters].bytes;
                read += between.reduce_scatter * sizeof(float);
            }
            CHECK(payload * (outer - 1) == read * outer); // as `Recording` counts it
        }
    });
}

TEST_CASE("A tree on two levels allocates what is planned") {
    in_every_stage([]<int N>() {
        auto const differences = on_levels<Levels, LoopbackCommunicator>(
            2, 2, 768, [](Levels& communicator, auto&, auto&) {
                HostMemoryResource memory;
                typename Half<N>::Options options;
                options.memory = &memory;
                options.reduction.micro_batches = 16;
                Half<N> const engine(communicator, registration<bfloat16>(toy_specs()), options);
                auto const plan = engine.memory_plan();
                std::size_t differing = plan.engine_bytes() == memory.allocated_bytes() ? 0 : 1;
                for (std::size_t kind = 0; kind < buffer_kinds; ++kind) {
                    auto const& row = plan.rows[kind];
                    std::size_t const found = memory.allocated_bytes(static_cast<BufferKind>(kind));
                    differing += row.is_callers || row.bytes() == found ? 0 : 1;
                }
                // the buffer between the levels is the communicator's
                return differing
                       + (plan[BufferKind::communicator].bytes() == 768 + 2 * 512 ? 0 : 1);
            });
        CHECK(differences == std::vector<std::size_t>(4, 0));
    });
}

} // namespace zero::test::hierarchical_test
