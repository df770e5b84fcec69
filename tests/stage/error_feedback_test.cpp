#include "gradient_codes_model.hpp"
#include "support/catch.hpp"

#include <zero/comm/groups.hpp>
#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/ops/sgd.hpp>
#include <zero/policy/dynamic_loss_scaler.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

// What the encoding of a gradient lost is added to the next one: a straight-line function of what
// the ranks wrote, in every stage.

namespace zero::test::error_feedback_test {

namespace {

using namespace gradient_codes;

template <int N, class T, class C, class S, class... Policies>
using Kept = ZeroStage<N, Parameters<T>, Wire<Plain, C, ErrorFeedback<S>>, Policies...>;

/// The errors of one rank by hand, and what it sends.
template <class G, class C, class S>
class ByHand {
public:
    ByHand(std::uint64_t rank, float beta) : _rank(rank), _beta(beta) {
        for (auto const& spec : toy_specs()) {
            errors.emplace_back(spec.trainable ? spec.elements : 0);
        }
    }

    void scale(float factor) {
        for (auto& parameter : errors) {
            for (float& error : parameter) {
                error *= factor;
            }
        }
    }

    /// Encodes a micro-step. @return what the others decode
    Values send(std::uint64_t step, std::uint64_t micro_step, float loss_scale = 1.0F) {
        Values all;
        for (std::size_t p = 0; p < errors.size(); ++p) {
            std::vector<float> values(errors[p].size());
            for (std::size_t i = 0; i < values.size(); ++i) {
                float const gradient =
                    to_float(from_float<G>(loss_scale * written(_rank, p, i, step, micro_step)));
                values[i] = gradient + errors[p][i];
            }
            all.push_back(through<C>(values));
            for (std::size_t i = 0; i < values.size(); ++i) {
                float const lost = (1.0F - _beta) * (values[i] - all[p][i]);
                errors[p][i] = std::fma(_beta, errors[p][i], lost);
            }
            if constexpr (!std::is_same_v<S, float>) {
                errors[p] = through<S>(errors[p]);
            }
        }
        return all;
    }

    Values errors;

private:
    std::uint64_t _rank;
    float _beta;
};

void add(Values& sum, Values const& values) {
    for (std::size_t p = 0; p < values.size(); ++p) {
        for (std::size_t i = 0; i < values[p].size(); ++i) {
            sum[p][i] += values[p][i];
        }
    }
}

/// Whether the sums of four steps, in which errors are set to 0 after the third, are those by hand.
template <class C, class S, class Stage>
bool is_right(int world, float beta, typename Stage::Options const& given = {}) {
    auto const right = on_ranks<int>(world, [&](LoopbackCommunicator& all) {
        using T = typename Stage::ParameterType;
        auto options = given;
        options.feedback = {.beta = beta, .reset_every = 3};
        options.reduction.schedule = ReductionSchedule::every_micro_step;
        auto parameters = registration<T>(toy_specs());
        auto const memory = provide_memory(parameters, options);
        Stage engine(all, parameters, options);
        std::vector<ByHand<T, C, S>> ranks;
        for (std::uint64_t rank = 0; rank < static_cast<std::uint64_t>(world); ++rank) {
            ranks.emplace_back(rank, beta);
        }
        bool is_equal = true;
        for (std::uint64_t step = 0; step < 4; ++step) {
            Values expected;
            for (std::uint64_t micro_step = 0; micro_step < 2; ++micro_step) {
                Values sum = ranks[0].send(step, micro_step);
                for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
                    add(sum, ranks[rank].send(step, micro_step));
                }
                if (micro_step == 0) {
                    expected = sum;
                } else {
                    add(expected, sum);
                }
            }
            for (auto& rank : ranks) {
                rank.scale(step == 2 ? 0.0F : 1.0F);
            }
            write_gradients(engine, static_cast<std::uint64_t>(all.rank()), step, 2);
            is_equal = same_bits(full_sums(engine), expected) && is_equal;
            (void)engine.step(0.01).report();
        }
        return is_equal ? 1 : 0;
    });
    return right == std::vector<int>(static_cast<std::size_t>(world), 1);
}

template <class C, class S>
void check_bits(float beta) {
    for (int const world : {1, 2, 3, 5}) {
        CAPTURE(world, beta);
        CHECK((is_right<C, S, Kept<1, bfloat16, C, S>>(world, beta)));
        CHECK((is_right<C, S, Kept<2, float, C, S>>(world, beta)));
        CHECK((is_right<C, S, Kept<3, bfloat16, C, S>>(world, beta)));
        CHECK((is_right<C, S, Kept<2, bfloat16, C, S, RoundRobinPartitioner>>(
            world, beta, {.reduction = {.wire_bytes = 300}})));
        CHECK((is_right<C, S, Kept<1, bfloat16, C, S>>(
            world, beta, {.poison = true, .bucketer = {.bucket_bytes = 256}})));
    }
}

} // namespace

