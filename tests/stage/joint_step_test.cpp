// Several engines that step together train to the bits of one engine that holds all parameters.

#include "stage/mixed_model.hpp"
#include "support/catch.hpp"
#include "support/gate.hpp"
#include "support/ranks.hpp"
#include "support/temporary_folder.hpp"
#include "support/toy_model.hpp"

#include <zero/comm/model_parallel.hpp>
#include <zero/comm/recording.hpp>
#include <zero/comm/traffic_count.hpp>
#include <zero/host/threaded_queue.hpp>
#include <zero/stage/joint_step.hpp>
#include <zero/stage/offload.hpp>
#include <zero/zero.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace zero::test::joint_step_test {

namespace {

/// Which parameters of the whole model an engine holds, by index.
using Part = std::vector<std::size_t>;

std::vector<std::size_t> const sizes{300, 65, 1, 64, 129, 7, 500, 0, 33};

Part whole() {
    Part all;
    for (std::size_t index = 0; index < sizes.size(); ++index) {
        all.push_back(index);
    }
    return all;
}

template <class T>
std::vector<Parameter<T>> registered(Part const& part) {
    std::vector<Parameter<T>> parameters;
    for (std::size_t i = 0; i < part.size(); ++i) {
        Parameter<T> parameter;
        parameter.name = "p" + std::to_string(part[i]);
        parameter.elements = sizes[part[i]];
        parameter.units = {i / 2};
        parameter.group = part[i] % 2;
        parameter.initialise = [index = part[i]](std::size_t begin, std::span<T> values) {
            for (std::size_t at = 0; at < values.size(); ++at) {
                values[at] = from_float<T>(noise(1, index, begin + at));
            }
        };
        parameters.push_back(parameter);
    }
    return parameters;
}

/// What the gradients of a step are, besides noise.
struct Steps {
    std::size_t count = 6;
    std::size_t infinite_step = 99, infinite_parameter = 0; ///< on rank 0
    std::size_t large_step = 99;                            ///< all gradients are 50 times as large
    std::vector<std::size_t> silent{};                      ///< parameters without a gradient
};

template <class Engine>
void run_backward(Engine& engine, Part const& part, std::size_t rank, std::size_t step,
                  std::size_t micro_step, Steps const& steps) {
    using G = typename Engine::GradientType;
    for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
        auto const weights = engine.acquire(unit);
        bool is_silent = true;
        for (std::size_t const parameter : engine.layout().unit_parameters(unit)) {
            bool is_one = false;
            for (std::size_t const silent : steps.silent) {
                is_one = is_one || silent == part[parameter];
            }
            is_silent = is_silent && is_one;
        }
        if (is_silent) {
            continue;
        }
        auto const gradients = engine.gradients(unit);
        for (std::size_t const parameter : engine.layout().unit_parameters(unit)) {
            auto const gradient = gradients[parameter];
            for (std::size_t i = 0; i < gradient.size(); ++i) {
                float value = engine.loss_scale()
                              * noise(7 + rank, part[parameter], i, step * 8 + micro_step);
                value *= step == steps.large_step ? 50.0F : 1.0F;
                if (step == steps.infinite_step && part[parameter] == steps.infinite_parameter
                    && rank == 0 && i == 0) {
                    value = std::numeric_limits<float>::infinity();
                }
                gradient[i] = from_float<G>(to_float(gradient[i]) + value);
            }
        }
        engine.gradients_ready(unit);
    }
}

struct Seen {
    std::vector<double> norms;
    std::vector<float> coefficients, scales, limits;
    std::vector<int> skipped, too_large;
    std::vector<std::uint64_t> counts;
    std::vector<std::vector<float>> parameters{sizes.size()};

    void add(StepReport const& report) {
        norms.push_back(report.gradient_norm);
        coefficients.push_back(report.clip_coefficient);
        scales.push_back(report.next_loss_scale);
        limits.push_back(report.norm_limit);
        skipped.push_back(report.is_skipped ? 1 : 0);
        too_large.push_back(report.is_too_large ? 1 : 0);
        counts.push_back(report.step_count);
    }

