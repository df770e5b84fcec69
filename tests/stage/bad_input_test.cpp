#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/stages.hpp"
#include "support/toy_model.hpp"

#include <zero/comm/run_ranks.hpp>
#include <zero/layout/dealt_group_partitioner.hpp>
#include <zero/layout/per_tensor_partitioner.hpp>
#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/layout/whole_group_partitioner.hpp>
#include <zero/ops/sgd.hpp>
#include <zero/policy/static_loss_scaler.hpp>
#include <zero/stage/with_stage.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <sstream>
#include <string>
#include <vector>

namespace zero::test::bad_input_test {

namespace {

template <int N, class... Policies>
void construct(std::vector<typename ZeroStage<N, Policies...>::Registration> parameters,
               typename ZeroStage<N, Policies...>::Options const& options = {}) {
    run_ranks(1, [&](LoopbackCommunicator& communicator) {
        ZeroStage<N, Policies...> engine(communicator, parameters, options);
    });
}

/// Makes `call` on an engine of one rank, and expects an exception `Expected` that contains `text`.
/// The state of the engine must not change, and the engine must remain usable.
template <class Expected, int N>
void refuses(std::string const& text, std::function<void(ZeroStage<N>&)> const& prepare,
             std::function<void(ZeroStage<N>&)> const& call) {
    run_ranks(1, [&](LoopbackCommunicator& communicator) {
        ZeroStage<N> engine(communicator, registration<float>(toy_specs()));
        auto const before = full_parameters(engine);
        prepare(engine);
        CHECK_THROWS_AS(call(engine), Expected);
        CHECK_THROWS_WITH(call(engine), contains_text(text));
        CHECK(engine.step_count() == 0);
        try {
            engine.cancel_step();
        } catch (OutOfOrder const&) { // there was no step to cancel
        }
        CHECK(full_parameters(engine) == before);
        CHECK_FALSE(run_step(engine, 0, 0).report().is_skipped);
        CHECK(full_parameters(engine) != before);
    });
}

template <int N>
void in_micro_step(ZeroStage<N>& engine) {
    engine.begin_step();
    engine.begin_micro_step();
}

} // namespace

TEST_CASE("An invalid registration is refused with the parameter's name") {
    float data[8] = {};
    CHECK_THROWS_WITH((construct<2>({{.name = "a", .elements = 3}, {.name = "a", .elements = 4}})),
                      contains_text("two parameters are named 'a'"));
    CHECK_THROWS_WITH((construct<2>({{.name = "", .elements = 3}})),
                      contains_text("parameter number 0 has no name"));
    CHECK_THROWS_WITH((construct<2>({{.name = "a", .elements = 3, .units = {}}})),
                      contains_text("parameter 'a' lists no unit"));
    CHECK_THROWS_WITH((construct<2>({{.name = "a", .elements = 3, .units = {1, 1}}})),
                      contains_text("parameter 'a' lists unit 1 twice"));
    CHECK_THROWS_WITH((construct<2>({{.name = "a", .initial = data, .elements = 5},
                                     {.name = "b", .initial = data + 4, .elements = 4}})),
                      contains_text("parameters 'a' and 'b' share the memory of initial values"));
    CHECK_NOTHROW((construct<2>({{.name = "a", .initial = data, .elements = 5},
                                 {.name = "b", .initial = data, .elements = 4}}))); // only read
    CHECK_THROWS_WITH((construct<2>({{.name = "a", .elements = 5, .gradient = data},
                                     {.name = "b", .elements = 4, .gradient = data + 4}})),
                      contains_text("parameters 'a' and 'b' share gradient memory"));
    CHECK_THROWS_WITH(
        (construct<1>({{.name = "a", .data = data, .elements = 5},
                       {.name = "b", .data = data + 5, .elements = 3, .gradient = data + 2}},
                      {.storage = Storage::scattered})),
        contains_text("parameters 'a' and 'b' share memory, one for its values and one for its "
                      "gradient: ")
            && contains_text("Give each its own."));
    CHECK_THROWS_WITH(
        (construct<1>({{.name = "a", .data = data, .elements = 5, .gradient = data}},
                      {.storage = Storage::scattered})),
        contains_text("the values and the gradient of 'a' are the same memory, at 0x"));
    CHECK_NOTHROW(
        (construct<1>({{.name = "a",
                        .initial = data,
                        .elements = 5,
                        .gradient = data}}))); // `initial` is read during construction only
    auto* const odd = reinterpret_cast<float*>(reinterpret_cast<char*>(data) + 2);
    for (auto const storage : {Storage::owned, Storage::scattered, Storage::adopted}) {
        CHECK_THROWS_WITH(
            (construct<1>({{.name = "a",
                            .initial = storage == Storage::owned ? odd : nullptr,
                            .data = storage == Storage::owned ? nullptr : odd,
                            .elements = 3}},
                          {.storage = storage,
                           .adopted_block = storage == Storage::adopted ? std::span(data)
                                                                        : std::span<float>()})),
            contains_text("the memory of parameter 'a' does not begin at a multiple of its "
                          "elements' 4 bytes"));
    }
    CHECK_THROWS_WITH((construct<1>({{.name = "a", .elements = 3, .gradient = odd}})),
                      contains_text("the memory of parameter 'a'"));
    CHECK_THROWS_WITH(
        (construct<1>({{.name = "a", .elements = 3}}, {.storage = Storage::scattered})),
        contains_text("parameter 'a' has 3 elements but its pointer 'data' is null"));
    CHECK_THROWS_WITH(
        (construct<1>({{.name = "a", .data = data, .elements = 3}}, {.storage = Storage::adopted})),
        contains_text("adopted_block go together"));
    CHECK_THROWS_WITH(
        (construct<1>({{.name = "a", .data = data + 6, .elements = 3}},
                      {.storage = Storage::adopted, .adopted_block = {data, 8}})),
        contains_text("parameter 'a' does not lie inside adopted_block: it begins at element "
                      "6 and has 3 elements, but the block has 8"));
    CHECK_THROWS_WITH((construct<1>({{.name = "a", .data = data, .elements = 3}},
                                    {.storage = Storage::adopted, .adopted_block = {data + 4, 4}})),
                      contains_text("the block of 4 elements at 0x"));
    CHECK_THROWS_WITH((construct<3>({{.name = "a", .data = data, .elements = 3}},
                                    {.storage = Storage::scattered})),
                      contains_text("stage 3 frees parameters"));
    CHECK_THROWS_WITH((construct<2, RoundRobinPartitioner>(
                          {{.name = "a", .data = data, .elements = 3}},
                          {.storage = Storage::adopted, .adopted_block = {data, 8}})),
                      contains_text("another partitioner would be ignored; use "
                                    "ContiguousPartitioner or Storage::scattered"));
    CHECK_THROWS_WITH((construct<2, WholeGroupPartitioner>(
                          {{.name = "a", .data = data, .elements = 3}},
                          {.storage = Storage::adopted, .adopted_block = {data, 8}})),
                      contains_text("use ContiguousPartitioner"));
    CHECK_THROWS_WITH((construct<1, PerTensorPartitioner>(
                          {{.name = "a", .data = data, .elements = 3}},
                          {.storage = Storage::adopted, .adopted_block = {data, 8}})),
                      contains_text("use ContiguousPartitioner"));
    CHECK_THROWS_WITH((construct<2>({{.name = "a", .elements = 3, .group = 1}}, {.groups = {{}}})),
                      contains_text("parameter 'a' is in group 1"));
    for (std::size_t const group :
         {std::size_t{2}, std::size_t{1} << 40U, std::numeric_limits<std::size_t>::max()}) {
        CHECK_THROWS_WITH((construct<2>({{.name = "a", .elements = 3},
                                         {.name = "b", .elements = 3, .group = group}})),
                          contains_text("parameter 'b' is in group " + std::to_string(group)
                                        + ", but there are 2 parameters"));
    }
    CHECK_NOTHROW(
        (construct<2>({{.name = "a", .elements = 3}, {.name = "b", .elements = 3, .group = 1}})));
}

TEST_CASE("Memory that training would never use is refused with its parameter and the remedy") {
    float data[8] = {};
    CHECK_THROWS_WITH((construct<0>({{.name = "w", .data = data, .elements = 3}})),
                      contains_text("parameter 'w' has memory in 'data', which would never change: "
                                    "with Storage::owned the engine trains a copy. Give initial "
                                    "values as 'initial', or set .storage"));
    CHECK_THROWS_AS((construct<1>({{.name = "w", .data = data, .elements = 3}})), InvalidArgument);
    CHECK_THROWS_AS((construct<2>({{.name = "w", .data = data, .elements = 3}})), InvalidArgument);
    CHECK_THROWS_WITH((construct<3>({{.name = "w", .data = data, .elements = 3}})),
                      contains_text("'w' has memory in 'data', which would never change: stage 3 "
                                    "keeps shards, and the model reads parameters through "
                                    "acquire(). Give initial values as 'initial'."));
    for (auto const storage : {Storage::scattered, Storage::adopted}) {
        CHECK_THROWS_WITH(
            (construct<1>({{.name = "w", .initial = data, .data = data + 4, .elements = 3}},
                          {.storage = storage,
                           .adopted_block = storage == Storage::adopted ? std::span(data)
                                                                        : std::span<float>()})),
            contains_text("parameter 'w' has initial values, which would be ignored, because the "
                          "parameter lies in the caller's memory; fill that memory instead"));
    }
}

TEST_CASE("Initial values reach an owned parameter of every stage and are not kept") {
    in_every_stage([]<int N>() {
        auto const values = on_ranks<std::vector<float>>(2, [](LoopbackCommunicator& communicator) {
            std::vector<float> initial{1.0F, -2.0F, 3.0F};
            if (communicator.rank() == 1) {
                initial.assign(3, 99.0F); // the values of rank 0 count
            }
            std::vector<Parameter<float>> const parameters{
                {.name = "w", .initial = initial.data(), .elements = 3}};
            ZeroStage<N> engine(communicator, parameters);
            initial.assign(3, 77.0F);
            return full_parameters(engine)[0];
        });
        for (auto const& rank : values) {
            CHECK(rank == std::vector<float>{1.0F, -2.0F, 3.0F});
        }
    });
}

TEST_CASE("Overlapping memory is refused with both ranges and their types") {
    float data[8] = {};
    auto const hexadecimal = [](float const* address) {
        std::ostringstream text;
        text << "0x" << std::hex << reinterpret_cast<std::uintptr_t>(address);
        return text.str();
    };
    CHECK_THROWS_WITH((construct<1>({{.name = "a", .data = data, .elements = 5},
                                     {.name = "b", .data = data + 4, .elements = 4}},
                                    {.storage = Storage::scattered})),
                      contains_text("'a' has [" + hexadecimal(data) + ", " + hexadecimal(data + 5)
                                    + "), 5 elements of float32; 'b' has [" + hexadecimal(data + 4)
                                    + ", " + hexadecimal(data + 8) + "), 4 elements of float32.")
                          && contains_text("one has a wrong type or size"));
}

TEST_CASE("Options out of range are refused with their name and value") {
    float const nan = std::numeric_limits<float>::quiet_NaN();
    for (float const clip : {0.0F, -1.0F, nan, std::numeric_limits<float>::infinity()}) {
        CHECK_THROWS_WITH(
            (construct<2>({{.name = "a", .elements = 3}}, {.gradient_clipping = clip})),
            contains_text("gradient_clipping is"));
    }
    CHECK_THROWS_WITH(
        (construct<2>({{.name = "a", .elements = 3}}, {.optimizer = {.beta1 = -0.1}})),
        contains_text("beta1"));
    CHECK_THROWS_WITH(
        (construct<2>({{.name = "a", .elements = 3}},
                      {.optimizer = {.weight_decay = std::numeric_limits<double>::quiet_NaN()}})),
        contains_text("weight_decay"));
    CHECK_THROWS_WITH((construct<2>({{.name = "a", .elements = 3}},
                                    {.groups = {{.learning_rate_factor = -1.0}}})),
                      contains_text("learning_rate_factor of group 0"));
    CHECK_THROWS_WITH((construct<2>({{.name = "a", .elements = 3}},
                                    {.groups = {{.learning_rate_factor = 1e39}}})),
                      contains_text("learning_rate_factor of group 0 is 1e+39"));
    CHECK_THROWS_WITH(
        (construct<2>({{.name = "a", .elements = 3}}, {.optimizer = {.epsilon = 1e-46}})),
        contains_text("epsilon is 1e-46"));
    CHECK_THROWS_WITH(
        (construct<2>({{.name = "a", .elements = 3, .group = 1}, {.name = "b", .elements = 3}},
                      {.groups = {{}, {.optimizer = {.beta1 = 1.5}}}})),
        contains_text("beta1 is 1.5") && contains_text("It is an option of group 1."));
    CHECK_THROWS_WITH(
        (construct<2>({{.name = "a", .elements = 3}}, {.bucketer = {.bucket_bytes = 0}})),
        contains_text("bucket_bytes is 0"));
    CHECK_THROWS_WITH(
        (construct<2>({{.name = "a", .elements = 3}}, {.reduction = {.predivide = -3.0F}})),
        contains_text("predivide is -3"));
    CHECK_THROWS_WITH((construct<2, DynamicLossScaler>({{.name = "a", .elements = 3}},
                                                       {.loss_scaler = {.growth_interval = 0}})),
                      contains_text("growth_interval"));
    CHECK_THROWS_WITH(
        (construct<2>({{.name = "a", .elements = 3}}, {.communication_queue = nullptr})),
        contains_text("a queue is a null pointer"));
    CHECK_THROWS_WITH((construct<2>({{.name = "a", .elements = 3}}, {.compute_queue = nullptr})),
                      contains_text("leave it out for the default"));
    CHECK_THROWS_AS(run_ranks(0, [](LoopbackCommunicator&) {}), InvalidArgument);
}

TEST_CASE("Options that would be ignored are refused with the remedy") {
    float data[3] = {};
    CHECK_THROWS_WITH((construct<2>({{.name = "a",
                                      .initial = data,
                                      .elements = 3,
                                      .initialise = [](std::size_t, std::span<float>) {}}})),
                      contains_text("parameter 'a' has initial values, which would be ignored"));
    CHECK_THROWS_WITH(
        (construct<2>({{.name = "a", .elements = 3, .trainable = false, .gradient = data}})),
        contains_text("frozen parameter 'a' has memory for its gradient, which would be ignored; "
                      "leave 'gradient' out"));
    CHECK_NOTHROW((construct<2>({{.name = "a", .elements = 3, .gradient = data}})));
    for (auto const non_finite : {NonFinite::step, NonFinite::throw_error}) {
        CHECK_THROWS_WITH((construct<2, DynamicLossScaler>({{.name = "a", .elements = 3}},
                                                           {.non_finite = non_finite})),
                          contains_text("non_finite would be ignored"));
        CHECK_THROWS_WITH((construct<1, StaticLossScaler>({{.name = "a", .elements = 3}},
                                                          {.non_finite = non_finite})),
                          contains_text("use NoLossScaler"));
        CHECK_NOTHROW((construct<2, NoLossScaler>({{.name = "a", .elements = 3}},
                                                  {.non_finite = non_finite})));
    }
    CHECK_NOTHROW((construct<2, DynamicLossScaler>({{.name = "a", .elements = 3}},
                                                   {.non_finite = NonFinite::skip})));
    CHECK_THROWS_WITH((construct<2>({{.name = "a", .elements = 3}},
                                    {.optimizer = {.weight_decay = 0.5}, .groups = {{}}})),
                      contains_text("'optimizer' would be ignored, because 'groups' lists"));
    CHECK_NOTHROW((construct<2>({{.name = "a", .elements = 3}},
                                {.groups = {{.optimizer = {.weight_decay = 0.5}}}})));
    CHECK_THROWS_WITH(
        (construct<2>({{.name = "a", .elements = 3, .group = 2}, {.name = "b", .elements = 3}},
                      {.groups = {{}, {}, {}}})),
        contains_text("options.groups has 3 entries, but no parameter is in group 1, so its "
                      "options would be ignored"));
    CHECK_NOTHROW((construct<2>({}, {.groups = {{}}}))); // an empty model is legal
    CHECK_THROWS_WITH(
        (construct<2, DynamicLossScaler>({{.name = "a", .elements = 3}},
                                         {.loss_scaler = {.on_minimum = [](void*) {}}})),
        contains_text("on_minimum and context would be ignored"));
}

TEST_CASE("Calls out of the protocol are refused and change nothing") {
    using Engine = ZeroStage<2>;
    auto const idle = [](Engine&) {};
    auto const started = [](Engine& engine) { engine.begin_step(); };
    refuses<OutOfOrder, 2>("step() without a micro-step", started,
                           [](Engine& engine) { engine.step(0.1); });
    refuses<OutOfOrder, 2>("step() outside a step", idle, [](Engine& engine) { engine.step(0.1); });
    refuses<OutOfOrder, 2>("inside a micro-step", in_micro_step<2>,
                           [](Engine& engine) { engine.step(0.1); });
    refuses<OutOfOrder, 2>("begin_step() inside a step", started,
                           [](Engine& engine) { engine.begin_step(); });
    refuses<OutOfOrder, 2>("begin_micro_step()", in_micro_step<2>,
                           [](Engine& engine) { engine.begin_micro_step(); });
    refuses<OutOfOrder, 2>("gradients() outside a micro-step", started,
                           [](Engine& engine) { (void)engine.gradients(0); });
    refuses<OutOfOrder, 2>("gradients_ready() outside a micro-step", started,
                           [](Engine& engine) { engine.gradients_ready(0); });
    refuses<OutOfOrder, 2>("loss_scale() outside a step; call begin_step() first (rank 0)", idle,
                           [](Engine& engine) { (void)engine.loss_scale(); });
    refuses<OutOfOrder, 2>("cancel_step() outside a step", idle,
                           [](Engine& engine) { engine.cancel_step(); });
    for (std::size_t const group : {std::size_t{2}, std::numeric_limits<std::size_t>::max()}) {
        refuses<InvalidArgument, 2>("does not exist; there are 2, numbered from 0 (rank 0)", idle,
                                    [=](Engine& engine) { engine.set_learning_rate(group, 1.0); });
    }
    refuses<InvalidArgument, 2>("a queue is a null pointer", idle,
                                [](Engine& engine) { (void)engine.acquire(0, nullptr); });
    refuses<InvalidArgument, 2>("a queue is a null pointer", in_micro_step<2>,
                                [](Engine& engine) { (void)engine.gradients(0, nullptr); });
    refuses<InvalidArgument, 2>("a queue is a null pointer", in_micro_step<2>,
                                [](Engine& engine) { engine.gradients_ready(0, nullptr); });
    refuses<InvalidArgument, 2>("a queue is a null pointer", in_micro_step<2>, [](Engine& engine) {
        std::vector<float> const gradient(300);
        (void)engine.hand_over(0, 0, gradient, nullptr);
    });
    refuses<InvalidArgument, 2>("micro_steps(0)", started,
                                [](Engine& engine) { (void)engine.micro_steps(0); });
    refuses<InvalidArgument, 2>("unit 9 does not exist", in_micro_step<2>,
                                [](Engine& engine) { (void)engine.gradients(9); });
    refuses<InvalidArgument, 2>("('first.bias') is not one of unit 2", idle, [](Engine& engine) {
        auto const weights = engine.acquire(2);
        (void)weights[2];
    });
    refuses<InvalidArgument, 2>("has 3 elements, but the parameter has 500", in_micro_step<2>,
                                [](Engine& engine) {
                                    std::vector<float> const short_span(3);
                                    engine.hand_over(1, 1, short_span);
                                });
    refuses<InvalidArgument, 2>("is frozen", in_micro_step<2>, [](Engine& engine) {
        std::vector<float> const span(40);
        engine.hand_over(2, 4, span);
    });
    refuses<InvalidArgument, 2>("parameter group 7 does not exist", idle,
                                [](Engine& engine) { engine.set_learning_rate(7, 1.0); });
    refuses<InvalidArgument, 2>("learning rate factor is -", idle,
                                [](Engine& engine) { engine.set_learning_rate(0, -1.0); });
    refuses<InvalidArgument, 2>("; it must be finite as a float and not negative", idle,
                                [](Engine& engine) { engine.set_learning_rate(0, 1e39); });
    auto const accumulated = [](Engine& engine) {
        engine.begin_step();
        for (auto const micro_step : engine.micro_steps(1)) {
            engine.gradients(0)[0][0] = 1.0F;
        }
    };
    refuses<InvalidArgument, 2>("the learning rate is -", accumulated,
                                [](Engine& engine) { engine.step(-0.1); });
    refuses<InvalidArgument, 2>("the learning rate is 1e+39", accumulated,
                                [](Engine& engine) { engine.step(1e39); });
    refuses<OutOfOrder, 2>(
        "announced as the last",
        [](Engine& engine) {
            engine.begin_step();
            engine.begin_micro_step(MicroStep::last);
            engine.end_micro_step();
        },
        [](Engine& engine) { engine.begin_micro_step(); });
}

TEST_CASE("A gradient that comes after its reduction is refused with the parameter's name") {
    refuses<LateGradient, 2>(
        "'first.weight'",
        [](ZeroStage<2>& engine) {
            in_micro_step(engine);
            (void)engine.gradients(1);
            engine.gradients_ready(1);
        },
        [](ZeroStage<2>& engine) { (void)engine.gradients(1); });
    refuses<LateGradient, 3>(
        "'first.weight'",
        [](ZeroStage<3>& engine) {
            in_micro_step(engine);
            engine.gradients_ready(1);
        },
        [](ZeroStage<3>& engine) {
            std::vector<float> const gradient(500);
            engine.hand_over(1, 1, gradient);
        });
}

TEST_CASE("A released handle has no weights") {
    run_ranks(1, [](LoopbackCommunicator& communicator) {
        ZeroStage<3> engine(communicator, registration<float>(toy_specs()));
        auto weights = engine.acquire(1);
        CHECK(weights[1].size() == 500);
        weights.release();
        CHECK_THROWS_AS(weights[1], Released);
        CHECK_THROWS_WITH(weights[1], contains_text("weights of unit 1 were released"));
        engine.begin_step();
        engine.begin_micro_step();
        auto const gradients = engine.gradients(1);
        CHECK(gradients[1].size() == 500);
        engine.gradients_ready(1);
        CHECK_THROWS_AS(gradients[1], LateGradient);
        engine.end_micro_step();
        CHECK_THROWS_WITH(gradients[2], contains_text("'first.bias'"));
    });
}

TEST_CASE("Weights must not be held across a step, in any stage") {
    in_every_stage([]<int N>() {
        auto const outcomes = on_ranks<Outcome>(2, [](LoopbackCommunicator& communicator) {
            ZeroStage<N> engine(communicator, registration<float>(toy_specs()));
            engine.begin_step();
            engine.begin_micro_step();
            engine.gradients(0)[0][0] = 1.0F;
            engine.end_micro_step();
            auto held = engine.acquire(2);
            Outcome const outcome = outcome_of([&] { (void)engine.step(0.1); });
            held.release();
            (void)engine.step(0.1).report();
            return outcome;
        });
        for (Outcome const& outcome : outcomes) {
            CHECK(outcome.type == "OutOfOrder");
            CHECK_THAT(outcome.message, contains_text("release all handles first"));
        }
    });
}

TEST_CASE("A unit that finds no lease is refused with its bucket and the remedy") {
    run_ranks(1, [](LoopbackCommunicator& communicator) {
        ZeroStage<3> engine(communicator, {{.name = "a", .elements = 64, .units = {0}},
                                           {.name = "b", .elements = 64, .units = {1}},
                                           {.name = "c", .elements = 64, .units = {2}}});
        auto const a = engine.acquire(0);
        auto const b = engine.acquire(1);
        CHECK_THROWS_WITH(engine.acquire(2),
                          contains_text("finds no room for its 1 gathered bucket, bucket 0 ("));
    });
    run_ranks(1, [](LoopbackCommunicator& communicator) {
        ZeroStage<3> engine(communicator, registration<float>(toy_specs()));
        auto const a = engine.acquire(0);
        auto const b = engine.acquire(1);
        Outcome const refused = outcome_of([&] {
            auto const c = engine.acquire(2);
            auto const d = engine.acquire(3);
        });
        CHECK(refused.type == "OutOfOrder");
        CHECK_THAT(refused.message,
                   contains_text("finds no room for its 2 gathered buckets, the first is bucket 2")
                       && contains_text("extra_leases"));
        CHECK(a[0].size() == 300);
    });
    run_ranks(1, [](LoopbackCommunicator& communicator) {
        ZeroStage<2, UnitBucketer> engine(communicator, registration<float>(toy_specs()));
        engine.begin_step();
        engine.begin_micro_step();
        (void)engine.gradients(0);
        (void)engine.gradients(1);
        CHECK_THROWS_AS(engine.gradients(2), OutOfOrder);
        CHECK_THROWS_WITH(engine.gradients(2),
                          contains_text("unit 2 comes out of order: its bucket")
                              && contains_text("extra_leases"));
        engine.cancel_step();
        CHECK_FALSE(run_step(engine, 0, 0).report().is_skipped);
    });
}

TEST_CASE("A run-time stage outside 0 to 3 is refused") {
    for (int const stage : {0, 1, 2, 3}) {
        CHECK(with_stage(stage, [&]<int N>() { return N; }) == stage);
    }
    CHECK_THROWS_WITH(with_stage(4, []<int N>() { return N; }),
                      contains_text("there is no stage 4"));
    CHECK_THROWS_AS(with_stage(-1, []<int N>() { return N; }), InvalidArgument);
}

} // namespace zero::test::bad_input_test
