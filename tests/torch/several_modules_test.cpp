#include "model.hpp"

#include "comm/report.hpp"
#include "support/catch.hpp"

#include <zero/comm/run_ranks.hpp>
#include <zero/core/error.hpp>

#include <cmath>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

// Losses that run through the module of another adapter, and messages in the words of adapters.

// Not in the namespace zero: the macro TORCH_MODULE means ::torch.
namespace several_modules {

/// Two layers; a generator or a discriminator.
struct PairImpl : ::torch::nn::Module {
    ::torch::nn::Linear first{nullptr}, second{nullptr};

    PairImpl(std::int64_t in, std::int64_t out) {
        first = register_module("first", ::torch::nn::Linear(in, 8));
        second = register_module("second", ::torch::nn::Linear(8, out));
        ::torch::NoGradGuard const no_gradients;
        int number = static_cast<int>(in);
        for (at::Tensor parameter : parameters()) {
            at::Tensor const index = ::torch::arange(parameter.numel(), at::kFloat);
            parameter.copy_((::torch::sin(index * 0.7 + ++number) * 0.4).view_as(parameter));
        }
    }
    std::vector<zero::torch::Unit> units() { return {{"first", first}, {"second", second}}; }
};
TORCH_MODULE(Pair);

} // namespace several_modules

namespace zero::test::several_modules_test {

using several_modules::Pair;

namespace {

template <class Run>
at::Tensor forward(Pair& module, at::Tensor const& x, Run&& run) {
    at::Tensor const y = run(0, [&] { return ::torch::tanh(module->first(x)); });
    return run(1, [&] { return module->second(y); });
}

struct Plain {
    template <class Forward>
    at::Tensor operator()(std::size_t /*unit*/, Forward&& run) const {
        return run();
    }
};

constexpr int steps = 4;
constexpr double rate = 0.01;

at::Tensor noise_of(int step) {
    return ::torch::sin(::torch::arange(12, at::kFloat) * (step + 1.3)).view({3, 4});
}
at::Tensor real_of(int step) {
    return ::torch::cos(::torch::arange(18, at::kFloat) * (step + 0.4)).view({3, 6});
}
at::Tensor loss_for(at::Tensor const& scores, bool is_real) {
    return ::torch::softplus(is_real ? -scores : scores).mean();
}

/// The losses of discriminator and generator in each step, by LibTorch alone.
std::vector<double> train_plain(double discriminator_rate = rate) {
    Pair generator(4, 6);
    Pair discriminator(6, 1);
    ::torch::optim::AdamW of_generator(generator->parameters(), ::torch::optim::AdamWOptions(rate));
    ::torch::optim::AdamW of_discriminator(discriminator->parameters(),
                                           ::torch::optim::AdamWOptions(discriminator_rate));
    std::vector<double> losses;
    Plain const run;
    for (int step = 0; step < steps; ++step) {
        of_discriminator.zero_grad();
        at::Tensor const fake = forward(generator, noise_of(step), run).detach();
        at::Tensor loss = loss_for(forward(discriminator, real_of(step), run), true)
                          + loss_for(forward(discriminator, fake, run), false);
        loss.backward();
        of_discriminator.step();
        losses.push_back(loss.item<double>());
        of_generator.zero_grad();
        loss = loss_for(forward(discriminator, forward(generator, noise_of(step), run), run), true);
        loss.backward();
        of_generator.step();
        losses.push_back(loss.item<double>());
    }
    return losses;
}

/// What differs between the two adapters.
template <int N>
struct Sharding {
    using Adapter = zero::torch::Sharded<ZeroStage<N, AdamW>>;
    static Adapter adapt(LoopbackCommunicator& communicator, Pair& module) {
        return Adapter(communicator, *module, module->units());
    }
    static Adapter& run(Adapter& adapter) { return adapter; }
    static constexpr char const* name = "Sharded";
};
struct Replication {
    using Adapter = zero::torch::Replicated<ZeroStage<2, AdamW>>;
    static Adapter adapt(LoopbackCommunicator& communicator, Pair& module) {
        return Adapter(communicator, *module);
    }
    static Plain run(Adapter&) { return {}; }
    static constexpr char const* name = "Replicated";
};

/// Two modules with an adapter each.
template <class Kind>
struct Gan {
    Pair generator{4, 6};
    Pair discriminator{6, 1};
    typename Kind::Adapter for_generator;
    typename Kind::Adapter for_discriminator;

