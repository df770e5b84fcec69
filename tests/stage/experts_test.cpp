// A dense part and experts on 4 data ranks: E = 1, 2 and 4 ranks that hold other experts train to
// the same bits, and step together.

#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/toy_model.hpp"

#include <zero/comm/experts.hpp>
#include <zero/comm/groups.hpp>
#include <zero/ops/sgd.hpp>
#include <zero/stage/joint_step.hpp>
#include <zero/stage/wire.hpp>
#include <zero/zero.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace zero::test::experts_test {

namespace {

using ExpertRanks = Groups<LoopbackCommunicator, Experts>;
using ModelRanks = Groups<LoopbackCommunicator, ModelParallel>;
static_assert(ExpertCommunicator<ExpertRanks> && ModelParallelCommunicator<ExpertRanks>);
static_assert(!ExpertCommunicator<ModelRanks> && !GroupedCommunicator<ExpertRanks>);

constexpr std::size_t data_ranks = 4, experts = 6, elements = 70;

struct Case {
    std::size_t ranks_with_experts = 1; ///< E
    bool are_integers = true;           ///< gradients
    ReductionKind kind = ReductionKind::mean;
    std::optional<std::size_t> infinite_step{}; ///< for expert 2, from the tokens of rank 3
    std::vector<std::size_t> idle{};            ///< experts without a token
    std::size_t count = experts;
};

/// The gradient that the tokens of a data rank add to an element. @param part 0: the dense part,
/// then the experts
float gradient(Case const& test, std::size_t rank, std::size_t part, std::size_t element,
               std::size_t step) {
    for (std::size_t const idle : test.idle) {
        if (part == idle + 1) {
            return 0.0F;
        }
    }
    if (test.infinite_step == step && part == 3 && rank == 3 && element == 5) {
        return std::numeric_limits<float>::infinity();
    }
    float const value = noise(rank, part, element, step);
    return test.are_integers ? std::floor(value * 8.0F) : value;
}

template <class Stage>
std::vector<typename Stage::Registration> dense_parameters() {
    std::vector<typename Stage::Registration> parameters(1);
    parameters[0].name = "dense";
    parameters[0].elements = 3 * elements;
    return parameters;
}

/// The experts of one of E ranks, a unit each.
template <class Stage>
std::vector<typename Stage::Registration> expert_parameters(std::vector<std::size_t> const& own) {
    std::vector<typename Stage::Registration> parameters;
    for (std::size_t i = 0; i < own.size(); ++i) {
        typename Stage::Registration parameter;
        parameter.name = "experts." + std::to_string(own[i]) + ".up";
        parameter.elements = elements;
        parameter.units = {i};
        parameter.initialise = [expert = own[i]](std::size_t begin, std::span<float> values) {
            for (std::size_t at = 0; at < values.size(); ++at) {
                values[at] = noise(2, expert, begin + at);
            }
        };
        parameters.push_back(parameter);
    }
    return parameters;
}

std::vector<std::size_t> experts_of(std::size_t part, std::size_t parts, std::size_t count) {
    std::vector<std::size_t> own;
    for (std::size_t expert = count * part / parts; expert < count * (part + 1) / parts; ++expert) {
        own.push_back(expert);
    }
    return own;
}

struct Seen {
    std::vector<double> norms;
    std::vector<float> coefficients;
    std::vector<int> skipped;
    std::vector<std::vector<float>> values{1 + experts}; ///< the dense part, then the experts held

