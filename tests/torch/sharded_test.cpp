#include "model.hpp"

#include "support/catch.hpp"

#include <zero/comm/run_ranks.hpp>
#include <zero/core/error.hpp>

#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

namespace zero::test::sharded_test {

using torch_model::LanguageModel;
using torch_model::loss_of;
using torch_model::Plain;
using torch_model::tokens_of;

namespace {

constexpr int ranks = 2;
constexpr int steps = 5;

/// Losses per step, and the final parameters.
struct Outcome {
    std::vector<double> losses;
    std::vector<float> values;
    std::vector<float> buffer; ///< buffer of the last rank
};

Outcome train_plain(int micro_steps, double rate, at::ScalarType type = at::kFloat) {
    at::set_num_threads(1);
    LanguageModel model;
    LanguageModel copy;
    copy->to(type);
    ::torch::optim::AdamW optimizer(model->parameters(), ::torch::optim::AdamWOptions(rate));
    Outcome outcome;
    for (int step = 0; step < steps; ++step) {
        {
            ::torch::NoGradGuard const no_gradients;
            for (std::size_t i = 0; i < model->parameters().size(); ++i) {
                copy->parameters()[i].copy_(model->parameters()[i]);
            }
        }
        copy->zero_grad();
        double total = 0.0;
        for (int micro_step = 0; micro_step < micro_steps; ++micro_step) {
            for (int rank = 0; rank < ranks; ++rank) {
                at::Tensor const loss = loss_of(copy, tokens_of(step, micro_step, rank), Plain())
                                        / (ranks * micro_steps);
                total += loss.item<double>();
                loss.backward();
            }
        }
        for (std::size_t i = 0; i < model->parameters().size(); ++i) {
            model->parameters()[i].mutable_grad() =
                copy->parameters()[i].grad().to(at::kFloat).clone();
        }
        optimizer.step();
        outcome.losses.push_back(total);
    }
    return outcome;
}

/// Trains by `zero::torch::Sharded`.
template <class Zero>
struct BySharded {
    torch::Sharded<Zero> sharded;

    BySharded(LoopbackCommunicator& communicator, LanguageModel& model,
              typename Zero::Options const& options)
        : sharded(communicator, *model, model->units(), options) {}

    at::Tensor loss(LanguageModel& model, at::Tensor const& tokens) {
        return loss_of(model, tokens, sharded);
    }
};

/// Trains by `zero::torch::Replicated`, with the forward pass of the plain trainer.
template <class Zero>
struct ByReplicated {
    torch::Replicated<Zero> sharded;

    ByReplicated(LoopbackCommunicator& communicator, LanguageModel& model,
                 typename Zero::Options const& options)
        : sharded(communicator, *model, options) {}