    explicit Gan(LoopbackCommunicator& communicator)
        : for_generator(Kind::adapt(communicator, generator)),
          for_discriminator(Kind::adapt(communicator, discriminator)) {}

    at::Tensor generate(int step) {
        return forward(generator, noise_of(step), Kind::run(for_generator));
    }
    at::Tensor score(at::Tensor const& x) {
        return forward(discriminator, x, Kind::run(for_discriminator));
    }
    static void begin(typename Kind::Adapter& adapter) {
        adapter->begin_step();
        adapter->begin_micro_step(MicroStep::last);
    }
    static void end(typename Kind::Adapter& adapter) {
        adapter->end_micro_step();
        adapter.step(rate);
    }

    double train_discriminator(int step) {
        begin(for_discriminator);
        at::Tensor const loss =
            loss_for(score(real_of(step)), true) + loss_for(score(generate(step).detach()), false);
        for_discriminator.backward(loss);
        end(for_discriminator);
        return loss.item<double>();
    }
    /// @param is_long whether the pause also lives in the backward pass
    double train_generator(int step, bool is_long) {
        begin(for_generator);
        at::Tensor loss;
        {
            auto const paused = for_discriminator.paused();
            loss = loss_for(score(generate(step)), true);
            if (is_long) {
                for_generator.backward(loss);
            }
        }
        if (!is_long) {
            for_generator.backward(loss);
        }
        end(for_generator);
        return loss.item<double>();
    }
};

template <class Kind>
std::vector<double> train(int world, bool is_long) {
    std::vector<double> losses;
    run_ranks(world, [&](LoopbackCommunicator& communicator) {
        at::set_num_threads(1);
        Gan<Kind> gan(communicator);
        std::vector<double> own;
        for (int step = 0; step < steps; ++step) {
            own.push_back(gan.train_discriminator(step));
            own.push_back(gan.train_generator(step, is_long));
            for (at::Tensor const& parameter : gan.discriminator->parameters()) {
                if (parameter.grad().defined() || !parameter.requires_grad()) {
                    own.push_back(-1.0); // fails the comparison
                }
            }
        }
        if (communicator.rank() == 0) {
            losses = own;
        }
    });
    return losses;
}

double distance(std::vector<double> const& a, std::vector<double> const& b) {
    double largest = a.size() == b.size() ? 0.0 : 1.0;
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
        largest = std::max(largest, std::abs(a[i] - b[i]));
    }
    return largest;
}

/// Requires the words of an adapter, and none of the engine's own calls.
void check_words(std::string const& text, std::string const& expected) {
    INFO(text);
    CHECK(contains(text, expected));
    for (char const* const word : {"gradients_ready", "gradients(", "hand_over", "acquire("}) {
        CHECK_FALSE(contains(text, word));
    }
}

} // namespace

TEMPLATE_TEST_CASE("A generator learns through a discriminator that is paused", "", Replication,
                   Sharding<0>, Sharding<3>) {
    at::set_num_threads(1);
    std::vector<double> const expected = train_plain();
    for (bool const is_long : {true, false}) {
        CHECK(distance(train<TestType>(1, is_long), expected) < 1e-5);
        CHECK(distance(train<TestType>(2, is_long), expected) < 1e-5);
    }
    CHECK(distance(train_plain(2.0 * rate), expected) > 1e-3); // the comparison would see it
}

