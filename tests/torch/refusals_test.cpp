#include "model.hpp"

#include "comm/report.hpp"
#include "support/catch.hpp"

#include <zero/comm/run_ranks.hpp>
#include <zero/core/error.hpp>
#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/ops/muon.hpp>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace zero::test::refusals_test {

using torch_model::LanguageModel;
using torch_model::loss_of;
using torch_model::tokens_of;

namespace {

using Zero = ZeroStage<3, AdamW>;
using Sharded = torch::Sharded<Zero>;

/// Runs `body(sharded, model)` as one rank.
template <class Body>
void with_model(Body const& body) {
    run_ranks(1, [&](LoopbackCommunicator& communicator) {
        at::set_num_threads(1);
        LanguageModel model;
        Sharded sharded(communicator, *model, model->units());
        body(sharded, model);
    });
}

/// Runs one step and returns the loss.
double step_of(Sharded& sharded, LanguageModel& model) {
    sharded->begin_step();
    sharded->begin_micro_step(MicroStep::last);
    at::Tensor const loss = loss_of(model, tokens_of(0, 0, 0), sharded);
    sharded.backward(loss);
    sharded->end_micro_step();
    sharded.step(0.01);
    return loss.item<double>();
}

/// Returns the message of the error when an engine is constructed after `change(model)`.
template <class Change>
std::string refusal(Change const& change) {
    std::string text;
    run_ranks(1, [&](LoopbackCommunicator& communicator) {
        LanguageModel model;
        auto units = model->units();
        change(model, units);
        text = message_of<InvalidArgument>(
            [&] { Sharded const sharded(communicator, *model, units); });
    });
    return text;
}

/// Returns the message of an `E` in the middle of a step. The engine then trains on.
template <class E, class Mistake>
std::string mistake(Mistake const& make) {
    std::string text;
    double after = 0.0;
    with_model([&](Sharded& sharded, LanguageModel& model) {
        sharded->begin_step();
        sharded->begin_micro_step(MicroStep::last);
        text = message_of<E>([&] { make(sharded, model); });
        sharded->cancel_step();
        after = step_of(sharded, model);
    });
    double expected = 0.0;
    with_model([&](Sharded& sharded, LanguageModel& model) { expected = step_of(sharded, model); });
    CHECK(after == expected);
    return text;
}

} // namespace

TEST_CASE(
    "Memory of a unit can be used again with a LibTorch that can refuse, but never allow it") {
    struct Storage { // of LibTorch 2.6 to 2.11
        bool is_refused = false;
        at::DataPtr data;

        [[nodiscard]] static at::Device device() { return at::kCPU; }
        void set_data_ptr_noswap(at::DataPtr memory) { data = std::move(memory); }
        void release_data_and_set_meta_custom_data_ptr_error_msg_(std::string const& /*text*/) {
            is_refused = true;
        }
    };
    struct Newer : Storage {
        void clear_data_ptr_access_error_msg_() { is_refused = false; }
    };
    auto const check = [](auto storage, bool refuses) {
        int memory = 0;
        zero::torch::detail::set_memory(storage, at::DataPtr(&memory, at::kCPU));
        zero::torch::detail::forbid_access(storage, "not in use");
        CHECK(storage.is_refused == refuses);
        CHECK((refuses || storage.data.get() == nullptr));
        zero::torch::detail::set_memory(storage, at::DataPtr(&memory, at::kCPU));
        CHECK_FALSE(storage.is_refused);
        CHECK(storage.data.get() == &memory);
    };
    check(Storage(), false);
    check(Newer(), true);
}

TEST_CASE("A parameter that cannot be sharded is refused by name") {
    CHECK(contains(refusal([](LanguageModel&, auto& units) { units.pop_back(); }),
                   "parameter 'head_bias' is in no unit"));
    CHECK(contains(
        refusal([](LanguageModel& model, auto&) { model->blocks[0]->up->to(at::kBFloat16); }),
        "parameter 'block0.up.weight' is not of the parameter type"));
    CHECK(contains(refusal([](LanguageModel& model, auto&) {
                       model->head_bias.set_data(::torch::zeros({40}).narrow(0, 3, 11));
                   }),
                   "parameter 'head_bias' is a view"));
    CHECK(contains(refusal([](LanguageModel& model, auto&) {
                       model->head_bias.set_data(model->blocks[1]->up->bias.detach());
                   }),
                   "shares memory with parameter 'block1.up.bias'"));
    CHECK(contains(refusal([](LanguageModel&, auto& units) {
                       units.back().parameters.push_back(::torch::zeros({2}));
                   }),
                   "unit 'head' lists a tensor that is no parameter"));
}

