#include "norm_model.hpp"
#include "support/caller_memory.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/snapshot.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/layout/size_capped_bucketer.hpp>
#include <zero/policy/static_loss_scaler.hpp>
#include <zero/stage/zero_stage.hpp>

// Norms have the same bits for every partition of the model, and computing them changes nothing.

namespace zero::test::gradient_norms_bits_test {

namespace {

using Bits = std::vector<std::uint64_t>;

/// Returns gradients that span 40 binary orders of magnitude.
Values wide_values() {
    return make_values(toy_specs(), [](std::size_t parameter, std::size_t i) {
        return std::ldexp(noise(7, parameter, i), static_cast<int>(20.0F * noise(8, parameter, i)));
    });
}

/// Returns all norms when rank 0 has these gradients and the others have none, so that the sum is
/// the same for every W.
template <int N, class... Policies>
Bits norms_of(int world, Values const& values,
              typename ZeroStage<N, Policies...>::Options options = {}) {
    options.reduction.kind = ReductionKind::sum;
    auto const ranks = on_ranks<Bits>(world, [&](LoopbackCommunicator& communicator) {
        auto parameters = registration<float>(toy_specs());
        std::optional<CallerMemory<float, float>> memory;
        auto own = options;
        if (own.storage != Storage::owned) {
            memory.emplace(parameters); // parameters begin anywhere
        }
        if (own.storage == Storage::adopted) {
            own.adopted_block = memory->block;
        }
        ZeroStage<N, Policies...> engine(communicator, parameters, own);
        engine.begin_step();
        for (auto const micro_step : engine.micro_steps(1)) {
            add_values(engine, communicator.rank() == 0
                                   ? values
                                   : make_values(toy_specs(),
                                                 [](std::size_t, std::size_t) { return 0.0F; }));
        }
        return bits_of(all_norms(engine));
    });
    for (Bits const& rank : ranks) {
        CHECK(rank == ranks[0]);
    }
    return ranks[0];
}

} // namespace

TEST_CASE(
    "Norms have the same bits in every stage, for every partitioner, bucketer and world size") {
    Values const values = wide_values();
    Bits const expected = norms_of<0>(1, values);
    CHECK(expected.size() == 3 * (1 + 2 + 8));
    for (int const world : {1, 2, 3, 5}) {
        CHECK(norms_of<0, SingleBucketer>(world, values) == expected);
        CHECK(norms_of<1>(world, values, {.bucketer = {.bucket_bytes = 1024}}) == expected);
        CHECK(norms_of<2, RoundRobinPartitioner>(world, values) == expected);
        CHECK(norms_of<2, UnitBucketer>(world, values) == expected);
        CHECK(norms_of<3>(world, values) == expected);
        CHECK(norms_of<3, SizeCappedBucketer, RoundRobinPartitioner>(
                  world, values, {.bucketer = {.bucket_bytes = 256}})
              == expected);
    }
    auto other = values;
    other[1][499] = std::nextafter(other[1][499], 1e9F); // the last bit of one of 1001 elements
    CHECK(norms_of<3>(2, other) != expected);
}

TEMPLATE_TEST_CASE_SIG("Norms have the same bits in every storage and with every bucket size", "",
                       ((int N), N), 0, 1, 2) {
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
        Values const values = make_values(toy_specs(), [&](std::size_t parameter, std::size_t i) {
            return std::ldexp(noise(100 + seed, parameter, i),
                              static_cast<int>(10.0F * noise(200 + seed, parameter, i)));
        });
        Bits const expected = norms_of<N>(1, values);
        for (int const world : {1, 2, 3}) {
            for (auto const storage : {Storage::owned, Storage::scattered, Storage::adopted}) {
                for (std::size_t const bucket_bytes : {256U, 1024U, 1U << 20U}) {
                    CHECK(norms_of<N>(
                              world, values,
                              {.storage = storage, .bucketer = {.bucket_bytes = bucket_bytes}})
                          == expected);
                }
            }
        }
    }
}

