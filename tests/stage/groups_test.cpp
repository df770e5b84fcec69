#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/toy_model.hpp"

#include <zero/comm/detail/decorator.hpp>
#include <zero/comm/groups.hpp>
#include <zero/layout/balanced_partitioner.hpp>
#include <zero/ops/sgd.hpp>
#include <zero/stage/describe.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

// Hybrid sharding: what must equal a run without groups. The oracle compares the bits of all
// else.

namespace zero::test::groups_test {

namespace {

using Hosts = Groups<LoopbackCommunicator, Hybrid>;
static_assert(GroupedCommunicator<Hosts>);
static_assert(!GroupedCommunicator<LoopbackCommunicator>);

using Values = std::vector<std::vector<float>>;

/// A plain communicator of a shard group whose reduce-scatter also adds between replicas.
class ByHand : public zero::detail::CommunicatorDecorator<ByHand, LoopbackCommunicator> {
    using Base = zero::detail::CommunicatorDecorator<ByHand, LoopbackCommunicator>;
    friend Base;

public:
    ByHand(LoopbackCommunicator& shard, LoopbackCommunicator& replicas)
        : Base(shard), _replicas(&replicas) {}

    template <class T>
    void reduce_scatter(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                        CollectiveTag tag = {}) {
        this->inner().reduce_scatter(send, receive, cuts, queue, tag);
        auto const own = static_cast<std::size_t>(rank());
        std::size_t const all[] = {0, cuts[own + 1] - cuts[own], cuts[own + 1] - cuts[own]};
        tag.engine = 0; // the groups number their engines apart
        _replicas->all_reduce(static_cast<T const*>(receive), receive, all, queue, tag);
    }

private:
    template <class T, class Forward>
    void around(zero::detail::DecoratedCall const& /*call*/, Queue /*queue*/,
                Forward const& forward) {
        forward();
    }

    LoopbackCommunicator* _replicas;
};
static_assert(Communicator<ByHand> && !GroupedCommunicator<ByHand>);

struct Seen {
    Values parameters;
    std::vector<double> norms; ///< reported, of each step
    std::vector<double> of_parameters{}, of_groups{}, largest{};
    std::vector<double> reported_groups{};
    std::int64_t zeros = 0;
    std::size_t skipped = 0;