TEST_CASE("A parameter that is read outside of its unit says so") {
    with_model([](Sharded&, LanguageModel& model) {
        std::string const text =
            message_of<c10::Error>([&] { (void)(model->head_bias + 1.0).sum().item<float>(); });
        CHECK(contains(text, "zero: parameter 'head_bias' is sharded"));
        std::string const product = message_of<c10::Error>([&] {
            (void)model->blocks[0]->up(::torch::ones({1, torch_model::width}));
        });
        CHECK(contains(product, "is sharded, and its unit is not in use"));
    });
}

TEST_CASE("A mistake in a backward pass ends in a sentence, and training continues after "
          "cancel_step") {
    auto const loss = [](Sharded& sharded, LanguageModel& model) {
        return loss_of(model, tokens_of(0, 0, 0), sharded);
    };
    CHECK(contains(mistake<OutOfOrder>([&](Sharded& sharded, LanguageModel& model) {
                       loss(sharded, model).backward();
                   }),
                   "call backward(loss) of the Sharded module instead of loss.backward()"));
    CHECK(contains(mistake<LateGradient>([&](Sharded& sharded, LanguageModel& model) {
                       sharded.backward(loss(sharded, model));
                       sharded.backward(loss(sharded, model));
                   }),
                   "zero: "));
    CHECK(contains(mistake<std::runtime_error>([&](Sharded& sharded, LanguageModel& model) {
                       at::Tensor const value = loss(sharded, model);
                       value.register_hook(
                           [](at::Tensor const&) { throw std::runtime_error("the hook"); });
                       sharded.backward(value);
                   }),
                   "the hook"));
    CHECK(contains(mistake<std::runtime_error>([&](Sharded& sharded, LanguageModel&) {
                       (void)sharded(
                           1, []() -> at::Tensor { throw std::runtime_error("the forward call"); });
                   }),
                   "the forward call"));
    CHECK(contains(mistake<InvalidArgument>([&](Sharded& sharded, LanguageModel& model) {
                       at::Tensor x = sharded(0, [&] {
                           return model->embedding(::torch::zeros({1, 2}, at::kLong));
                       });
                       x.register_hook([&](at::Tensor const&) { model->zero_grad(); });
                       sharded.backward(sharded(1, [&] { return model->blocks[0](x); }).sum());
                   }),
                   "was replaced during the backward pass"));
    CHECK(contains(mistake<InvalidArgument>([&](Sharded& sharded, LanguageModel&) {
                       (void)sharded(9, [] { return at::Tensor(); });
                   }),
                   "unit 9 does not exist"));
}

TEST_CASE("A gradient that was assigned, and a changed requires_grad, are refused") {
    with_model([](Sharded& sharded, LanguageModel& model) {
        sharded->begin_step();
        sharded->begin_micro_step(MicroStep::last);
        at::Tensor const loss = loss_of(model, tokens_of(0, 0, 0), sharded);
        model->head_bias.mutable_grad() = ::torch::zeros({torch_model::vocabulary});
        CHECK(contains(message_of<LateGradient>([&] { sharded.backward(loss); }),
                       "parameter 'head_bias' got a gradient outside"));
        model->head_bias.set_requires_grad(false);
        CHECK(contains(message_of<InvalidArgument>([&] { sharded.backward(loss); }),
                       "parameter 'head_bias' changed requires_grad"));
        model->head_bias.set_requires_grad(true);
        sharded.backward(loss);
        sharded->end_micro_step();
        sharded.step(0.01);
    });
}