    template <class Engine>
    void read(Engine& engine, Part const& part) {
        auto const own = full_parameters(engine);
        for (std::size_t i = 0; i < part.size(); ++i) {
            parameters[part[i]] = own[i];
        }
    }

    bool operator==(Seen const&) const = default;
};

struct Common {
    std::optional<float> clipping = 2.0F;
    NormLimit limit{};
    bool leaves_out = false;
    ReductionKind kind = ReductionKind::mean;
    NonFinite non_finite = NonFinite::skip;
    bool reports = false;
    std::string folder{}; ///< of offloaded states
};

template <class Stage>
typename Stage::Options options_of(Common const& common) {
    typename Stage::Options options;
    options.gradient_clipping = common.clipping;
    options.skip_above_norm = common.limit;
    options.non_finite = common.non_finite;
    options.reduction.kind = common.kind;
    options.reduction.schedule = ReductionSchedule::every_micro_step;
    options.report.group_norms = common.reports;
    options.groups.resize(2);
    if constexpr (requires { options.offload.path; }) {
        options.offload.path = common.folder;
    }
    options.groups[1].learning_rate_factor = 0.5;
    options.groups[1].is_clipped = !common.leaves_out;
    return options;
}

std::optional<std::int64_t> weight_of(Common const& common, std::size_t rank, std::size_t step) {
    return common.kind == ReductionKind::weighted_mean
               ? std::optional(static_cast<std::int64_t>(2 + rank + step))
               : std::nullopt;
}

template <class Stage>
Seen alone(LoopbackCommunicator& ranks, Common const& common, Steps const& steps) {
    Stage engine(ranks, registered<typename Stage::ParameterType>(whole()),
                 options_of<Stage>(common));
    auto const rank = static_cast<std::size_t>(ranks.rank());
    Seen seen;
    for (std::size_t step = 0; step < steps.count; ++step) {
        engine.begin_step();
        for (auto const micro_step : engine.micro_steps(2)) {
            run_backward(engine, whole(), rank, step, micro_step, steps);
        }
        seen.add(engine.step(0.125, weight_of(common, rank, step)).report());
    }
    seen.read(engine, whole());
    return seen;
}

/// The same with one engine for each part. @return what each engine reported, all equal
template <class... Stages>
std::vector<Seen> together(auto& ranks, std::vector<Part> const& parts, Common const& common,
                           Steps const& steps) {
    auto const rank = static_cast<std::size_t>(ranks.rank());
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
        std::tuple<std::unique_ptr<Stages>...> engines{
            std::make_unique<Stages>(ranks, registered<typename Stages::ParameterType>(parts[I]),
                                     options_of<Stages>(common))...};
        auto const all = [&](auto const& call) { (call(*std::get<I>(engines), I), ...); };
        JointStep joint(*std::get<I>(engines)...);
        std::vector<Seen> seen(sizeof...(I));
        for (std::size_t step = 0; step < steps.count; ++step) {
            joint.begin_step();
            all([&](auto& engine, std::size_t part) {
                for (auto const micro_step : engine.micro_steps(2)) {
                    run_backward(engine, parts[part], rank, step, micro_step, steps);
                }
            });
            auto const tickets = joint.step(0.125, weight_of(common, rank, step));
            (seen[I].add(std::get<I>(tickets).report()), ...);
        }
        for (Seen& each : seen) {
            all([&](auto& engine, std::size_t part) { each.read(engine, parts[part]); });
        }
        return seen;
    }(std::index_sequence_for<Stages...>());
}

/// Deals the parameters to `count` parts, which have parameters of both groups.
std::vector<Part> random_parts(std::uint64_t seed, std::size_t count) {
    std::vector<Part> parts(count);
    for (std::size_t index = 0; index < sizes.size(); ++index) {
        auto const drawn = static_cast<std::size_t>((noise(seed, index) + 1.0F) * 0.5F
                                                    * static_cast<float>(count));
        parts[index < 2 * count ? index / 2 : drawn].push_back(index);
    }
    return parts;
}