TEST_CASE("Sums with errors of floats are those by hand, in every stage and bucket size") {
    check_bits<Int4Blocks, float>(0.0F);
    check_bits<Int8Blocks, float>(0.75F);
}

TEST_CASE("Sums with errors in codes are those by hand, in every stage and bucket size") {
    check_bits<Int4Blocks, Int8Blocks>(0.75F);
}

TEST_CASE("Without feedback, or with another beta, the sums are others") {
    CHECK_FALSE((is_right<Int4Blocks, float, Kept<2, float, Int4Blocks, Int8Blocks>>(2, 0.5F)));
    CHECK_FALSE((is_right<Int4Blocks, float, Kept<2, float, Int8Blocks, float>>(2, 0.5F)));
}

TEST_CASE("With beta 0, what is decoded and the new error are the gradient and the old error") {
    ByHand<float, Int4Blocks, float> rank(0, 0.0F);
    int wrong = 0;
    for (std::uint64_t step = 0; step < 3; ++step) {
        Values const old = rank.errors;
        Values const sent = rank.send(step, 0);
        for (std::size_t p = 0; p < sent.size(); ++p) {
            for (std::size_t i = 0; i < sent[p].size(); ++i) {
                float const gradient = written(0, p, i, step, 0) + old[p][i];
                wrong += sent[p][i] + rank.errors[p][i] == gradient ? 0 : 1;
            }
        }
    }
    CHECK(wrong == 0); // `check_bits` compares these sums with an engine's
}

namespace {

/// How far the mean of a thousand equal sums is from the gradient.
double error_of_mean(float beta) {
    auto const worst = on_ranks<double>(1, [=](LoopbackCommunicator& all) {
        Kept<2, float, Int4Blocks, float> engine(all, registration<float>(toy_specs()),
                                                 {.feedback = {.beta = beta, .reset_every = 2000}});
        std::vector<std::vector<double>> sums(toy_specs().size());
        for (int step = 0; step < 1000; ++step) {
            write_gradients(engine, 0, 0, 1);
            auto const seen = full_sums(engine);
            for (std::size_t p = 0; p < seen.size(); ++p) {
                sums[p].resize(seen[p].size());
                for (std::size_t i = 0; i < seen[p].size(); ++i) {
                    sums[p][i] += static_cast<double>(seen[p][i]);
                }
            }
            (void)engine.step(0.0).report();
        }
        double most = 0;
        for (std::size_t p = 0; p < sums.size(); ++p) {
            for (std::size_t i = 0; i < sums[p].size(); ++i) {
                auto const expected = static_cast<double>(written(0, p, i, 0, 0));
                most = std::max(most, std::abs(sums[p][i] / 1000 - expected));
            }
        }
        return most;
    });
    return worst[0];
}

constexpr std::size_t badly_scaled = 130; ///< elements: two whole blocks and two elements

float target_of(std::size_t i) {
    return 0.5F + 0.1F * static_cast<float>(i % 7);
}

/// Minimises a sum of squares on two ranks. Gradients of 1 and -1, which cancel, stand in each
/// block among others of at most 0.055, less than half of the scale 1/7.
/// @return the largest distance from the minimum in the last 200 of 600 steps
template <class W>
double distance_left(float beta) {
    auto const worst = on_ranks<double>(2, [=](LoopbackCommunicator& all) {
        using Stage = ZeroStage<2, Sgd, Parameters<float>, W>;
        typename Stage::Options options;
        options.optimizer.momentum = 0.0;
        if constexpr (requires { options.feedback.beta; }) {
            options.feedback.beta = beta;
        }
        Parameter<float> parameter;
        parameter.name = "badly scaled";
        parameter.elements = badly_scaled;
        parameter.units = {0};
        Stage engine(all, std::vector<Parameter<float>>{parameter}, options);
        double most = 0;
        for (int step = 0; step < 600; ++step) {
            engine.begin_step();
            for ([[maybe_unused]] auto const micro_step : engine.micro_steps(1)) {
                auto const weights = engine.acquire(0);
                auto const gradients = engine.gradients(0);
                for (std::size_t i = 0; i < badly_scaled; ++i) {
                    float const distance = weights[0][i] - target_of(i);
                    bool const is_large = i % 64 == 0;
                    gradients[0][i] =
                        is_large ? (all.rank() == 0 ? 1.0F : -1.0F) : 0.05F * distance;
                    if (step >= 400 && !is_large) {
                        most = std::max(most, std::abs(static_cast<double>(distance)));
                    }
                }
                engine.gradients_ready(0);
            }
            (void)engine.step(0.5).report();
        }
        return most;
    });
    return std::max(worst[0], worst[1]);
}

} // namespace

