// TreeReduction: the same bits on every admissible number of ranks.

#include "support/catch.hpp"
#include "support/outcome.hpp"
#include "support/tree_root.hpp"

#include "tree_model.hpp"

#include <zero/stage/describe.hpp>
#include <zero/zero.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace zero::test::tree_reduction_test {

namespace {

using namespace zero::test::tree; // NOLINT(google-build-using-namespace): one test's model

/// Orders of addition: the tree, and six that differ from it.
enum class Order : std::uint8_t { tree, swapped, ranks, halves, oldest_first, rounded };

/// Adds halves, or rounds sums of pairs.
float other_node(std::vector<float> const& leaves, std::size_t begin, std::size_t end,
                 Order order) {
    if (end - begin == 1) {
        return leaves[begin];
    }
    std::size_t const middle =
        begin + (order == Order::halves ? (end - begin) / 2 : std::bit_ceil((end - begin + 1) / 2));
    float const sum =
        other_node(leaves, begin, middle, order) + other_node(leaves, middle, end, order);
    return order == Order::rounded && end - begin == 2 ? to_float(from_float<bfloat16>(sum)) : sum;
}

/// Adds the complete nodes of a number of leaves from the left to the right.
float oldest_first(std::vector<float> const& leaves) {
    float sum = 0.0F;
    for (std::size_t begin = 0, size = std::bit_floor(leaves.size()); begin < leaves.size();
         size /= 2) {
        if (leaves.size() - begin >= size) {
            sum += tree_node(leaves, begin, begin + size);
            begin += size;
        }
    }
    return sum;
}

float root(std::vector<float> leaves, std::size_t group, Order order) {
    if (order == Order::swapped) {
        std::swap(leaves[1], leaves[2]);
    }
    if (order == Order::ranks) {
        float sum = 0.0F;
        for (float const leaf : leaves) {
            sum += leaf;
        }
        return sum;
    }
    switch (order) {
    case Order::oldest_first: return oldest_first(leaves);
    case Order::halves:
    case Order::rounded: return other_node(leaves, 0, leaves.size(), order);
    default: return tree_root(leaves, group);
    }
}

/// Trains one rank with the sums of a tree that is added straight-line, and without a loss scale.
/// @tparam G the gradients of the micro-batches
template <class Stage, class G>
std::vector<Seen> reference(typename Stage::Options const& options, Job const& job,
                            Order order = Order::tree) {
    using P = typename Stage::ParameterType;
    return joined(on_ranks<std::vector<Seen>>(1, [&](LoopbackCommunicator& communicator) {
        auto const parameters = registration<P, float>(job.specs);
        Stage engine(communicator, parameters, options);
        std::vector<Seen> result;
        for (std::uint64_t step = 0; step < job.steps; ++step) {
            engine.begin_step();
            engine.begin_micro_step(MicroStep::last);
            for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
                auto const gradients = engine.gradients(unit);
                for (std::size_t const parameter : engine.layout().unit_parameters(unit)) {
                    auto const to = gradients[parameter];
                    auto const& spec = job.specs[parameter];
                    for (std::size_t i = 0; i < to.size() && unit == spec.units.front(); ++i) {
                        std::vector<float> leaves;
                        for (std::size_t number = 0; number < job.micro_batches; ++number) {
                            G sum{};
                            for (std::size_t user = engine.layout().units(); user-- > 0;) {
                                bool const is_user =
                                    std::find(spec.units.begin(), spec.units.end(), user)
                                    != spec.units.end();
                                if (is_user && is_used(job, step, number, user)) {
                                    float const own = gradient_of(job, step, number, parameter, i);
                                    sum =
                                        from_float<G>(to_float(sum) + to_float(from_float<G>(own)));
                                }
                            }
                            leaves.push_back(to_float(sum));
                        }
                        to[i] = root(leaves, job.group, order);
                    }
                }
                engine.gradients_ready(unit);
            }
            engine.end_micro_step();
            result.push_back(seen(engine, engine.step(0.01).report(), job));
        }
        return result;
    }));
}