template <class Whole, class... Stages>
void check(int world, std::uint64_t seed, Common const& common, Steps const& steps) {
    CAPTURE(world, seed);
    Seen const expected =
        on_ranks<Seen>(world, [&](auto& ranks) { return alone<Whole>(ranks, common, steps); })[0];
    auto const parts = random_parts(seed, sizeof...(Stages));
    auto const found = on_ranks<std::vector<Seen>>(
        world, [&](auto& ranks) { return together<Stages...>(ranks, parts, common, steps); });
    for (auto const& rank : found) {
        for (Seen const& engine : rank) {
            CHECK(engine.norms == expected.norms);
            CHECK(engine.coefficients == expected.coefficients);
            CHECK(engine.skipped == expected.skipped);
            CHECK(engine.parameters == expected.parameters);
            CHECK(engine == expected);
        }
    }
}

} // namespace

TEST_CASE("Engines of any stage that step together have the bits of one engine, however its "
          "parameters are dealt to them") {
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
        int const world = std::vector<int>{1, 2, 3, 5}[seed];
        check<ZeroStage<1>, ZeroStage<2>, ZeroStage<3>>(world, seed, {}, {});
        check<ZeroStage<3>, ZeroStage<0>, ZeroStage<1>, ZeroStage<3>>(world, seed + 9, {}, {});
    }
}

TEST_CASE("A joint step clips, skips and scales as one engine does, for every kind of reduction") {
    using S = DynamicLossScaler;
    using B = Parameters<bfloat16>;
    for (auto const kind : {ReductionKind::mean, ReductionKind::sum, ReductionKind::mean_over_ranks,
                            ReductionKind::weighted_mean}) {
        CAPTURE(static_cast<int>(kind));
        Common common;
        common.kind = kind;
        // Gradients of 0.6: a norm near 20 for a mean, 100 for a sum
        Steps const overflow{.infinite_step = 2, .infinite_parameter = 4, .large_step = 4};
        check<ZeroStage<2, S, B>, ZeroStage<1, S, B>, ZeroStage<3, S, B>>(3, 5, common, overflow);
        common.leaves_out = true;
        common.limit = {.factor = 3.0F, .window = 2};
        check<ZeroStage<2, S>, ZeroStage<0, S>, ZeroStage<3, S>>(2, 6, common, overflow);
    }
    Common common;
    common.clipping.reset();
    common.non_finite = NonFinite::step;
    check<ZeroStage<2>, ZeroStage<1>, ZeroStage<3>>(2, 7, common, {}); // nothing is inspected
}

TEST_CASE("The step of an infinity or of too large a norm in one engine is skipped in all") {
    Steps const steps{.infinite_step = 2, .infinite_parameter = 0, .large_step = 4};
    Common common;
    common.limit = {.factor = 3.0F, .window = 2};
    auto const seen = on_ranks<std::vector<Seen>>(2, [&](auto& ranks) {
        return together<ZeroStage<1>, ZeroStage<3>>(ranks, {{0, 1}, {2, 3, 4}}, common, steps);
    });
    for (auto const& rank : seen) {
        for (Seen const& engine : rank) {
            CHECK(engine.skipped == std::vector<int>{0, 0, 1, 0, 1, 0});
            CHECK(engine.too_large == std::vector<int>{0, 0, 0, 0, 1, 0});
        }
    }
}

TEST_CASE("An engine without gradients has zeros if another one has gradients, and a step without "
          "any throws on every rank and leaves all unchanged") {
    Steps steps{.silent = {0, 1, 2, 3}};
    Seen const expected =
        on_ranks<Seen>(2, [&](auto& ranks) { return alone<ZeroStage<2>>(ranks, {}, steps); })[0];
    auto const seen = on_ranks<std::vector<Seen>>(2, [&](auto& ranks) {
        return together<ZeroStage<2>, ZeroStage<1>>(ranks, {{0, 1, 2, 3}, {4, 5, 6, 7, 8}}, {},
                                                    steps);
    });
    CHECK(seen[0][0] == expected);
    CHECK(seen[1][1] == expected);
    steps.silent = whole();
    auto const outcomes = on_ranks<Outcome>(2, [&](auto& ranks) {
        return outcome_of([&] {
            together<ZeroStage<2>, ZeroStage<1>>(ranks, {{0, 1, 2, 3}, {4, 5, 6, 7, 8}}, {}, steps);
        });
    });
    for (Outcome const& rank : outcomes) {
        CHECK(rank.type == "NoGradients");
    }
}