    bool operator==(Seen const&) const = default;
};

template <class Options>
Options options_of(Case const& test) {
    Options options;
    options.gradient_clipping = 20.0F;
    options.reduction.kind = test.kind;
    options.reduction.schedule = ReductionSchedule::every_micro_step;
    return options;
}

template <int N, int M>
Seen train(LoopbackCommunicator& everyone, Case const& test) {
    std::size_t const parts = test.ranks_with_experts;
    ExpertRanks ranks(everyone, {.experts = parts});
    auto const rank = static_cast<std::size_t>(everyone.rank());
    auto const own = experts_of(static_cast<std::size_t>(ranks.model().rank()), parts, test.count);
    using Dense = ZeroStage<N, Sgd>;
    using Sparse = ZeroStage<M, Sgd, ExpertRanks>;
    Dense dense(everyone, dense_parameters<Dense>(), options_of<typename Dense::Options>(test));
    Sparse sparse(ranks, expert_parameters<Sparse>(own),
                  options_of<typename Sparse::Options>(test));
    JointStep joint(dense, sparse);
    Seen seen;
    for (std::size_t step = 0; step < 5; ++step) {
        joint.begin_step();
        for (std::size_t micro_step = 0; micro_step < 2; ++micro_step) {
            std::size_t const batch = step * 2 + micro_step;
            dense.begin_micro_step();
            sparse.begin_micro_step();
            for (std::size_t i = own.size(); i-- > 0;) {
                auto const weights = sparse.acquire(i);
                if (std::find(test.idle.begin(), test.idle.end(), own[i]) != test.idle.end()) {
                    sparse.gradients_ready(i); // no token came, and nothing was written
                    continue;
                }
                auto const gradients = sparse.gradients(i);
                for (std::size_t at = 0; at < elements; ++at) {
                    for (std::size_t peer = rank - rank % parts; peer < rank - rank % parts + parts;
                         ++peer) { // the tokens that the ranks of this copy exchanged
                        gradients[i][at] += gradient(test, peer, own[i] + 1, at, batch);
                    }
                }
                sparse.gradients_ready(i);
            }
            {
                auto const weights = dense.acquire(0);
                auto const gradients = dense.gradients(0);
                for (std::size_t at = 0; at < 3 * elements; ++at) {
                    gradients[0][at] += gradient(test, rank, 0, at, batch);
                }
                dense.gradients_ready(0);
            }
            dense.end_micro_step();
            sparse.end_micro_step();
        }
        auto const weight = test.kind == ReductionKind::weighted_mean
                                ? std::optional(static_cast<std::int64_t>(5 + rank))
                                : std::nullopt;
        auto const [of_dense, of_experts] = joint.step(0.125, weight);
        auto const report = of_experts.report();
        bool const is_same = report.gradient_norm == of_dense.report().gradient_norm
                             && report.is_skipped == of_dense.report().is_skipped;
        seen.norms.push_back(is_same ? report.gradient_norm : -1.0);
        seen.coefficients.push_back(report.clip_coefficient);
        seen.skipped.push_back(report.is_skipped ? 1 : 0);
    }
    seen.values[0] = full_parameters(dense)[0];
    auto const values = full_parameters(sparse);
    for (std::size_t i = 0; i < own.size(); ++i) {
        seen.values[1 + own[i]] = values[i];
    }
    return seen;
}

/// Requires that every rank saw what a rank saw that held all experts.
void check_same(std::vector<Seen> const& found, Seen const& expected) {
    for (Seen const& rank : found) {
        CHECK(rank.norms == expected.norms);
        CHECK(rank.coefficients == expected.coefficients);
        CHECK(rank.skipped == expected.skipped);
        for (std::size_t part = 0; part < rank.values.size(); ++part) {
            CHECK((rank.values[part].empty() || rank.values[part] == expected.values[part]));
        }
    }
}

template <int N, int M>
std::vector<Seen> run(Case const& test) {
    return on_ranks<Seen>(
        data_ranks, [&](LoopbackCommunicator& everyone) { return train<N, M>(everyone, test); });
}

template <int N, int M>
Seen check_all(Case test) {
    test.ranks_with_experts = 1;
    auto const one = run<N, M>(test);
    check_same(one, one[0]);
    for (std::size_t const parts : {2U, 4U}) {
        CAPTURE(parts);
        test.ranks_with_experts = parts;
        check_same(run<N, M>(test), one[0]);
    }
    return one[0];
}

/// Reports gradients of 3 and returns the norm of the step.
template <class Engine>
double norm_of(Engine& engine) {
    engine.begin_step();
    engine.begin_micro_step();
    for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
        auto const gradients = engine.gradients(unit);
        for (float& value : gradients[unit]) {
            value += 3.0F;
        }
        engine.gradients_ready(unit);
    }
    engine.end_micro_step();
    return engine.step(0.5).report().gradient_norm;
}

} // namespace

TEST_CASE("However many ranks hold the experts, 5 steps with gradients of integers give the same "
          "norms, clip coefficients and parameters") {
    for (auto const kind :
         {ReductionKind::mean, ReductionKind::weighted_mean, ReductionKind::sum}) {
        CAPTURE(static_cast<int>(kind));
        auto const seen = check_all<2, 2>({.kind = kind});
        CHECK(check_all<3, 2>({.kind = kind}) == seen);
        CHECK(check_all<0, 3>({.kind = kind}) == seen);
        CHECK(check_all<1, 1>({.kind = kind}) == seen);
        CHECK((seen.coefficients[0] < 1.0F) == (kind != ReductionKind::weighted_mean));
    }
}