TEST_CASE(
    "The mean of a thousand equal gradients is their own within a thousandth of one bound / (1 "
    "- beta)") {
    // the largest value of a block, with its error, is below 1 + 1 / 14
    auto const bound = static_cast<double>(Int4Blocks::error_bound(1.1F)) / 1000;
    double const all = error_of_mean(0.0F);
    CHECK(all <= bound);
    CHECK(all > 0);
    double const average = error_of_mean(0.75F);
    CHECK(average <= 4 * bound);
    CHECK(average > bound);
}

TEST_CASE(
    "Small gradients among large ones, which four bits round to zero, train with feedback and "
    "never without") {
    using Bare = Wire<Plain, Int4Blocks>;
    using Fed = Wire<Plain, Int4Blocks, ErrorFeedback<float>>;
    double const exact = distance_left<Wire<>>(0.0F);
    CHECK(exact < 1e-3);
    double const farthest = 1.1; // from initial weights of 0
    CHECK(distance_left<Bare>(0.0F) == Approx(farthest));
    for (float const beta : {0.0F, 0.5F, 0.8F}) {
        CAPTURE(beta);
        CHECK(distance_left<Fed>(beta) < 0.1);
    }
    CHECK(distance_left<Wire<Plain, Int4Blocks, ErrorFeedback<Int8Blocks>>>(0.8F) < 0.2);
}

namespace {

struct Outcome {
    std::vector<int> skipped;
    std::vector<int> equal;
    std::vector<float> scales;
};

/// Steps of which one may overflow on rank 0, with the sums that follow.
template <class S>
Outcome with_overflow(bool overflows, bool cancels) {
    Outcome outcome;
    auto const ranks = on_ranks<Outcome>(2, [&](LoopbackCommunicator& all) {
        auto const rank = static_cast<std::uint64_t>(all.rank());
        Kept<2, float, Int4Blocks, S, DynamicLossScaler> engine(
            all, registration<float>(toy_specs()),
            {.loss_scaler = {.initial_scale = 8.0F, .growth_interval = 2},
             .feedback = {.beta = 0.0F}});
        Outcome own;
        std::vector<ByHand<float, Int4Blocks, S>> hands{{0, 0.0F}, {1, 0.0F}};
        float before = 8.0F;
        for (std::uint64_t step = 0; step < 6; ++step) {
            bool const is_bad = step == 3 && (overflows || cancels);
            float scale = 0;
            engine.begin_step();
            scale = engine.loss_scale();
            own.scales.push_back(scale);
            for (auto const micro_step : engine.micro_steps(1)) {
                for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
                    auto const gradients = engine.gradients(unit);
                    for (std::size_t const p : engine.layout().unit_parameters(unit)) {
                        auto const gradient = gradients[p];
                        for (std::size_t i = 0; i < gradient.size(); ++i) {
                            gradient[i] = scale * written(rank, p, i, step, micro_step);
                        }
                        if (is_bad && overflows && rank == 0 && p == 1) {
                            gradient[5] = std::numeric_limits<float>::infinity();
                        }
                    }
                    engine.gradients_ready(unit);
                }
            }
            for (auto& hand : hands) {
                hand.scale(scale / before);
            }
            before = scale;
            Values sum = hands[0].send(step, 0, scale);
            add(sum, hands[1].send(step, 0, scale));
            if (is_bad) {
                for (auto& hand : hands) {
                    hand.scale(0.0F);
                }
            } else {
                own.equal.push_back(same_bits(full_sums(engine), sum) ? 1 : 0);
            }
            if (is_bad && cancels) {
                engine.cancel_step();
            } else {
                own.skipped.push_back(engine.step(0.01).report().is_skipped ? 1 : 0);
            }
        }
        return own;
    });
    return ranks[0];
}

} // namespace