TEST_CASE(
    "Pipeline chunks: each model rank has two engines, and their norms, clip coefficients and "
    "parameters are those of one engine for the whole model") {
    using Ranks = Groups<LoopbackCommunicator, ModelParallel>;
    Common common;
    common.reports = true;
    common.leaves_out = true;
    Steps const steps{.infinite_step = 2, .infinite_parameter = 4, .large_step = 4};
    Seen const expected = on_ranks<Seen>(
        2, [&](auto& ranks) { return alone<ZeroStage<2>>(ranks, common, steps); })[0];
    // by model rank; group 1, the odd parameters, is not clipped
    std::vector<std::vector<Part>> const chunks{{{0, 1}, {4, 5}}, {{2, 3}, {6, 7, 8}}};
    std::vector<std::vector<Seen>> seen(4);
    run_ranks<Ranks>(4, test_time_out, {.model = 2}, [&](Ranks& ranks) {
        auto const part = static_cast<std::size_t>(ranks.model().rank());
        seen[static_cast<std::size_t>(ranks.rank()) * 2 + part] =
            together<ZeroStage<2, Ranks>, ZeroStage<3, Ranks>>(ranks, chunks[part], common, steps);
    });
    for (auto const& rank : seen) {
        for (Seen const& engine : rank) {
            CHECK(engine.norms == expected.norms);
            CHECK(engine.coefficients == expected.coefficients);
            CHECK(engine.skipped == std::vector<int>{0, 0, 1, 0, 0, 0});
            std::size_t held = 0;
            for (std::size_t index = 0; index < sizes.size(); ++index) {
                bool const is_empty = engine.parameters[index].empty();
                held += is_empty ? 0 : 1;
                CHECK((is_empty || engine.parameters[index] == expected.parameters[index]));
            }
            CHECK(held >= 4);
        }
    }
}

TEST_CASE("States may lie in files, and the update of an engine may be delayed") {
    using Files = Offload<To<FileTier, BufferKind::optimizer_state>, DelayedUpdate>;
    TemporaryFolder const folder;
    Common common;
    common.folder = folder.path();
    check<ZeroStage<2>, ZeroStage<2>, ZeroStage<3, Files>>(
        2, 3, common, {.infinite_step = 2, .infinite_parameter = 1});
}

TEST_CASE("An engine for each of two parameter types has the bits of one engine of both types") {
    using Whole = mixed::Mixed<2>;
    using Halves = ZeroStage<3, Parameters<bfloat16>>;
    using Floats = ZeroStage<1, Parameters<float>>;
    static constexpr GradientReductionOptions same{.schedule = ReductionSchedule::every_micro_step};
    struct Both {
        mixed::ByName values;
        std::vector<double> norms;

        bool operator==(Both const&) const = default;
    };
    auto const expected = on_ranks<Both>(mixed::world, [](LoopbackCommunicator& ranks) {
        Whole engine(ranks,
                     mixed::mixed_registration<Whole::Registration>([](auto) { return true; }),
                     {.gradient_clipping = 3.0F, .reduction = same});
        double const norm =
            mixed::train<bfloat16, float>(engine, static_cast<std::uint64_t>(ranks.rank()));
        return Both{mixed::values_by_name(engine), {norm, norm}};
    })[0];
    auto const found = on_ranks<Both>(mixed::world, [](LoopbackCommunicator& ranks) {
        Halves halves(ranks, mixed::mixed_registration<Halves::Registration>([](std::size_t index) {
                          return !mixed::is_float(index);
                      }),
                      {.gradient_clipping = 3.0F, .reduction = same});
        Floats floats(ranks, mixed::mixed_registration<Floats::Registration>([](std::size_t index) {
                          return mixed::is_float(index);
                      }),
                      {.gradient_clipping = 3.0F, .reduction = same});
        JointStep joint(halves, floats);
        auto const rank = static_cast<std::uint64_t>(ranks.rank());
        Both both;
        for (std::uint64_t step = 0; step < 4; ++step) {
            joint.begin_step();
            for (auto const micro_step : halves.micro_steps(2)) {
                mixed::run_backward<bfloat16, bfloat16>(halves, rank, step * 2 + micro_step);
            }
            for (auto const micro_step : floats.micro_steps(2)) {
                mixed::run_backward<float, float>(floats, rank, step * 2 + micro_step);
            }
            auto const [of_halves, of_floats] = joint.step(0.01);
            both.norms = {of_halves.report().gradient_norm, of_floats.report().gradient_norm};
        }
        both.values = mixed::values_by_name(halves);
        both.values.merge(mixed::values_by_name(floats));
        return both;
    });
    for (Both const& rank : found) {
        CHECK(rank.norms == expected.norms);
        CHECK(rank == expected);
    }
}

