#include "model.hpp"

#include "comm/report.hpp"
#include "support/catch.hpp"
#include "support/outcome.hpp"

#include <zero/comm/run_ranks.hpp>

#include <array>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <cmath>
#include <functional>
#include <stdexcept>
#include <torch/csrc/autograd/autograd.h>

// Forms of graphs, the memory that a step takes, and mistakes that one of several ranks makes.

namespace zero::test::graphs_test {

using torch_model::LanguageModel;
using torch_model::loss_of;
using torch_model::Plain;
using torch_model::tokens_of;

namespace {

constexpr int steps = 3;

using Run = std::function<at::Tensor(std::size_t, std::function<at::Tensor()>)>;
using Pair = std::tuple<at::Tensor, std::vector<at::Tensor>>;
using RunPair = std::function<Pair(std::size_t, std::function<Pair()>)>;

/// A model's loss, computed through functions that run units.
using Loss = at::Tensor (*)(LanguageModel&, at::Tensor const&, Run const&, RunPair const&);

at::Tensor input_of(at::Tensor const& tokens) {
    return tokens.narrow(1, 0, torch_model::context);
}

at::Tensor head_loss(LanguageModel& model, at::Tensor const& x, at::Tensor const& tokens,
                     Run const& run) {
    at::Tensor const y = run(3, [&] {
        return ::torch::nn::functional::linear(x, model->embedding->weight, model->head_bias);
    });
    return ::torch::nn::functional::cross_entropy(
        y.reshape({-1, torch_model::vocabulary}),
        tokens.narrow(1, 1, torch_model::context).reshape({-1}));
}

at::Tensor twice(LanguageModel& model, at::Tensor const& tokens, Run const& run, RunPair const&) {
    at::Tensor x = run(0, [&] { return model->embedding(input_of(tokens)); });
    x = run(1, [&] { return model->blocks[0](x); });
    x = run(2, [&] { return model->blocks[1](x); });
    x = run(1, [&] { return model->blocks[0](x); });
    return head_loss(model, x, tokens, run);
}

at::Tensor nested(LanguageModel& model, at::Tensor const& tokens, Run const& run, RunPair const&) {
    at::Tensor const x = run(0, [&] { return model->embedding(input_of(tokens)); });
    at::Tensor const y = run(1, [&] {
        at::Tensor const first = model->blocks[0]->norm(x);
        at::Tensor const inner = run(2, [&] { return model->blocks[1](first); });
        return x + model->blocks[0]->down(::torch::tanh(model->blocks[0]->up(inner)));
    });
    return head_loss(model, y, tokens, run);
}

at::Tensor several_outputs(LanguageModel& model, at::Tensor const& tokens, Run const& run,
                           RunPair const& run_pair) {
    at::Tensor const x = run(0, [&] { return model->embedding(input_of(tokens)); });
    Pair const outputs = run_pair(1, [&] {
        at::Tensor const up = ::torch::tanh(model->blocks[0]->up(model->blocks[0]->norm(x)));
        at::Tensor const down = model->blocks[0]->down(up);
        return Pair(x + down, {down.narrow(2, 0, 4), down.narrow(2, 4, 8)});
    });
    at::Tensor const y = run(2, [&] {
        auto const& [sum, parts] = outputs;
        return model->blocks[1](sum + ::torch::cat({parts[1], parts[0]}, 2));
    });
    return head_loss(model, y, tokens, run);
}

/// Frees the activations of a forward call and recomputes them in the backward pass.
struct Recomputed : ::torch::autograd::Function<Recomputed> {
    using Forward = std::function<at::Tensor(at::Tensor const&)>;