TEST_CASE("An infinity from the tokens of one rank in one expert skips the step everywhere") {
    auto const seen = check_all<3, 2>({.infinite_step = 4});
    CHECK(seen.skipped == std::vector<int>{0, 0, 1, 0, 0});
}

TEST_CASE("Experts without a token get zeros and stop nobody, also where a rank has no other") {
    auto const seen = check_all<2, 1>({.idle = {0, 1, 2}}); // with E = 2: all of one rank
    CHECK(seen.skipped == std::vector<int>(5, 0));
    auto const full = check_all<2, 1>({});
    CHECK(seen.norms[0] < full.norms[0]);
    std::vector<float> initial(elements);
    for (std::size_t at = 0; at < elements; ++at) {
        initial[at] = noise(2, 1, at);
    }
    CHECK(seen.values[2] == initial);
    CHECK(full.values[2] != initial);
}

TEST_CASE("A rank whose experts got no gradient stops nobody without a dense part either, unlike "
          "a part of a model") {
    auto const step = [](auto& ranks) {
        using Zero = ZeroStage<2, std::remove_reference_t<decltype(ranks)>>;
        auto const part = static_cast<std::size_t>(ranks.model().rank());
        Zero engine(ranks, expert_parameters<Zero>(experts_of(part, 2, 2)));
        return outcome_of([&] {
            engine.begin_step();
            engine.begin_micro_step();
            if (part == 0) {
                auto const gradients = engine.gradients(0);
                gradients[0][0] += 1.0F;
                engine.gradients_ready(0);
            }
            engine.end_micro_step();
            auto const report = engine.step(0.5).report();
            if (report.is_skipped || report.gradient_norm != 0.5) { // 2 of 4 ranks add 1
                throw std::logic_error("skipped");
            }
        });
    };
    for (Outcome const& rank : on_ranks<Outcome>(data_ranks, [&](LoopbackCommunicator& everyone) {
             ExpertRanks ranks(everyone, {.experts = 2});
             return step(ranks);
         })) {
        CHECK(rank.message.empty());
    }
    auto const parts = on_ranks<Outcome>(data_ranks, [&](LoopbackCommunicator& everyone) {
        ModelRanks ranks(everyone, {.model = 2});
        return step(ranks);
    });
    CHECK(parts[1].type == "NoGradients");
}

TEST_CASE("A rank that holds no expert takes part") {
    check_all<2, 2>({.count = 3}); // on 4 ranks
}

TEST_CASE("With real gradients the parameters differ by the order of addition only") {
    Case test{.are_integers = false};
    auto const one = run<2, 2>(test);
    constexpr double eps = 0x1.0p-24;
    for (std::size_t const parts : {2U, 4U}) {
        test.ranks_with_experts = parts;
        for (Seen const& rank : run<2, 2>(test)) {
            for (std::size_t step = 0; step < 5; ++step) {
                // 4 addends of at most 1 in each of 2 micro-steps, whatever the step before was
                double const bound = 8 * eps * rank.norms[step] + 8 * eps * 8;
                CHECK(std::abs(rank.norms[step] - one[0].norms[step]) <= bound);
            }
            for (std::size_t part = 0; part < rank.values.size(); ++part) {
                for (std::size_t at = 0; at < rank.values[part].size(); ++at) {
                    double const bound = 5 * (0.125 * 16 * eps + 2 * eps);
                    CHECK(std::abs(static_cast<double>(rank.values[part][at])
                                   - static_cast<double>(one[0].values[part][at]))
                          <= bound);
                }
            }
        }
    }
}

TEST_CASE("Micro-batches are numbered over all ranks") {
    auto const seen = on_ranks<std::size_t>(data_ranks, [](LoopbackCommunicator& everyone) {
        ExpertRanks ranks(everyone, {.experts = 2});
        auto const own = experts_of(static_cast<std::size_t>(ranks.model().rank()), 2, 4);
        using S = ZeroStage<2, ExpertRanks>;
        return S(ranks, expert_parameters<S>(own)).micro_batch(3);
    });
    CHECK(seen == std::vector<std::size_t>{12, 13, 14, 15});
}

