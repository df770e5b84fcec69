// A model that is cut over 2 tensor x 2 pipeline x 2 expert x 2 data ranks takes the steps of one
// rank with the same gradients: norms, clip coefficients, skipped steps and weights, bit for bit.

#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/toy_model.hpp"

#include <zero/comm/experts.hpp>
#include <zero/stage/joint_step.hpp>
#include <zero/zero.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace zero::test::cut_experts_test {

namespace {

using Cut = Groups<LoopbackCommunicator, ModelParallel>;
using ExpertRanks = Groups<LoopbackCommunicator, Experts>;

// Rank (copy * 2 + expert rank) * 4 + tensor rank + 2 * pipeline rank.
constexpr std::size_t model_ranks = 4, expert_ranks = 2, world = 16;

struct Share {
    std::size_t begin, end;
};

/// A parameter of the whole model.
struct Whole {
    std::string name;
    std::size_t elements = 0;
    std::size_t group = 0;
    std::vector<Share> shares{}; ///< by model rank; an empty one is not registered
    bool is_replica = false;
    std::optional<std::size_t> expert_rank{}; ///< that holds it; empty for the dense part
};

/// A tied embedding, a norm, matrices that are cut, and 4 experts of 2 layers, which are cut over
/// tensor ranks and have a bias that is not.
std::vector<Whole> whole_model() {
    std::vector<Whole> model{
        {"embed.0", 65, 0, {{0, 65}, {0, 0}, {0, 65}, {0, 0}}, true},
        {"embed.1", 64, 0, {{0, 0}, {0, 64}, {0, 0}, {0, 64}}, true},
        {"norm", 37, 1, {{0, 37}, {0, 37}, {0, 0}, {0, 0}}, true},
        {"up", 300, 0, {{0, 150}, {150, 300}, {0, 0}, {0, 0}}},
        {"head", 70, 0, {{0, 0}, {0, 0}, {0, 30}, {30, 70}}},
    };
    for (std::size_t layer = 0; layer < 2; ++layer) {
        for (std::size_t expert = 0; expert < 4; ++expert) {
            auto const name =
                "layers." + std::to_string(layer) + ".experts." + std::to_string(expert);
            std::size_t const elements = 90 + 7 * expert;
            std::vector<Share> parts(model_ranks);
            parts[2 * layer] = {0, 40};
            parts[2 * layer + 1] = {40, elements};
            std::vector<Share> replicas(model_ranks);
            replicas[2 * layer] = replicas[2 * layer + 1] = {0, 9};
            model.push_back({name + ".up", elements, 0, parts, false, expert / 2});
            model.push_back({name + ".bias", 9, 1, replicas, true, expert / 2});
        }
    }
    return model;
}

/// Parameters of the whole model by index, and what of them an engine holds.
struct Held {
    std::vector<std::size_t> of;
    std::vector<Share> shares;