TEST_CASE(
    "Two micro-steps of a discriminator are the sum of its two losses, if their kind says so") {
    at::set_num_threads(1);
    auto const losses_of = [](ReductionKind kind) {
        std::vector<double> losses;
        run_ranks(2, [&](LoopbackCommunicator& communicator) {
            at::set_num_threads(1);
            Pair generator(4, 6);
            Pair discriminator(6, 1);
            torch::Replicated<ZeroStage<2, Sgd>> replicated(communicator, *discriminator,
                                                            {.reduction = {.kind = kind}});
            Plain const run;
            for (int step = 0; step < steps; ++step) {
                at::Tensor const fake = forward(generator, noise_of(step), run).detach();
                double sum = 0.0;
                int pass = 0;
                replicated->begin_step();
                for (auto const micro_step : replicated->micro_steps(2)) {
                    bool const is_real = pass++ == 0;
                    at::Tensor const loss = loss_for(
                        forward(discriminator, is_real ? real_of(step) : fake, run), is_real);
                    replicated.backward(loss);
                    sum += loss.item<double>();
                }
                (void)replicated.step(0.1);
                if (communicator.rank() == 0) {
                    losses.push_back(sum);
                }
            }
        });
        return losses;
    };
    std::vector<double> expected;
    Pair generator(4, 6);
    Pair discriminator(6, 1);
    ::torch::optim::SGD optimizer(discriminator->parameters(),
                                  ::torch::optim::SGDOptions(0.1).momentum(0.9));
    Plain const run;
    for (int step = 0; step < steps; ++step) {
        optimizer.zero_grad();
        at::Tensor const fake = forward(generator, noise_of(step), run).detach();
        at::Tensor const loss = loss_for(forward(discriminator, real_of(step), run), true)
                                + loss_for(forward(discriminator, fake, run), false);
        loss.backward();
        optimizer.step();
        expected.push_back(loss.item<double>());
    }
    CHECK(distance(losses_of(ReductionKind::mean_over_ranks), expected) < 1e-5);
    CHECK(distance(losses_of(ReductionKind::mean), expected) > 1e-3); // the comparison sees it
}

TEST_CASE("The rates of LibTorch's StepLR come one step after the usual formula") {
    Pair module(6, 1);
    ::torch::optim::SGD optimizer(module->parameters(), ::torch::optim::SGDOptions(1.0));
    ::torch::optim::StepLR scheduler(optimizer, 3, 0.5);
    for (int step = 0; step < 11; ++step) {
        CHECK(optimizer.param_groups()[0].options().get_lr()
              == std::pow(0.5, (step > 0 ? step - 1 : 0) / 3));
        scheduler.step();
    }
}

TEMPLATE_TEST_CASE("A loss that reaches the module of another adapter is told to pause it", "",
                   Replication, Sharding<3>) {
    run_ranks(1, [&](LoopbackCommunicator& communicator) {
        at::set_num_threads(1);
        Gan<TestType> gan(communicator);
        (void)gan.train_discriminator(0);
        std::string const name = TestType::name;
        gan.begin(gan.for_generator);
        std::string const text = message_of<OutOfOrder>(
            [&] { gan.for_generator.backward(loss_for(gan.score(gan.generate(0)), true)); });
        check_words(text, "the backward pass of another adapter reached ");
        check_words(text, "keep 'auto const paused = x.paused();' alive");
        check_words(text, "x is the adapter of several_modules::PairImpl");
        check_words(text, "detach() its outputs");
        CHECK_FALSE(contains(text, "instead of loss.backward()"));
        gan.for_generator->cancel_step();

        // by LibTorch's own call
        gan.begin(gan.for_generator);
        std::string const own =
            message_of<OutOfOrder>([&] { loss_for(gan.score(gan.generate(0)), true).backward(); });
        check_words(own,
                    "call backward(loss) of the " + name + " module instead of loss.backward()");
        check_words(own, "x is the adapter of several_modules::PairImpl");
        gan.for_generator->cancel_step();

        // the other way round: the paused module itself
        gan.begin(gan.for_discriminator);
        {
            auto const paused = gan.for_discriminator.paused();
            at::Tensor const loss = loss_for(gan.score(real_of(0)), true);
            check_words(message_of<OutOfOrder>([&] { gan.for_discriminator.backward(loss); }),
                        "backward() of the " + name + " module while its paused() lives");
        }
        gan.for_discriminator->cancel_step();

        // losses without a graph
        gan.begin(gan.for_discriminator);
        at::Tensor no_graph;
        {
            auto const paused = gan.for_discriminator.paused();
            no_graph = loss_for(gan.score(real_of(0)), true);
        }
        check_words(message_of<InvalidArgument>([&] { gan.for_discriminator.backward(no_graph); }),
                    "backward(loss) of the " + name
                        + " module got a loss that does not require grad (rank 0)");
        {
            ::torch::NoGradGuard const guard;
            no_graph = loss_for(gan.score(real_of(0)), true);
        }
        check_words(message_of<InvalidArgument>([&] { gan.for_discriminator.backward(no_graph); }),
                    "under a NoGradGuard");
        gan.for_discriminator->cancel_step();

        // an exception between the layers of the paused module, which are then in use
        gan.begin(gan.for_generator);
        {
            auto const paused = gan.for_discriminator.paused();
            at::Tensor const made = gan.generate(0);
            made.register_hook([](at::Tensor const&) { throw std::runtime_error("the hook"); });
            at::Tensor const loss = loss_for(gan.score(made), true);
            CHECK(message_of<std::runtime_error>([&] { gan.for_generator.backward(loss); })
                  == "the hook");
        }
        gan.for_generator->cancel_step();

        double const found = gan.train_discriminator(1) + gan.train_generator(1, false);
        Gan<TestType> other(communicator);
        (void)other.train_discriminator(0);
        CHECK(found == other.train_discriminator(1) + other.train_generator(1, true));
    });
}

