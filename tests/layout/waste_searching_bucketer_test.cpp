#include "layout_checks.hpp"

#include "support/catch.hpp"
#include "support/shapes.hpp"

#include "zero/layout/adopted_layout.hpp"
#include "zero/layout/balanced_partitioner.hpp"
#include "zero/layout/make_layout.hpp"
#include "zero/layout/whole_group_partitioner.hpp"

#include <random>

namespace zero::test::waste_searching_bucketer_test {

namespace {

using Members = std::vector<std::vector<std::size_t>>;
constexpr std::size_t piece_bytes = 64 * 4; ///< of 64 floats

/// Bounds in multiples of 64 floats.
template <class Partitioner = ContiguousPartitioner>
FlatLayout searched(std::vector<ParameterSpec> const& model, LayoutOptions const& options, std::size_t smallest, std::size_t largest) {
    return make_layout<Partitioner, WasteSearchingBucketer>(model, options, {smallest * piece_bytes, largest * piece_bytes});
}

template <class Partitioner = ContiguousPartitioner>
FlatLayout capped(std::vector<ParameterSpec> const& model, LayoutOptions const& options, std::size_t cap) {
    return make_layout<Partitioner, SizeCappedBucketer>(model, options, {cap * piece_bytes});
}

std::vector<ParameterSpec> random_model(std::mt19937_64& random) {
    std::vector<std::size_t> sizes;
    for (std::size_t count = random() % 24; count > 0; --count) {
        sizes.push_back(random() % 5 == 0 ? 0 : random() % 200);
    }
    return test::model_of_sizes(sizes, 3); // all trainable: those that are not are searched apart
}

} // namespace

TEST_CASE("the waste-searching bucketer takes the cap under which the least padding is wasted") {
    auto const model = test::model_of_sizes({64, 64, 64, 64});
    // On two ranks buckets are multiples of 128: under a cap of 192 they are 192 -> 256 and 64 -> 128, under 128 two of 128.
    CHECK(test::bucket_members(searched(model, {2, 4, false}, 3, 3)) == Members{{1, 2, 3}, {0}});
    CHECK(test::bucket_members(searched(model, {2, 4, false}, 2, 3)) == Members{{2, 3}, {0, 1}});
    CHECK(searched(model, {2, 4, false}, 2, 3).padded_elements() == 256);
    // One element less than 128 is too little for two.
    auto const below = make_layout<ContiguousPartitioner, WasteSearchingBucketer>(model, {2, 4, false}, {piece_bytes, 2 * piece_bytes - 1});
    CHECK(test::bucket_members(below) == Members{{3}, {2}, {1}, {0}});
}

TEST_CASE("of caps that waste the same the waste-searching bucketer takes the largest") {
    auto const model = test::model_of_sizes({64, 64, 64, 64});
    CHECK(test::bucket_members(searched(model, {2, 4, false}, 2, 4)) == Members{{0, 1, 2, 3}});
    CHECK(test::bucket_members(searched(model, {1, 4, false}, 1, 3)) == Members{{1, 2, 3}, {0}});
}

TEST_CASE("the waste-searching bucketer finds what trying every cap finds") {
    std::mt19937_64 random(11);
    std::size_t better = 0;
    for (int round = 0; round < 400; ++round) {
        auto const model = random_model(random);
        LayoutOptions const options{2 + random() % 4, 4, random() % 2 == 0};
        std::size_t const largest = 1 + random() % 12;
        std::size_t const smallest = 1 + random() % largest;
        FlatLayout best = capped(model, options, largest);
        for (std::size_t cap = largest; cap-- > smallest;) {
            FlatLayout tried = capped(model, options, cap);
            if (tried.padded_elements() < best.padded_elements()) {
                best = std::move(tried);
            }
        }
        CHECK(searched(model, options, smallest, largest).hash() == best.hash());
        better += best.padded_elements() < capped(model, options, largest).padded_elements() ? 1 : 0;
    }
    CHECK(better > 15);
}

TEST_CASE("with a partitioner that pads no bucket the waste-searching bucketer takes the largest cap") {
    auto const model = test::gpt2_124m();
    LayoutOptions const options{256, 2, false};
    std::size_t const largest = (std::size_t{25} << 20U) / piece_bytes;
    CHECK(searched<BalancedPartitioner>(model, options, 1, largest).hash() == capped<BalancedPartitioner>(model, options, largest).hash());
    CHECK(searched<WholeGroupPartitioner>(model, options, 1, largest).hash() == capped<WholeGroupPartitioner>(model, options, largest).hash());
    // The contiguous partitioner has something to choose.
    CHECK(capped(model, options, largest).padded_elements() == test::gpt2_elements + 94'976);
    CHECK(searched(model, options, 1, largest).padded_elements() == test::gpt2_elements + 29'440);
}

TEST_CASE("in an adopted block, whose buckets have no padding, the waste-searching bucketer takes the largest cap") {
    auto const model = test::model_of_sizes({64, 64, 64, 64});
    std::vector<std::size_t> const offsets{0, 64, 128, 192};
    auto const found = make_adopted_layout<WasteSearchingBucketer>(model, offsets, {1, 4, false}, {piece_bytes, 3 * piece_bytes});
    CHECK(found.buckets() == 2);
    CHECK(found.hash() == make_adopted_layout<SizeCappedBucketer>(model, offsets, {1, 4, false}, {3 * piece_bytes}).hash());
}

TEST_CASE("the waste-searching bucketer tries at most 1025 caps and stops at the smallest") {
    WasteSearchingBucketerOptions const given{1000, 10'000'000};
    std::size_t tries = 1;
    auto last = given;
    for (auto next = WasteSearchingBucketer::next(given, last, last.largest_bytes); next; next = WasteSearchingBucketer::next(given, last, last.largest_bytes)) {
        last = *next;
        CHECK(last.smallest_bytes == 1000);
        CHECK(last.largest_bytes >= 1000);
        ++tries;
    }
    CHECK(tries <= 1025);
    CHECK(tries > 1000);
    CHECK(WasteSearchingBucketer::next(given, given, 5001)->largest_bytes == 5000);
    CHECK(WasteSearchingBucketer::next(given, given, 1001)->largest_bytes == 1000);
    CHECK_FALSE(WasteSearchingBucketer::next(given, given, 1000).has_value());
    CHECK_FALSE(WasteSearchingBucketer::next(given, given, 0).has_value());
}

TEST_CASE("bounds of the waste-searching bucketer of 0, or in the wrong order, are refused") {
    STATIC_REQUIRE(WasteSearchingBucketerOptions{}.smallest_bytes == 12 * 1024 * 1024);
    STATIC_REQUIRE(WasteSearchingBucketerOptions{}.largest_bytes == 25 * 1024 * 1024);
    auto const make = [](std::size_t smallest, std::size_t largest) {
        return make_layout<ContiguousPartitioner, WasteSearchingBucketer>({}, {2, 4, false}, {smallest, largest}).buckets();
    };
    CHECK(make(5, 5) == 0);
    CHECK_THROWS_AS(make(0, 5), InvalidArgument);
    CHECK_THROWS_WITH(make(0, 5), test::contains_text("zero: smallest_bytes is 0; give the least cap of a bucket in bytes, 12 MiB is a good start."));
    CHECK_THROWS_WITH(make(6, 5), test::contains_text("zero: smallest_bytes is 6, but largest_bytes is 5; the caps are searched from the largest down "
                                                      "to the smallest."));
    CHECK_THROWS_AS(make(6, 0), InvalidArgument);
}

} // namespace zero::test::waste_searching_bucketer_test