std::vector<std::size_t> admissible(Job const& job) {
    std::vector<std::size_t> worlds;
    for (std::size_t world = 1; world <= job.micro_batches; ++world) {
        if (ops::MicroBatchTree{job.micro_batches, job.group, world}.is_admissible()) {
            worlds.push_back(world);
        }
    }
    return worlds;
}

/// A stage in a tree, and one that is given the tree's sums.
template <class T, class S>
struct Compared {
    using Tree = T;
    using Straight = S;
};

/// The options that are compared with those of one rank.
struct Choice {
    ReductionKind kind = ReductionKind::mean;
    std::optional<float> clipping = {};
};

/// Compares one stage, drawn for each number of ranks, with the run of one rank.
template <template <int> class Stage>
void compare_worlds(Job job, Choice const& choice, std::mt19937_64& random, char const* name) {
    job.has_empty_batches = choice.kind == ReductionKind::weighted_mean;
    job.specs = random() % 4 == 0 ? toy_specs() : random_model(random);
    job.leaves_out = random() % 2 == 0;
    if (SkipsOverflow<Stage<2>>) {
        job.overflows = job.leaves_out ? 0 : random() % 2; // unit 1 has no gradient in step 1
    }
    auto const unused = random() % 2 == 0 ? UnusedParameters::leave : UnusedParameters::zero;
    auto const options_of = [&]<int N>() {
        typename Stage<N>::Options options;
        options.reduction.kind = choice.kind;
        options.gradient_clipping = choice.clipping;
        options.unused_parameters = unused;
        return options;
    };
    auto const expected = train<Stage<2>>(1, options_of.template operator()<2>(), job);
    CHECK(expected.back().steps == job.steps - (job.overflows ? 1 : 0));
    for (std::size_t const world : admissible(job)) {
        auto const stage = static_cast<int>(random() % 4);
        // memory of the caller delivers a gradient of zeros, which is one
        bool const leaves = unused == UnusedParameters::leave && job.leaves_out;
        auto const delivery = static_cast<Delivery>(random() % (leaves ? 2 : 3));
        job.storage = stage == 3 ? Storage::owned : static_cast<Storage>(random() % 3);
        INFO(name << ", V = " << job.micro_batches << ", b = " << job.group << ", W = " << world
                  << ", stage " << stage << ", delivery " << static_cast<int>(delivery) << ", "
                  << job.specs.size() << " parameters, storage " << static_cast<int>(job.storage)
                  << ", unused " << static_cast<int>(unused));
        job.delays = random() % 2 == 0 ? std::optional(random()) : std::nullopt;
        with_stage(stage, [&]<int N>() {
            auto options = options_of.template operator()<N>();
            if (job.storage == Storage::adopted && !cuts_contiguously<Stage<N>>) {
                job.storage = Storage::scattered;
            }
            options.poison = random() % 2 == 0;
            options.reduction.wire_bytes = 300 + random() % 3000;
            if constexpr (requires { options.bucketer.bucket_bytes; }) {
                options.bucketer.bucket_bytes = 400 + random() % 4000;
            }
            auto const found = train<Stage<N>>(static_cast<int>(world), options, job, delivery);
            for (std::size_t step = 0; step < found.size(); ++step) {
                INFO("step " << step);
                CHECK((found[step] == expected[step]));
            }
        });
    }
}

template <int N>
using Float = ZeroStage<N, TreeReduction<>>;
template <int N>
using Half = ZeroStage<N, Parameters<bfloat16>, TreeReduction<>>;
template <int N>
using HalfSums = ZeroStage<N, Parameters<bfloat16>, TreeReduction<bfloat16, float, bfloat16>, Lion,
                           Cutter<N>, Buckets<N>>;
template <int N>
using Scaled = ZeroStage<N, Parameters<float16>, TreeReduction<>, DynamicLossScaler, Sgd,
                         std::conditional_t<N == 3, UnitBucketer, SingleBucketer>>;