    static at::Tensor forward(::torch::autograd::AutogradContext* context, at::Tensor const& x,
                              Forward const* again) {
        context->save_for_backward({x});
        context->saved_data["again"] = reinterpret_cast<std::int64_t>(again);
        return (*again)(x);
    }
    static ::torch::autograd::variable_list backward(::torch::autograd::AutogradContext* context,
                                                     ::torch::autograd::variable_list sums) {
        at::Tensor const x = context->get_saved_variables()[0].detach().requires_grad_(true);
        auto const* const again =
            reinterpret_cast<Forward const*>(context->saved_data["again"].toInt());
        at::AutoGradMode const enabled(true);
        ::torch::autograd::backward({(*again)(x)}, {sums[0]});
        return {x.grad(), at::Tensor()};
    }
};

/// The recomputation is inside the unit's forward call and reads what autograd opened.
at::Tensor recomputed(LanguageModel& model, at::Tensor const& tokens, Run const& run,
                      RunPair const&) {
    static thread_local Recomputed::Forward again;
    again = [&model](at::Tensor const& x) { return model->blocks[0](x); };
    at::Tensor x = run(0, [&] { return model->embedding(input_of(tokens)); });
    x = run(1, [&] { return Recomputed::apply(x, &again); });
    x = run(2, [&] { return model->blocks[1](x); });
    return head_loss(model, x, tokens, run);
}

/// The recomputation runs units itself.
at::Tensor recomputed_units(LanguageModel& model, at::Tensor const& tokens, Run const& run,
                            RunPair const&) {
    static thread_local Recomputed::Forward again;
    again = [&model, run](at::Tensor const& x) {
        at::Tensor const y = run(1, [&] { return model->blocks[0](x); });
        return run(2, [&] { return model->blocks[1](y); });
    };
    at::Tensor const x = run(0, [&] { return model->embedding(input_of(tokens)); });
    return head_loss(model, Recomputed::apply(x, &again), tokens, run);
}

/// The recomputation is inside one unit and runs another.
at::Tensor recomputed_nested(LanguageModel& model, at::Tensor const& tokens, Run const& run,
                             RunPair const&) {
    static thread_local Recomputed::Forward again;
    again = [&model, run](at::Tensor const& x) {
        at::Tensor const y = ::torch::tanh(model->blocks[0]->up(x));
        at::Tensor const inner = run(2, [&] { return model->blocks[1](x); });
        return model->blocks[0]->down(y) + inner;
    };
    at::Tensor x = run(0, [&] { return model->embedding(input_of(tokens)); });
    x = run(1, [&] { return Recomputed::apply(model->blocks[0]->norm(x), &again); });
    return head_loss(model, x, tokens, run);
}

void freeze_none(LanguageModel&) {}
void freeze_some(LanguageModel& model) {
    model->blocks[0]->up->weight.set_requires_grad(false);
    model->blocks[1]->norm->bias.set_requires_grad(false);
}
void freeze_unit(LanguageModel& model) {
    for (at::Tensor const& parameter : model->blocks[1]->parameters()) {
        parameter.set_requires_grad(false);
    }
}

using Freeze = void (*)(LanguageModel&);

std::vector<double> train_plain(Loss loss_of_model, Freeze freeze, double rate) {
    LanguageModel model;
    freeze(model);
    ::torch::optim::AdamW optimizer(model->parameters(), ::torch::optim::AdamWOptions(rate));
    std::vector<double> losses;
    for (int step = 0; step < steps; ++step) {
        optimizer.zero_grad();
        at::Tensor const loss = loss_of_model(
            model, tokens_of(step, 0, 0), [](std::size_t, auto const& f) { return f(); },
            [](std::size_t, auto const& f) { return f(); });
        loss.backward();
        optimizer.step();
        losses.push_back(loss.item<double>());
    }
    return losses;
}

template <int N>
std::vector<double> train(Loss loss_of_model, Freeze freeze) {
    std::vector<double> losses;
    run_ranks(1, [&](LoopbackCommunicator& communicator) {
        LanguageModel model;
        freeze(model);
        torch::Sharded<ZeroStage<N, AdamW>> sharded(communicator, *model, model->units());
        for (int step = 0; step < steps; ++step) {
            sharded->begin_step();
            sharded->begin_micro_step(MicroStep::last);
            auto const run = [&](std::size_t unit, auto const& f) { return sharded(unit, f); };
            at::Tensor const loss = loss_of_model(model, tokens_of(step, 0, 0), run, run);
            sharded.backward(loss);
            sharded->end_micro_step();
            sharded.step(0.01);
            losses.push_back(loss.item<double>());
        }
    });
    return losses;
}

double distance(std::vector<double> const& a, std::vector<double> const& b) {
    double largest = 0.0;
    for (std::size_t step = 0; step < steps; ++step) {
        largest = std::max(largest, std::abs(a[step] - b[step]));
    }
    return largest;
}

void check(Loss loss_of_model, Freeze freeze = freeze_none) {
    at::set_num_threads(1);
    std::vector<double> const plain = train_plain(loss_of_model, freeze, 0.01);
    std::vector<double> const first = train<1>(loss_of_model, freeze);
    CHECK(distance(plain, first) < 1e-5);
    CHECK(distance(plain, train_plain(loss_of_model, freeze, 0.02)) > 1e-5);
    CHECK(train<3>(loss_of_model, freeze) == first);
}

/// Counts the bytes that LibTorch's allocator gives to this thread.
struct CountedMemory : c10::MemoryReportingInfoBase {
    std::int64_t given = 0;
    std::int64_t live = 0;
    std::int64_t most = 0;

