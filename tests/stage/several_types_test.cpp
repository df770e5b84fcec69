#include "stage/mixed_model.hpp"

#include "support/account.hpp"
#include "support/catch.hpp"
#include "support/stages.hpp"

#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/stage/zero_stage.hpp>

#include <array>
#include <string>
#include <vector>

// Models with several parameter types: matrices in bfloat16, norms and biases in float.

namespace zero::test::mixed::several_types_test {

namespace {

/// Trains a model of one type that has the parameters selected by `keeps`, in the same way.
template <class T, class Keeps>
ByName train_some(Keeps const& keeps) {
    return on_ranks<ByName>(world, [&](LoopbackCommunicator& communicator) {
        ZeroStage<2, Parameters<T>> engine(
            communicator, mixed_registration<Parameter<T>>(keeps),
            {.reduction = {.schedule = ReductionSchedule::boundary}});
        (void)train<T, T>(engine, static_cast<std::uint64_t>(communicator.rank()));
        return values_by_name(engine);
    })[0];
}

} // namespace

TEST_CASE("A model with two parameter types trains to the bits of two models with one type each") {
    ByName expected = train_some<bfloat16>([](std::size_t index) { return !is_float(index); });
    expected.merge(train_some<float>([](std::size_t index) { return is_float(index); }));
    REQUIRE(expected.size() == toy_specs().size());
    in_every_stage([&]<int N>() {
        for (auto const& rank :
             train_all<Mixed<N>>({.reduction = {.schedule = ReductionSchedule::boundary}})) {
            CHECK((rank.values == expected));
        }
    });
}

TEST_CASE(
    "With several types, clipping, poison and small buckets give the same bits in every stage") {
    for (auto const schedule : {ReductionSchedule::boundary, ReductionSchedule::every_micro_step}) {
        auto const expected =
            train_all<Mixed<0>>({.gradient_clipping = 0.5F, .reduction = {.schedule = schedule}});
        CHECK(expected[0].norm > 0.5); // so it clips
        in_every_stage([&]<int N>() {
            CHECK((train_all<Mixed<N, SizeCappedBucketer>>({.gradient_clipping = 0.5F,
                                                            .poison = true,
                                                            .bucketer = {.bucket_bytes = 600},
                                                            .reduction = {.schedule = schedule}})
                   == expected));
            CHECK((train_all<Mixed<N, RoundRobinPartitioner>>(
                       {.gradient_clipping = 0.5F, .reduction = {.schedule = schedule}})
                   == expected));
        });
    }
}

TEST_CASE("With several types the plan equals the allocations, and only bfloat16 parameters have "
          "master weights") {
    in_every_stage([&]<int N>() {
        auto const accounts = on_ranks<Account>(world, [&](LoopbackCommunicator& communicator) {
            HostMemoryResource memory;
            Mixed<N> engine(communicator,
                            mixed_registration<AnyParameter>([](std::size_t) { return true; }),
                            {.memory = &memory});
            return Account{engine.memory_plan(), allocated_bytes(memory)};
        });
        std::size_t master = 0;
        for (auto const& account : accounts) {
            CHECK(planned_bytes(account.plan) == account.allocated);
            master += account.plan[BufferKind::master_weights].content_bytes;
        }
        // embedding 300, first.weight 500, second.weight 129, third.empty 0, head.scale 1;
        // second.table is frozen
        CHECK(master == 4 * 930 * (N == 0 ? world : 1));
    });
}

TEST_CASE("Parameters of an unsupported type are refused by name") {
    auto const outcomes =
        on_ranks<std::vector<std::string>>(1, [](LoopbackCommunicator& communicator) {
            std::vector<std::string> messages;
            auto const all = mixed_registration<AnyParameter>([](std::size_t) { return true; });
            Mixed<2> engine(communicator, all);
            auto const weights = engine.acquire(1);
            messages.push_back(outcome_of([&] { (void)weights.template get<float>(1); }).message);
            std::vector<AnyParameter> with_half = all;
            with_half.emplace_back(Parameter<float16>{.name = "half", .elements = 3});
            messages.push_back(
                outcome_of([&] { Mixed<2> refused(communicator, with_half); }).message);
            std::vector<bfloat16> block(64);
            std::vector<AnyParameter> const adopted{
                Parameter<bfloat16>{.name = "a", .data = block.data(), .elements = 64}};
            messages.push_back(outcome_of([&] {
                                   Mixed<2> refused(
                                       communicator, adopted,
                                       {.storage = Storage::adopted, .adopted_block = block});
                               }).message);
            return messages;
        })[0];
    CHECK(outcomes[0]
          == "zero: parameter 'first.weight' has the type bfloat16, not float32; use bfloat16 "
             "(rank 0).");
    CHECK(outcomes[1]
          == "zero: parameter 'half' is float16 with a float16 gradient, which is none of the "
             "types of this composition; name its type in "
             "zero::Parameters, and its gradient's in zero::GradientReduction.");
    CHECK(outcomes[2]
          == "zero: an adopted block holds one parameter type, but the model has several; use "
             "Storage::scattered.");
}

} // namespace zero::test::mixed::several_types_test