    void add(std::size_t index, Share share) {
        if (share.begin != share.end) {
            of.push_back(index);
            shares.push_back(share);
        }
    }
};

Held dense_part(std::vector<Whole> const& model, std::size_t model_rank) {
    Held held;
    for (std::size_t index = 0; index < model.size(); ++index) {
        if (!model[index].expert_rank) {
            held.add(index, model[index].shares[model_rank]);
        }
    }
    return held;
}

Held experts_of(std::vector<Whole> const& model, std::size_t model_rank, std::size_t expert_rank) {
    Held held;
    for (std::size_t index = 0; index < model.size(); ++index) {
        if (model[index].expert_rank == expert_rank) {
            held.add(index, model[index].shares[model_rank]);
        }
    }
    return held;
}

/// Everything, or the dense part or the experts alone.
Held on_one_rank(std::vector<Whole> const& model, bool has_dense, bool has_experts) {
    Held held;
    for (std::size_t index = 0; index < model.size(); ++index) {
        if (model[index].expert_rank ? has_experts : has_dense) {
            held.add(index, {0, model[index].elements});
        }
    }
    return held;
}

/// @param is_cut whether replicas say so
/// @param suffix what is put behind each name
std::vector<Parameter<float>> registered(std::vector<Whole> const& model, Held const& held,
                                         bool is_cut, std::string const& suffix = "") {
    std::vector<Parameter<float>> parameters;
    for (std::size_t i = 0; i < held.of.size(); ++i) {
        Whole const& whole = model[held.of[i]];
        Share const share = held.shares[i];
        Parameter<float> parameter;
        parameter.name = whole.name + suffix;
        parameter.elements = share.end - share.begin;
        parameter.units = {i / 2};
        parameter.group = whole.group;
        parameter.counts_on =
            is_cut && whole.is_replica ? CountsOn::first_model_rank : CountsOn::every_model_rank;
        parameter.initialise = [index = held.of[i], share](std::size_t begin,
                                                           std::span<float> values) {
            for (std::size_t at = 0; at < values.size(); ++at) {
                values[at] = noise(1, index, share.begin + begin + at);
            }
        };
        parameters.push_back(parameter);
    }
    return parameters;
}

struct Case {
    ReductionKind kind = ReductionKind::mean;
    std::optional<std::size_t> infinite_step{}; ///< from the tokens of data rank 3
    std::size_t infinite_parameter = 0;         ///< of the whole model
};

constexpr std::size_t micro_steps = 2;

/// The integer that the data of a rank add to the gradient of an element.
float gradient(Case const& test, std::size_t data, std::size_t parameter, std::size_t element,
               std::size_t batch) {
    if (test.infinite_step && batch == *test.infinite_step * micro_steps && data == 3
        && parameter == test.infinite_parameter && element == 5) {
        return std::numeric_limits<float>::infinity();
    }
    return std::floor(noise(7 + data, parameter, element, batch) * 8.0F);
}

/// Adds the gradients of some data ranks, times `factor`.
template <class Engine>
void run_backward(Engine& engine, Held const& held, Case const& test,
                  std::vector<std::size_t> const& data, std::size_t batch, float factor = 1.0F) {
    for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
        auto const weights = engine.acquire(unit);
        auto const gradients = engine.gradients(unit);
        for (std::size_t const parameter : engine.layout().unit_parameters(unit)) {
            auto const values = gradients[parameter];
            for (std::size_t i = 0; i < values.size(); ++i) {
                float sum = 0;
                for (std::size_t const rank : data) {
                    sum += gradient(test, rank, held.of[parameter],
                                    held.shares[parameter].begin + i, batch);
                }
                values[i] += engine.loss_scale() * factor * sum;
            }
        }
        engine.gradients_ready(unit);
    }
}

template <class Stage>
typename Stage::Options options_of(Case const& test) {
    typename Stage::Options options;
    options.gradient_clipping = 20.0F;
    options.groups.resize(2);
    options.groups[1].learning_rate_factor = 0.5;
    options.reduction.kind = test.kind;
    options.reduction.schedule = ReductionSchedule::every_micro_step;
    return options;
}

std::optional<std::int64_t> weight_of(Case const& test, std::vector<std::size_t> const& data) {
    std::int64_t weight = 0;
    for (std::size_t const rank : data) {
        weight += static_cast<std::int64_t>(3 + rank);
    }
    return test.kind == ReductionKind::weighted_mean ? std::optional(weight) : std::nullopt;
}

/// What one rank saw, by step, and by parameter of the whole model.
struct Seen {
    std::vector<double> norms;
    std::vector<float> coefficients, scales;
    std::vector<int> skipped;
    std::vector<double> dense_groups, expert_groups; ///< in step 1
    std::vector<std::vector<double>> of_parameters;  ///< l1, l2 and the largest, in step 1
    std::vector<std::vector<float>> values;

    void add(StepReport const& report) {
        norms.push_back(report.gradient_norm);
        coefficients.push_back(report.clip_coefficient);
        scales.push_back(report.next_loss_scale);
        skipped.push_back(report.is_skipped ? 1 : 0);
    }

    template <class Engine>
    void measure(Engine& engine, Held const& held) {
        of_parameters.resize(whole_model().size());
        for (auto const kind : {NormKind::l1, NormKind::l2, NormKind::infinity}) {
            auto const norms_of = engine.gradient_norms(kind, NormScope::parameters);
            for (std::size_t i = 0; i < held.of.size(); ++i) {
                of_parameters[held.of[i]].push_back(norms_of[i]);
            }
        }
    }

    template <class Engine>
    void read(Engine& engine, Held const& held) {
        values.resize(whole_model().size());
        auto const own = full_parameters(engine);
        for (std::size_t i = 0; i < held.of.size(); ++i) {
            values[held.of[i]] = own[i];
        }
    }
};

