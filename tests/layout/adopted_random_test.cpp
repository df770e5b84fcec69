#include "layout_checks.hpp"

#include "support/catch.hpp"
#include "support/shapes.hpp"

#include <zero/layout/make_layout.hpp>
#include <zero/layout/size_capped_bucketer.hpp>

#include <random>

namespace zero::test::adopted_random_test {

namespace {

struct Block {
    std::vector<ParameterSpec> model;
    std::vector<std::size_t> offsets;
    std::size_t end = 0;
};

/// Parameters of random sizes at random addresses, with gaps; some are frozen or tied.
Block random_block(std::mt19937_64& random) {
    auto const below = [&](std::size_t bound) {
        return static_cast<std::size_t>(random() % bound);
    };
    Block block;
    std::size_t const parameters = below(12);
    block.end = below(3) == 0 ? below(300) : 0;
    for (std::size_t index = 0; index < parameters; ++index) {
        ParameterSpec spec;
        spec.name = "p" + std::to_string(index);
        spec.elements = below(4) == 0 ? below(3) : below(3) == 0 ? below(20'000) : below(700);
        spec.units = {below(4)};
        if (below(6) == 0) {
            spec.units.push_back(4 + below(2));
        }
        spec.trainable = below(5) != 0;
        block.model.push_back(spec);
        block.offsets.push_back(block.end);
        block.end += spec.elements + (below(4) == 0 ? below(200) : 0);
    }
    for (std::size_t index = 0; index + 1 < parameters;
         ++index) { // registration order is not address order
        if (below(3) == 0) {
            std::swap(block.model[index], block.model[index + 1]);
            std::swap(block.offsets[index], block.offsets[index + 1]);
        }
    }
    return block;
}

/// Checks what an adopted layout guarantees beyond the rules of all layouts. Returns the first
/// problem, or an empty text.
std::string adopted_problem(FlatLayout const& layout, Block const& block) {
    std::size_t const step = layout.world() * 64;
    for (std::size_t index = 0; index < layout.buckets(); ++index) {
        BucketPlan const& bucket = layout.bucket(index);
        std::size_t content = 0;
        for (Piece const& piece : bucket.pieces) {
            content += piece.elements;
            if (!bucket.is_staged
                && bucket.block_begin + piece.bucket_begin
                       != block.offsets[piece.parameter] + piece.parameter_begin) {
                return "a piece is not communicated where it lies";
            }
            if (bucket.is_staged && piece.bucket_begin % 64 != 0) {
                return "a staged piece does not start at a multiple of 64";
            }
        }
        if (bucket.is_staged && index + 1 != layout.buckets()) {
            return "the staged bucket is not the last";
        }
        if (!bucket.is_staged
            && (bucket.block_begin % step != 0 || layout.elements(index) % step != 0
                || bucket.block_begin + layout.elements(index) > block.end)) {
            return "an edge is not a multiple of W * 64 or lies past the end";
        }
        if (!bucket.is_staged && content != layout.elements(index)) {
            return "a direct bucket touches memory that is not a trainable parameter";
        }
        if (bucket.is_staged && content >= 2 * step * (block.model.size() + 1)) {
            return "more is staged than the ends of each run";
        }
    }
    return test::problem_in(layout, {false, true, true, false}, false);
}

} // namespace

TEST_CASE("Every trainable element of 3000 random adopted blocks has one place and one owner, and "
          "nothing else is touched") {
    std::mt19937_64 random(4711);
    std::size_t staged = 0;
    std::size_t direct = 0;
    for (int round = 0; round < 3000; ++round) {
        Block const block = random_block(random);
        LayoutOptions const options{1 + random() % 17, 4, false};
        std::size_t const bucket_bytes = std::size_t{1} << (random() % 18);
        for (FlatLayout const& layout :
             {make_adopted_layout<SizeCappedBucketer>(block.model, block.offsets, options,
                                                      {bucket_bytes}),
              make_adopted_layout<UnitBucketer>(block.model, block.offsets, options),
              make_adopted_layout<SingleBucketer>(block.model, block.offsets, options)}) {
            std::string const problem = adopted_problem(layout, block);
            if (!problem.empty()) {
                FAIL("seed 4711, round " << round << ": " << problem);
            }
            for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
                ++(layout.bucket(bucket).is_staged ? staged : direct);
            }
        }
    }
    CHECK(staged > 5000);
    CHECK(direct > 5000);
}

TEST_CASE("GPT-2 124M in one adopted block leaves less than W * 64 elements to the staged bucket") {
    auto const model = test::gpt2_124m();
    std::vector<std::size_t> offsets;
    std::size_t end = 0;
    for (ParameterSpec const& spec : model) {
        offsets.push_back(end);
        end += spec.elements;
    }
    // 124,439,808 = 1,944,372 * 64 = 15,190 * 8,192 + 3,328 (W = 128)
    auto const layout = make_adopted_layout<SizeCappedBucketer>(model, offsets, {128, 4, false});
    std::size_t const last = layout.buckets() - 1;
    CHECK(layout.bucket(last).is_staged);
    CHECK(layout.content(last, {0, layout.elements(last)}) == 3'328);
    CHECK(layout.bucket_begin(last) == 15'190 * 8'192);
    CHECK(layout.elements(last) == 8'192);
}

} // namespace zero::test::adopted_random_test
