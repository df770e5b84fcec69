#include "host/kernel_inputs.hpp"
#include "ops/tensor_optimizers/muon.hpp"
#include "support/catch.hpp"

#include <zero/host/detail/lanes_avx512.hpp>
#include <zero/ops/detail/newton_schulz.hpp>

#include <numeric>

// Compares the blocked product with three plain loops, bit for bit, because the order of each sum
// is documented.

namespace zero::test::matrix_product_test {

namespace {

struct Sizes {
    std::size_t rows, depth, columns;
};

/// Sizes within one element of the edges of tiles (6 or 12 rows, two packs) and panels (256 deep),
/// and sizes far from them.
constexpr Sizes all_sizes[] = {{1, 1, 1},    {1, 5, 2},     {6, 8, 16},    {5, 255, 15},
                               {7, 256, 17}, {6, 257, 8},   {13, 600, 33}, {40, 3, 100},
                               {12, 9, 32},  {11, 256, 31}, {25, 258, 65}, {3, 0, 4}};

std::vector<float> multiplied(zero::detail::MatrixProduct product) {
    std::vector<float> out(product.rows * product.columns, std::numeric_limits<float>::quiet_NaN());
    product.out = out.data();
    host::detail::run_widest(product);
    return out;
}

/// Calls `body` with each instruction set of the machine.
template <class Body>
void with_each_set(Body const& body) {
    for (auto const set : instruction_sets) {
        WithInstructionSet const scope(set);
        if (scope.is_supported()) {
            CAPTURE(host::name_of(set));
            body();
        }
    }
}

} // namespace

TEST_CASE("A matrix product equals plain loops with ascending sums, bit for bit", "[ops][tensor]") {
    with_each_set([] {
        for (auto const& [rows, depth, columns] : all_sizes) {
            CAPTURE(rows, depth, columns);
            auto const left = random_numbers(rows * depth, 1, 1.0F);
            auto const right = random_numbers(depth * columns, 2, 1.0F);
            auto const expected = MuonFixture::product(left, right, rows, depth, columns);
            CHECK(same_bits(multiplied({.out = nullptr,
                                        .left = left.data(),
                                        .right = right.data(),
                                        .rows = rows,
                                        .columns = columns,
                                        .depth = depth}),
                            expected));
            auto const turned = MuonFixture::transposed(right, {depth, columns});
            CHECK(same_bits(multiplied({.out = nullptr,
                                        .left = left.data(),
                                        .right = turned.data(),
                                        .rows = rows,
                                        .columns = columns,
                                        .depth = depth,
                                        .is_right_transposed = true}),
                            expected));
        }
    });
}

TEST_CASE("The order of a sum shows in its bits", "[ops][tensor]") {
    auto left = random_numbers(600, 1, 1.0F);
    auto right = random_numbers(600, 2, 1.0F);
    auto const ascending = multiplied({.out = nullptr,
                                       .left = left.data(),
                                       .right = right.data(),
                                       .rows = 1,
                                       .columns = 1,
                                       .depth = 600});
    std::reverse(left.begin(), left.end());
    std::reverse(right.begin(), right.end());
    auto const descending = multiplied({.out = nullptr,
                                        .left = left.data(),
                                        .right = right.data(),
                                        .rows = 1,
                                        .columns = 1,
                                        .depth = 600});
    CHECK_FALSE(same_bits(ascending, descending));
}

TEST_CASE("Computing half of a symmetric product gives the whole", "[ops][tensor]") {
    with_each_set([] {
        for (std::size_t const n : {1U, 5U, 6U, 7U, 16U, 17U, 33U, 50U, 97U}) {
            CAPTURE(n);
            auto const x = random_numbers(n * 300, 3, 1.0F);
            auto const expected =
                MuonFixture::product(x, MuonFixture::transposed(x, {n, 300}), n, 300, n);
            CHECK(same_bits(multiplied({.out = nullptr,
                                        .left = x.data(),
                                        .right = x.data(),
                                        .rows = n,
                                        .columns = n,
                                        .depth = 300,
                                        .is_right_transposed = true,
                                        .is_symmetric = true}),
                            expected));
        }
    });
}

TEST_CASE("A product is scaled and added to another matrix, each element with two roundings",
          "[ops][tensor]") {
    with_each_set([] {
        auto const left = random_numbers(7 * 20, 1, 1.0F);
        auto const right = random_numbers(20 * 11, 2, 1.0F);
        auto const addend = random_numbers(7 * 11, 3, 1.0F);
        auto expected = MuonFixture::product(left, right, 7, 20, 11);
        for (std::size_t i = 0; i < expected.size(); ++i) {
            expected[i] = std::fma(0.3F, expected[i], rounded_product(-0.7F, addend[i]));
        }
        CHECK(same_bits(multiplied({.out = nullptr,
                                    .left = left.data(),
                                    .right = right.data(),
                                    .rows = 7,
                                    .columns = 11,
                                    .depth = 20,
                                    .scale = 0.3F,
                                    .addend = addend.data(),
                                    .addend_scale = -0.7F}),
                        expected));
    });
}

TEST_CASE("A transposed matrix has each element in its place", "[ops][tensor]") {
    for (Shape const& shape :
         {Shape{1, 1}, Shape{1, 40}, Shape{16, 16}, Shape{17, 33}, Shape{50, 3}}) {
        std::vector<float> numbers(shape.elements());
        std::iota(numbers.begin(), numbers.end(), 0.0F);
        std::vector<float> turned(shape.elements());
        zero::detail::transpose(turned.data(), numbers.data(), shape.rows, shape.columns);
        CHECK(turned == MuonFixture::transposed(numbers, shape));
    }
}

} // namespace zero::test::matrix_product_test