TEST_CASE("A joint step sends what its engines send alone, and the host does not wait for it") {
    using C = Recording<LoopbackCommunicator>;
    auto const calls = on_ranks<std::vector<TrafficCount>>(2, [](LoopbackCommunicator& inner) {
        C ranks(inner);
        using First = ZeroStage<2, C>;
        using Other = ZeroStage<3, C>;
        First first(ranks, registered<float>({0, 1}), options_of<First>({}));
        Other other(ranks, registered<float>({2, 3}), options_of<Other>({}));
        std::vector<TrafficCount> counts;
        auto const run = [&](auto const& begin, auto const& end) {
            begin();
            first.begin_micro_step();
            run_backward(first, {0, 1}, 0, 0, 0, {});
            first.end_micro_step();
            other.begin_micro_step();
            run_backward(other, {2, 3}, 0, 0, 0, {});
            other.end_micro_step();
            ranks.reset_recorded();
            end();
            counts.push_back(ranks.recorded());
        };
        auto const alone = [&] {
            run(
                [&] {
                    first.begin_step();
                    other.begin_step();
                },
                [&] {
                    first.step(0.5);
                    other.step(0.5);
                });
        };
        alone();
        alone();
        JointStep joint(first, other);
        run([&] { joint.begin_step(); }, [&] { joint.step(0.5); });
        return counts;
    });
    CHECK(calls[0][1].kinds == calls[0][2].kinds);
    CHECK(calls[0][2][CollectiveKind::integers].calls == 2);
    bool is_enqueued = false;
    run_ranks(1, test_time_out, [&](LoopbackCommunicator& ranks) {
        host::ThreadedQueue queue;
        using S = ZeroStage<2>;
        auto options = options_of<S>({});
        options.communication_queue = &queue;
        S first(ranks, registered<float>({0, 1}), options);
        S other(ranks, registered<float>({2, 3}), options_of<S>({}));
        JointStep joint(first, other);
        Gate gate; // is opened after the step, which would otherwise wait for ever
        joint.begin_step();
        auto const backward = [&](auto& engine, Part const& part) {
            engine.begin_micro_step();
            for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
                engine.gradients(unit)[part.size() - 1][0] += 1.0F;
                engine.gradients_ready(unit);
            }
            engine.end_micro_step();
        };
        backward(first, {0, 1});
        backward(other, {2, 3});
        gate.hold(queue);
        auto const tickets = joint.step(0.5);
        is_enqueued = true;
        gate.open();
        std::get<0>(tickets).wait();
    });
    CHECK(is_enqueued);
}

TEST_CASE("Control: engines that step alone have norms of their own") {
    auto const seen = on_ranks<std::vector<double>>(2, [&](auto& ranks) {
        std::vector<double> norms;
        for (Part const& part : {Part{0, 1}, Part{2, 3, 4}}) {
            ZeroStage<2> engine(ranks, registered<float>(part), options_of<ZeroStage<2>>({}));
            engine.begin_step();
            engine.begin_micro_step();
            run_backward(engine, part, static_cast<std::size_t>(ranks.rank()), 0, 0, {});
            engine.end_micro_step();
            norms.push_back(engine.step(0.125).report().gradient_norm);
        }
        return norms;
    });
    CHECK(seen[0] == seen[1]);
    CHECK(seen[0][0] != seen[0][1]);
}

} // namespace zero::test::joint_step_test
