#include "families.hpp"

#include "support/catch.hpp"
#include "support/shapes.hpp"

#include <algorithm>

namespace zero::test::gpt2_padding_test {

namespace {

template <class Bucketer = SizeCappedBucketer>
std::size_t padding(std::size_t world, std::size_t element_bytes, bool is_inside_units = false) {
    auto const layout = make_layout<ContiguousPartitioner, Bucketer>(
        test::gpt2_124m(), {world, element_bytes, is_inside_units});
    return layout.padded_elements() - test::gpt2_elements;
}

} // namespace

TEST_CASE("The model GPT-2 124M has 148 tensors and 124439808 elements, with a head of its own "
          "163037184") {
    auto const tied = test::gpt2_124m();
    CHECK(tied.size() == test::gpt2_tensors);
    CHECK(test::elements_of(tied) == test::gpt2_elements);
    auto const untied = test::gpt2_124m(test::Head::separate);
    CHECK(untied.size() == 149);
    CHECK(test::elements_of(untied) == 163'037'184);
}

TEST_CASE("GPT-2 124M is cut into the buckets worked out by hand for 25 MiB") {
    // float: 6,553,600 elements per bucket; two of them hold one block (7,087,872) and a third of
    // the next.
    auto const layout =
        make_layout<ContiguousPartitioner, SizeCappedBucketer>(test::gpt2_124m(), {1, 4, false});
    std::vector<std::size_t> elements;
    for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
        elements.push_back(layout.elements(bucket));
    }
    CHECK(elements
          == std::vector<std::size_t>{5318400, 6495744, 4726272, 4725504, 5316096, 6495744, 4726272,
                                      4725504, 5316096, 6495744, 4726272, 4725504, 5316096, 6495744,
                                      4726272, 5511168, 38597376});
    // lnf (1,536), and of the last block proj2 (2,360,064), fc (2,362,368), ln2 (1,536), proj
    // (590,592), qkv.b (2,304).
    CHECK(elements[0] == 1'536 + 2'360'064 + 2'362'368 + 1'536 + 590'592 + 2'304);
    CHECK(elements.back() == test::gpt2_embedding_elements); // tied, so in a bucket of its own
}

TEST_CASE("The padding of GPT-2 124M is what rounding each bucket up to W * 64 adds") {
    struct Row {
        std::size_t world;
        std::size_t float32;        ///< 17 buckets
        std::size_t bfloat16;       ///< 9 buckets
        std::size_t float32_units;  ///< size-capped inside units: 27 buckets
        std::size_t bfloat16_units; ///< one bucket per unit, and the tied embedding: 15
    };
    constexpr Row rows[] = {{1, 0, 0, 0, 0},
                            {2, 0, 0, 0, 0},
                            {3, 0, 0, 0, 0},
                            {4, 0, 0, 0, 0},
                            {7, 2944, 2496, 5184, 5184},
                            {8, 1280, 768, 3328, 3328},
                            {16, 6912, 3840, 16128, 3840},
                            {32, 11008, 8960, 29440, 4864},
                            {64, 17152, 21248, 82688, 33536}};
    for (Row const& row : rows) {
        CAPTURE(row.world);
        CHECK(padding(row.world, 4) == row.float32);
        CHECK(padding(row.world, 2) == row.bfloat16);
        CHECK(padding(row.world, 4, true) == row.float32_units);
        CHECK(padding(row.world, 2, true) == row.bfloat16_units);
        CHECK(padding<UnitBucketer>(row.world, 2, true) == row.bfloat16_units);
    }
}

TEST_CASE("The padding of GPT-2 124M stays below one in a thousand on 1 to 64 ranks") {
    std::size_t most = 0;
    for (std::size_t world = 1; world <= 64; ++world) {
        for (std::size_t const bytes : std::vector<std::size_t>{2, 4}) {
            for (bool const is_inside : {false, true}) {
                most = std::max(most, padding(world, bytes, is_inside));
                CHECK(padding(world, bytes, is_inside) * 1000 < test::gpt2_elements);
            }
        }
    }
    CHECK(most == 92'672); // float, size-capped inside units
}

TEST_CASE("The layouts of GPT-2 124M have every element in one place and one owner") {
    for (std::size_t const world : std::vector<std::size_t>{1, 2, 3, 7, 8, 64}) {
        CHECK(test::problem_in_any_family(test::gpt2_124m(), world, std::size_t{25} << 20U) == "");
        CHECK(test::problem_in_any_family(test::gpt2_124m(test::Head::separate), world,
                                          std::size_t{1} << 20U)
              == "");
    }
}

} // namespace zero::test::gpt2_padding_test
