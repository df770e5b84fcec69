#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/toy_model.hpp"

#include <zero/comm/groups.hpp>
#include <zero/comm/model_parallel.hpp>
#include <zero/ops/sgd.hpp>
#include <zero/stage/tiles.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

// A model that is cut over 2 tensor and 2 pipeline ranks trains to the bits of one that is not: the
// norm, the clip coefficient and the skipped steps are those of all parts.

namespace zero::test::model_parallel_test {

namespace {

using Ranks = Groups<LoopbackCommunicator, ModelParallel>;
using Hosts = Groups<LoopbackCommunicator, Hybrid>;
using HostRanks = Groups<Hosts, ModelParallel>;
static_assert(ModelParallelCommunicator<Ranks> && !GroupedCommunicator<Ranks>);
static_assert(ModelParallelCommunicator<HostRanks> && GroupedCommunicator<HostRanks>);
static_assert(!ModelParallelCommunicator<LoopbackCommunicator>);

/// A parameter of a whole model, and its elements on each model rank.
struct Whole {
    char const* name;
    std::size_t elements;
    std::size_t group;
    struct Share {
        std::size_t begin, end;
    };
    std::vector<Share> shares; ///< by model rank; an empty one is not registered
    CountsOn counts_on = CountsOn::every_model_rank;
};

// An embedding that is tied between pipeline ranks is cut over tensor ranks: its parts have names
// of their own, and each part has a replica.
using Model = std::vector<Whole>;
Model const two_by_two = {
    // model rank: tensor rank + 2 * pipeline rank
    {"embed.0", 65, 0, {{0, 65}, {0, 0}, {0, 65}, {0, 0}}, CountsOn::first_model_rank},
    {"embed.1", 64, 0, {{0, 0}, {0, 64}, {0, 0}, {0, 64}}, CountsOn::first_model_rank},
    {"norm", 37, 1, {{0, 37}, {0, 37}, {0, 0}, {0, 0}}, CountsOn::first_model_rank},
    {"up", 300, 0, {{0, 150}, {150, 300}, {0, 0}, {0, 0}}},
    {"head", 70, 0, {{0, 0}, {0, 0}, {0, 30}, {30, 70}}},
    {"bias", 9, 1, {{0, 0}, {0, 0}, {0, 9}, {0, 9}}, CountsOn::first_model_rank},
};

struct Part {
    std::vector<std::size_t> of; ///< index in `model`
    std::vector<Whole::Share> shares;
};

Part part_of(Model const& model, std::size_t model_rank) {
    Part part;
    for (std::size_t index = 0; index < model.size(); ++index) {
        auto const share = model[index].shares[model_rank];
        if (share.end != share.begin) {
            part.of.push_back(index);
            part.shares.push_back(share);
        }
    }
    return part;
}

Part all_parts(Model const& model) {
    Part part;
    for (std::size_t index = 0; index < model.size(); ++index) {
        part.of.push_back(index);
        part.shares.push_back({0, model[index].elements});
    }
    return part;
}

template <class T>
std::vector<Parameter<T>> registered(Model const& model, Part const& part, bool is_cut) {
    std::vector<Parameter<T>> parameters;
    for (std::size_t i = 0; i < part.of.size(); ++i) {
        auto const& whole = model[part.of[i]];
        auto const share = part.shares[i];
        Parameter<T> parameter;
        parameter.name = whole.name;
        parameter.elements = share.end - share.begin;
        parameter.units = {i / 2};
        parameter.group = whole.group;
        parameter.counts_on = is_cut ? whole.counts_on : CountsOn::every_model_rank;
        parameter.initialise = [index = part.of[i], share](std::size_t begin, std::span<T> values) {
            for (std::size_t at = 0; at < values.size(); ++at) {
                values[at] = from_float<T>(noise(1, index, share.begin + begin + at));
            }
        };
        parameters.push_back(parameter);
    }
    return parameters;
}

/// The place of an infinity: the step, the data and the model rank, and the parameter.
struct Injected {
    std::uint64_t step = 99;
    std::size_t data = 0, model = 0, parameter = 0;
};

/// Gradients of the whole model's elements, which depend on the data rank alone.
template <class Engine>
void run_backward(Engine& engine, Part const& part, std::size_t data, std::size_t model,
                  std::uint64_t step, Injected const& injected) {
    for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
        auto const weights = engine.acquire(unit);
        auto const gradients = engine.gradients(unit);
        for (std::size_t const parameter : engine.layout().unit_parameters(unit)) {
            auto const gradient = gradients[parameter];
            for (std::size_t i = 0; i < gradient.size(); ++i) {
                float value =
                    engine.loss_scale()
                    * noise(7 + data, part.of[parameter], part.shares[parameter].begin + i, step);
                bool const is_injected = injected.step == step && injected.data == data
                                         && injected.model == model
                                         && injected.parameter == part.of[parameter] && i == 3;
                value = (part.shares[parameter].begin + i) % 11 == 5 ? 0.0F : value;
                value = is_injected ? std::numeric_limits<float>::infinity() : value;
                gradient[i] =
                    from_float<typename Engine::GradientType>(to_float(gradient[i]) + value);
            }
        }
        engine.gradients_ready(unit);
    }
}

struct Seen {
    std::vector<double> norms, groups, of_groups, of_parameters, largest;
    std::vector<float> coefficients, scales;
    std::vector<int> skipped;
    std::vector<std::int64_t> zeros;
    std::vector<std::int64_t> first; ///< `first_non_finite`
    std::vector<std::string> names;
    std::vector<std::vector<float>> parameters;
};

template <class Stage>
Seen train(auto& communicator, Model const& model, Part const& part, std::size_t data,
           std::size_t model_rank, bool is_cut, ReductionKind kind, Injected const& injected) {
    Stage engine(communicator, registered<typename Stage::ParameterType>(model, part, is_cut),
                 {.gradient_clipping = 2.0F,
                  .report = {.zero_gradients = true, .group_norms = true},
                  .groups = {{.learning_rate_factor = 1.0}, {.is_clipped = false}},
                  .reduction = {.kind = kind, .schedule = ReductionSchedule::every_micro_step}});
    Seen seen;
    for (std::uint64_t step = 0; step < 4; ++step) {
        engine.begin_step();
        for (auto const micro_step : engine.micro_steps(2)) {
            run_backward(engine, part, data, model_rank, step * 2 + micro_step, injected);
        }
        if (step == 1) {
            seen.of_groups = engine.gradient_norms(NormKind::l1, NormScope::groups);
            seen.of_parameters = engine.gradient_norms(NormKind::l2, NormScope::parameters);
            seen.largest = engine.gradient_norms(NormKind::infinity, NormScope::parameters);
        }
        auto const weight = static_cast<std::int64_t>(3 + data);
        auto const report = kind == ReductionKind::weighted_mean
                                ? engine.step(0.125, weight).report()
                                : engine.step(0.125).report();
        seen.norms.push_back(report.gradient_norm);
        seen.groups.insert(seen.groups.end(), report.group_norms.begin(), report.group_norms.end());
        seen.coefficients.push_back(report.clip_coefficient);
        seen.scales.push_back(report.next_loss_scale);
        seen.skipped.push_back(report.is_skipped ? 1 : 0);
        seen.zeros.push_back(report.zero_gradients);
        seen.first.push_back(report.first_non_finite);
    }
    if constexpr (requires { engine.require_same_replicas(); }) {
        engine.require_same_replicas();
    }
    for (std::size_t const index : part.of) {
        seen.names.emplace_back(model[index].name);
    }
    seen.parameters = full_parameters(engine);
    return seen;
}

template <class Stage>
Seen flat(Model const& model, int data_ranks, ReductionKind kind, Injected const& injected = {}) {
    return on_ranks<Seen>(data_ranks, [&](LoopbackCommunicator& communicator) {
        return train<Stage>(communicator, model, all_parts(model),
                            static_cast<std::size_t>(communicator.rank()), injected.model, false,
                            kind, injected);
    })[0];
}

template <class Stage>
std::vector<Seen> cut(Model const& model, int data_ranks, ReductionKind kind,
                      Injected const& injected = {}) {
    std::size_t const parts = model[0].shares.size();
    std::vector<Seen> seen(static_cast<std::size_t>(data_ranks) * parts);
    run_ranks<Ranks>(
        static_cast<int>(seen.size()), test_time_out, {.model = parts}, [&](Ranks& ranks) {
            auto const data = static_cast<std::size_t>(ranks.rank());
            auto const part = static_cast<std::size_t>(ranks.model().rank());
            seen[data * parts + part] =
                train<Stage>(ranks, model, part_of(model, part), data, part, true, kind, injected);
        });
    return seen;
}

/// Requires that a rank of a part saw what the whole model gave.
void check_same(Model const& model, Seen const& part, Seen const& whole, std::size_t model_rank) {
    CAPTURE(model_rank);
    CHECK(part.norms == whole.norms);
    CHECK(part.groups == whole.groups);
    CHECK(part.of_groups == whole.of_groups);
    CHECK(part.coefficients == whole.coefficients);
    CHECK(part.scales == whole.scales);
    CHECK(part.skipped == whole.skipped);
    CHECK(part.zeros == whole.zeros);
    Part const own = part_of(model, model_rank);
    REQUIRE(part.parameters.size() == own.of.size());
    for (std::size_t i = 0; i < own.of.size(); ++i) {
        CAPTURE(part.names[i]);
        CHECK(part.of_parameters[i] == whole.of_parameters[own.of[i]]);
        CHECK(part.largest[i] == whole.largest[own.of[i]]);
        auto const& values = whole.parameters[own.of[i]];
        auto const begin = values.begin() + static_cast<std::ptrdiff_t>(own.shares[i].begin);
        auto const end = values.begin() + static_cast<std::ptrdiff_t>(own.shares[i].end);
        CHECK(part.parameters[i] == std::vector<float>(begin, end));
    }
}

template <class Flat, class... Stages>
void check_stages(Model const& model, int data_ranks, ReductionKind kind,
                  Injected const& injected = {}) {
    Seen const whole = flat<Flat>(model, data_ranks, kind, injected);
    CHECK(whole.skipped == std::vector<int>{0, 0, injected.step == 99 ? 0 : 1, 0});
    auto const check = [&](std::vector<Seen> const& seen) {
        for (std::size_t rank = 0; rank < seen.size(); ++rank) {
            check_same(model, seen[rank], whole, rank % model[0].shares.size());
        }
    };
    (check(cut<Stages>(model, data_ranks, kind, injected)), ...);
}

/// Returns a model of up to 8 parameters over up to 4 ranks: each is whole on one rank, cut over
/// some, or replicated on some.
Model random_model(std::uint64_t seed) {
    std::uint64_t draws = 0;
    auto const draw = [&](std::size_t below) {
        return static_cast<std::size_t>((noise(seed, 99, draws++) + 1.0F) * 0.5F
                                        * static_cast<float>(below));
    };
    std::size_t const parts = 1 + draw(4);
    std::size_t const count = parts + 1 + draw(4);
    static char const* const names[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    Model model;
    for (std::size_t index = 0; index < count; ++index) {
        std::size_t const elements = 1 + draw(200);
        Whole whole{names[index], elements, index < 2 ? index % 2 : draw(2),
                    std::vector<Whole::Share>(parts)};
        std::size_t const first = index < parts ? index : draw(parts); // each rank has one
        std::size_t const holders = 1 + draw(parts - first);
        bool const is_replica = holders > 1 && draw(2) == 0;
        whole.counts_on = is_replica ? CountsOn::first_model_rank : CountsOn::every_model_rank;
        for (std::size_t i = 0; i < holders; ++i) {
            whole.shares[first + i] =
                is_replica ? Whole::Share{0, elements}
                           : Whole::Share{elements * i / holders, elements * (i + 1) / holders};
        }
        model.push_back(whole);
    }
    return model;
}

} // namespace

TEST_CASE("Random models over random ranks have the norms and parameters of the whole one") {
    for (std::uint64_t seed = 0; seed < 24; ++seed) {
        Model const model = random_model(seed);
        auto const data_ranks = static_cast<int>(1 + seed % 3);
        CAPTURE(seed, model[0].shares.size(), model.size());
        check_stages<ZeroStage<1>, ZeroStage<2, Ranks>, ZeroStage<3, Ranks>>(
            model, data_ranks, seed % 2 == 0 ? ReductionKind::mean : ReductionKind::weighted_mean);
    }
}

TEST_CASE("A model that is cut over tensor and pipeline ranks has the norms, clip coefficients and "
          "parameters of one that is not, in every stage") {
    for (int const data_ranks : {1, 2, 3}) {
        for (auto const kind : {ReductionKind::mean, ReductionKind::weighted_mean}) {
            CAPTURE(data_ranks, static_cast<int>(kind));
            check_stages<ZeroStage<0>, ZeroStage<0, Ranks>, ZeroStage<1, Ranks>,
                         ZeroStage<2, Ranks>, ZeroStage<3, Ranks>>(two_by_two, data_ranks, kind);
        }
    }
    using P = Parameters<bfloat16>;
    check_stages<ZeroStage<0, P>, ZeroStage<1, P, Ranks>, ZeroStage<3, P, Ranks>>(
        two_by_two, 2, ReductionKind::mean);
}

TEST_CASE("An infinity on one rank of any part skips the step on all, also in a replica that does "
          "not count") {
    using S = DynamicLossScaler;
    // 'embed.0' counts on model rank 0; 'head' is on 2 and 3
    for (Injected const injected : {Injected{5, 1, 2, 4}, Injected{5, 0, 0, 0}}) {
        check_stages<ZeroStage<2, S>, ZeroStage<1, S, Ranks>, ZeroStage<2, S, Ranks>,
                     ZeroStage<3, S, Ranks>>(two_by_two, 2, ReductionKind::mean, injected);
    }
    auto const seen = cut<ZeroStage<3, S, Ranks>>(two_by_two, 2, ReductionKind::mean, {5, 1, 2, 0});
    for (std::size_t rank = 0; rank < seen.size(); ++rank) {
        CHECK(seen[rank].skipped == std::vector<int>{0, 0, 1, 0});
        CHECK(seen[rank].scales == seen[0].scales);
        CHECK(seen[rank].first == std::vector<std::int64_t>{-1, -1, rank % 4 == 2 ? 3 : -1, -1});
    }
}

TEST_CASE(
    "Controls: without the model ranks a norm is that of a part, and a replica that counts on "
    "every rank is added twice") {
    Seen const whole = flat<ZeroStage<2>>(two_by_two, 2, ReductionKind::mean);
    CHECK(whole.coefficients[0] < 1.0F);
    std::vector<double> alone(8);
    std::vector<double> twice(8);
    run_ranks<Ranks>(8, test_time_out, {.model = 4}, [&](Ranks& ranks) {
        auto const data = static_cast<std::size_t>(ranks.rank());
        auto const part = static_cast<std::size_t>(ranks.model().rank());
        std::size_t const rank = data * 4 + part;
        auto const kind = ReductionKind::mean;
        twice[rank] = train<ZeroStage<2, Ranks>>(ranks, two_by_two, part_of(two_by_two, part), data,
                                                 part, false, kind, {})
                          .norms[0];
    });
    run_ranks(8, test_time_out, [&](LoopbackCommunicator& everyone) {
        auto const part = static_cast<std::size_t>(everyone.rank()) % 4;
        auto ranks = everyone.split(static_cast<int>(part), everyone.rank());
        auto const data = static_cast<std::size_t>(ranks.rank());
        alone[static_cast<std::size_t>(everyone.rank())] =
            train<ZeroStage<2>>(ranks, two_by_two, part_of(two_by_two, part), data, part, false,
                                ReductionKind::mean, {})
                .norms[0];
    });
    for (std::size_t rank = 0; rank < 8; ++rank) {
        CHECK(alone[rank] < whole.norms[0]);
        CHECK(twice[rank] > whole.norms[0]);
        CHECK(twice[rank] == twice[0]);
    }
    CHECK(alone[0] != alone[3]);
}

TEST_CASE("The norm of a tensor that is cut is that of the whole one, whatever its tiles are") {
    std::vector<std::vector<double>> norms(2);
    run_ranks<Ranks>(2, test_time_out, {.model = 2}, [&](Ranks& ranks) {
        auto const part = static_cast<std::size_t>(ranks.model().rank());
        Parameter<float> whole;
        whole.name = "matrix";
        whole.shape = {part == 0 ? 8U : 4U, 16U};
        ZeroStage<3, Ranks> engine(ranks, tiles(whole, part == 0 ? 4 : 2));
        engine.begin_step();
        engine.begin_micro_step();
        for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
            auto const gradients = engine.gradients(unit);
            for (std::size_t const tile : engine.layout().unit_parameters(unit)) {
                for (float& value : gradients[tile]) {
                    value = 2.0F;
                }
            }
            engine.gradients_ready(unit);
        }
        engine.end_micro_step();
        norms[part] = engine.gradient_norms(NormKind::l1, NormScope::parameters);
        engine.cancel_step();
    });
    CHECK(norms[0] == std::vector<double>(4, 2.0 * 12 * 16));
    CHECK(norms[1] == std::vector<double>(2, 2.0 * 12 * 16));
}

