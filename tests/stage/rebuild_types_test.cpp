#include "stage/mixed_model.hpp"
#include "stage/whole_tensor_model.hpp"

#include "support/catch.hpp"
#include "support/stages.hpp"

#include <vector>

// Rebuilt buckets with several parameter types, and with whole-tensor optimizers.

namespace zero::test::rebuild_types_test {

namespace {

std::vector<std::size_t> const order{1, 3, 0, 2, 4};

} // namespace

TEST_CASE("Rebuilt buckets change no bit of a model with several parameter types",
          "[stage][rebuild]") {
    using mixed::Mixed;
    auto const kept = mixed::train_all<Mixed<0, SizeCappedBucketer>>(
        {.extra_leases = 8, .reduction = {.schedule = ReductionSchedule::boundary}}, order);
    in_every_stage([&]<int N>() {
        auto const check = [&]<class Stage>(std::size_t bucket_bytes) {
            auto const rebuilt =
                mixed::train_all<Stage>({.rebuild_buckets = Stage::in_ready_order,
                                         .leases_until_rebuild = 8,
                                         .poison = true,
                                         .bucketer = {.bucket_bytes = bucket_bytes},
                                         .reduction = {.schedule = ReductionSchedule::boundary}},
                                        order);
            CHECK((rebuilt[0].values == kept[0].values));
            CHECK((rebuilt[2].values == kept[0].values));
            CHECK((mixed::owned_by_all(rebuilt) == mixed::owned_by_all(kept)));
        };
        check.template operator()<Mixed<N, SizeCappedBucketer>>(600);
        check.template operator()<Mixed<N, SizeCappedBucketer, RoundRobinPartitioner>>(1U << 20U);
    });
}

TEMPLATE_TEST_CASE("Rebuilt buckets change no bit of a whole-tensor optimizer, which gets scratch "
                   "memory for the parameters it now owns",
                   "[stage][rebuild]", Lamb, Muon) {
    auto const run = []<class Stage>(bool is_rebuilt) {
        typename Stage::Options options;
        options.poison = true;
        options.rebuild_buckets = is_rebuilt ? Stage::in_ready_order : nullptr;
        (is_rebuilt ? options.leases_until_rebuild : options.extra_leases) = 8;
        return trained<Stage>(3, options, {.specs = whole_specs(), .order = order});
    };
    auto const expected =
        run.template operator()<ZeroStage<0, SizeCappedBucketer, RoundRobinPartitioner, TestType>>(
            false);
    in_every_stage([&]<int N>() {
        CHECK((run.template
               operator()<ZeroStage<N, SizeCappedBucketer, RoundRobinPartitioner, TestType>>(true)
               == expected));
    });
}

} // namespace zero::test::rebuild_types_test