TEST_CASE("Whole parameters serve evaluation, and load sets all values") {
    with_model([](Sharded& sharded, LanguageModel& model) {
        (void)step_of(sharded, model);
        sharded.materialize();
        at::Tensor const loss = loss_of(model, tokens_of(0, 0, 0), torch_model::Plain());
        CHECK(loss.item<double>() == loss_of(model, tokens_of(0, 0, 0), sharded).item<double>());
        {
            ::torch::NoGradGuard const no_gradients;
            for (at::Tensor parameter : model->parameters()) {
                parameter.mul_(0.5);
            }
        }
        double const halved =
            loss_of(model, tokens_of(0, 0, 0), torch_model::Plain()).item<double>();
        sharded.load(model->named_parameters());
        sharded.shard();
        CHECK(step_of(sharded, model) == halved);
        ::torch::OrderedDict<std::string, at::Tensor> const none;
        CHECK(contains(message_of<InvalidArgument>([&] { sharded.load(none); }),
                       "is missing in the given state"));
        sharded->begin_step();
        sharded->cancel_step();
        sharded.materialize();
        sharded->begin_step();
        sharded->begin_micro_step(MicroStep::last);
        at::Tensor const late = loss_of(model, tokens_of(0, 0, 0), sharded);
        CHECK(contains(message_of<OutOfOrder>([&] { sharded.backward(late); }),
                       "backward() after materialize()"));
        sharded->cancel_step();
    });
}

TEST_CASE("A module that is converted after it was sharded is refused") {
    with_model([](Sharded& sharded, LanguageModel& model) {
        model->head_bias.set_data(::torch::zeros({torch_model::vocabulary}));
        CHECK(contains(message_of<InvalidArgument>(
                           [&] { (void)sharded(3, [&] { return model->head_bias.clone(); }); }),
                       "parameter 'head_bias' was given other memory after registration"));
    });
}

TEST_CASE("A parameter that a backward pass does not reach is named, if the options ask for it") {
    run_ranks(1, [&](LoopbackCommunicator& communicator) {
        LanguageModel model;
        Zero::Options options;
        options.unused_parameters = UnusedParameters::error;
        Sharded sharded(communicator, *model, model->units(), options);
        double const expected = step_of(sharded, model);
        at::Tensor const registered = model->blocks[1]->up->bias;
        model->blocks[1]->up->bias = ::torch::zeros({2 * torch_model::width});
        sharded->begin_step();
        sharded->begin_micro_step(MicroStep::last);
        at::Tensor const loss = loss_of(model, tokens_of(0, 0, 0), sharded);
        CHECK(contains(message_of<UnusedParameter>([&] { sharded.backward(loss); }),
                       "nothing to the gradient of parameter 'block1.up.bias' (rank 0)"));
        sharded->cancel_step();
        model->blocks[1]->up->bias = registered;
        CHECK(step_of(sharded, model) < expected);
    });
}

TEST_CASE("Replicated leaves the module whole, and refuses what it would train wrongly") {
    using Replicated = torch::Replicated<ZeroStage<2, AdamW>>;
    run_ranks(1, [&](LoopbackCommunicator& communicator) {
        at::set_num_threads(1);
        LanguageModel model;
        auto const micro_step = [&](Replicated& replicated) {
            replicated->begin_step();
            replicated->begin_micro_step(MicroStep::last);
            replicated.backward(loss_of(model, tokens_of(0, 0, 0), torch_model::Plain()));
            replicated->end_micro_step();
        };
        {
            Replicated replicated(communicator, *model);
            CHECK(replicated->layout().parameters().size() == model->parameters().size());
            CHECK(contains(
                message_of<InvalidArgument>([&] { Replicated const again(communicator, *model); }),
                "has a post-accumulate hook"));
            at::Tensor const before = model->head_bias.clone();
            micro_step(replicated);
            for (at::Tensor const& parameter : model->parameters()) {
                CHECK_FALSE(parameter.grad().defined());
            }
            CHECK(replicated.step(0.01).step_count == 1);
            CHECK_FALSE(at::equal(model->head_bias, before));

            auto const loss = [&] {
                return loss_of(model, tokens_of(0, 0, 0), torch_model::Plain());
            };
            CHECK(contains(
                message_of<OutOfOrder>([&] { loss().backward(); }),
                "call backward(loss) of the Replicated module instead of loss.backward()"));
            CHECK_FALSE(model->head_bias.grad().defined());

            // a second backward pass
            micro_step(replicated);
            replicated->cancel_step();
            replicated->begin_step();
            replicated->begin_micro_step(MicroStep::last);
            replicated.backward(loss());
            (void)message_of<LateGradient>([&] { replicated.backward(loss()); });
            replicated->cancel_step();
            micro_step(replicated);
            (void)replicated.step(0.01);

            ::torch::OrderedDict<std::string, at::Tensor> zeros;
            for (auto const& parameter : model->named_parameters()) {
                zeros.insert(parameter.key(), at::zeros_like(parameter.value()));
            }
            replicated.load(zeros);
            CHECK(at::equal(model->head_bias, at::zeros_like(model->head_bias)));

            // written in place: refused, until load() hands the values over
            {
                ::torch::NoGradGuard const no_gradients;
                model->head_bias.fill_(2.0);
            }
            replicated->begin_step();
            replicated->begin_micro_step(MicroStep::last);
            CHECK(contains(message_of<InvalidArgument>([&] { replicated.backward(loss()); }),
                           "'head_bias' was written in place"));
            replicated->cancel_step();
            replicated.load(model->named_parameters());
            CHECK(at::equal(model->head_bias, at::full_like(model->head_bias, 2.0)));
            micro_step(replicated);
            CHECK(replicated.step(0.0).step_count == 3);
            CHECK(at::equal(model->head_bias, at::full_like(model->head_bias, 2.0)));

            at::Tensor const memory = model->head_bias.detach();
            model->head_bias.set_data(::torch::zeros({torch_model::vocabulary}));
            replicated->begin_step();
            replicated->begin_micro_step(MicroStep::last);
            CHECK(contains(message_of<InvalidArgument>([&] { replicated.backward(loss()); }),
                           "parameter 'head_bias' was given other memory"));
            model->head_bias.set_data(memory);
            replicated->cancel_step();
        }
        loss_of(model, tokens_of(0, 0, 0), torch_model::Plain()).backward(); // no hook is left
        CHECK(model->head_bias.grad().defined());
    });
}