    friend bool operator==(Seen const&, Seen const&) = default;
};

/// A micro-batch of a rank: gradients are whole numbers, so that every order of addition gives the
/// same sum, and differ between ranks.
template <class Engine>
void run_whole_numbers(Engine& engine, std::size_t micro_batch, std::uint64_t step, float scale) {
    for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
        auto const weights = engine.acquire(unit);
        auto const gradients = engine.gradients(unit);
        for (std::size_t const parameter : engine.layout().unit_parameters(unit)) {
            auto const gradient = gradients[parameter];
            for (std::size_t i = 0; i < gradient.size(); ++i) {
                float const number =
                    std::floor(8.0F * noise(7 + micro_batch, parameter, i, step * 8 + unit));
                gradient[i] = gradient[i] + scale * number;
            }
        }
        engine.gradients_ready(unit);
    }
}

/// Four steps with whole-numbered gradients. @param combine the reduction, 0 to 3
template <class Stage>
Seen train_whole_numbers(auto& communicator, ReductionKind kind) {
    Stage engine(communicator, registration<float>(toy_specs()),
                 {.gradient_clipping = 3.0F,
                  .report = {.zero_gradients = true, .group_norms = true},
                  .groups = {{.learning_rate_factor = 1.0}, {.is_clipped = false}},
                  .reduction = {.kind = kind}});
    Seen seen;
    for (std::uint64_t step = 0; step < 4; ++step) {
        engine.begin_step();
        for (auto const micro_step : engine.micro_steps(2)) {
            run_whole_numbers(engine, engine.micro_batch(micro_step), step, 1.0F);
        }
        if (step == 2) {
            seen.of_parameters = engine.gradient_norms(NormKind::l2, NormScope::parameters);
            seen.of_groups = engine.gradient_norms(NormKind::l2, NormScope::groups);
            seen.largest = engine.gradient_norms(NormKind::infinity, NormScope::parameters);
        }
        auto const weight = static_cast<std::int64_t>(3 + communicator.rank());
        auto const report = kind == ReductionKind::weighted_mean
                                ? engine.step(0.125, weight).report()
                                : engine.step(0.125).report();
        seen.norms.push_back(report.gradient_norm);
        seen.reported_groups = report.group_norms;
        seen.zeros = report.zero_gradients;
        seen.skipped += report.is_skipped ? 1 : 0;
    }
    seen.parameters = full_parameters(engine);
    return seen;
}

template <class Stage>
std::vector<Seen> in_groups(int world, std::size_t shard, ReductionKind kind) {
    std::vector<Seen> seen(static_cast<std::size_t>(world));
    run_ranks<Hosts>(world, test_time_out, {.shard = shard}, [&](Hosts& hosts) {
        seen[static_cast<std::size_t>(hosts.rank())] = train_whole_numbers<Stage>(hosts, kind);
    });
    return seen;
}

template <class Stage>
Seen flat(int world, ReductionKind kind) {
    return on_ranks<Seen>(world, [&](LoopbackCommunicator& communicator) {
        return train_whole_numbers<Stage>(communicator, kind);
    })[0];
}

/// Training with gradients whose sums depend on the order.
template <class Stage>
Values train_noise(auto& communicator, ReductionSchedule schedule, std::size_t micro_steps) {
    Stage engine(communicator, registration<float>(toy_specs()),
                 {.gradient_clipping = 1.0F, .reduction = {.schedule = schedule}});
    for (std::uint64_t step = 0; step < 4; ++step) {
        (void)run_step(engine, static_cast<std::uint64_t>(communicator.rank()), step, micro_steps,
                       0.01, 24);
    }
    return full_parameters(engine);
}

template <class Stage>
Values noise_in_groups(int world, std::size_t shard, ReductionSchedule schedule,
                       std::size_t micro_steps) {
    Values values;
    run_ranks<Hosts>(world, test_time_out, {.shard = shard}, [&](Hosts& hosts) {
        auto const own = train_noise<Stage>(hosts, schedule, micro_steps);
        if (hosts.rank() == hosts.size() - 1) {
            values = own;
        }
    });
    return values;
}

template <class Stage>
Values noise_flat(int world, ReductionSchedule schedule, std::size_t micro_steps) {
    return on_ranks<Values>(world, [&](LoopbackCommunicator& communicator) {
        return train_noise<Stage>(communicator, schedule, micro_steps);
    })[0];
}

} // namespace

TEST_CASE("Whole-numbered gradients train to the bits of the flat run in groups of every size, "
          "with norms of every kind, weighted means and reports") {
    for (auto const kind : {ReductionKind::mean, ReductionKind::mean_over_ranks, ReductionKind::sum,
                            ReductionKind::weighted_mean}) {
        Seen const one = flat<ZeroStage<0, Sgd>>(4, kind);
        CHECK(one.norms[0] > 0.0);
        CHECK(one.zeros > 0);
        for (std::size_t const shard : {1U, 2U, 4U}) {
            CAPTURE(static_cast<int>(kind), shard);
            for (auto const& seen : {in_groups<ZeroStage<1, Sgd, Hosts>>(4, shard, kind),
                                     in_groups<ZeroStage<2, Sgd, Hosts>>(4, shard, kind),
                                     in_groups<ZeroStage<3, Sgd, Hosts>>(4, shard, kind)}) {
                for (Seen const& rank : seen) {
                    CHECK((rank == one)); // too long to print
                }
            }
        }
    }
}

TEST_CASE("The control: a communicator that adds in two levels by hand and calls itself as large "
          "as a group gets norms and steps that are twice as large") {
    std::vector<double> norms;
    run_ranks(4, test_time_out, [&](LoopbackCommunicator& everyone) {
        auto shard = everyone.split(everyone.rank() / 2, everyone.rank());
        auto replicas = everyone.split(everyone.rank() % 2, everyone.rank());
        ByHand communicator(shard, replicas);
        // the data of the four ranks, and not of `micro_batch`, which has the same mistake
        ZeroStage<3, Sgd, ByHand> engine(communicator, registration<float>(toy_specs()));
        ZeroStage<3, Sgd> right(everyone, registration<float>(toy_specs()));
        for (std::uint64_t step = 0; step < 2; ++step) {
            auto const train = [&](auto& one) {
                one.begin_step();
                for (auto const micro_step : one.micro_steps(1)) {
                    (void)micro_step;
                    run_whole_numbers(one, static_cast<std::size_t>(everyone.rank()), step, 1.0F);
                }
                return one.step(0.125).report().gradient_norm;
            };
            double const wrong = train(engine);
            double const norm = train(right);
            if (everyone.rank() == 3) {
                norms.push_back(wrong / norm);
            }
        }
    });
    CHECK(norms == std::vector<double>{2.0, 2.0});
}

