#pragma once

// Checks of the guarantees of every loss scaler, over a fixture. A new scaler needs one:
//
//     template <> struct LossScalerFixture<Scaler> {
//         // the defaults first, then options far from them; no two define the same rule
//         static std::vector<Options> accepted();
//         // each has one mistake
//         static std::vector<Options> refused();
//     };

#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/snapshot.hpp"

#include <zero/core/error.hpp>
#include <zero/policy/detail/policy_list.hpp>
#include <zero/policy/has_compared_options.hpp>
#include <zero/policy/loss_scaler.hpp>
#include <zero/policy/no_loss_scaler.hpp>
#include <zero/policy/static_loss_scaler.hpp>
#include <zero/stage/detail/compose/stage_base.hpp>
#include <zero/stage/with_stage.hpp>
#include <zero/stage/zero_stage.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

namespace zero::test {

template <class Scaler>
struct LossScalerFixture;

/// Clean steps and overflows ('x'), with single overflows and bursts.
inline std::string scaler_weather(std::uint32_t seed, std::size_t steps) {
    std::mt19937 random(seed);
    std::string events;
    for (bool is_burst = false; events.size() < steps;) {
        is_burst = random() % 30 == 0 ? !is_burst : is_burst;
        events += random() % 100 < (is_burst ? 80U : 6U) ? 'x' : '.';
    }
    return events;
}

/// The scale before each step, starting from a state.
template <class Scaler>
std::vector<float> scales_of(typename Scaler::State state, std::string const& events,
                             typename Scaler::Options const& options) {
    std::vector<float> scales;
    for (char const event : events) {
        scales.push_back(state.scale);
        state = Scaler::next(state, event == 'x', options);
    }
    return scales;
}

template <class Scaler>
void check_scaler_options() {
    auto const accepted = LossScalerFixture<Scaler>::accepted();
    for (auto const& options : accepted) {
        CHECK_NOTHROW(Scaler::validate(options));
    }
    for (auto const& options : LossScalerFixture<Scaler>::refused()) {
        CHECK_THROWS_AS(Scaler::validate(options), InvalidArgument);
    }
    for (std::size_t one = 0; one < accepted.size();
         ++one) { // otherwise ranks with different rules would not get an error
        for (std::size_t other = 0; other < one; ++other) {
            CHECK(zero::detail::hash_of_options<Scaler>(accepted[one])
                  != zero::detail::hash_of_options<Scaler>(accepted[other]));
        }
    }
    CHECK((accepted.size() > 1 || std::is_empty_v<typename Scaler::Options>));
}

/// @brief Returns the defect of a rule under random overflows with these options, or an empty text.
template <class Scaler>
std::string problem_of_rule(typename Scaler::Options const& options) {
    for (std::uint32_t seed = 0; seed < 20; ++seed) {
        auto state = Scaler::initial(options);
        for (char const event : scaler_weather(seed, 3000)) {
            float const scale = state.scale;
            auto const after = Scaler::next(state, true, options);
            if (!(scale >= smallest_loss_scale) || !std::isfinite(scale)) {
                return "the scale or its inverse is not a number";
            }
            if (after.scale > scale) {
                return "an overflow grows the scale";
            }
            if (Scaler::is_exhausted(state, options) && after.scale != scale) {
                return "it is exhausted, but an overflow shrinks the scale";
            }
            state = Scaler::next(state, event == 'x', options);
        }
    }
    return "";
}

/// @brief Checks that a rule keeps no data outside its state: a run that resumes from the bytes of
/// a state is the same run, even after another run.
template <class Scaler>
std::string problem_of_resuming(typename Scaler::Options const& options) {
    std::string const events = scaler_weather(7, 2500);
    auto const whole = scales_of<Scaler>(Scaler::initial(options), events, options);
    auto state = Scaler::initial(options);
    for (std::size_t cut = 0; cut < events.size(); ++cut) {
        if (cut % 250 == 0) {
            auto copy = Scaler::initial(options);
            std::memcpy(&copy, &state, sizeof state);
            (void)scales_of<Scaler>(copy, "x.xx", options);
            if (scales_of<Scaler>(copy, events.substr(cut), options)
                != std::vector<float>(whole.begin() + static_cast<std::ptrdiff_t>(cut),
                                      whole.end())) {
                return "a run that is resumed at step " + std::to_string(cut) + " is another one";
            }
        }
        state = Scaler::next(state, events[cut] == 'x', options);
    }
    return "";
}

template <class Scaler>
void check_scaler_rule() {
    for (auto const& options : LossScalerFixture<Scaler>::accepted()) {
        CHECK(problem_of_rule<Scaler>(options) == "");
        CHECK(problem_of_resuming<Scaler>(options) == "");
    }
}

/// The record of a rank over the steps `events`: every bit of the state, and the scale after each
/// step.
template <class Stage>
std::vector<std::vector<std::uint32_t>> scaled_run(std::string const& events,
                                                   typename Stage::Options const& options) {
    auto const ranks = on_ranks<std::vector<std::vector<std::uint32_t>>>(
        2, [&](LoopbackCommunicator& communicator) {
            auto const rank = static_cast<std::uint64_t>(communicator.rank());
            Stage engine(communicator, registration<float>(toy_specs()), options);
            std::vector<std::vector<std::uint32_t>> seen;
            for (std::size_t step = 0; step < events.size(); ++step) {
                engine.begin_step();
                float const scale = engine.loss_scale();
                for (auto const micro_step : engine.micro_steps(1)) {
                    if (events[step] == 'x' && rank == 1) { // the other rank must skip as well
                        std::vector<float> const gradient(64,
                                                          std::numeric_limits<float>::infinity());
                        engine.hand_over(3, 5, gradient).synchronise();
                    }
                    run_micro_step(engine, rank, step, 0, scale);
                }
                (void)engine.step(0.01);
                std::vector<std::uint32_t> bits{std::bit_cast<std::uint32_t>(scale),
                                                static_cast<std::uint32_t>(engine.step_count())};
                for (auto const& parameter : full_parameters(engine)) {
                    for (float const value : parameter) {
                        bits.push_back(std::bit_cast<std::uint32_t>(value));
                    }
                }
                seen.push_back(std::move(bits));
            }
            return seen;
        });
    CHECK((ranks[0] == ranks[1]));
    return ranks[0];
}

/// In an engine, each step uses the scale of the rule, a step that overflows changes nothing, and
/// every stage gives the same bits.
template <class Scaler>
void check_scaler_in_engine() {
    std::string const events =
        Scaler::skips_overflow ? "..x.xx...x.."
                               : "........"; // without a scaler, the option of the engine decides
    for (auto const& scaler : LossScalerFixture<Scaler>::accepted()) {
        auto const run = [&]<int N>() {
            using Stage = ZeroStage<N, SizeCappedBucketer, Scaler>;
            typename Stage::Options options{.extra_leases = 1};
            options.loss_scaler = scaler;
            return scaled_run<Stage>(events, options);
        };
        auto const expected = run.template operator()<0>();
        auto const scales = scales_of<Scaler>(Scaler::initial(scaler), events, scaler);
        for (std::size_t step = 0; step < events.size(); ++step) {
            CHECK(expected[step][0] == std::bit_cast<std::uint32_t>(scales[step]));
            std::uint32_t const clean = static_cast<std::uint32_t>(
                step + 1
                - static_cast<std::size_t>(std::count(
                    events.begin(), events.begin() + static_cast<std::ptrdiff_t>(step + 1), 'x')));
            CHECK(expected[step][1] == clean);
            bool const is_same = step > 0
                                 && std::equal(expected[step].begin() + 2, expected[step].end(),
                                               expected[step - 1].begin() + 2);
            CHECK(is_same == (events[step] == 'x'));
        }
        CHECK((run.template operator()<1>() == expected));
        CHECK((run.template operator()<2>() == expected));
        CHECK((run.template operator()<3>() == expected));
    }
}

template <class Scaler>
void check_loss_scaler() {
    STATIC_REQUIRE(LossScaler<Scaler>);
    STATIC_REQUIRE(std::is_empty_v<Scaler>);
    check_scaler_options<Scaler>();
    check_scaler_rule<Scaler>();
    check_scaler_in_engine<Scaler>();
}

} // namespace zero::test