/// Trains two steps, the first with the engine's own `step`, and returns the parameters after each.
template <class Zero>
std::vector<at::Tensor> train_by_engine_step(int world, bool shows, at::ScalarType type) {
    std::vector<at::Tensor> found;
    run_ranks(world, [&](LoopbackCommunicator& communicator) {
        at::set_num_threads(1);
        LanguageModel model;
        model->to(type);
        torch::Replicated<Zero> replicated(communicator, *model);
        for (int step = 0; step < 2; ++step) {
            replicated->begin_step();
            replicated->begin_micro_step(MicroStep::last);
            replicated.backward(
                loss_of(model, tokens_of(step, 0, communicator.rank()), torch_model::Plain()));
            replicated->end_micro_step();
            if (shows) {
                (void)replicated.step(0.01);
            } else {
                (void)replicated.engine().step(0.01);
            }
            if (communicator.rank() == world - 1) {
                for (at::Tensor const& parameter : model->parameters()) {
                    found.push_back(parameter.detach().clone());
                }
            }
        }
    });
    return found;
}

template <class Zero>
void check_engine_step(at::ScalarType type) {
    for (int const world : {1, 2}) {
        auto const expected = train_by_engine_step<Zero>(world, true, type);
        auto const found = train_by_engine_step<Zero>(world, false, type);
        REQUIRE(found.size() == expected.size());
        for (std::size_t i = 0; i < found.size(); ++i) {
            CHECK(at::equal(found[i], expected[i]));
        }
        CHECK_FALSE(at::equal(found.front(), found[found.size() / 2])); // the step changed it
    }
}

template <class Adapter>
concept HasStepBehindArrow = requires(Adapter& adapter) { adapter->step(0.01); };

TEST_CASE("On the host the engine's own step writes the module's tensors as well") {
    STATIC_REQUIRE_FALSE(HasStepBehindArrow<torch::Replicated<ZeroStage<2, AdamW>>>);
    STATIC_REQUIRE(HasStepBehindArrow<torch::Sharded<ZeroStage<2, AdamW>>>);
    check_engine_step<ZeroStage<0, AdamW>>(at::kFloat);
    check_engine_step<ZeroStage<1, AdamW>>(at::kFloat);
    check_engine_step<ZeroStage<2, AdamW>>(at::kFloat);
    check_engine_step<ZeroStage<2, AdamW, Parameters<bfloat16>>>(at::kBFloat16);
}

