#include "gradient_codes_model.hpp"
#include "support/catch.hpp"

#include <zero/comm/groups.hpp>
#include <zero/comm/model_parallel.hpp>
#include <zero/layout/balanced_partitioner.hpp>
#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/layout/whole_group_partitioner.hpp>
#include <zero/policy/dynamic_loss_scaler.hpp>
#include <zero/stage/describe.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

// Gradients in codes on two levels: sums are a straight-line function of what the ranks wrote and
// of (G, R), and replicas hold the same bits.

namespace zero::test::gradient_levels_test {

namespace {

using namespace gradient_codes;

using Hosts = Groups<LoopbackCommunicator, Hybrid>;

template <int N, class T, class G, class... Policies>
using Coded = ZeroStage<N, Parameters<T>, Wire<Plain, G>, Hosts, Policies...>;

constexpr ReductionSchedule schedules[] = {ReductionSchedule::boundary,
                                           ReductionSchedule::every_micro_step};

/// G and R.
using Grid = std::array<int, 2>;
constexpr Grid grids[] = {{2, 2}, {3, 2}, {2, 3}, {1, 3}, {3, 1}, {1, 1}};

/// Runs `body(hosts)` on all ranks and returns the results by rank.
template <class Result, class Body>
std::vector<Result> on_hosts(Grid grid, Body const& body) {
    return on_ranks<Result, Hosts>(grid[0] * grid[1], {.shard = static_cast<std::size_t>(grid[0])},
                                   body);
}

/// What a run leaves on a rank.
struct Left {
    bool is_right = true;             ///< the sums of all steps are the expected ones
    std::vector<Values> parameters{}; ///< after each step
};

/// Takes two steps. Collective. @param expected `expected(step)`: the sums of a step
template <class Engine, class Expected>
Left take_steps(Engine& engine, std::uint64_t rank, std::uint64_t micro_steps,
                Expected const& expected) {
    Left own;
    for (std::uint64_t step = 0; step < 2; ++step) {
        write_gradients(engine, rank, step, micro_steps);
        own.is_right = same_bits(full_sums(engine), expected(step)) && own.is_right;
        (void)engine.step(0.01).report();
        own.parameters.push_back(full_parameters(engine));
    }
    return own;
}

/// Checks two steps on every rank. @return the parameters
template <class Inside, class Between, class Stage>
std::vector<Values> check(Grid grid, ReductionSchedule schedule, std::uint64_t micro_steps,
                          typename Stage::Options const& given = {}) {
    using T = typename Stage::ParameterType;
    auto const all = on_hosts<Left>(grid, [&](Hosts& hosts) {
        auto options = given;
        options.reduction.schedule = schedule;
        auto parameters = registration<T>(toy_specs());
        auto const memory = provide_memory(parameters, options);
        Stage engine(hosts, parameters, options);
        return take_steps(engine, static_cast<std::uint64_t>(hosts.rank()), micro_steps,
                          [&](std::uint64_t step) {
                              return expected_sums<T, Inside, Between>(grid[0], grid[1], schedule,
                                                                       step, micro_steps);
                          });
    });
    for (Left const& own : all) {
        CHECK(own.is_right);
        CHECK(own.parameters == all[0].parameters); // replicas as well
    }
    return all[0].parameters;
}

template <class T, class Inside, class Between, class G = Level<Inside, Between>>
void check_bits() {
    for (Grid const grid : grids) {
        for (auto const schedule : schedules) {
            CAPTURE(grid[0], grid[1], name_of(schedule));
            auto const two = [&]<class Stage>(Stage const*,
                                              typename Stage::Options const& options) {
                return check<Inside, Between, Stage>(grid, schedule, 2, options);
            };
            auto const same = [&]<class Stage>(Stage const* stage,
                                               typename Stage::Options const& options) {
                CHECK(two(stage, options) == two(static_cast<Coded<2, T, G> const*>(nullptr), {}));
            };
            same(static_cast<Coded<1, T, G> const*>(nullptr), {});
            same(static_cast<Coded<3, T, G> const*>(nullptr), {});
            same(static_cast<Coded<2, T, G, RoundRobinPartitioner> const*>(nullptr), {});
            same(static_cast<Coded<1, T, G, WholeGroupPartitioner> const*>(nullptr), {});
            same(static_cast<Coded<3, T, G, BalancedPartitioner> const*>(nullptr),
                 {.poison = true, .reduction = {.wire_bytes = 0}});
            same(static_cast<Coded<2, T, G, SingleBucketer> const*>(nullptr),
                 {.reduction = {.wire_bytes = 300}});
            same(static_cast<Coded<1, T, G> const*>(nullptr), {.bucketer = {.bucket_bytes = 256}});
            same(static_cast<Coded<2, T, G> const*>(nullptr),
                 {.storage = Storage::scattered, .poison = true});
            check<Inside, Between, Coded<2, T, G>>(grid, schedule, 1,
                                                   {.reduction = {.one_micro_step = true}});
        }
    }
}

} // namespace

TEST_CASE("Gradients in codes between replicas have the same sums in every stage, with every "
          "partitioner, bucket size and storage, as what the ranks wrote says") {
    check_bits<bfloat16, Plain, Int8Blocks>();
}

TEST_CASE("Gradients in 4 bits inside groups and 8 bits between have the same sums likewise") {
    check_bits<float, Int4Blocks, Int8Blocks>();
}

TEST_CASE("One codec serves both levels, and sums may travel as they are between replicas") {
    for (Grid const grid : grids) {
        auto const every = ReductionSchedule::every_micro_step;
        CAPTURE(grid[0], grid[1]);
        check<Int8Blocks, Int8Blocks, Coded<3, bfloat16, Int8Blocks>>(grid, every, 2);
        check<Int4Blocks, Plain, Coded<2, bfloat16, Level<Int4Blocks, Plain>>>(grid, every, 2);
        CHECK((check<Int4Blocks, Int4Blocks, Coded<1, float, Int4Blocks>>(grid, every, 1))
              == (check<Int4Blocks, Int4Blocks, Coded<1, float, Level<Int4Blocks, Int4Blocks>>>(
                  grid, every, 1)));
    }
}

TEST_CASE("Other codecs between replicas have other sums") { // or the comparisons show nothing
    auto const every = ReductionSchedule::every_micro_step;
    auto const with = [&]<class G>(G const*) {
        return on_hosts<Left>(
                   {2, 2},
                   [&](Hosts& hosts) {
                       Coded<2, float, G> engine(hosts, registration<float>(toy_specs()));
                       return take_steps(engine, static_cast<std::uint64_t>(hosts.rank()), 1,
                                         [&](std::uint64_t step) {
                                             return expected_sums<float, Plain, Int8Blocks>(
                                                 2, 2, every, step, 1);
                                         });
                   })[0]
            .is_right;
    };
    CHECK(with(static_cast<Level<Plain, Int8Blocks> const*>(nullptr)));
    CHECK_FALSE(with(static_cast<Level<Plain, Int4Blocks> const*>(nullptr)));
    CHECK_FALSE(with(static_cast<Plain const*>(nullptr)));
    CHECK_FALSE(with(static_cast<Int8Blocks const*>(nullptr)));
}

TEST_CASE("One group has the bits of the flat run") {
    auto const every = ReductionSchedule::every_micro_step;
    auto const flat = [&]<class C>(C const*) {
        return on_ranks<std::vector<Values>>(3, [&](LoopbackCommunicator& all) {
            ZeroStage<2, Parameters<bfloat16>, Wire<Plain, C>> engine(
                all, registration<bfloat16>(toy_specs()));
            return take_steps(engine, static_cast<std::uint64_t>(all.rank()), 2,
                              [](std::uint64_t) { return Values(); })
                .parameters;
        })[0];
    };
    CHECK((check<Int8Blocks, Plain, Coded<3, bfloat16, Int8Blocks>>({3, 1}, every, 2))
          == flat(static_cast<Int8Blocks const*>(nullptr)));
    CHECK((check<Plain, Plain, Coded<1, bfloat16, Level<Plain, Int8Blocks>>>({3, 1}, every, 2))
          == flat(static_cast<Plain const*>(nullptr)));
}

TEST_CASE("A sum lies within the bounds of the ranks' blocks, of the replicas' and of the sum's") {
    // by reference, which the sums equal
    auto const every = ReductionSchedule::every_micro_step;
    auto const largest_of = [](std::vector<float> const& values, std::size_t i) {
        float largest = 0;
        for (std::size_t j = i / 64 * 64; j < std::min(i / 64 * 64 + 64, values.size()); ++j) {
            largest = std::max(largest, std::abs(values[j]));
        }
        return largest;
    };
    auto const sums = on_hosts<Values>({2, 3}, [&](Hosts& hosts) {
        Coded<2, float, Level<Int8Blocks, Int4Blocks>> engine(hosts,
                                                              registration<float>(toy_specs()));
        write_gradients(engine, static_cast<std::uint64_t>(hosts.rank()), 0, 1);
        auto all = full_sums(engine);
        (void)engine.step(0.01).report();
        return all;
    })[0];
    std::array<Values, 3> of_replicas;
    for (std::uint64_t replica = 0; replica < 3; ++replica) {
        of_replicas[replica] = expected_sums<float, Int8Blocks>(2, every, 0, 1, 2 * replica);
    }
    bool is_within = true;
    bool is_rounded = false;
    for (std::size_t p = 0; p < sums.size(); ++p) {
        std::vector<float> before(sums[p].size()); // the sum is encoded again
        for (std::uint64_t replica = 0; replica < 3; ++replica) {
            add(before, through<Int4Blocks>(of_replicas[replica][p]), false);
        }
        for (std::size_t i = 0; i < sums[p].size(); ++i) {
            double exact = 0;
            double bound = static_cast<double>(Int4Blocks::error_bound(largest_of(before, i)));
            for (std::uint64_t rank = 0; rank < 6; ++rank) {
                std::vector<float> gradient(sums[p].size());
                for (std::size_t j = 0; j < gradient.size(); ++j) {
                    gradient[j] = written(rank, p, j, 0, 0);
                }
                exact += static_cast<double>(gradient[i]);
                bound += static_cast<double>(Int8Blocks::error_bound(largest_of(gradient, i)));
                bound += rank % 2 != 0 ? 0
                                       : static_cast<double>(Int4Blocks::error_bound(
                                           largest_of(of_replicas[rank / 2][p], i)));
            }
            double const error = std::abs(static_cast<double>(sums[p][i]) - exact);
            is_within = is_within && error <= bound * (1 + 1e-6);
            is_rounded = is_rounded || error > bound * 0.4;
        }
    }
    CHECK(is_within);
    CHECK(is_rounded);
}

namespace {

template <int N, class G>
void check_non_finite(float value) {
    for (std::uint64_t const bad : {0U, 3U}) {
        auto const right = on_hosts<int>({2, 2}, [&](Hosts& hosts) {
            auto const rank = static_cast<std::uint64_t>(hosts.rank());
            Coded<N, bfloat16, G, DynamicLossScaler> engine(hosts,
                                                            registration<bfloat16>(toy_specs()));
            auto const before = full_parameters(engine);
            write_gradients(engine, rank, 0, 2, [&](std::size_t parameter, auto const& gradient) {
                if (rank == bad && parameter == 3) {
                    gradient[128] = from_float<bfloat16>(value);
                }
            });
            auto const report = engine.step(0.01).report();
            bool const is_named = report.first_non_finite == 300 + 500 + 7 + 128;
            bool const is_alone = report.non_finite_count == 1; // the block has one element
            return report.is_skipped && is_named && is_alone && full_parameters(engine) == before
                       ? 1
                       : 0;
        });
        CHECK(right == std::vector<int>(4, 1));
    }
}

} // namespace

TEST_CASE("An infinity on one rank of one group skips the step on all and its parameter is named") {
    float const infinity = std::numeric_limits<float>::infinity();
    check_non_finite<1, Level<Plain, Int8Blocks>>(infinity);
    check_non_finite<2, Int4Blocks>(-infinity);
    check_non_finite<3, Level<Int8Blocks, Plain>>(std::numeric_limits<float>::quiet_NaN());
}

TEST_CASE("Feedback keeps what each rank loses inside its group") {
    using Feedback = ErrorFeedback<float>;
    auto const of_group = [&](std::uint64_t first) { // a flat run of its ranks
        return on_ranks<std::vector<Values>>(2, [&](LoopbackCommunicator& all) {
            ZeroStage<2, Wire<Plain, Int4Blocks, Feedback>> engine(
                all, registration<float>(toy_specs()));
            std::vector<Values> sums;
            for (std::uint64_t step = 0; step < 3; ++step) {
                write_gradients(engine, first + static_cast<std::uint64_t>(all.rank()), step, 2);
                sums.push_back(full_sums(engine));
                (void)engine.step(0.01).report();
            }
            return sums;
        })[0];
    };
    auto const first = of_group(0);
    auto const second = of_group(2);
    auto const right = on_hosts<int>({2, 2}, [&](Hosts& hosts) {
        ZeroStage<3, Wire<Plain, Level<Int4Blocks, Int8Blocks>, Feedback>, Hosts> engine(
            hosts, registration<float>(toy_specs()));
        bool is_right = true;
        for (std::uint64_t step = 0; step < 3; ++step) {
            write_gradients(engine, static_cast<std::uint64_t>(hosts.rank()), step, 2);
            Values expected;
            for (std::size_t p = 0; p < first[step].size(); ++p) {
                auto sum = through<Int8Blocks>(first[step][p]);
                add(sum, through<Int8Blocks>(second[step][p]), false);
                expected.push_back(through<Int8Blocks>(sum));
            }
            is_right = same_bits(full_sums(engine), expected) && is_right;
            (void)engine.step(0.01).report();
        }
        return is_right ? 1 : 0;
    });
    CHECK(right == std::vector<int>(4, 1));
    CHECK_FALSE(same_bits(
        first[2], expected_sums<float, Int4Blocks>(2, ReductionSchedule::every_micro_step, 2, 2)));
}

TEST_CASE("The data ranks of each part of a model may be groups with codes between them") {
    using Ranks = Groups<Hosts, ModelParallel>;
    std::vector<int> right(8);
    run_ranks(8, test_time_out, [&](LoopbackCommunicator& everyone) {
        int const rank = everyone.rank();
        auto data = everyone.split(rank % 2, rank);
        auto model = everyone.split(rank / 2, rank);
        Hosts hosts(data, {.shard = 2});
        Ranks ranks(hosts, model);
        ZeroStage<2, Wire<Int8Blocks, Level<Plain, Int8Blocks>>, Parameters<bfloat16>, Ranks>
            engine(ranks, registration<bfloat16>(toy_specs()));
        right[static_cast<std::size_t>(rank)] =
            take_steps(
                engine, static_cast<std::uint64_t>(data.rank()), 2,
                [](std::uint64_t step) {
                    return expected_sums<bfloat16, Plain, Int8Blocks>(
                        2, 2, ReductionSchedule::every_micro_step, step, 2);
                }).is_right
                ? 1
                : 0;
    });
    CHECK(right == std::vector<int>(8, 1));
}

TEST_CASE("Ranks with other codecs between replicas are told") {
    std::vector<std::string> messages(4);
    run_ranks<Hosts>(4, test_time_out, {.shard = 2}, [&](Hosts& hosts) {
        std::string& message = messages[static_cast<std::size_t>(hosts.rank())];
        auto const parameters = registration<float>(toy_specs());
        try {
            if (hosts.rank() == 3) {
                Coded<2, float, Level<Plain, Int4Blocks>> engine(hosts, parameters);
            } else {
                Coded<2, float, Level<Plain, Int8Blocks>> engine(hosts, parameters);
            }
        } catch (LayoutMismatch const& error) {
            message = error.what();
        }
    });
    CHECK(messages[0].find("wire") != std::string::npos);
    CHECK(messages == std::vector<std::string>(4, messages[0]));
}

TEST_CASE("The description of a stage names the codecs of both levels") {
    using Both = Coded<2, float, Level<Int4Blocks, Int8Blocks>>;
    CHECK_THAT(describe<Both>(),
               contains_text(", gradients sent as Int4Blocks, sums of replicas sent as "
                             "Int8Blocks"));
    using Between = Coded<2, float, Level<Plain, Int8Blocks>>;
    CHECK_THAT(describe<Between>(), contains_text("sent as float32, accumulated"));
    CHECK_THAT(describe<Between>(), contains_text(", sums of replicas sent as Int8Blocks"));
    CHECK((describe<Coded<2, float, Plain>>().find("sums of replicas")) == std::string::npos);
}

} // namespace zero::test::gradient_levels_test