template <int N>
using Static =
    ZeroStage<N, Parameters<float16>, TreeReduction<>, StaticLossScaler, Adagrad, OtherCutter<N>>;
template <int N>
using Adaptive = ZeroStage<N, TreeReduction<>, DynamicLossScaler, Adam, Cutter<3 - N>>;
template <int N>
using Whole = ZeroStage<N, TreeReduction<>, Lamb, BalancedPartitioner, ParameterBucketer>;
template <int N>
using Blocks = ZeroStage<N, Parameters<bfloat16>, TreeReduction<>, SplitMasterWeights,
                         BlockScaledState<float16>, RoundRobinPartitioner>;

constexpr std::size_t counts[] = {1, 2, 4, 6, 7, 8, 11, 12, 14, 16, 24};

} // namespace

TEST_CASE("Every admissible number of ranks trains to the same bits, in every stage") {
    std::mt19937_64 random(36);
    std::size_t compared = 0;
    for (std::size_t const count : counts) {
        for (std::size_t const group : {1U, 3U}) {
            if (count % group != 0) {
                continue;
            }
            Job const job{.micro_batches = count, .group = group};
            compare_worlds<Float>(job, {}, random, "float");
            compare_worlds<Half>(job, {ReductionKind::weighted_mean, 0.5F}, random,
                                 "bfloat16, weighted");
            compare_worlds<HalfSums>(job, {}, random, "bfloat16 sums");
            compare_worlds<Scaled>(job, {}, random, "float16, scaled");
            compare_worlds<Static>(job, {ReductionKind::sum, 2.0F}, random,
                                   "float16, static scale");
            compare_worlds<Adaptive>(job, {}, random, "float, scaled");
            compare_worlds<Whole>(job, {}, random, "whole tensors");
            compare_worlds<Blocks>(job, {}, random, "scaled states");
            ++compared;
        }
    }
    CHECK(compared == 14);
}

TEST_CASE("The sum of a step is the tree as it is defined, rounded once") {
    for (std::size_t const count : counts) {
        for (std::size_t const group : {1U, 3U}) {
            if (count % group != 0) {
                continue;
            }
            INFO("V = " << count << ", b = " << group);
            Job const job{.micro_batches = count, .group = group, .steps = 2};
            Half<2>::Options options;
            options.reduction.kind = ReductionKind::sum;
            using Straight = ZeroStage<2, Parameters<bfloat16>, GradientReduction<float>>;
            HalfSums<2>::Options sums;
            sums.reduction.kind = ReductionKind::sum;
            Straight::Options straight;
            straight.reduction.kind = ReductionKind::sum;
            CHECK(
                (train<Half<2>>(1, options, job) == reference<Straight, bfloat16>(straight, job)));
            using Rounded =
                ZeroStage<2, Parameters<bfloat16>, GradientReduction<float, float, bfloat16>, Lion>;
            Rounded::Options rounded;
            rounded.reduction.kind = ReductionKind::sum;
            CHECK((train<HalfSums<2>>(1, sums, job) == reference<Rounded, bfloat16>(rounded, job)));
        }
    }
}

TEST_CASE("Each other order of addition has other bits") {
    auto const compare = [](auto const& stages) {
        using Stages = std::remove_cvref_t<decltype(stages)>;
        using Tree = typename Stages::Tree;
        using Straight = typename Stages::Straight;
        using G = typename Tree::GradientType;
        typename Straight::Options straight;
        straight.reduction.kind = ReductionKind::sum;
        for (std::size_t const count : {7U, 11U, 14U}) {
            INFO("V = " << count << ", gradients of " << sizeof(G) << " bytes");
            Job const job{.micro_batches = count, .steps = 1};
            typename Tree::Options options;
            options.reduction.kind = ReductionKind::sum;
            auto const found = train<Tree>(1, options, job);
            CHECK((reference<Straight, G>(straight, job) == found));
            for (Order const order : {Order::swapped, Order::ranks, Order::halves,
                                      Order::oldest_first, Order::rounded}) {
                INFO("order " << static_cast<int>(order));
                auto const other = reference<Straight, G>(straight, job, order);
                CHECK_FALSE((other.back().trained.states == found.back().trained.states));
                CHECK(other.back().norm != found.back().norm);
            }
        }
    };
    compare(Compared<Float<2>, ZeroStage<2, GradientReduction<>>>());
    compare(Compared<Half<2>, ZeroStage<2, Parameters<bfloat16>, GradientReduction<float>>>());
    // and so has rank order on other numbers of ranks
    auto const in_rank_order = [](int world) {
        return trained<ZeroStage<2>>(world, {}, {.steps = 1});
    };
    CHECK_FALSE((in_rank_order(1) == in_rank_order(2)));
}