TEST_CASE("Pauses may be nested, and restore what was frozen") {
    run_ranks(1, [&](LoopbackCommunicator& communicator) {
        Pair module(6, 1);
        module->first->bias.set_requires_grad(false);
        Replication::Adapter replicated(communicator, *module);
        auto const flags = [&] {
            std::vector<bool> found;
            for (at::Tensor const& parameter : module->parameters()) {
                found.push_back(parameter.requires_grad());
            }
            return found;
        };
        std::vector<bool> const none(4, false);
        {
            auto const outer = replicated.paused();
            {
                auto const inner = replicated.paused();
                CHECK(flags() == none);
            }
            CHECK(flags() == none);
        }
        CHECK(flags() == std::vector<bool>{true, false, true, true});
    });
}

TEST_CASE("A student learns through a frozen teacher that is sharded") {
    auto const loss_of = [](Pair& student, Pair& teacher, int step, auto&& run) {
        Plain const plain;
        at::Tensor const seen = forward(teacher, forward(student, noise_of(step), plain), run);
        return (seen - 0.3).square().mean();
    };
    auto const freeze = [](Pair& teacher) {
        for (at::Tensor const& parameter : teacher->parameters()) {
            parameter.set_requires_grad(false);
        }
    };
    at::set_num_threads(1);
    std::vector<double> expected;
    {
        Pair student(4, 6);
        Pair teacher(6, 1);
        freeze(teacher);
        ::torch::optim::AdamW optimizer(student->parameters(), ::torch::optim::AdamWOptions(rate));
        for (int step = 0; step < steps; ++step) {
            optimizer.zero_grad();
            at::Tensor const loss = loss_of(student, teacher, step, Plain());
            loss.backward();
            optimizer.step();
            expected.push_back(loss.item<double>());
        }
    }
    std::vector<double> found;
    run_ranks(2, [&](LoopbackCommunicator& communicator) {
        at::set_num_threads(1);
        Pair student(4, 6);
        Pair teacher(6, 1);
        freeze(teacher);
        Replication::Adapter replicated(communicator, *student);
        Sharding<3>::Adapter sharded(communicator, *teacher, teacher->units());
        for (int step = 0; step < steps; ++step) {
            replicated->begin_step();
            replicated->begin_micro_step(MicroStep::last);
            at::Tensor const loss = loss_of(student, teacher, step, sharded);
            replicated.backward(loss);
            replicated->end_micro_step();
            (void)replicated.step(rate);
            if (communicator.rank() == 0) {
                found.push_back(loss.item<double>());
            }
        }
    });
    CHECK(distance(found, expected) < 1e-5);
}

