#include "layout_checks.hpp"

#include "support/catch.hpp"
#include "support/shapes.hpp"

#include <zero/layout/gradient_source.hpp>
#include <zero/layout/make_layout.hpp>
#include <zero/layout/piece.hpp>
#include <zero/layout/size_capped_bucketer.hpp>

namespace zero::test::adopted_test {

namespace {

struct Direct {
    std::size_t block_begin;
    std::size_t elements;
    std::vector<std::size_t> parameters; ///< in ascending order of address
    friend bool operator==(Direct const&, Direct const&) = default;
};

std::vector<Direct> direct_buckets(FlatLayout const& layout) {
    std::vector<Direct> found;
    for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
        if (!layout.bucket(bucket).is_staged) {
            Direct direct{layout.bucket(bucket).block_begin, layout.elements(bucket), {}};
            for (Piece const& piece : layout.pieces(bucket)) {
                direct.parameters.push_back(piece.parameter);
            }
            found.push_back(direct);
        }
    }
    return found;
}

/// The pieces of the staged bucket: parameter, first element, elements, offset in the bucket.
std::vector<std::vector<std::size_t>> staged_pieces(FlatLayout const& layout) {
    std::vector<std::vector<std::size_t>> found;
    for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
        for (Piece const& piece : layout.pieces(bucket)) {
            if (layout.bucket(bucket).is_staged) {
                found.push_back(
                    {piece.parameter, piece.parameter_begin, piece.elements, piece.bucket_begin});
            }
        }
    }
    return found;
}

using Table = std::vector<std::vector<std::size_t>>;

std::vector<ParameterSpec> three() {
    return test::model_of_sizes({200, 300, 50});
}
std::vector<std::size_t> const three_offsets{0, 200, 500};

} // namespace

TEST_CASE("An adopted block is cut at multiples of W * 64 and its end goes into a staged bucket") {
    // W = 2: boundaries at multiples of 128. Of 550 elements [0, 512) are direct, [512, 550)
    // staged.
    auto const layout = make_adopted_layout<SingleBucketer>(three(), three_offsets, {2, 4, false});
    CHECK(direct_buckets(layout) == std::vector<Direct>{{0, 512, {0, 1, 2}}});
    CHECK(layout.extent(0, 1) == Range{256, 512});
    CHECK(layout.pieces(0)[2].bucket_begin == 500);
    CHECK(layout.pieces(0)[2].elements == 12);
    CHECK(staged_pieces(layout) == Table{{2, 12, 38, 0}});
    CHECK(layout.elements(1) == 128); // 38 elements: 64 for each of two ranks
    CHECK(layout.trainable_buckets() == 2);
    CHECK(std::vector<std::size_t>(layout.parameter_buckets(2).begin(),
                                   layout.parameter_buckets(2).end())
          == std::vector<std::size_t>{0, 1});
}

TEST_CASE("A bucket that has a whole gradient behind it cannot keep sums in its lease") {
    // Parameter 2 lies in both buckets, the staged one is its last.
    auto const layout = make_adopted_layout<SingleBucketer>(three(), three_offsets, {2, 4, false});
    CHECK(whole_gradient_elements(layout, 0) == 0);
    CHECK(whole_gradient_elements(layout, 1) == 64);
    StageRow const row = stage_row(0, ReductionSchedule::every_micro_step);
    CHECK_FALSE(can_sum_in_leases(layout, row, 0));
    CHECK(can_sum_in_leases(layout, row, 1)); // a type that no bucket has
    auto const other = make_layout<ContiguousPartitioner, SingleBucketer>(three(), {2, 4, false});
    CHECK(can_sum_in_leases(other, row, 0));
    CHECK_FALSE(can_sum_in_leases(other, stage_row(2, ReductionSchedule::every_micro_step), 0));
}