TEST_CASE("Errors follow the loss scale, and a skipped or cancelled step sets them to 0") {
    Outcome const clean = with_overflow<float>(false, false);
    CHECK(clean.equal == std::vector<int>(6, 1));
    CHECK(clean.scales == std::vector<float>{8, 8, 16, 16, 32, 32});
    Outcome const skips = with_overflow<float>(true, false);
    CHECK(skips.equal == std::vector<int>(5, 1));
    CHECK(skips.skipped == std::vector<int>{0, 0, 0, 1, 0, 0});
    CHECK(skips.scales == std::vector<float>{8, 8, 16, 16, 16, 16}); // within its hysteresis
    CHECK(with_overflow<float>(false, true).equal == std::vector<int>(5, 1));
    CHECK(with_overflow<Int8Blocks>(true, false).equal == std::vector<int>(5, 1));
}

TEST_CASE("A block that is not finite leaves no error where such a step is taken") {
    auto const right = on_ranks<int>(1, [](LoopbackCommunicator& all) {
        Kept<2, float, Int4Blocks, float> engine(
            all, registration<float>(toy_specs()),
            {.non_finite = NonFinite::step, .feedback = {.beta = 0.0F}});
        ByHand<float, Int4Blocks, float> hand(0, 0.0F);
        write_gradients(engine, 0, 0, 1, [](std::size_t parameter, auto const& gradient) {
            if (parameter == 1) {
                gradient[70] = std::numeric_limits<float>::quiet_NaN();
            }
        });
        (void)hand.send(0, 0);
        std::fill(hand.errors[1].begin() + 64, hand.errors[1].begin() + 128, 0.0F);
        bool const is_taken = !engine.step(0.0).report().is_skipped;
        write_gradients(engine, 0, 1, 1);
        bool const is_equal = same_bits(full_sums(engine), hand.send(1, 0)) && is_taken;
        (void)engine.step(0.01).report();
        return is_equal ? 1 : 0;
    });
    CHECK(right == std::vector<int>{1});
}