constexpr std::size_t steps = 4;
std::vector<std::size_t> const all_data{0, 1, 2, 3};

/// One rank with the sums of all gradients.
template <class Stage>
Seen alone(Case const& test) {
    auto const model = whole_model();
    return on_ranks<Seen>(1, [&](LoopbackCommunicator& one) {
        float const factor = test.kind == ReductionKind::mean ? 0.25F : 1.0F;
        Seen seen;
        for (bool const is_dense : {true, false}) { // the norms of groups of each part
            Held const held = on_one_rank(model, is_dense, !is_dense);
            Stage part(one, registered(model, held, false), options_of<Stage>(test));
            part.begin_step();
            for (auto const micro_step : part.micro_steps(micro_steps)) {
                run_backward(part, held, test, all_data, micro_steps + micro_step, factor);
            }
            (is_dense ? seen.dense_groups : seen.expert_groups) =
                part.gradient_norms(NormKind::l2, NormScope::groups);
            part.cancel_step();
        }
        Held const held = on_one_rank(model, true, true);
        Stage engine(one, registered(model, held, false), options_of<Stage>(test));
        for (std::size_t step = 0; step < steps; ++step) {
            engine.begin_step();
            for (auto const micro_step : engine.micro_steps(micro_steps)) {
                run_backward(engine, held, test, all_data, step * micro_steps + micro_step, factor);
            }
            if (step == 1) {
                seen.measure(engine, held);
            }
            seen.add(engine.step(0.125, weight_of(test, all_data)).report());
        }
        seen.read(engine, held);
        return seen;
    })[0];
}

/// The place of a rank.
struct Place {
    std::size_t data, model, expert;
    std::vector<std::size_t> tokens; ///< data ranks whose tokens reach the experts of this rank

    explicit Place(int rank)
        : data(static_cast<std::size_t>(rank) / model_ranks),
          model(static_cast<std::size_t>(rank) % model_ranks), expert(data % expert_ranks),
          tokens{data - expert, data - expert + 1} {}
};

/// 16 ranks, with one engine for the dense part and one for experts.
template <class Dense, class Sparse>
std::vector<Seen> together(Case const& test) {
    auto const model = whole_model();
    return on_ranks<Seen>(world, [&](LoopbackCommunicator& everyone) {
        Place const place(everyone.rank());
        Cut ranks(everyone, {.model = model_ranks});
        ExpertRanks expert_group(everyone, {.experts = expert_ranks, .model = model_ranks});
        Held const dense_held = dense_part(model, place.model);
        Held const held = experts_of(model, place.model, place.expert);
        Dense dense(ranks, registered(model, dense_held, true), options_of<Dense>(test));
        Sparse sparse(expert_group, registered(model, held, true), options_of<Sparse>(test));
        JointStep joint(dense, sparse);
        Seen seen;
        for (std::size_t step = 0; step < steps; ++step) {
            joint.begin_step();
            for (std::size_t micro_step = 0; micro_step < micro_steps; ++micro_step) {
                std::size_t const batch = step * micro_steps + micro_step;
                dense.begin_micro_step();
                run_backward(dense, dense_held, test, {place.data}, batch);
                dense.end_micro_step();
                sparse.begin_micro_step();
                run_backward(sparse, held, test, place.tokens, batch);
                sparse.end_micro_step();
            }
            if (step == 1) {
                seen.dense_groups = dense.gradient_norms(NormKind::l2, NormScope::groups);
                seen.expert_groups = sparse.gradient_norms(NormKind::l2, NormScope::groups);
                seen.measure(dense, dense_held);
                seen.measure(sparse, held);
            }
            auto const [of_dense, of_experts] = joint.step(0.125, weight_of(test, {place.data}));
            auto const report = of_dense.report();
            seen.add(report);
            if (report.gradient_norm != of_experts.report().gradient_norm) {
                seen.norms.back() = -1.0;
            }
        }
        dense.require_same_replicas();
        sparse.require_same_replicas();
        seen.read(dense, dense_held);
        seen.read(sparse, held);
        return seen;
    });
}