TEST_CASE("One group gives the bits of the flat run, and groups of one rank those of stage 0") {
    auto const boundary = ReductionSchedule::boundary;
    auto const always = ReductionSchedule::every_micro_step;
    for (int const world : {2, 3, 5}) {
        CAPTURE(world);
        auto const all = static_cast<std::size_t>(world);
        CHECK(noise_in_groups<ZeroStage<1, Hosts>>(world, all, always, 3)
              == noise_flat<ZeroStage<1>>(world, always, 3));
        CHECK(noise_in_groups<ZeroStage<2, Hosts>>(world, all, always, 3)
              == noise_flat<ZeroStage<2>>(world, always, 3));
        CHECK(noise_in_groups<ZeroStage<3, Hosts>>(world, all, always, 3)
              == noise_flat<ZeroStage<3>>(world, always, 3));
        Values const zero = noise_flat<ZeroStage<0>>(world, boundary, 3);
        CHECK(noise_in_groups<ZeroStage<1, Hosts>>(world, 1, boundary, 3) == zero);
        CHECK(noise_in_groups<ZeroStage<2, Hosts>>(world, 1, boundary, 3) == zero);
        CHECK(noise_in_groups<ZeroStage<3, Hosts>>(world, 1, boundary, 3) == zero);
        CHECK(noise_in_groups<ZeroStage<3, Hosts>>(world, 1, always, 1)
              == noise_flat<ZeroStage<0>>(world, always, 1));
    }
    // two levels add in another order
    CHECK(noise_in_groups<ZeroStage<2, Hosts>>(4, 2, always, 3)
          != noise_flat<ZeroStage<2>>(4, always, 3));
    CHECK(noise_in_groups<ZeroStage<2, BalancedPartitioner, Hosts>>(4, 2, always, 3)
          == noise_in_groups<ZeroStage<3, Hosts>>(4, 2, always, 3));
}

TEST_CASE("Float16 gradients are divided before they are sent for the number of all ranks, so that "
          "sums between groups do not overflow") {
    for (std::size_t const shard : {1U, 2U, 4U, 8U}) {
        std::vector<double> norms(8);
        run_ranks<Hosts>(8, test_time_out, {.shard = shard}, [&](Hosts& hosts) {
            ZeroStage<2, Parameters<float16>, Hosts> engine(
                hosts, registration<float16>({{"weight", 100, {0}, 0, true}}),
                {.report = {.group_norms = true}});
            engine.begin_step();
            for (auto const micro_step : engine.micro_steps(1)) {
                (void)micro_step;
                auto const gradients = engine.gradients(0);
                for (auto& value : gradients[0]) {
                    value = from_float<float16>(
                        12288.0F); // the sum of 8 is infinite in float16; loss scale 65536
                }
                engine.gradients_ready(0);
            }
            norms[static_cast<std::size_t>(hosts.rank())] =
                engine.step(0.01).report().gradient_norm;
        });
        CHECK(norms == std::vector<double>(8, 122880.0 / 65536.0));
    }
}

TEST_CASE(
    "The first micro-batches of all ranks have different numbers in groups, and a description "
    "names the sizes of the groups") {
    std::vector<std::size_t> numbers(6);
    std::string described;
    run_ranks<Hosts>(6, test_time_out, {.shard = 3}, [&](Hosts& hosts) {
        ZeroStage<2, Hosts> const engine(hosts, registration<float>(toy_specs()));
        numbers[static_cast<std::size_t>(hosts.rank())] =
            engine.micro_batch(1) + engine.micro_batches();
        if (hosts.rank() == 0) {
            described = describe(engine);
        }
    });
    CHECK(numbers == std::vector<std::size_t>{6, 7, 8, 9, 10, 11}); // and 0 micro-batches
    CHECK_THAT(described, contains_text(", sharded over 3 ranks of each of 2 replicas"));
}

} // namespace zero::test::groups_test
