#include "partitions.hpp"

#include "layout_checks.hpp"
#include "support/catch.hpp"

#include <zero/core/error.hpp>
#include <zero/layout/gather_options.hpp>
#include <zero/layout/make_layout.hpp>
#include <zero/layout/proportional_partitioner.hpp>
#include <zero/layout/size_capped_bucketer.hpp>

#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace zero::test::proportional_partitioner_test {

namespace {

using Shares = std::vector<double>;

/// Returns the cuts of buckets with one parameter each.
std::vector<List> cuts(List const& buckets, Shares const& shares, std::size_t world) {
    auto state = ProportionalPartitioner::begin(buckets, world, {shares});
    std::vector<List> all;
    for (std::size_t const elements : buckets) {
        all.push_back(partition<ProportionalPartitioner>({elements}, world, state).cuts);
    }
    return all;
}

std::string refusal(Shares const& shares, std::size_t world) {
    try {
        (void)make_layout<ProportionalPartitioner, SizeCappedBucketer>(
            {{"weights", 1000}}, LayoutOptions{.world = world}, {}, {shares});
    } catch (InvalidArgument const& error) {
        return error.what();
    }
    return "";
}

std::vector<ParameterSpec> random_model(std::mt19937& random) {
    std::vector<ParameterSpec> model;
    std::size_t const count = 1 + random() % 30;
    for (std::size_t index = 0; index < count; ++index) {
        model.push_back({.name = "p" + std::to_string(index),
                         .elements = random() % 4 == 0 ? random() % 3 : random() % 5000,
                         .units = {index / 3},
                         .trainable = random() % 5 != 0});
    }
    return model;
}

} // namespace

TEST_CASE("A bucket is cut in proportion to the shares, at multiples of 64 elements") {
    CHECK(cuts({640}, {1, 3, 1}, 3) == std::vector<List>{{0, 128, 512, 640}});
    CHECK(cuts({640}, {80e9, 80e9}, 2) == std::vector<List>{{0, 320, 640}});
    CHECK(cuts({641}, {}, 2) == std::vector<List>{{0, 320, 704}}); // equal shares
    CHECK(cuts({640}, {5}, 1) == std::vector<List>{{0, 640}});
}

TEST_CASE("A rank with the share 0 owns nothing") {
    CHECK(cuts({640, 64, 0}, {0, 1, 0}, 3)
          == std::vector<List>{{0, 0, 640, 640}, {0, 0, 64, 64}, {0, 0, 0, 0}});
}

TEST_CASE("What one bucket rounds off the next one makes up") {
    CHECK(cuts({64, 64, 64, 64}, {1, 1}, 2)
          == std::vector<List>{{0, 0, 64}, {0, 64, 64}, {0, 0, 64}, {0, 64, 64}});
    auto const many = cuts(List(1000, 64), {1, 2, 7}, 3);
    List owned(3, 0);
    for (List const& bucket : many) {
        for (std::size_t rank = 0; rank < 3; ++rank) {
            owned[rank] += bucket[rank + 1] - bucket[rank];
        }
    }
    CHECK(owned == List{6400, 12800, 44800});
}

TEST_CASE("In random models with random shares every layout is valid, and each rank's part differs "
          "from its share by less than 192 elements for each group") {
    std::mt19937 random(5);
    for (int round = 0; round < 400; ++round) {
        auto const model = random_model(random);
        std::size_t const world = List{1, 2, 3, 5, 17}[random() % 5];
        Shares shares;
        double sum = 0;
        for (std::size_t rank = 0; rank < world; ++rank) {
            shares.push_back(random() % 6 == 0 && rank != 0 ? 0.0 : std::exp2(random() % 20) + 0.1);
            sum += shares.back();
        }
        LayoutOptions const options{
            .world = world, .element_bytes = 4, .buckets_inside_units = round % 2 == 0};
        auto const layout = make_layout<ProportionalPartitioner, SizeCappedBucketer>(
            model, options, {2000}, {shares});
        INFO("round " << round << ", " << world << " ranks");
        CHECK(problem_in(layout, {true, false, true, options.buckets_inside_units, false}).empty());
        for (bool const trainable : {true, false}) {
            double elements = 0;
            std::vector<double> owned(world, 0);
            for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
                if (layout.bucket(bucket).trainable == trainable) {
                    elements += static_cast<double>(layout.elements(bucket));
                    for (std::size_t rank = 0; rank < world; ++rank) {
                        owned[rank] += static_cast<double>(layout.extent(bucket, rank).size());
                    }
                }
            }
            for (std::size_t rank = 0; rank < world; ++rank) {
                CHECK(std::fabs(owned[rank] - elements * shares[rank] / sum) < 192);
                CHECK((shares[rank] != 0 || owned[rank] == 0));
            }
        }
    }
}

TEST_CASE("Shares that fit no rank, or are out of range, are refused") {
    CHECK_THAT(refusal({1, 2, 3}, 4),
               contains_text("partitioner.shares has 3 numbers for 4 ranks; give one for each"));
    CHECK_THAT(refusal({1}, 2), contains_text("has 1 numbers for 2 ranks"));
    CHECK_THAT(refusal({1, -1}, 2), contains_text("partitioner.shares is -1 for rank 1"));
    CHECK_THAT(refusal({std::numeric_limits<double>::quiet_NaN(), 1}, 2),
               contains_text("for rank 0; a share is at least 0 and finite"));
    CHECK_THAT(refusal({1, std::numeric_limits<double>::infinity()}, 2),
               contains_text("for rank 1; a share is at least 0 and finite"));
    CHECK_THAT(refusal({1e308, 1e308}, 2), contains_text("and so is their sum"));
    CHECK_THAT(refusal({0, 0}, 2), contains_text("all partitioner.shares are 0"));
    CHECK(refusal({0, 1}, 2).empty());
    CHECK(refusal({}, 3).empty());
}

TEST_CASE("Layouts of other shares have other hashes, and of the same ratio the same") {
    auto const hash = [](Shares const& shares) {
        return make_layout<ProportionalPartitioner, SizeCappedBucketer>(
                   {{"weights", 10'000}}, LayoutOptions{.world = 2}, {}, {shares})
            .hash();
    };
    CHECK(hash({1, 3}) == hash({20e9, 60e9}));
    CHECK(hash({1, 3}) != hash({3, 1}));
}

} // namespace zero::test::proportional_partitioner_test