namespace {

using Places = std::vector<std::size_t>;

using Hosts = Groups<LoopbackCommunicator, Hybrid>;

/// The parameters after four steps whose units are ready in an order of their own, and the buckets
/// of which they are pieces then: on three ranks, or on groups of two.
template <class Stage>
std::pair<Values, Places> after_steps(bool rebuilds, typename Stage::Options options,
                                      int world = 3) {
    using Communicator = typename Stage::Communicator;
    options.extra_leases = 8;
    options.reduction.schedule = ReductionSchedule::every_micro_step;
    if (rebuilds) {
        options.rebuild_buckets = &Stage::in_ready_order;
        options.leases_until_rebuild = 8;
    }
    auto const body = [&](Communicator& all) {
        Stage engine(all, registration<bfloat16>(toy_specs()), options);
        for (std::uint64_t step = 0; step < 4; ++step) {
            (void)run_step(engine, static_cast<std::uint64_t>(all.rank()), step, 2, 0.05, 3,
                           {1, 3, 0, 2, 4})
                .report();
        }
        Places places;
        for (std::size_t parameter = 0; parameter < toy_specs().size(); ++parameter) {
            for (std::size_t const bucket : engine.layout().parameter_buckets(parameter)) {
                places.push_back(bucket);
            }
        }
        return std::pair(full_parameters(engine), places);
    };
    std::vector<std::pair<Values, Places>> all;
    if constexpr (std::is_same_v<Communicator, Hosts>) {
        all = on_ranks<std::pair<Values, Places>, Hosts>(world, {.shard = 2}, body);
    } else {
        all = on_ranks<std::pair<Values, Places>>(world, body);
    }
    CHECK(all == std::vector<std::pair<Values, Places>>(all.size(), all[0]));
    return all[0];
}

/// @tparam Policies communicator and partitioner, besides the codecs
template <int N, class W, class... Policies>
using Bfloat16 = ZeroStage<N, Parameters<bfloat16>, W, Policies...>;

/// Compares with a run that keeps its buckets. @tparam Groups nothing, or the groups of two ranks
template <class W, class... Groups>
void check_rebuilt(int world) {
    CAPTURE(world);
    typename Bfloat16<2, W, Groups...>::Options const kilobyte{.bucketer = {.bucket_bytes = 1024}};
    auto const expected = after_steps<Bfloat16<2, W, Groups...>>(false, kilobyte, world);
    auto const check = [&](auto const& rebuilt) {
        CHECK((rebuilt.first == expected.first));
        CHECK(rebuilt.second != expected.second); // or nothing has moved
    };
    check(
        after_steps<Bfloat16<1, W, Groups...>>(true, {.bucketer = {.bucket_bytes = 1024}}, world));
    check(after_steps<Bfloat16<2, W, RoundRobinPartitioner, Groups...>>(
        true, {.bucketer = {.bucket_bytes = 256}}, world));
    CHECK((after_steps<Bfloat16<3, W, Groups...>>(true, {}, world).first == expected.first));
}

} // namespace

TEST_CASE("A rebuild of the buckets moves the errors and changes no bit") {
    check_rebuilt<Wire<Plain, Int4Blocks, ErrorFeedback<float>>>(3);
    check_rebuilt<Wire<Plain, Int4Blocks, ErrorFeedback<Int8Blocks>>>(3);
}

TEST_CASE("A rebuild of the buckets changes no bit of codes on two levels") {
    for (int const world : {2, 4, 6}) { // 1 to 3 replicas
        check_rebuilt<Wire<Plain, Level<Plain, Int8Blocks>>, Hosts>(world);
        check_rebuilt<Wire<Int8Blocks, Level<Int4Blocks, Int8Blocks>>, Hosts>(world);
        check_rebuilt<Wire<Plain, Int4Blocks, ErrorFeedback<Int8Blocks>>, Hosts>(world);
        check_rebuilt<Wire<Plain, Level<Int4Blocks, Plain>, ErrorFeedback<float>>, Hosts>(world);
    }
}

TEST_CASE("Options out of range are refused, and ranks with others are told") {
    auto all = LoopbackCommunicator::make_group(1);
    using Stage = Kept<2, float, Int8Blocks, float>;
    auto const make = [&](typename Stage::Options const& options) {
        Stage engine(all.front(), registration<float>(toy_specs()), options);
    };
    CHECK_THROWS_WITH(make({.feedback = {.beta = 1.0F}}), contains_text("feedback.beta is 1; it"));
    CHECK_THROWS_WITH(make({.feedback = {.beta = std::nanf("")}}), contains_text("feedback.beta"));
    CHECK_THROWS_WITH(make({.feedback = {.reset_every = 0}}),
                      contains_text("feedback.reset_every is 0"));
    CHECK_THROWS_WITH(make({.unused_parameters = UnusedParameters::leave}),
                      contains_text("choose UnusedParameters::zero"));
    auto const told = on_ranks<std::string>(2, [](LoopbackCommunicator& ranks) {
        try {
            Stage engine(ranks, registration<float>(toy_specs()),
                         {.feedback = {.beta = ranks.rank() == 0 ? 0.5F : 0.25F}});
        } catch (LayoutMismatch const& error) {
            return std::string(error.what());
        }
        return std::string();
    });
    CHECK(told[0].find("wire") != std::string::npos);
}

} // namespace zero::test::error_feedback_test
