#include "families.hpp"

#include "support/catch.hpp"
#include "support/shapes.hpp"

#include <zero/layout/lease_share.hpp>
#include <zero/layout/make_layout.hpp>

#include <string>
#include <vector>

namespace zero::test::lease_share_test {

namespace {

std::vector<std::size_t> all_buckets(FlatLayout const& layout) {
    std::vector<std::size_t> buckets;
    for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
        buckets.push_back(bucket);
    }
    return buckets;
}

/// Returns "300 in 2, p1 200; ...": elements, parameters, the largest and its elements.
std::string text_of(FlatLayout const& layout, std::vector<std::size_t> const& buckets) {
    std::string text;
    for (LeaseShare const& share : lease_shares(layout, buckets)) {
        text += (text.empty() ? "" : "; ") + std::to_string(share.elements) + " in "
                + std::to_string(share.parameters) + ", " + layout.parameter(share.largest).name
                + " " + std::to_string(share.largest_elements);
    }
    return text;
}

} // namespace

TEST_CASE("Parameters are grouped by unit, and the largest unit is first") {
    auto const layout = make_layout<ContiguousPartitioner, SingleBucketer>(
        model_of_sizes({10, 30, 200, 100, 7}, 2), {2, 4, false});
    CHECK(text_of(layout, {0}) == "300 in 2, p2 200; 40 in 2, p1 30; 7 in 1, p4 7");
}

TEST_CASE("A tied parameter is a share of its own, next to the units that use it") {
    auto model = model_of_sizes({500, 100, 40, 60});
    model[0].units = {0, 3};
    model[2].units = {0, 3};
    auto const layout = make_layout<ContiguousPartitioner, SingleBucketer>(model, {2, 4, false});
    CHECK(text_of(layout, all_buckets(layout))
          == "540 in 2, p0 500; 100 in 1, p1 100; 60 in 1, p3 60");
}

TEST_CASE("Shares of equal size are in the order of registration, and empty parameters are none") {
    auto const layout = make_layout<ContiguousPartitioner, UnitBucketer>(
        model_of_sizes({64, 0, 64, 64}), {2, 4, true});
    CHECK(text_of(layout, all_buckets(layout)) == "64 in 1, p0 64; 64 in 1, p2 64; 64 in 1, p3 64");
    CHECK(text_of(layout, {}).empty());
    auto const empty = make_layout<ContiguousPartitioner, UnitBucketer>({}, {2, 4, true});
    CHECK(text_of(empty, all_buckets(empty)).empty());
}

TEST_CASE("A parameter in several buckets counts once, with its elements in the given buckets") {
    // W = 1: [0, 128) is direct, the last of 129 elements is staged.
    auto const layout = make_adopted_layout<SingleBucketer>(
        model_of_sizes({64, 65}, 2), std::vector<std::size_t>{0, 64}, {1, 4, false});
    REQUIRE(layout.buckets() == 2);
    CHECK(text_of(layout, {0, 1}) == "129 in 2, p1 65");
    for (std::size_t const bucket : {0U, 1U}) {
        bool const is_staged = layout.bucket(bucket).is_staged;
        CHECK(text_of(layout, {bucket}) == (is_staged ? "1 in 1, p1 1" : "128 in 2, p0 64"));
    }
}

TEST_CASE("A hundred thousand units in one bucket are a share each") {
    auto const layout = make_layout<ContiguousPartitioner, SingleBucketer>(
        model_of_sizes(std::vector<std::size_t>(100'000, 3)), {2, 4, false});
    auto const shares = lease_shares(layout, std::vector<std::size_t>{0});
    REQUIRE(shares.size() == 100'000);
    CHECK(shares.back().largest == 99'999);
}

} // namespace zero::test::lease_share_test
