#include "families.hpp"

#include "support/catch.hpp"
#include "support/shapes.hpp"

#include <zero/layout/lease_plan.hpp>
#include <zero/layout/make_layout.hpp>

#include <cstdint>
#include <limits>

namespace zero::test::lease_plan_test {

namespace {

StageRow row_of(int stage) {
    return stage_row(stage, ReductionSchedule::every_micro_step);
}

template <class Bucketer>
FlatLayout layout_of(std::vector<ParameterSpec> const& model, std::size_t world,
                     std::size_t element_bytes, typename Bucketer::Options options = {}) {
    return make_layout<ContiguousPartitioner, Bucketer>(
        model, {world, element_bytes, std::is_same_v<Bucketer, UnitBucketer>}, options);
}

/// Bytes of the gradient leases in bfloat16.
std::size_t gradient_bytes(FlatLayout const& layout, int stage) {
    return 2 * plan_gradient_leases(layout, stage < 3).elements;
}

std::size_t parameter_bytes(FlatLayout const& layout) {
    return 2 * plan_parameter_leases(layout, row_of(3), Storage::owned).elements;
}

} // namespace

TEST_CASE("Llama 3 8B leases 1.4869 GB of bfloat16 gradients in stages 2 and 3, and as much for "
          "gathered parameters in stage 3") {
    REQUIRE(elements_of(llama3_8b()) == llama3_8b_elements);
    REQUIRE(llama3_8b_elements
            == 2 * llama3_8b_embedding_elements + 32 * llama3_8b_layer_elements + 4096);
    // The most in flight: the head with its norm, and the last layer. No bucket is padded.
    constexpr std::size_t most =
        2 * (llama3_8b_embedding_elements + 4096 + llama3_8b_layer_elements);
    STATIC_REQUIRE(most == 1'486'905'344);
    auto const second = layout_of<SizeCappedBucketer>(llama3_8b(), 8, 2);
    CHECK(gradient_bytes(second, 2) == most);
    CHECK(gradient_bytes(second, 2) <= 1'750'000'000);
    auto const third = layout_of<UnitBucketer>(llama3_8b(), 64, 2);
    CHECK(gradient_bytes(third, 3) == most);
    CHECK(parameter_bytes(third) == most);
    CHECK(gradient_bytes(third, 3) <= 1'650'000'000);
}

TEST_CASE("A model of one unit leases each of its buckets once") {
    auto const model = as_one_unit(llama3_8b());
    auto const layout = layout_of<SizeCappedBucketer>(model, 8, 2);
    CHECK(gradient_bytes(layout, 2) == 2 * layout.padded_elements());
    CHECK(gradient_bytes(layout, 2) <= 2 * llama3_8b_elements + 2 * (25U << 20U));
    auto const gathered = layout_of<UnitBucketer>(model, 8, 2);
    CHECK(gradient_bytes(gathered, 3) == 2 * gathered.padded_elements());
    CHECK(parameter_bytes(gathered) == 2 * gathered.padded_elements());
}

TEST_CASE("GPT-2 124M with a tied head leases 0.11 GB of gradients and 0.093 GB of parameters in "
          "stage 3") {
    auto const layout = layout_of<UnitBucketer>(gpt2_124m(Head::tied), 8, 2);
    // Gradients: the tied embedding stays, together with two blocks. Parameters: the embeddings and
    // the first block.
    constexpr std::size_t positions = 1024 * 768;
    std::size_t const block = layout.elements(1); // padded for W = 8
    CHECK(block - gpt2_block_elements < 8 * 64);
    std::size_t const embedding = layout.elements(layout.buckets() - 1);
    CHECK(embedding - gpt2_embedding_elements < 8 * 64);
    CHECK(gradient_bytes(layout, 3) == 2 * (embedding + 2 * block));
    CHECK(parameter_bytes(layout) == 2 * (embedding + positions + block));
    CHECK(gradient_bytes(layout, 3) == 105'547'776);
    CHECK(parameter_bytes(layout) == 92'944'384);
    CHECK(gradient_bytes(layout, 3) <= 110'000'000);
    CHECK(parameter_bytes(layout) <= 120'000'000);
}

TEST_CASE(
    "The peak of a plan is the buckets that set its size: head and last layer of Llama 3 8B") {
    auto const layout = layout_of<UnitBucketer>(llama3_8b(), 8, 2);
    std::vector<std::size_t> const last{0, 1}; // buckets are in reverse order of units
    CHECK(plan_gradient_leases(layout, true).peak == last);
    CHECK(plan_gradient_leases(layout, false).peak == last);
    CHECK(plan_parameter_leases(layout, row_of(3), Storage::owned).peak == last);
    // A copy is made of one bucket at a time; the two largest are equal, and the first counts.
    auto const scattered = plan_parameter_leases(layout, row_of(2), Storage::scattered);
    CHECK(scattered.peak == std::vector<std::size_t>{0});
    CHECK(plan_parameter_leases(layout, row_of(2), Storage::owned).peak.empty());
    auto const one = layout_of<SizeCappedBucketer>(as_one_unit(llama3_8b()), 8, 2);
    CHECK(plan_gradient_leases(one, true).peak.size() == one.buckets());
    CHECK(plan_gradient_leases(layout_of<UnitBucketer>({}, 1, 4), true).peak.empty());
}

TEST_CASE("Smaller buckets never need more gradient memory, for GPT-2 and Llama") {
    auto const check = [](std::vector<ParameterSpec> const& model, std::size_t element_bytes) {
        std::size_t last = 0;
        for (std::size_t const mebibytes : {1U, 4U, 25U, 100U, 400U}) {
            INFO("a cap of " << mebibytes << " MiB");
            auto const layout =
                layout_of<SizeCappedBucketer>(model, 1, element_bytes, {mebibytes << 20U});
            std::size_t const elements = plan_gradient_leases(layout, true).elements;
            CHECK(elements >= last);
            last = elements;
        }
    };
    check(gpt2_124m(Head::tied), 4);
    check(gpt2_124m(Head::tied), 2);
    check(gpt2_124m(Head::separate), 4);
    check(llama_7b(), 2);
    check(llama3_8b(), 2);
}

TEST_CASE("Spare places are as large as the largest buckets, at most one per bucket") {
    auto const layout = layout_of<UnitBucketer>(model_of_sizes({100, 500, 0, 300, 200}), 1, 4);
    using Sizes = std::vector<std::size_t>;
    auto const spares = [&](std::size_t count) {
        LeasePlan const gradients = plan_gradient_leases(layout, true, count);
        LeasePlan const parameters =
            plan_parameter_leases(layout, row_of(3), Storage::owned, count);
        CHECK(gradients.spares == parameters.spares);
        CHECK(gradients.planned_elements() == plan_gradient_leases(layout, true).elements);
        return gradients.spares;
    };
    CHECK(spares(0) == Sizes{});
    CHECK(spares(1) == Sizes{512});
    CHECK(spares(2) == Sizes{512, 320});
    CHECK(spares(4) == Sizes{512, 320, 256, 128}); // the empty bucket needs none
    constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
    CHECK(spares(most) == Sizes{512, 320, 256, 128});
    STATIC_REQUIRE(spare_places(most, 1) == most);
    STATIC_REQUIRE(spare_places(1, most) == most);
    STATIC_REQUIRE(spare_places(3, 4) == 7);
    // Stages 0 to 2 copy one parameter bucket at a time, in any order.
    CHECK(plan_parameter_leases(layout, row_of(2), Storage::scattered, 3).spares.empty());
}

TEST_CASE("Models without elements, with empty parameters and with frozen ones only need no "
          "gradient memory") {
    auto frozen = model_of_sizes({10, 20});
    frozen[0].trainable = frozen[1].trainable = false;
    for (auto const& model : {std::vector<ParameterSpec>{}, model_of_sizes({0, 0, 0}), frozen}) {
        auto const layout = layout_of<UnitBucketer>(model, 2, 4);
        for (bool const in_index_order : {false, true}) {
            LeasePlan const plan = plan_gradient_leases(layout, in_index_order, 3);
            CHECK(plan.elements == 0);
            CHECK(plan.places == std::vector<Range>(layout.buckets()));
            CHECK(plan.spares.empty());
        }
        bool const is_frozen = !model.empty() && model[0].elements != 0;
        CHECK(plan_parameter_leases(layout, row_of(3), Storage::owned).elements
              == (is_frozen ? 2 * 128 : 0)); // two consecutive units, padded for two ranks
    }
}

TEST_CASE("Buckets that are copied in stages 1 and 2 share one place of the largest") {
    auto model = model_of_sizes({100, 500, 300});
    model[1].trainable = false;
    auto const layout = layout_of<UnitBucketer>(model, 1, 4);
    for (int const stage : {1, 2}) {
        LeasePlan const plan = plan_parameter_leases(layout, row_of(stage), Storage::scattered);
        CHECK(plan.elements == 320);
        CHECK(plan.places == std::vector<Range>{{0, 320}, {0, 320}, {}}); // the last is frozen
        CHECK(plan_parameter_leases(layout, row_of(stage), Storage::owned).elements == 0);
    }
    CHECK(plan_parameter_leases(layout, row_of(0), Storage::scattered).elements == 0);
}

TEST_CASE("Plans of 100000 buckets in one unit, and of 10000 units that end together, are exact") {
    std::vector<std::size_t> sizes;
    for (std::size_t index = 0; index < 100'000; ++index) {
        sizes.push_back(1 + index % 1000);
    }
    auto const one = make_layout<ContiguousPartitioner, ParameterBucketer>(
        model_of_sizes(sizes, sizes.size()), {2, 4, true});
    REQUIRE(one.buckets() == 100'000);
    CHECK(plan_gradient_leases(one, true).elements == one.padded_elements());
    CHECK(plan_gradient_leases(one, false).elements == one.padded_elements());

    // Bucket 0 is complete last, and reductions keep the index order.
    sizes.resize(10'000);
    FlatLayout const backwards = layout_of<UnitBucketer>(model_of_sizes(sizes), 2, 4);
    std::vector<BucketPlan> buckets;
    std::vector<std::size_t> order;
    for (std::size_t bucket = 0; bucket < backwards.buckets(); ++bucket) {
        buckets.push_back(backwards.bucket(bucket));
        order.push_back(bucket);
    }
    FlatLayout const forwards(model_of_sizes(sizes), 2, buckets, order);
    CHECK(plan_gradient_leases(forwards, true).elements == forwards.padded_elements());
    // Without that rule two neighbours are in flight at once, at most 1000 and 999 elements.
    CHECK(plan_gradient_leases(forwards, false).elements == 2 * 1024);
}

} // namespace zero::test::lease_plan_test