TEST_CASE("Groups of parameters are those of LibTorch's optimizer") {
    at::set_num_threads(1);
    auto const loss_of = [](Pair& module, int step, auto&& run) {
        return (forward(module, real_of(step), run) - 0.3).square().mean();
    };
    std::vector<double> expected;
    {
        Pair module(6, 1);
        std::vector<::torch::optim::OptimizerParamGroup> groups;
        groups.emplace_back(std::vector<at::Tensor>{module->first->weight, module->second->weight},
                            std::make_unique<::torch::optim::AdamWOptions>(
                                ::torch::optim::AdamWOptions(rate).weight_decay(0.5)));
        groups.emplace_back(std::vector<at::Tensor>{module->first->bias, module->second->bias},
                            std::make_unique<::torch::optim::AdamWOptions>(
                                ::torch::optim::AdamWOptions(3.0 * rate).weight_decay(0.0)));
        ::torch::optim::AdamW optimizer(groups);
        for (int step = 0; step < steps; ++step) {
            optimizer.zero_grad();
            at::Tensor const loss = loss_of(module, step, Plain());
            loss.backward();
            optimizer.step();
            expected.push_back(loss.item<double>());
        }
    }
    auto const train_in_groups = [&](std::string const& of_second_group) {
        std::vector<double> found;
        run_ranks(1, [&](LoopbackCommunicator& communicator) {
            Pair module(6, 1);
            using Zero = ZeroStage<2, AdamW>;
            Zero::Options options;
            options.groups = {{.optimizer = {.weight_decay = 0.5}},
                              {.optimizer = {.weight_decay = 0.0}, .learning_rate_factor = 3.0}};
            torch::Replicated<Zero> replicated(
                communicator, *module, options, [&](std::string const& name, at::Tensor const&) {
                    return std::size_t{name.ends_with(of_second_group) ? 1U : 0U};
                });
            for (int step = 0; step < steps; ++step) {
                replicated->begin_step();
                replicated->begin_micro_step(MicroStep::last);
                at::Tensor const loss = loss_of(module, step, Plain());
                replicated.backward(loss);
                replicated->end_micro_step();
                (void)replicated.step(rate);
                found.push_back(loss.item<double>());
            }
        });
        return found;
    };
    CHECK(distance(train_in_groups("bias"), expected) < 1e-5);
    CHECK(distance(train_in_groups("weight"), expected) > 1e-3); // the comparison sees it
}

TEMPLATE_TEST_CASE("Mistakes with an adapter are told in its own words", "", Replication,
                   Sharding<2>, Sharding<3>) {
    run_ranks(1, [&](LoopbackCommunicator& communicator) {
        at::set_num_threads(1);
        Gan<TestType> gan(communicator);
        auto& adapter = gan.for_discriminator;
        std::string const call = "backward(loss) of the " + std::string(TestType::name) + " module";
        auto const loss = [&] { return loss_for(gan.score(real_of(0)), true); };

        check_words(message_of<OutOfOrder>([&] { adapter.backward(loss()); }),
                    call + " outside a step");
        adapter->begin_step();
        check_words(message_of<OutOfOrder>([&] { adapter.backward(loss()); }),
                    call + " outside a micro-step");
        adapter->cancel_step();

        gan.begin(adapter);
        adapter.backward(loss());
        check_words(message_of<LateGradient>([&] { adapter.backward(loss()); }),
                    "; call " + call + " once for each micro-step");
        adapter->cancel_step();

        gan.begin(adapter);
        adapter->end_micro_step();
        check_words(message_of<NoGradients>([&] { adapter.step(rate); }),
                    "; call " + call + " in each micro-step");
        (void)gan.train_discriminator(1);
    });
}

TEST_CASE(
    "A replicated parameter that a backward pass does not reach is told in LibTorch's words") {
    run_ranks(1, [&](LoopbackCommunicator& communicator) {
        at::set_num_threads(1);
        Pair module(6, 1);
        Replication::Adapter replicated(communicator, *module,
                                        {.unused_parameters = UnusedParameters::error});
        replicated->begin_step();
        replicated->begin_micro_step(MicroStep::last);
        replicated.backward(module->first(real_of(0)).square().mean());
        check_words(message_of<UnusedParameter>([&] { replicated->end_micro_step(); }),
                    "; call backward(loss) of the Replicated module on every rank, with a loss "
                    "that depends on "
                    "it");
        replicated->cancel_step();
    });
}

} // namespace zero::test::several_modules_test
