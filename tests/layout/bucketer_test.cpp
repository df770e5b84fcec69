#include "layout_checks.hpp"

#include "support/catch.hpp"
#include "support/shapes.hpp"

#include <zero/layout/contiguous_partitioner.hpp>
#include <zero/layout/gather_options.hpp>
#include <zero/layout/make_layout.hpp>
#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/layout/size_capped_bucketer.hpp>

namespace zero::test::bucketer_test {

using Members = std::vector<std::vector<std::size_t>>;

namespace {

/// Options with the capacity in elements of four bytes.
Members capped(std::vector<std::size_t> const& sizes, std::size_t cap_elements) {
    return test::bucket_members(make_layout<ContiguousPartitioner, SizeCappedBucketer>(
        test::model_of_sizes(sizes), {1, 4, false}, {cap_elements * 4}));
}

} // namespace

TEST_CASE("The size-capped bucketer fills a bucket up to its capacity and no further") {
    // In reverse order: 64 + 64 + 64 = 192.
    CHECK(capped({64, 64, 64, 64}, 191) == Members{{2, 3}, {0, 1}});
    CHECK(capped({64, 64, 64, 64}, 192) == Members{{1, 2, 3}, {0}});
    CHECK(capped({64, 64, 64, 64}, 193) == Members{{1, 2, 3}, {0}});
    CHECK(capped({64, 64, 64, 64}, 256) == Members{{0, 1, 2, 3}});
}

TEST_CASE("A parameter of about the capacity is placed once") {
    // 1023 elements are padded to 1024, the capacity; only empty parameters still fit.
    CHECK(capped({5, 1023, 5}, 1024) == Members{{2}, {1}, {0}});
    CHECK(capped({5, 1024, 5}, 1024) == Members{{2}, {1}, {0}});
    CHECK(capped({5, 1025, 5}, 1024) == Members{{2}, {1}, {0}});
    CHECK(capped({0, 1024, 0}, 1024) == Members{{0, 1, 2}});
}

TEST_CASE("A parameter larger than the capacity gets a bucket of its own") {
    CHECK(capped({64, 64, 6400, 64, 64}, 128) == Members{{3, 4}, {2}, {0, 1}});
    CHECK(capped({6400, 6400}, 128) == Members{{1}, {0}});
    CHECK(capped({0, 6400}, 128) == Members{{1}, {0}});
}

TEST_CASE("A capacity below one element gives each parameter a bucket of its own") {
    auto const layout = make_layout<ContiguousPartitioner, SizeCappedBucketer>(
        test::model_of_sizes({1, 2, 3}), {2, 4, false}, {1});
    CHECK(test::bucket_members(layout) == Members{{2}, {1}, {0}});
}

TEST_CASE("The capacity is in bytes of the parameter type") {
    auto const model = test::model_of_sizes({64, 64, 64, 64});
    auto const count = [&](std::size_t element_bytes) {
        return make_layout<ContiguousPartitioner, SizeCappedBucketer>(
                   model, {1, element_bytes, false}, {512})
            .buckets();
    };
    CHECK(count(4) == 2);
    CHECK(count(2) == 1);
}

TEST_CASE("The default capacity is 25 MiB") {
    STATIC_REQUIRE(SizeCappedBucketerOptions{}.bucket_bytes == 26'214'400);
    // 6,553,600 elements of four bytes are exactly the capacity.
    auto const model = test::model_of_sizes({64, 64, 6'553'536});
    CHECK(test::bucket_members(
              make_layout<ContiguousPartitioner, SizeCappedBucketer>(model, {1, 4, false}))
          == Members{{1, 2}, {0}});
}

TEST_CASE("The size-capped bucketer spans units unless buckets must lie inside units") {
    auto const model = test::model_of_sizes({64, 64, 64, 64, 64}, 2); // units 0, 0, 1, 1, 2
    auto const members = [&](bool is_inside) {
        return test::bucket_members(make_layout<ContiguousPartitioner, SizeCappedBucketer>(
            model, {1, 4, is_inside}, {3 * 64 * 4}));
    };
    CHECK(members(false) == Members{{2, 3, 4}, {0, 1}});
    CHECK(members(true) == Members{{4}, {2, 3}, {0, 1}});
}

TEST_CASE("The unit bucketer makes one bucket per unit of any size") {
    auto const model = test::model_of_sizes({64, 6400, 1, 0, 10'000'000}, 2);
    CHECK(
        test::bucket_members(make_layout<RoundRobinPartitioner, UnitBucketer>(model, {4, 4, false}))
        == Members{{4}, {2, 3}, {0, 1}});
}

TEST_CASE(
    "The single bucketer makes one bucket, or one per unit where buckets must lie inside units") {
    auto const model = test::model_of_sizes({64, 6400, 1, 0, 10'000'000}, 2);
    CHECK(test::bucket_members(
              make_layout<ContiguousPartitioner, SingleBucketer>(model, {4, 4, false}))
          == Members{{0, 1, 2, 3, 4}});
    CHECK(test::bucket_members(
              make_layout<ContiguousPartitioner, SingleBucketer>(model, {4, 4, true}))
          == Members{{4}, {2, 3}, {0, 1}});
}

TEST_CASE("Bucketers return the number of parameters to take") {
    std::vector<BucketItem> const items{{64, 2}, {64, 2}, {128, 1}, {64, 1}};
    CHECK(SizeCappedBucketer::take(items, {256 * 2}, 2) == 3);
    CHECK(SizeCappedBucketer::take(items, {256 * 2 - 1}, 2) == 2);
    CHECK(UnitBucketer::take(items, {}, 2) == 2);
    CHECK(SingleBucketer::take(items, {}, 2) == 4);
    STATIC_REQUIRE(SingleBucketer::may_span_units);
    STATIC_REQUIRE_FALSE(SizeCappedBucketer::may_span_units);
    STATIC_REQUIRE_FALSE(UnitBucketer::may_span_units);
}

} // namespace zero::test::bucketer_test
