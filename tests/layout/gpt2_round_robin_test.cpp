#include "support/catch.hpp"
#include "support/shapes.hpp"

#include <zero/layout/gather_options.hpp>
#include <zero/layout/make_layout.hpp>
#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/layout/size_capped_bucketer.hpp>

#include <algorithm>

namespace zero::test::gpt2_round_robin_test {

namespace {

template <class Bucketer>
FlatLayout dealt(std::size_t world) {
    return make_layout<RoundRobinPartitioner, Bucketer>(test::gpt2_124m(), {world, 4, false});
}

std::vector<std::size_t> owned_elements(FlatLayout const& layout) {
    std::vector<std::size_t> sums(layout.world(), 0);
    for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
        for (std::size_t rank = 0; rank < layout.world(); ++rank) {
            sums[rank] += layout.content(bucket, layout.extent(bucket, rank));
        }
    }
    return sums;
}

/// Returns the rank that holds the parameter, or W if it is cut.
std::size_t owner_of(FlatLayout const& layout, std::size_t parameter) {
    std::size_t owner = layout.world();
    for (std::size_t const bucket : layout.parameter_buckets(parameter)) {
        for (std::size_t rank = 0; rank < layout.world(); ++rank) {
            layout.for_slices(bucket, layout.extent(bucket, rank), [&](Piece const& slice) {
                if (slice.parameter == parameter
                    && slice.elements == layout.parameter(parameter).elements) {
                    owner = rank;
                }
            });
        }
    }
    return owner;
}

} // namespace

TEST_CASE("Round-robin ownership rotates in gradient-ready order through all buckets and cuts no "
          "parameter") {
    for (std::size_t const world : std::vector<std::size_t>{1, 2, 3, 8, 64}) {
        for (FlatLayout const& layout :
             {dealt<SizeCappedBucketer>(world), dealt<SingleBucketer>(world),
              dealt<UnitBucketer>(world)}) {
            std::vector<std::size_t> owners;
            std::vector<std::size_t> expected;
            for (std::size_t turn = 0; turn < test::gpt2_tensors; ++turn) {
                owners.push_back(owner_of(layout, test::gpt2_tensors - 1 - turn));
                expected.push_back(turn % world);
            }
            CHECK(owners == expected);
        }
    }
}

TEST_CASE("Round-robin ownership of GPT-2 124M is uneven: 4.1 times the mean on 8 ranks and 20.8 "
          "times on 64") {
    auto const eight = owned_elements(dealt<SizeCappedBucketer>(8));
    // wte has turn 147 = 18 * 8 + 3.
    CHECK(std::max_element(eight.begin(), eight.end()) - eight.begin() == 3);
    CHECK(eight[3] == 63'374'592);
    CHECK(static_cast<double>(eight[3]) / (124'439'808.0 / 8)
          == test::Approx(4.0742).epsilon(1e-4));

    auto const sixty_four = owned_elements(dealt<SizeCappedBucketer>(64));
    // 147 = 2 * 64 + 19; besides wte (38,597,376) turns 19 (h10.ln2.w, 768) and 83 (h5.qkv.w,
    // 1,769,472).
    CHECK(std::max_element(sixty_four.begin(), sixty_four.end()) - sixty_four.begin() == 19);
    CHECK(sixty_four[19] == 40'367'616);
    CHECK(sixty_four[19] == 38'597'376 + 1'769'472 + 768);
    CHECK(static_cast<double>(sixty_four[19]) / (124'439'808.0 / 64)
          == test::Approx(20.7613).epsilon(1e-4));
}

TEST_CASE(
    "Round-robin layouts of GPT-2 124M have no padding, because its sizes are multiples of 64") {
    for (std::size_t const world : std::vector<std::size_t>{1, 5, 8, 64}) {
        CHECK(dealt<SizeCappedBucketer>(world).padded_elements() == test::gpt2_elements);
    }
}

} // namespace zero::test::gpt2_round_robin_test