TEST_CASE("Control: an expert part that divides by its own ranks has a norm E times as large, and "
          "cannot step with a dense part") {
    struct Found {
        double right = 0.0, wrong = 0.0;
        Outcome joint;
    };
    auto const seen = on_ranks<Found>(data_ranks, [](LoopbackCommunicator& everyone) {
        Found found;
        ExpertRanks ranks(everyone, {.experts = 2});
        auto const own = experts_of(static_cast<std::size_t>(ranks.model().rank()), 2, experts);
        using Right = ZeroStage<2, ExpertRanks>;
        Right right(ranks, expert_parameters<Right>(own));
        found.right = norm_of(right);
        ModelRanks halves(everyone, {.model = 2});
        using Wrong = ZeroStage<2, ModelRanks>;
        Wrong wrong(halves, expert_parameters<Wrong>(own));
        ZeroStage<2> dense(everyone, dense_parameters<ZeroStage<2>>());
        found.joint = outcome_of([&] { JointStep const joint(dense, wrong); });
        found.wrong = norm_of(wrong);
        return found;
    });
    for (Found const& rank : seen) {
        CHECK(rank.right == std::sqrt(experts * elements * 9.0 / 4.0)); // 2 of 4 ranks add 3
        CHECK(rank.wrong == 2.0 * rank.right);
        CHECK(rank.joint.type == "InvalidArgument");
        CHECK(rank.joint.message.find("'data ranks' (4 and 2)") != std::string::npos);
    }
}

TEST_CASE("The ranks with the same experts may be sharded in groups, with codes between them") {
    using Hosts = Groups<LoopbackCommunicator, Hybrid>;
    using HostRanks = Groups<Hosts, Experts>;
    auto const norms_with = []<class W>(W const*) {
        return on_ranks<double>(8, [](LoopbackCommunicator& everyone) {
            auto same = everyone.split(everyone.rank() % 2, everyone.rank());
            auto model = everyone.split(everyone.rank() / 2, everyone.rank());
            Hosts hosts(same, {.shard = 2});
            HostRanks ranks(hosts, model);
            using Zero = ZeroStage<2, HostRanks, W>;
            Zero engine(ranks, expert_parameters<Zero>(
                                   experts_of(static_cast<std::size_t>(model.rank()), 2, experts)));
            return norm_of(engine);
        });
    };
    double const exact = std::sqrt(experts * elements * 9.0 / 4.0);
    CHECK(norms_with(static_cast<Wire<> const*>(nullptr)) == std::vector<double>(8, exact));
    auto const coded =
        norms_with(static_cast<Wire<Plain, Level<Plain, Int8Blocks>> const*>(nullptr));
    CHECK(coded == std::vector<double>(8, coded[0]));
    CHECK(coded[0] == Approx(exact).epsilon(0.01));
    CHECK(coded[0] != exact);
}

TEST_CASE("Experts are refused with a size that does not divide the ranks, with one name on two "
          "ranks, and with a tree") {
    auto const split = on_ranks<Outcome>(data_ranks, [](LoopbackCommunicator& everyone) {
        return outcome_of([&] { ExpertRanks const ranks(everyone, {.experts = 3}); });
    });
    auto const names = on_ranks<Outcome>(data_ranks, [](LoopbackCommunicator& everyone) {
        ExpertRanks ranks(everyone, {.experts = 2});
        using S = ZeroStage<2, ExpertRanks>;
        return outcome_of([&] { S const engine(ranks, expert_parameters<S>({0, 1})); });
    });
    auto const tree = on_ranks<Outcome>(data_ranks, [](LoopbackCommunicator& everyone) {
        ExpertRanks ranks(everyone, {.experts = 2});
        using S = ZeroStage<2, ExpertRanks, TreeReduction<>>;
        auto const own = experts_of(static_cast<std::size_t>(ranks.model().rank()), 2, 4);
        return outcome_of([&] {
            S const engine(ranks, expert_parameters<S>(own), {.reduction = {.micro_batches = 8}});
        });
    });
    for (std::size_t rank = 0; rank < data_ranks; ++rank) {
        CHECK(split[rank].type == "InvalidArgument");
        CHECK(split[rank].message.find(".experts is 3, and there are 4 ranks; give the number of "
                                       "ranks that hold one copy of all experts")
              != std::string::npos);
        // On a rank of another copy that is late this is the cause of an Aborted.
        CHECK(names[rank].message.find("experts of both have this name") != std::string::npos);
        CHECK(tree[rank].type == "InvalidArgument");
        CHECK(tree[rank].message.find("micro-batches of several ranks") != std::string::npos);
    }
}

} // namespace zero::test::experts_test