TEST_CASE("Each part of a model may be sharded inside groups of its data ranks") {
    Seen whole;
    std::vector<Seen> parts(16);
    run_ranks<Hosts>(4, test_time_out, {.shard = 2}, [&](Hosts& hosts) {
        auto const data = static_cast<std::size_t>(hosts.rank());
        auto const seen = train<ZeroStage<2, Hosts>>(hosts, two_by_two, all_parts(two_by_two), data,
                                                     0, false, ReductionKind::mean, {});
        if (data == 0) {
            whole = seen;
        }
    });
    run_ranks(16, test_time_out, [&](LoopbackCommunicator& everyone) {
        int const rank = everyone.rank();
        auto data = everyone.split(rank % 4, rank);
        auto model = everyone.split(rank / 4, rank);
        Hosts hosts(data, {.shard = 2});
        HostRanks ranks(hosts, model);
        auto const part = static_cast<std::size_t>(model.rank());
        parts[static_cast<std::size_t>(rank)] = train<ZeroStage<3, HostRanks>>(
            ranks, two_by_two, part_of(two_by_two, part), static_cast<std::size_t>(data.rank()),
            part, true, ReductionKind::mean, {});
    });
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
        check_same(two_by_two, parts[rank], whole, rank % 4);
    }
}

} // namespace zero::test::model_parallel_test