TEST_CASE("Bucket boundaries of an adopted block fall inside parameters") {
    // The starts 500, 200 and 0 are rounded down to 384, 128 and 0. Buckets are in gradient-ready
    // order: highest address first.
    auto const layout = make_adopted_layout<UnitBucketer>(three(), three_offsets, {2, 4, false});
    CHECK(direct_buckets(layout)
          == std::vector<Direct>{{384, 128, {1, 2}}, {128, 256, {0, 1}}, {0, 128, {0}}});
    CHECK(layout.pieces(0)[0].parameter_begin == 184);
    CHECK(layout.pieces(0)[0].elements == 116);
    CHECK(layout.pieces(0)[1].bucket_begin == 116);
    CHECK(layout.pieces(1)[0].parameter_begin == 128);
    CHECK(layout.pieces(1)[0].elements == 72);
    CHECK(std::vector<std::size_t>(layout.unit_buckets(1).begin(), layout.unit_buckets(1).end())
          == std::vector<std::size_t>{0, 1});
    CHECK(staged_pieces(layout) == Table{{2, 12, 38, 0}});
}

TEST_CASE(
    "A frozen parameter in an adopted block has no bucket and its neighbours' ends are staged") {
    auto model = test::model_of_sizes({200, 300, 300});
    model[1].trainable = false;
    auto const layout = make_adopted_layout<SingleBucketer>(model, three_offsets, {2, 4, false});
    // Of [500, 800) the direct part is [512, 768), of [0, 200) it is [0, 128).
    CHECK(direct_buckets(layout) == std::vector<Direct>{{512, 256, {2}}, {0, 128, {0}}});
    CHECK(staged_pieces(layout) == Table{{2, 268, 32, 0}, {2, 0, 12, 64}, {0, 128, 72, 128}});
    CHECK(layout.elements(2) == 256);
    CHECK(layout.parameter_buckets(1).empty());
    CHECK(test::problem_in(layout, {false, true, true, false}, false) == "");
}

TEST_CASE("Memory between the parameters of an adopted block is in no bucket") {
    auto const layout = make_adopted_layout<SingleBucketer>(
        test::model_of_sizes({200, 300}), std::vector<std::size_t>{10, 211}, {1, 4, false});
    // Of [211, 511) the direct part is [256, 448), of [10, 210) it is [64, 192).
    CHECK(direct_buckets(layout) == std::vector<Direct>{{256, 192, {1}}, {64, 128, {0}}});
    CHECK(staged_pieces(layout)
          == Table{{1, 237, 63, 0}, {1, 0, 45, 64}, {0, 182, 18, 128}, {0, 0, 54, 192}});
}

TEST_CASE("An adopted block smaller than W * 64 is staged as a whole") {
    auto const layout = make_adopted_layout<SizeCappedBucketer>(
        test::model_of_sizes({100, 27}), std::vector<std::size_t>{0, 100}, {2, 4, false});
    CHECK(direct_buckets(layout).empty());
    CHECK(staged_pieces(layout) == Table{{0, 0, 100, 0}, {1, 0, 27, 128}});
    CHECK(layout.elements(0) == 256); // 128 + 64, a multiple of 128
    // With one more element it has W * 64, and nothing is staged.
    auto const exact = make_adopted_layout<SizeCappedBucketer>(
        test::model_of_sizes({100, 28}), std::vector<std::size_t>{0, 100}, {2, 4, false});
    CHECK(direct_buckets(exact) == std::vector<Direct>{{0, 128, {0, 1}}});
    CHECK(staged_pieces(exact).empty());
}

TEST_CASE("An adopted block is ordered by address, not by registration") {
    auto const layout = make_adopted_layout<UnitBucketer>(
        test::model_of_sizes({64, 64, 0}), std::vector<std::size_t>{64, 0, 5}, {1, 4, false});
    CHECK(direct_buckets(layout) == std::vector<Direct>{{64, 64, {0}}, {0, 64, {1}}});
    CHECK(layout.parameter_buckets(2).empty()); // no elements
}

TEST_CASE("An adopted block without trainable elements has no bucket") {
    auto model = three();
    for (ParameterSpec& spec : model) {
        spec.trainable = false;
    }
    CHECK(make_adopted_layout<SingleBucketer>(model, three_offsets, {2, 4, false}).buckets() == 0);
    CHECK(make_adopted_layout<SingleBucketer>({}, {}, {2, 4, false}).buckets() == 0);
}

} // namespace zero::test::adopted_test
