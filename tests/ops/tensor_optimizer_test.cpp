// Checks specific to one optimizer of whole parameters. tensor_optimizer_conformance_test.cpp
// checks the common guarantees.

#include "ops/tensor_optimizers/lamb.hpp"
#include "ops/tensor_optimizers/muon.hpp"
#include "support/catch.hpp"

#include <zero/core/error.hpp>
#include <zero/policy/has_compared_options.hpp>

namespace zero::test::tensor_optimizer_test {

namespace {

/// The largest deviation of X X^T from the identity, or of X^T X for a tall matrix.
double distance_from_orthogonal(std::vector<float> const& x, Shape const& shape) {
    bool const is_tall = shape.rows > shape.columns;
    auto const turned = MuonFixture::transposed(x, shape);
    std::size_t const k = std::min(shape.rows, shape.columns);
    auto const gram = MuonFixture::product(is_tall ? turned : x, is_tall ? x : turned, k,
                                           std::max(shape.rows, shape.columns), k);
    double worst = 0.0;
    for (std::size_t i = 0; i < gram.size(); ++i) {
        worst =
            std::max(worst, std::fabs(static_cast<double>(gram[i]) - (i / k == i % k ? 1.0 : 0.0)));
    }
    return worst;
}

} // namespace

TEST_CASE("LAMB's first step has the norm of the weights times the learning rate",
          "[ops][tensor]") {
    LambOptions const options{.epsilon = 0.0, .weight_decay = 0.0};
    for (float const size : {1e-3F, 1.0F, 1e3F}) {
        auto const initial = random_numbers(60, 1, size);
        HeldTensor<Lamb> tensor({6, 10}, initial);
        tensor.step(options, random_numbers(60, 2, 1.0F), 0.125, 1);
        std::vector<double> moved;
        for (std::size_t i = 0; i < initial.size(); ++i) {
            moved.push_back(static_cast<double>(tensor.master[i])
                            - static_cast<double>(initial[i]));
        }
        CHECK(std::fabs(long_norm(moved) / long_norm(initial) - 0.125) < 1e-6);
    }
}

TEST_CASE("LAMB takes Adam's step from weights of zero", "[ops][tensor]") {
    HeldTensor<Lamb> tensor({0, 4}, std::vector<float>(4));
    tensor.step({.epsilon = 0.0}, std::vector<float>{1e-3F, -2.0F, 5.0F, -1e4F}, 0.25, 1);
    for (std::size_t i = 0; i < 4; ++i) {
        CHECK(std::fabs(tensor.master[i] + (i % 2 == 0 ? 0.25F : -0.25F)) < 1e-6F);
    }
}

TEST_CASE("LAMB does not depend on the shape", "[ops][tensor]") {
    HeldTensor<Lamb> matrix({6, 10}, random_numbers(60, 1, 1.0F));
    HeldTensor<Lamb> none({0, 60}, random_numbers(60, 1, 1.0F));
    matrix.step({}, random_numbers(60, 2, 1.0F), 0.1, 1);
    none.step({}, random_numbers(60, 2, 1.0F), 0.1, 1);
    CHECK(matrix.master == none.master);
}

TEST_CASE("With adamw_rms the elements of Muon's steps are about 0.2 times the learning rate, for "
          "every shape",
          "[ops][tensor]") {
    for (Shape const& shape : {Shape{8, 40}, Shape{40, 8}, Shape{24, 24}, Shape{1, 100}}) {
        CAPTURE(shape.rows, shape.columns);
        auto const moved_by = [&](MuonLength length) {
            HeldTensor<Muon> tensor(shape, std::vector<float>(shape.elements()));
            tensor.step({.length = length}, random_numbers(shape.elements(), 2, 1.0F), 0.5, 1);
            return tensor.master;
        };
        auto const rms = moved_by(MuonLength::adamw_rms);
        double const size = long_norm(rms) / std::sqrt(static_cast<double>(shape.elements())) / 0.5;
        CHECK(size > 0.2 * 0.65); // the iteration leaves singular values between 0.7 and 1.2
        CHECK(size < 0.2 * 1.25);
        // Literal values: 0.2 * sqrt(40) relative to 1 for 8 x 40 and to sqrt(5) for 40 x 8.
        auto const spectral = moved_by(MuonLength::spectral);
        double const expected = shape.rows == 8    ? 1.2649110640673518
                                : shape.rows == 40 ? 0.5656854249492380
                                : shape.rows == 24 ? 0.9797958971132712
                                                   : 2.0;
        for (std::size_t i = 0; i < rms.size(); ++i) {
            CHECK(
                std::fabs(static_cast<double>(rms[i]) - expected * static_cast<double>(spectral[i]))
                <= 1e-6 * std::fabs(static_cast<double>(rms[i])));
        }
    }
}

TEST_CASE("Muon's step is nearly orthogonal, for every size of the gradient", "[ops][tensor]") {
    for (Shape const& shape : {Shape{8, 20}, Shape{20, 8}, Shape{1, 9}}) {
        for (float const size : {1e-4F, 1.0F, 1e4F}) {
            CAPTURE(shape.rows, shape.columns, size);
            HeldTensor<Muon> tensor(shape, std::vector<float>(shape.elements()));
            auto const gradient = random_numbers(shape.elements(), 2, size);
            double const scale = std::sqrt(std::max(1.0, static_cast<double>(shape.rows)
                                                             / static_cast<double>(shape.columns)));
            tensor.step({}, gradient, 1.0 / scale, 1);
            CHECK(distance_from_orthogonal(tensor.master, shape)
                  < 0.6); // singular values end between about 0.7 and 1.2
            CHECK((shape.rows == 1 || distance_from_orthogonal(gradient, shape) > 0.6));
        }
    }
}

TEST_CASE("Muon's step of one element has the sign of the gradient", "[ops][tensor]") {
    for (float const gradient : {1e-3F, -1.0F, 1e6F}) {
        HeldTensor<Muon> tensor({1, 1}, {0.0F});
        tensor.step({}, std::vector<float>{gradient}, 0.1, 1);
        CHECK(tensor.master[0] * gradient < 0.0F);
        CHECK(std::fabs(tensor.master[0]) > 0.065F);
        CHECK(std::fabs(tensor.master[0]) < 0.125F);
    }
}

TEST_CASE("Muon updates parameters that are not matrices like AdamW, with their own learning rate",
          "[ops][tensor]") {
    MuonOptions const options{.adamw = {.weight_decay = 0.2}, .adamw_learning_rate_factor = 0.5};
    HeldTensor<Muon> tensor({0, 100}, random_numbers(100, 1, 1.0F));
    auto expected = tensor.master;
    std::vector<float> first(100);
    std::vector<float> second(100);
    for (int t = 1; t <= 3; ++t) {
        auto const gradient = random_numbers(100, static_cast<std::uint32_t>(t), 1.0F);
        tensor.step(options, gradient, 0.1, t);
        host::update<AdamW>(gradient.data(), expected.data(), static_cast<float*>(nullptr),
                            {first.data(), second.data()}, 100, 1.0F,
                            AdamW::hyper(options.adamw, 0.05, static_cast<std::uint64_t>(t)));
    }
    CHECK(tensor.master == expected);
    CHECK(tensor.states[1] == second);
}

TEST_CASE("Muon does not use the second state of a matrix", "[ops][tensor]") {
    HeldTensor<Muon> tensor({6, 10}, random_numbers(60, 1, 1.0F));
    tensor.step({}, random_numbers(60, 2, 1.0F), 0.1, 1);
    CHECK(tensor.states[1] == std::vector<float>(60));
    CHECK(tensor.states[0] == random_numbers(60, 2, 1.0F));
}

TEST_CASE("Muon rejects options of its AdamW that are out of range", "[ops][tensor]") {
    CHECK_THROWS_AS(Muon::validate({.adamw = {.beta2 = 1.0}}), InvalidArgument);
    CHECK_THROWS_WITH(Muon::validate({.adamw = {.beta2 = 1.0}}),
                      "zero::AdamW: beta2 is 1; it must be at least 0 and less than 1.");
}

TEST_CASE("Different options of optimizers of whole parameters give different hashes",
          "[ops][tensor]") {
    auto const hash_of = []<class O>(O, typename O::Options const& options) {
        return zero::detail::hash_of_options<O>(options);
    };
    std::vector<std::uint64_t> const hashes{hash_of(Muon{}, {}),
                                            hash_of(Muon{}, {.momentum = 0.9}),
                                            hash_of(Muon{}, {.weight_decay = 0.1}),
                                            hash_of(Muon{}, {.adamw = {.beta1 = 0.8}}),
                                            hash_of(Muon{}, {.adamw_learning_rate_factor = 0.5}),
                                            hash_of(Lamb{}, {}),
                                            hash_of(Lamb{}, {.beta1 = 0.8}),
                                            hash_of(Lamb{}, {.beta2 = 0.8}),
                                            hash_of(Lamb{}, {.epsilon = 0.8}),
                                            hash_of(Lamb{}, {.weight_decay = 0.8})};
    for (std::size_t i = 0; i < hashes.size(); ++i) {
        CHECK(std::count(hashes.begin(), hashes.end(), hashes[i]) == 1);
    }
}

} // namespace zero::test::tensor_optimizer_test