TEST_CASE("Options that a tree cannot have are refused with the numbers") {
    auto const outcome_with = [](int world, GradientReductionOptions const& reduction) {
        return run_and_observe(world, [&](LoopbackCommunicator& communicator) {
            Float<2>::Options options;
            options.reduction = reduction;
            Float<2> const engine(communicator, registration<float>(toy_specs()), options);
        });
    };
    auto const message = [&](int world, GradientReductionOptions const& reduction) {
        auto const outcome = outcome_with(world, reduction);
        for (auto const& rank : outcome.ranks) { // they differ in the number of the rank
            CHECK(rank.type == outcome.ranks[0].type);
            CHECK(rank.message.size() == outcome.ranks[0].message.size());
        }
        return outcome.ranks[0].message;
    };
    CHECK(message(2, {}).find("reduction.micro_batches is 0") != std::string::npos);
    CHECK(message(3, {.micro_batches = 12})
          == "zero: 3 ranks cannot add the tree of 12 micro-batches in groups of 1; possible "
             "numbers of ranks are 1, 2, 4. Use one of these, or change reduction.micro_batches or "
             "reduction.micro_batch_group, which changes bits.");
    CHECK(message(4, {.micro_batches = 24, .micro_batch_group = 6})
              .find("possible numbers of ranks are 1, 2, 6, 12, 24.")
          != std::string::npos);
    // found at once, whatever the number is
    CHECK(message(3, {.micro_batches = std::size_t{3} << 60U, .micro_batch_group = 24})
              .find("possible numbers of ranks are 1, 2, 4, 8, 24, 48, 96,")
          != std::string::npos);
    CHECK(message(3, {.micro_batches = 12, .micro_batch_group = 3}).empty());
    CHECK(message(2, {.micro_batches = 8, .micro_batch_group = 3})
              .find("does not divide the 8 micro-batches")
          != std::string::npos);
    CHECK(message(1, {.micro_batches = 8, .micro_batch_group = 0}).find("is 0, which")
          != std::string::npos);
    CHECK(message(2, {.schedule = ReductionSchedule::boundary, .micro_batches = 8})
              .find("reduction.schedule is boundary")
          != std::string::npos);
    CHECK(message(2, {.predivide = 2.0F, .micro_batches = 8}).find("predivide is 2")
          != std::string::npos);
    CHECK(message(2, {.predivide = 1.0F, .micro_batches = 8}).empty());
    CHECK(message(2, {.kind = ReductionKind::mean_over_ranks, .micro_batches = 8})
              .find("mean_over_ranks")
          != std::string::npos);
    CHECK(message(2, {.micro_batches = 8, .one_micro_step = true})
              .find("8 micro-batches are 4 micro-steps on 2 ranks")
          != std::string::npos);
    auto const in_rank_order = run_and_observe(1, [](LoopbackCommunicator& communicator) {
        ZeroStage<2> const engine(communicator, registration<float>(toy_specs()),
                                  {.reduction = {.micro_batches = 8}});
    });
    CHECK(in_rank_order.ranks[0].message.find("are for TreeReduction") != std::string::npos);
}

