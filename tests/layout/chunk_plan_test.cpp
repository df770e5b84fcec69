#include "support/catch.hpp"

#include <zero/layout/chunk_plan.hpp>
#include <zero/layout/contiguous_partitioner.hpp>
#include <zero/layout/detail/plan/count_blocks.hpp>
#include <zero/layout/make_layout.hpp>
#include <zero/layout/size_capped_bucketer.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace zero::test::chunk_plan_test {

namespace {

std::vector<ParameterSpec> random_model(std::mt19937_64& random) {
    std::vector<ParameterSpec> model(1 + random() % 12);
    for (std::size_t index = 0; index < model.size(); ++index) {
        model[index].name = "p" + std::to_string(index);
        model[index].elements = random() % 4 == 0 ? random() % 5 : random() % 5000;
        model[index].trainable = random() % 8 != 0;
    }
    return model;
}

/// The slices of one rank, in the order of the update.
struct OwnSlices {
    FlatLayout const* layout;
    std::size_t rank;

    void operator()(std::size_t bucket, std::vector<Piece>& list) const {
        layout->for_slices(bucket, layout->extent(bucket, rank),
                           [&](Piece const& piece) { list.push_back(piece); });
    }

    [[nodiscard]] std::vector<Piece> all() const {
        std::vector<Piece> list;
        for (std::size_t bucket = layout->trainable_buckets(); bucket-- > 0;) {
            (*this)(bucket, list);
        }
        return list;
    }
};

/// Checks that the slices of the plan, joined where they were cut, are those of the rank.
void require_same_slices(std::span<Piece const> cut, std::vector<Piece> const& whole) {
    std::size_t at = 0;
    for (Piece const& expected : whole) {
        for (std::size_t done = 0; done < expected.elements;) {
            REQUIRE(at < cut.size());
            Piece const& piece = cut[at++];
            REQUIRE(piece.parameter == expected.parameter);
            REQUIRE(piece.parameter_begin == expected.parameter_begin + done);
            REQUIRE(piece.bucket_begin == expected.bucket_begin + done);
            REQUIRE(done % zero::detail::block_elements == 0);
            REQUIRE(piece.elements > 0);
            done += piece.elements;
            REQUIRE(done <= expected.elements);
        }
    }
    REQUIRE(at == cut.size());
}

} // namespace

TEST_CASE("Chunks of random models hold every own slice once, in order, within the size") {
    std::mt19937_64 random(1);
    std::vector<std::vector<ChunkArray>> const arrays{{{4, 0}, {2, 0}, {0, 4}}};
    std::size_t cut_slices = 0;
    for (int turn = 0; turn < 400; ++turn) {
        std::size_t const world = 1 + random() % 5;
        FlatLayout const layout = make_layout<ContiguousPartitioner, SizeCappedBucketer>(
            random_model(random), {world, 4, false}, {4 * (256 + random() % 4000)});
        OwnSlices const own{&layout, random() % world};
        ChunkOptions const options{800 + random() % 20'000, 1.0};
        ChunkPlan const plan(layout, arrays, options, true, own);
        require_same_slices(plan.slices(), own.all());
        cut_slices += plan.slices().size() - own.all().size();

        std::size_t next = 0;
        for (std::size_t bucket = layout.trainable_buckets(); bucket-- > 0;) {
            REQUIRE(plan.first_chunk(bucket) == next);
            next = plan.end_chunk(bucket);
            for (std::size_t chunk = plan.first_chunk(bucket); chunk < next; ++chunk) {
                REQUIRE(plan.chunks()[chunk].bucket == bucket);
            }
        }
        REQUIRE(next == plan.chunks().size());
        for (ChunkPlan::Chunk const& chunk : plan.chunks()) {
            REQUIRE(chunk.slices > 0);
            REQUIRE(chunk.bytes <= options.chunk_bytes);
            REQUIRE(chunk.bytes % ChunkPlan::array_alignment == 0);
            REQUIRE(chunk.is_offloaded);
        }
    }
    CHECK(cut_slices > 1000); // the sizes were not all too large to cut
}

TEST_CASE("The ratio is met within half a chunk, and the chunks that stay are spread") {
    std::mt19937_64 random(2);
    std::vector<std::vector<ChunkArray>> const arrays{{{4, 0}, {4, 0}}};
    for (int turn = 0; turn < 200; ++turn) {
        FlatLayout const layout = make_layout<ContiguousPartitioner, SizeCappedBucketer>(
            random_model(random), {1, 4, false}, {4096});
        OwnSlices const own{&layout, 0};
        double const ratio = turn == 0   ? 0
                             : turn == 1 ? 1
                                         : static_cast<double>(random() % 1001) / 1000;
        ChunkPlan const plan(layout, arrays, {2048, ratio}, true, own);
        double so_far = 0;
        double offloaded = 0;
        for (ChunkPlan::Chunk const& chunk : plan.chunks()) {
            so_far += static_cast<double>(chunk.bytes);
            offloaded += chunk.is_offloaded ? static_cast<double>(chunk.bytes) : 0;
            REQUIRE(std::abs(offloaded - ratio * so_far)
                    <= 1024); // at every point, not only at the end
        }
        if (ratio == 0) {
            REQUIRE(offloaded == 0);
        } else if (ratio == 1) {
            REQUIRE(offloaded == so_far);
        }
    }
}

TEST_CASE("An optimizer of whole parameters has chunks of whole slices, or is refused by name") {
    std::vector<ParameterSpec> model(3);
    model[0].name = "small";
    model[0].elements = 10;
    model[1].name = "large";
    model[1].elements = 1000;
    model[2].name = "last";
    model[2].elements = 64;
    std::vector<std::vector<ChunkArray>> const arrays{{{4, 0}}};
    FlatLayout const layout =
        make_layout<ContiguousPartitioner, SizeCappedBucketer>(model, {1, 4, false}, {1 << 20});
    OwnSlices const own{&layout, 0};
    ChunkPlan const plan(layout, arrays, {4096 + 127, 1}, false, own); // 16 blocks of 256 bytes
    CHECK(plan.slices().size() == 3);
    CHECK(plan.chunks().size() == 3);
    for (std::uint64_t const bytes : {0U, 127U, 4096U + 126U}) {
        CHECK_THROWS_WITH(ChunkPlan(layout, arrays, {bytes, 1}, false, own),
                          Catch::Contains("offload.chunk_bytes is " + std::to_string(bytes))
                              && Catch::Contains("; set it to at least 4223, which is enough for "
                                                 "every parameter."));
    }
    CHECK_THROWS_WITH(ChunkPlan(layout, arrays, {4096 + 126, 1}, false, own),
                      Catch::Contains("zero: offload.chunk_bytes is 4222 bytes, but a chunk must "
                                      "hold all that is offloaded of the part that this rank "
                                      "updates of 'large': 4223 bytes; set"));
    CHECK_THROWS_WITH(
        ChunkPlan(layout, arrays, {256, 1}, true, own),
        Catch::Contains("256 bytes, but a chunk must hold all that is offloaded of 64 "
                        "elements of '")
            && Catch::Contains("': 383 bytes; set it to at least 383."));
    CHECK_NOTHROW(ChunkPlan(layout, arrays, {383, 1}, true, own)); // the remedies work
    CHECK_NOTHROW(ChunkPlan(layout, arrays, {4223, 1}, false, own));
    for (double const ratio : {-0.1, 1.1, std::nan("")}) {
        CHECK_THROWS_WITH(ChunkPlan(layout, arrays, {4096, ratio}, true, own),
                          Catch::Contains("offload.ratio is"));
    }
}

} // namespace zero::test::chunk_plan_test