TEST_CASE("After an asynchronous step of the engine, the module waits for show_parameters") {
    run_ranks(1, [&](LoopbackCommunicator& communicator) {
        at::set_num_threads(1);
        LanguageModel model;
        torch::Replicated<ZeroStage<2, AdamW>> replicated(communicator, *model,
                                                          {.asynchronous = true});
        auto const begin = [&] {
            replicated->begin_step();
            replicated->begin_micro_step(MicroStep::last);
        };
        auto const loss = [&] { return loss_of(model, tokens_of(0, 0, 0), torch_model::Plain()); };
        begin();
        replicated.backward(loss());
        replicated->end_micro_step();
        (void)replicated.engine().step(0.01);
        begin();
        CHECK_THAT(message_of<OutOfOrder>([&] { replicated.backward(loss()); }),
                   contains_text("call step() of the Replicated module, or its show_parameters()"));
        CHECK_THAT(message_of<OutOfOrder>([&] { (void)replicated.paused(); }),
                   contains_text("LanguageModelImpl may not yet hold"));
        replicated->cancel_step();
        replicated.show_parameters();
        (void)replicated.paused();
        begin();
        replicated.backward(loss());
        replicated->end_micro_step();
        CHECK(replicated.step(0.01).step_count == 2);
    });
}

/// Trains three steps with a sum of two losses, and returns the losses.
template <int N>
std::vector<double> train_twice_run(int world, std::size_t extra_leases) {
    std::vector<double> losses;
    run_ranks(world, [&](LoopbackCommunicator& communicator) {
        at::set_num_threads(1);
        LanguageModel model;
        torch::Sharded<ZeroStage<N, AdamW>> sharded(communicator, *model, model->units(),
                                                    {.extra_leases = extra_leases});
        for (int step = 0; step < 3; ++step) {
            sharded->begin_step();
            sharded->begin_micro_step(MicroStep::last);
            at::Tensor const loss =
                loss_of(model, tokens_of(step, 0, communicator.rank()), sharded)
                + loss_of(model, tokens_of(step, 1, communicator.rank()), sharded);
            sharded.backward(loss);
            sharded->end_micro_step();
            sharded.step(0.01);
            if (communicator.rank() == 0) {
                losses.push_back(loss.item<double>());
            }
        }
    });
    return losses;
}

TEST_CASE("A loss through all units twice says how many extra leases it needs") {
    auto const twice = [](Sharded& sharded, LanguageModel& model) {
        sharded.backward(loss_of(model, tokens_of(0, 0, 0), sharded)
                         + loss_of(model, tokens_of(0, 1, 0), sharded));
    };
    std::string const text = mistake<OutOfOrder>(twice);
    INFO(text);
    CHECK(contains(text, " ran 2 times in this graph (rank 0)"));
    CHECK(contains(text, "torch::cat({a, b})"));
    CHECK_FALSE(contains(text, "in the order in which the forward pass uses them"));
    std::string const before = "set options.extra_leases to ";
    REQUIRE(contains(text, before));
    std::size_t const needed = std::stoul(text.substr(text.find(before) + before.size()));
    CHECK(needed < 20);
    for (int const world : {1, 2}) {
        std::vector<double> const expected = train_twice_run<1>(world, 0);
        CHECK(train_twice_run<3>(world, needed) == expected);
        CHECK(expected.front() != expected.back());
    }
}

TEST_CASE("Units tell Muon which of their tensors are matrices") {
    using Whole = ZeroStage<3, Muon, RoundRobinPartitioner>;
    std::string refused;
    std::vector<bool> matrices, expected;
    run_ranks(1, [&](LoopbackCommunicator& communicator) {
        LanguageModel undecided;
        refused = message_of<InvalidArgument>([&] {
            torch::Sharded<Whole> const sharded(communicator, *undecided, undecided->units());
        });
        LanguageModel model;
        auto units = model->units();
        for (auto& unit : units) {
            unit.update = Update::matrix;
        }
        units.front().update = Update::elements;
        torch::Sharded<Whole> sharded(communicator, *model, units);
        for (auto const& spec : sharded->layout().parameters()) {
            bool const is_matrix = spec.units.front() != 0 && spec.shape.size() >= 2;
            matrices.push_back(spec.update == Update::matrix);
            expected.push_back(is_matrix);
        }
    });
    CHECK_THAT(refused, contains_text("Muon does not guess whether that is a matrix"));
    CHECK(matrices == expected);
    CHECK(std::count(matrices.begin(), matrices.end(), true) > 1);
    CHECK(std::count(matrices.begin(), matrices.end(), false) > 1);
}

} // namespace zero::test::refusals_test