    void reportMemoryUsage(void*, std::int64_t bytes, std::size_t, std::size_t,
                           c10::Device) override {
        given += std::max<std::int64_t>(bytes, 0);
        live += bytes;
        most = std::max(most, live);
    }
    [[nodiscard]] bool memoryProfilingEnabled() const override { return true; }
};

/// Returns the bytes that the second of two micro-steps allocates: in total, still live at its end,
/// and live at most. The first one is not counted, because it also allocates memory that stays.
template <class MicroStep>
std::array<std::int64_t, 3> memory_of(MicroStep const& micro_step) {
    micro_step();
    auto const counted = std::make_shared<CountedMemory>();
    c10::DebugInfoGuard const guard(c10::DebugInfoKind::PROFILER_STATE, counted);
    micro_step();
    return {counted->given, counted->live, counted->most};
}

template <int N>
std::array<std::int64_t, 3> memory_of_stage() {
    std::array<std::int64_t, 3> memory{};
    run_ranks(1, [&](LoopbackCommunicator& communicator) {
        LanguageModel model;
        torch::Sharded<ZeroStage<N, AdamW>> sharded(communicator, *model, model->units());
        memory = memory_of([&] {
            sharded->begin_step();
            sharded->begin_micro_step(MicroStep::last);
            sharded.backward(loss_of(model, tokens_of(0, 0, 0), sharded));
            sharded->end_micro_step();
            sharded.step(0.01);
        });
    });
    return memory;
}

} // namespace

TEST_CASE("A unit that runs twice in a micro-step trains as without the engine") {
    check(twice);
}

TEST_CASE("A unit inside another one trains as without the engine") {
    check(nested);
}

TEST_CASE("A unit with several outputs trains as without the engine") {
    check(several_outputs);
}

TEST_CASE("Recomputed activations train as without the engine") {
    check(recomputed);
    check(recomputed_units);
    check(recomputed_nested);
}

TEST_CASE("Frozen parameters and frozen units train as without the engine") {
    check(twice, freeze_some);
    check(nested, freeze_some);
    check(several_outputs, freeze_unit);
}

TEST_CASE("A step takes no more of LibTorch's memory than a plain one, whose gradients exist") {
    at::set_num_threads(1);
    LanguageModel model;
    auto const plain = memory_of([&] { // adds to existing gradients
        loss_of(model, tokens_of(0, 0, 0), Plain()).backward();
    });
    CHECK(plain[0] > 0);
    CHECK(plain[1] == 0);
    CHECK(memory_of_stage<1>() == plain);
    CHECK(memory_of_stage<2>() == plain);
    CHECK(memory_of_stage<3>() == plain);
    auto const with_gradients = memory_of([&] { // allocates new gradients
        model->zero_grad();
        loss_of(model, tokens_of(0, 0, 0), Plain()).backward();
    });
    CHECK(with_gradients != plain);
}

TEST_CASE("A unit shows the memory of the engine, and no copy of it") {
    run_ranks(1, [&](LoopbackCommunicator& communicator) {
        LanguageModel model;
        torch::Sharded<ZeroStage<3, AdamW>> sharded(communicator, *model, model->units());
        sharded->begin_step();
        sharded->begin_micro_step(MicroStep::last);
        constexpr std::size_t head_bias = 13; // the last parameter
        void const* shown = nullptr;
        void const* added = nullptr;
        at::Tensor const y = sharded(3, [&] {
            shown = model->head_bias.const_data_ptr();
            auto const weights = sharded->acquire(3);
            CHECK(shown == weights[head_bias].data());
            return model->head_bias * 2.0;
        });
        y.register_hook([&](at::Tensor const&) {
            added = model->head_bias.grad().const_data_ptr();
            CHECK(added == sharded->gradients(3)[head_bias].data());
        });
        sharded.backward(y.sum());
        CHECK(shown != nullptr);
        CHECK(added != nullptr);
        sharded->end_micro_step();
        sharded.step(0.01);
    });
}

TEST_CASE("A mistake of one rank ends the others with its cause") {
    enum class Mistake { forward, hook, stop };
    for (Mistake const mistake : {Mistake::forward, Mistake::hook, Mistake::stop}) {
        Report report;
        auto const failure = outcome_of([&] {
            run_ranks(3, [&](LoopbackCommunicator& communicator) {
                at::set_num_threads(1);
                LanguageModel model;
                torch::Sharded<ZeroStage<3, AdamW>> sharded(communicator, *model, model->units());
                bool const is_wrong = communicator.rank() == 1;
                auto const step = [&](int number) {
                    sharded->begin_step();
                    sharded->begin_micro_step(MicroStep::last);
                    if (is_wrong && number == 1 && mistake == Mistake::forward) {
                        (void)sharded(0, []() -> at::Tensor {
                            throw std::runtime_error("the forward call of rank 1");
                        });
                    }
                    at::Tensor const loss =
                        loss_of(model, tokens_of(number, 0, communicator.rank()), sharded);
                    if (is_wrong && number == 1 && mistake == Mistake::hook) {
                        loss.register_hook([](at::Tensor const&) {
                            throw std::runtime_error("a hook of rank 1");
                        });
                    }
                    sharded.backward(loss);
                    sharded->end_micro_step();
                    sharded.step(0.01);
                };
                step(0);
                if (is_wrong && mistake == Mistake::stop) {
                    return;
                }
                if (is_wrong) {
                    step(1);
                } else {
                    std::string const text = message_of<Aborted>([&] { step(1); });
                    report.expect(contains(text, mistake == Mistake::stop ? "rank 1" : "of rank 1"),
                                  text);
                }
            });
        });
        INFO(failure.type << ": " << failure.message);
        report.check();
        CHECK(contains(failure.message, mistake == Mistake::stop      ? ""
                                        : mistake == Mistake::forward ? "the forward call of rank 1"
                                                                      : "a hook of rank 1"));
    }
}

TEST_CASE("One rank may evaluate alone after materialize") {
    Report report;
    run_ranks(2, [&](LoopbackCommunicator& communicator) {
        at::set_num_threads(1);
        LanguageModel model;
        torch::Sharded<ZeroStage<3, AdamW>> sharded(communicator, *model, model->units());
        sharded.materialize();
        if (communicator.rank() == 0) {
            ::torch::NoGradGuard const no_gradients;
            at::Tensor const tokens = tokens_of(0, 0, 0);
            LanguageModel unsharded;
            report.expect(
                at::equal(loss_of(model, tokens, sharded), loss_of(unsharded, tokens, Plain())),
                "the loss of one rank");
        }
        sharded.shard();
        sharded->begin_step();
        sharded->begin_micro_step(MicroStep::last);
        sharded.backward(loss_of(model, tokens_of(0, 0, communicator.rank()), sharded));
        sharded->end_micro_step();
        report.expect(sharded.step(0.01).step_count == 1, "the step after it");
    });
    report.check();
}

} // namespace zero::test::graphs_test