TEST_CASE("Norms equal those of long-double sums within 1e-14") {
    Values values = wide_values();
    Bits const bits = norms_of<3>(3, values);
    for (float& value : values[0]) {
        value *= 2.0F; // both of its units add
    }
    values[4].clear(); // frozen
    auto const specs = toy_specs();
    std::size_t next = 0;
    for (auto const kind : all_norm_kinds) {
        for (auto const scope : all_scopes) {
            std::size_t const count = scope == NormScope::global   ? 1
                                      : scope == NormScope::groups ? 2
                                                                   : specs.size();
            for (std::size_t norm = 0; norm < count; ++norm) {
                long double sum = 0.0L;
                for (std::size_t parameter = 0; parameter < specs.size(); ++parameter) {
                    bool const belongs =
                        scope == NormScope::global
                        || norm
                               == (scope == NormScope::groups ? specs[parameter].group : parameter);
                    for (float const value : belongs ? values[parameter] : std::vector<float>{}) {
                        long double const x = std::fabs(static_cast<long double>(value));
                        sum = kind == NormKind::l1   ? sum + x
                              : kind == NormKind::l2 ? sum + x * x
                                                     : std::max(sum, x);
                    }
                }
                long double const expected = kind == NormKind::l2 ? std::sqrt(sum) : sum;
                auto const found = static_cast<long double>(std::bit_cast<double>(bits[next++]));
                CHECK(std::fabs(found - expected) <= 1e-14L * expected);
            }
        }
    }
    CHECK(next == bits.size());
}

TEMPLATE_TEST_CASE_SIG(
    "Computing norms changes no bit of the step, under any schedule, announced or not", "",
    ((int N), N), 0, 1, 2, 3) {
    struct Seen {
        std::vector<std::uint32_t> end;
        std::vector<double> reported;
        std::vector<double> asked;
    };
    auto const run = [](bool asks, ReductionSchedule schedule, bool announces,
                        std::size_t micro_steps) {
        return on_ranks<Seen>(3, [=](LoopbackCommunicator& communicator) {
            ZeroStage<N, Parameters<bfloat16>, GradientReduction<float, bfloat16>, StaticLossScaler>
                engine(communicator, registration<bfloat16, float>(toy_specs()),
                       {.gradient_clipping = 0.01F,
                        .loss_scaler = {.scale = 256.0F},
                        .reduction = {.schedule = schedule}});
            Seen seen;
            for (std::uint64_t step = 0; step < 3; ++step) {
                engine.begin_step();
                for (std::size_t micro_step = 0; micro_step < micro_steps; ++micro_step) {
                    engine.begin_micro_step(announces && micro_step + 1 == micro_steps
                                                ? MicroStep::last
                                                : MicroStep::more);
                    run_micro_step(engine, static_cast<std::uint64_t>(communicator.rank()), step,
                                   micro_step, 256.0F);
                    engine.end_micro_step();
                }
                if (asks) {
                    (void)all_norms(engine);
                    seen.asked.push_back(engine.gradient_norms().front());
                }
                seen.reported.push_back(engine.step(0.01).report().gradient_norm);
            }
            seen.end = snapshot(engine);
            return seen;
        });
    };
    for (auto const schedule : {ReductionSchedule::boundary, ReductionSchedule::every_micro_step}) {
        for (bool const announces : {false, true}) {
            for (std::size_t const micro_steps : {1U, 2U}) {
                auto const with = run(true, schedule, announces, micro_steps);
                auto const without = run(false, schedule, announces, micro_steps);
                for (std::size_t rank = 0; rank < with.size(); ++rank) {
                    CHECK(with[rank].end == without[rank].end);
                    CHECK(bits_of(with[rank].reported) == bits_of(without[rank].reported));
                    CHECK(
                        bits_of(with[rank].asked)
                        == bits_of(with[rank].reported)); // the global l2 norm is the reported one
                }
                CHECK(with[0].reported[0] != with[0].reported[1]);
            }
        }
    }
}

} // namespace zero::test::gradient_norms_bits_test