    at::Tensor loss(LanguageModel& model, at::Tensor const& tokens) {
        return loss_of(model, tokens, Plain());
    }
};

template <class Zero, template <class> class Trainer = BySharded>
Outcome train(int micro_steps, double rate, bool is_materialized = false) {
    std::array<Outcome, ranks> outcomes;
    run_ranks(ranks, [&](LoopbackCommunicator& communicator) {
        at::set_num_threads(1);
        int const rank = communicator.rank();
        Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
        LanguageModel model;
        model->to(torch::scalar_type_of<typename Zero::ParameterType>());
        model->steps.fill_(rank + 1);
        if (rank != 0) { // the values of rank 0 count
            ::torch::NoGradGuard const no_gradients;
            model->head_bias.fill_(7.0);
        }
        typename Zero::Options options;
        options.reduction.schedule = ReductionSchedule::every_micro_step;
        options.unused_parameters = UnusedParameters::error;
        Trainer<Zero> trainer(communicator, model, options);
        auto& sharded = trainer.sharded;
        for (int step = 0; step < steps; ++step) {
            sharded->begin_step();
            double total = 0.0;
            for (int micro_step = 0; micro_step < micro_steps; ++micro_step) {
                sharded->begin_micro_step(micro_step + 1 == micro_steps ? MicroStep::last
                                                                        : MicroStep::more);
                at::Tensor const loss = trainer.loss(model, tokens_of(step, micro_step, rank));
                total += loss.item<double>() / (ranks * micro_steps);
                sharded.backward(loss);
                sharded->end_micro_step();
            }
            sharded.step(rate);
            outcome.losses.push_back(total);
            if constexpr (requires { sharded.materialize(); }) {
                if (is_materialized && step == 2) {
                    sharded.materialize();
                    sharded.shard();
                }
            }
        }
        sharded->for_each_full_parameter([&](std::size_t, auto values) {
            for (auto const value : values) {
                outcome.values.push_back(to_float(value));
            }
        });
        outcome.buffer = {model->steps[0].item<float>(), model->steps[1].item<float>()};
    });
    for (int step = 0; step < steps; ++step) {
        outcomes[0].losses[static_cast<std::size_t>(step)] +=
            outcomes[1].losses[static_cast<std::size_t>(step)];
    }
    outcomes[0].buffer = outcomes[1].buffer;
    return outcomes[0];
}

double distance(Outcome const& a, Outcome const& b) {
    double largest = 0.0;
    for (std::size_t step = 0; step < steps; ++step) {
        largest = std::max(largest, std::abs(a.losses[step] - b.losses[step]));
    }
    return largest;
}

bool is_equal(Outcome const& a, Outcome const& b) {
    return a.losses == b.losses && a.values.size() == b.values.size()
           && std::memcmp(a.values.data(), b.values.data(), a.values.size() * sizeof(float)) == 0;
}

/// Replicated registers parameters in another order. Sums over all of them, such as those of
/// clipping, are exact, so the order does not change them.
template <class... Zero>
void check_replicated(int micro_steps, Outcome const& expected) {
    for (Outcome const& found : {train<Zero, ByReplicated>(micro_steps, 0.01)...}) {
        CHECK(found.losses == expected.losses);
        CHECK(found.buffer == expected.buffer);
    }
}

struct PairImpl : ::torch::nn::Module {
    ::torch::nn::Linear always{nullptr}, sometimes{nullptr};
    PairImpl() {
        always = register_module("always", ::torch::nn::Linear(4, 4));
        sometimes = register_module("sometimes", ::torch::nn::Linear(4, 4));
    }
    at::Tensor forward(bool uses_both) {
        at::Tensor const x = always(::torch::ones({2, 4}));
        return (uses_both ? sometimes(x) : x).sum();
    }
};
using Pair = ::torch::nn::ModuleHolder<PairImpl>;

/// Trains four steps, of which rank 1 uses the second half of the module in the first and the last.
/// Returns that half after each step.
template <class Zero, template <class> class Adapter>
std::vector<std::vector<float>> train_pair() {
    std::vector<std::vector<float>> seen;
    run_ranks(ranks, [&](LoopbackCommunicator& communicator) {
        at::set_num_threads(1);
        Pair pair;
        typename Zero::Options options;
        options.unused_parameters = UnusedParameters::leave;
        auto adapter = [&] {
            if constexpr (std::is_same_v<Adapter<Zero>, torch::Sharded<Zero>>) {
                return std::make_unique<Adapter<Zero>>(
                    communicator, *pair, std::vector<torch::Unit>{{"pair", pair}}, options);
            } else {
                return std::make_unique<Adapter<Zero>>(communicator, *pair, options);
            }
        }();
        for (int step = 0; step < 4; ++step) {
            bool const uses_both = communicator.rank() == 1 && step % 3 == 0;
            adapter->engine().begin_step();
            adapter->engine().begin_micro_step(MicroStep::last);
            if constexpr (std::is_same_v<Adapter<Zero>, torch::Sharded<Zero>>) {
                adapter->backward((*adapter)(0, [&] { return pair->forward(uses_both); }));
            } else {
                adapter->backward(pair->forward(uses_both));
            }
            adapter->engine().end_micro_step();
            adapter->step(0.1);
            std::vector<float> values;
            adapter->engine().for_each_full_parameter([&](std::size_t parameter, auto all) {
                if (adapter->engine().layout().parameter(parameter).name.starts_with("some")) {
                    values.insert(values.end(), all.begin(), all.end());
                }
            });
            if (communicator.rank() == 0) {
                seen.push_back(values);
            }
        }
    });
    return seen;
}

template <class Zero, template <class> class Adapter>
void check_left() {
    auto const seen = train_pair<Zero, Adapter>();
    CHECK(seen[0].size() == 20);
    CHECK(seen[1] == seen[0]);
    CHECK(seen[2] == seen[0]);
    CHECK(seen[3] != seen[0]);
}

template <template <int> class StageOf>
void check_stages(at::ScalarType type, double tolerance) {
    for (int const micro_steps : {1, 2}) {
        INFO(micro_steps << " micro-steps");
        Outcome const plain = train_plain(micro_steps, 0.01, type);
        Outcome const first = train<StageOf<0>>(micro_steps, 0.01);
        CHECK(distance(first, plain) < tolerance);
        CHECK(distance(first, train_plain(micro_steps, 0.02, type)) > tolerance);
        CHECK(is_equal(train<StageOf<1>>(micro_steps, 0.01), first));
        CHECK(is_equal(train<StageOf<2>>(micro_steps, 0.01), first));
        CHECK(is_equal(train<StageOf<3>>(micro_steps, 0.01), first));
        CHECK(is_equal(train<StageOf<1>>(micro_steps, 0.01, true), first));
        CHECK(is_equal(train<StageOf<3>>(micro_steps, 0.01, true), first));
        CHECK_FALSE(is_equal(train<StageOf<3>>(micro_steps, 0.02), first));
        CHECK(first.buffer == std::vector<float>{1.0F, 1.0F});
        check_replicated<StageOf<0>, StageOf<1>, StageOf<2>>(micro_steps, first);
    }
}

template <int N>
using OfFloat = ZeroStage<N, AdamW>;
template <int N>
using OfBfloat16 = ZeroStage<N, AdamW, Parameters<bfloat16>>;
template <int N>
using OfFloat16 = ZeroStage<N, AdamW, Parameters<float16>, DynamicLossScaler>;

} // namespace

TEST_CASE("A module in float trains as with the optimizer of LibTorch, with equal bits in all "
          "stages") {
    check_stages<OfFloat>(at::kFloat, 1e-5);
}

TEST_CASE("A module in bfloat16 trains as with master weights by hand, with equal bits in all "
          "stages") {
    check_stages<OfBfloat16>(at::kBFloat16, 0.05);
}

TEST_CASE("Tensors that no rank's backward pass reaches in a step are left as they are") {
    check_left<OfFloat<1>, torch::Sharded>();
    check_left<OfFloat<3>, torch::Sharded>();
    check_left<OfFloat<2>, torch::Replicated>();
}

TEST_CASE("A module in float16 trains with a loss scaler, with equal bits in all stages") {
    check_stages<OfFloat16>(at::kHalf, 0.01);
}

} // namespace zero::test::sharded_test