template <class Dense, class Sparse>
Seen check(Case const& test) {
    Seen const whole = alone<typename Dense::template with<LoopbackCommunicator>>(test);
    auto const model = whole_model();
    auto const ranks = together<Dense, Sparse>(test);
    for (std::size_t rank = 0; rank < world; ++rank) {
        Place const place(static_cast<int>(rank));
        CAPTURE(rank);
        CHECK(ranks[rank].norms == whole.norms);
        CHECK(ranks[rank].coefficients == whole.coefficients);
        CHECK(ranks[rank].scales == whole.scales);
        CHECK(ranks[rank].skipped == whole.skipped);
        CHECK(ranks[rank].dense_groups == whole.dense_groups);
        CHECK(ranks[rank].expert_groups == whole.expert_groups);
        for (auto const& held :
             {dense_part(model, place.model), experts_of(model, place.model, place.expert)}) {
            for (std::size_t i = 0; i < held.of.size(); ++i) {
                CAPTURE(model[held.of[i]].name);
                auto const& values = whole.values[held.of[i]];
                std::vector<float> const part(
                    values.begin() + static_cast<std::ptrdiff_t>(held.shares[i].begin),
                    values.begin() + static_cast<std::ptrdiff_t>(held.shares[i].end));
                CHECK(ranks[rank].values[held.of[i]] == part);
                CHECK(ranks[rank].of_parameters[held.of[i]] == whole.of_parameters[held.of[i]]);
            }
        }
    }
    return whole;
}

/// Returns the norm of a step of the experts alone. @param ranks `Groups` of any kind
template <class Ranks>
double norm_of_experts(Ranks& ranks, Place const& place, Case const& test, bool is_cut = true,
                       bool has_one_name = true) {
    auto const model = whole_model();
    Held const held = experts_of(model, place.model, place.expert);
    using Sparse = ZeroStage<2, Ranks>;
    Sparse sparse(ranks,
                  registered(model, held, is_cut,
                             has_one_name ? "" : " of model rank " + std::to_string(place.model)),
                  options_of<Sparse>(test));
    sparse.begin_step();
    for (auto const micro_step : sparse.micro_steps(micro_steps)) {
        run_backward(sparse, held, test, place.tokens, micro_step);
    }
    return sparse.step(0.125, weight_of(test, {place.data})).report().gradient_norm;
}

} // namespace

TEST_CASE("A model that is cut over 2 tensor x 2 pipeline x 2 expert x 2 data ranks has the norms, "
          "clip coefficients and weights of one rank with the same gradients, bit for bit") {
    for (auto const kind : {ReductionKind::mean, ReductionKind::weighted_mean}) {
        CAPTURE(static_cast<int>(kind));
        auto const whole = check<ZeroStage<2, Cut>, ZeroStage<2, ExpertRanks>>({.kind = kind});
        CHECK(whole.coefficients[0] < 1.0F);
        check<ZeroStage<3, Cut>, ZeroStage<1, ExpertRanks>>({.kind = kind});
        check<ZeroStage<0, Cut>, ZeroStage<3, ExpertRanks>>({.kind = kind});
        check<ZeroStage<1, Cut>, ZeroStage<0, ExpertRanks>>({.kind = kind});
    }
}

TEST_CASE("An infinity in any part of the dense model or of an expert, also in a replica, skips "
          "the step of all engines on all ranks") {
    using S = DynamicLossScaler;
    for (std::size_t const parameter : {3U, 1U, 5U, 20U}) { // up, embed.1, an expert, a bias
        CAPTURE(parameter);
        auto const whole = check<ZeroStage<2, S, Cut>, ZeroStage<3, S, ExpertRanks>>(
            {.infinite_step = 2, .infinite_parameter = parameter});
        CHECK(whole.skipped == std::vector<int>{0, 0, 1, 0});
    }
}