TEST_CASE("Scaled blocks of states that would depend on the ranks are refused") {
    auto const outcome = run_and_observe(1, [](LoopbackCommunicator& communicator) {
        using Stage = ZeroStage<2, TreeReduction<>, BlockScaledState<float16>>;
        std::vector<float> block(200);
        std::vector<Stage::Registration> parameters(2);
        for (std::size_t index = 0; index < 2; ++index) {
            parameters[index].name = index == 0 ? "a" : "b";
            parameters[index].elements = 100;
            parameters[index].units = {index};
            parameters[index].data = block.data() + 100 * index;
        }
        Stage const engine(communicator, parameters,
                           {.storage = Storage::adopted,
                            .adopted_block = block,
                            .reduction = {.micro_batches = 4}});
    });
    CHECK(outcome.ranks[0].message.find("parameter 'b' begins at element 100")
          != std::string::npos);
}

TEST_CASE("A tree allocates what is planned, and its plan counts the sums that are held") {
    in_every_stage([]<int N>() {
        for (int const world : {1, 2, 4}) {
            auto const plans = [&]<class Stage>(std::size_t micro_batches, std::size_t group = 1) {
                return on_ranks<MemoryPlan>(world, [&](LoopbackCommunicator& communicator) {
                    HostMemoryResource memory;
                    typename Stage::Options options;
                    options.memory = &memory;
                    options.reduction.micro_batches = micro_batches;
                    options.reduction.micro_batch_group = group;
                    options.reduction.schedule = ReductionSchedule::every_micro_step;
                    Stage const engine(communicator,
                                       registration<typename Stage::ParameterType>(toy_specs()),
                                       options);
                    if (engine.micro_batches() != micro_batches) {
                        throw std::logic_error("the engine tells another V");
                    }
                    auto const plan = engine.memory_plan();
                    for (std::size_t kind = 0; kind < buffer_kinds; ++kind) {
                        auto const row = plan.rows[kind];
                        if (!row.is_callers
                            && memory.allocated_bytes(static_cast<BufferKind>(kind))
                                   != row.bytes()) {
                            throw std::logic_error("the plan differs from the allocations");
                        }
                    }
                    return plan;
                });
            };
            auto const bytes = [&](auto const& of_ranks, BufferKind kind) {
                std::size_t all = 0;
                for (MemoryPlan const& plan : of_ranks) {
                    all += plan[kind].content_bytes;
                }
                return all;
            };
            std::size_t const elements = 1001; // trainable ones of the toy model
            auto const flat =
                bytes(plans.template operator()<ZeroStage<N, Parameters<bfloat16>>>(0),
                      BufferKind::gradients);
            auto const of = [&](std::size_t micro_batches) {
                auto const found = plans.template operator()<Half<N>>(micro_batches);
                CHECK(bytes(found, BufferKind::gradients) == flat);
                return bytes(found, BufferKind::held_sums);
            };
            auto const steps = static_cast<std::size_t>(world);
            CHECK(of(steps) == 0);
            CHECK(of(2 * steps) == 0); // the sum of the first is in the accumulation buffer
            CHECK(of(4 * steps) == elements * 4);
            CHECK(of(8 * steps) == 2 * elements * 4);
            auto const rounded = plans.template operator()<HalfSums<N>>(8 * steps);
            CHECK(bytes(rounded, BufferKind::gradients) == flat / 2);
            CHECK(bytes(rounded, BufferKind::held_sums) == 3 * elements * 4);
            // a group of 4 takes 4 / W micro-steps, and there are 7
            auto const grouped = plans.template operator()<Half<N>>(28, 4);
            CHECK(bytes(grouped, BufferKind::gradients) == flat);
            // 2 groups, and of a group 2 numbers, 1 or none, without the one in the buffer
            std::size_t const held = world == 1 ? 3 : world == 2 ? 2 : 1;
            CHECK(bytes(grouped, BufferKind::held_sums) == held * elements * 4);
        }
    });
}

} // namespace zero::test::tree_reduction_test
