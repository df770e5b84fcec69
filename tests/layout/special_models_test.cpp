#include "families.hpp"

#include "support/catch.hpp"
#include "support/shapes.hpp"

namespace zero::test::special_models_test {

using Members = std::vector<std::vector<std::size_t>>;

TEST_CASE("A model without parameters has a layout without buckets, units and elements") {
    for (std::size_t const world : std::vector<std::size_t>{1, 5, 64}) {
        test::for_each_family(1024, [&](auto const& family) {
            FlatLayout const layout = family.make({}, {world, 4, true});
            CHECK(layout.buckets() == 0);
            CHECK(layout.trainable_buckets() == 0);
            CHECK(layout.units() == 0);
            CHECK(layout.padded_elements() == 0);
            CHECK(layout.bucket_begin(0) == 0);
        });
    }
}

TEST_CASE("A frozen model has buckets, none of them trainable") {
    auto model = test::model_of_sizes({10, 200, 3});
    for (ParameterSpec& spec : model) {
        spec.trainable = false;
    }
    CHECK(test::problem_in_any_family(model, 4) == "");
    auto const layout = make_layout<ContiguousPartitioner, SingleBucketer>(model, {4, 4, false});
    CHECK(layout.buckets() == 1);
    CHECK(layout.trainable_buckets() == 0);
    CHECK(layout.padded_elements() == 512); // 64 + 256 + 64 = 384, padded to a multiple of 256
}

TEST_CASE("Frozen parameters have buckets of their own after the trainable ones") {
    auto model = test::model_of_sizes({10, 20, 30, 40, 50});
    model[1].trainable = false;
    model[3].trainable = false;
    auto const layout = make_layout<ContiguousPartitioner, SingleBucketer>(model, {2, 4, false});
    CHECK(test::bucket_members(layout) == Members{{0, 2, 4}, {1, 3}});
    CHECK(layout.trainable_buckets() == 1);
    CHECK(layout.bucket(0).trainable);
    CHECK_FALSE(layout.bucket(1).trainable);
    CHECK(layout.bucket_begin(1) == 256); // 3 * 64 = 192, padded to a multiple of 128
}

TEST_CASE("A tied parameter has its own bucket, which each of its units lists") {
    auto model = test::model_of_sizes({100, 100, 100, 100});
    model[1].units = {1, 3};
    for (bool const is_inside : {false, true}) {
        auto const layout =
            make_layout<ContiguousPartitioner, SingleBucketer>(model, {2, 4, is_inside});
        CHECK(test::bucket_members(layout)
              == (is_inside ? Members{{3}, {2}, {1}, {0}} : Members{{2, 3}, {1}, {0}}));
        std::size_t const tied = is_inside ? 2 : 1;
        CHECK(std::vector<std::size_t>(layout.unit_buckets(1).begin(), layout.unit_buckets(1).end())
              == std::vector<std::size_t>{tied});
        CHECK(std::vector<std::size_t>(layout.unit_buckets(3).begin(), layout.unit_buckets(3).end())
              == std::vector<std::size_t>{0, tied});
        CHECK(std::vector<std::size_t>(layout.unit_parameters(3).begin(),
                                       layout.unit_parameters(3).end())
              == std::vector<std::size_t>{1, 3});
        CHECK(layout.parameter_buckets(1).size() == 1);
        CHECK(layout.padded_elements() == 512);
    }
}

TEST_CASE("The parameter group does not affect the layout") {
    auto model = test::model_of_sizes({100, 200, 300});
    auto const before =
        make_layout<ContiguousPartitioner, SizeCappedBucketer>(model, {3, 4, false});
    model[1].group = 1;
    auto const after = make_layout<ContiguousPartitioner, SizeCappedBucketer>(model, {3, 4, false});
    REQUIRE(before.buckets() == 1);
    REQUIRE(after.buckets() == 1);
    CHECK(test::bucket_members(before) == test::bucket_members(after));
    for (std::size_t piece = 0; piece < 3; ++piece) {
        CHECK(before.pieces(0)[piece].bucket_begin == after.pieces(0)[piece].bucket_begin);
    }
}

TEST_CASE("A unit registered in two places has one bucket if buckets lie inside units") {
    auto model = test::model_of_sizes({10, 10, 10});
    model[0].units = {0};
    model[1].units = {1};
    model[2].units = {0};
    auto const layout = make_layout<ContiguousPartitioner, SizeCappedBucketer>(model, {2, 4, true});
    CHECK(test::bucket_members(layout) == Members{{1}, {0, 2}});
    CHECK(std::vector<std::size_t>(layout.unit_buckets(0).begin(), layout.unit_buckets(0).end())
          == std::vector<std::size_t>{1});
}

TEST_CASE("Unit numbers may have gaps, whose units have no buckets") {
    auto model = test::model_of_sizes({10});
    model[0].units = {5};
    auto const layout = make_layout<RoundRobinPartitioner, UnitBucketer>(model, {2, 4, false});
    CHECK(layout.units() == 6);
    CHECK(layout.unit_buckets(4).empty());
    CHECK(layout.unit_buckets(5).size() == 1);
}

} // namespace zero::test::special_models_test