TEST_CASE("Controls: a replica counted twice, an expert left out, a mean over the shard group "
          "only, and weights counted once per model rank are other norms") {
    struct Found {
        double right = 0, replica_twice = 0, over_shard_group = 0, per_model_rank = 0, dense = 0;
        double right_weighted = 0, replica_twice_weighted = 0;
        std::string joint;
    };
    Case const weighted{.kind = ReductionKind::weighted_mean};
    auto const model = whole_model();
    auto const found = on_ranks<Found>(world, [&](LoopbackCommunicator& everyone) {
        Place const place(everyone.rank());
        Found own;
        ExpertRanks ranks(everyone, {.experts = expert_ranks, .model = model_ranks});
        own.right = norm_of_experts(ranks, place, {});
        own.right_weighted = norm_of_experts(ranks, place, weighted);
        own.replica_twice = norm_of_experts(ranks, place, {}, false);
        own.replica_twice_weighted = norm_of_experts(ranks, place, weighted, false);
        Cut shard_group(everyone, {.model = model_ranks * expert_ranks});
        own.over_shard_group = norm_of_experts(shard_group, place, {});
        ExpertRanks each(everyone, {.experts = expert_ranks * model_ranks});
        own.per_model_rank = norm_of_experts(each, place, weighted, false, false);
        Cut cut(everyone, {.model = model_ranks});
        Held const held = dense_part(model, place.model);
        ZeroStage<2, Cut> dense(cut, registered(model, held, true),
                                options_of<ZeroStage<2, Cut>>({}));
        using Sparse = ZeroStage<2, ExpertRanks>;
        Sparse sparse(each,
                      registered(model, experts_of(model, place.model, place.expert), false,
                                 " of model rank " + std::to_string(place.model)),
                      options_of<Sparse>({}));
        own.joint = outcome_of([&] { JointStep const joint(dense, sparse); }).message;
        dense.begin_step();
        for (auto const micro_step : dense.micro_steps(micro_steps)) {
            run_backward(dense, held, {}, {place.data}, micro_step);
        }
        own.dense = dense.step(0.125).report().gradient_norm;
        return own;
    });
    auto const whole = alone<ZeroStage<2>>({});
    for (Found const& rank : found) {
        CHECK(rank.right < whole.norms[0]);
        CHECK(rank.dense < whole.norms[0]); // without experts
        CHECK(rank.dense * rank.dense + rank.right * rank.right
              == Approx(whole.norms[0] * whole.norms[0]));
        CHECK(rank.replica_twice > rank.right);
        CHECK(rank.over_shard_group == 2.0 * rank.right);
        // replicas have names of their own there
        CHECK(rank.replica_twice_weighted > rank.right_weighted);
        CHECK(rank.per_model_rank * 4.0 == rank.replica_twice_weighted);
        CHECK_THAT(rank.joint, contains_text("'data ranks' (4 and 16)"));
    }
}

TEST_CASE("Experts of a cut model are refused where ranks differ in the cut, or where it does not "
          "divide them, and the parts of one data rank have one number") {
    struct Found {
        Outcome differs, given, product;
        std::size_t batch = 0, other = 0;
    };
    auto const found = on_ranks<Found>(8, [](LoopbackCommunicator& everyone) {
        Found own;
        auto same = everyone.split(everyone.rank() % 4, everyone.rank());
        auto all = everyone.split(everyone.rank() / 4, everyone.rank());
        using Sparse = ZeroStage<2, ExpertRanks>;
        {
            ExpertRanks ranks(everyone, {.experts = 2, .model = 2});
            auto const expert = std::to_string(ranks.model().rank() / 2);
            Sparse const engine(ranks, {{.name = expert, .elements = 5}});
            own.batch = engine.micro_batch(1);
            own.product =
                outcome_of([&] { ExpertRanks const wrong(everyone, {.experts = 3, .model = 2}); });
            bool const is_other = everyone.rank() == 1;
            ExpertRanks mixed(everyone,
                              {.experts = is_other ? 1U : 2U, .model = is_other ? 4U : 2U});
            own.differs =
                outcome_of([&] { Sparse const wrong(mixed, {{.name = expert, .elements = 5}}); });
        }
        return own;
    });
    std::vector<std::size_t> batches;
    for (Found const& rank : found) {
        batches.push_back(rank.batch);
        CHECK(rank.product.type == "InvalidArgument");
        CHECK_THAT(rank.product.message,
                   contains_text(".experts times .model is 6, and there are 8 ranks"));
        CHECK(!rank.differs.message.empty());
    }
    CHECK(batches == std::vector<std::size_t>{4, 4, 5, 5, 6, 6, 7, 7});
    CHECK_THAT(found[0].differs.message, contains_text("communicator"));
    auto const given = on_ranks<Outcome>(4, [](LoopbackCommunicator& everyone) {
        auto same = everyone.split(everyone.rank(), 0);
        return outcome_of([&] { ExpertRanks const ranks(same, everyone, 3); });
    });
    CHECK(given[2].type == "InvalidArgument");
    CHECK_THAT(given[2].message, contains_text("3 ranks cannot hold an expert together where 4"));
}

} // namespace zero::test::cut_experts_test
