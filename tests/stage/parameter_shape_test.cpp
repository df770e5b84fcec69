#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "whole_tensor_model.hpp"

#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/ops/muon.hpp>
#include <zero/stage/zero_stage.hpp>

#include <string>
#include <vector>

// The shape of a parameter gives its elements and rows, and is compared between ranks.

namespace zero::test::parameter_shape_test {

namespace {

using Shape = std::vector<std::size_t>;
using Stage = ZeroStage<2>;

/// The specification that a registration becomes in an engine.
ParameterSpec registered(Parameter<float> const& parameter) {
    return on_ranks<ParameterSpec>(1, [&](LoopbackCommunicator& communicator) {
        Stage engine(communicator, std::vector<Parameter<float>>{parameter});
        return engine.layout().parameter(0);
    })[0];
}

void check_refused(Parameter<float> const& parameter, std::string const& text) {
    auto const outcome = outcome_of([&] { (void)registered(parameter); });
    CHECK(outcome.type == "InvalidArgument");
    CHECK_THAT(outcome.message, contains_text("parameter 'weight'") && contains_text(text));
}

} // namespace

TEST_CASE("The elements of a parameter follow from its shape, and the rows from two dimensions") {
    auto const matrix = registered({.name = "weight", .shape = {20, 15}});
    CHECK(matrix.elements == 300);
    CHECK(matrix.rows == 20);
    CHECK(matrix.shape == Shape{20, 15});
    auto const tensor = registered({.name = "weight", .shape = {4, 5, 6}});
    CHECK(tensor.elements == 120);
    CHECK(tensor.rows == 0);
    auto const vector = registered({.name = "weight", .elements = 7, .shape = {7}});
    CHECK(vector.elements == 7);
    CHECK(vector.rows == 0);
    auto const other_rows =
        registered({.name = "weight", .elements = 300, .rows = 15, .shape = {20, 15}});
    CHECK(other_rows.rows == 15);
    CHECK(registered({.name = "weight", .elements = 9}).shape.empty());
}

TEST_CASE("A dimension of size zero makes an empty parameter, which is not a matrix") {
    for (Shape const& shape : {Shape{0}, Shape{0, 15}, Shape{15, 0}, Shape{3, 0, 2},
                               Shape{std::size_t{1} << 40U, std::size_t{1} << 40U, 0}}) {
        auto const spec = registered({.name = "weight", .shape = shape});
        CHECK(spec.elements == 0);
        CHECK(spec.rows == 0);
        CHECK(spec.shape == shape);
    }
}

TEST_CASE("A shape with another number of elements, or too many, is refused") {
    check_refused({.name = "weight", .elements = 301, .shape = {20, 15}},
                  "has 301 elements, which is not the product of its shape [20, 15]");
    check_refused({.name = "weight", .elements = 3, .shape = {3, 0}},
                  "has 3 elements, which is not the product of its shape [3, 0]");
    constexpr std::size_t large = std::size_t{1} << 33U;
    check_refused({.name = "weight", .shape = {large, large}}, "larger than 2^56 elements");
    check_refused({.name = "weight", .shape = {large, large, large, 4}},
                  "larger than 2^56 elements");
    check_refused({.name = "weight", .elements = 12, .shape = {large, large}},
                  "not the product of its shape [8589934592, 8589934592]");
}

TEST_CASE("Ranks with different shapes of as many elements get a LayoutMismatch that shows both") {
    auto const construct = [](Shape const& first, Shape const& other) {
        return run_and_observe(2, [&](LoopbackCommunicator& communicator) {
            auto specs = toy_specs();
            specs[0].shape = communicator.rank() == 0 ? first : other;
            Stage engine(communicator, registration<float>(specs));
        });
    };
    for (Outcome const& outcome : construct({3, 4, 25}, {4, 3, 25}).ranks) {
        CHECK(outcome.type == "LayoutMismatch");
        CHECK_THAT(outcome.message, contains_text("300 elements of float32 in shape [3, 4, 25], ")
                                        && contains_text("in shape [4, 3, 25], units 0,4"));
    }
    for (Outcome const& outcome : construct({300}, {}).ranks) {
        CHECK(outcome.type == "LayoutMismatch");
    }
    for (Outcome const& outcome : construct({20, 15}, {20, 15}).ranks) {
        CHECK(outcome == Outcome{});
    }
}

TEST_CASE("Muon treats a shape of two dimensions as rows") {
    auto shaped = whole_specs();
    for (ParameterSpec& spec : shaped) {
        if (spec.rows != 0) {
            spec.shape = {spec.rows, spec.elements / spec.rows};
            spec.rows = 0;
        }
    }
    auto flat = shaped;
    for (ParameterSpec& spec : flat) {
        spec.shape.clear();
    }
    using Whole = ZeroStage<2, RoundRobinPartitioner, Muon>;
    auto const expected = trained_whole<Whole>(2);
    CHECK(trained_whole<Whole>(2, 0.01, Storage::owned, shaped) == expected);
    CHECK_FALSE(trained_whole<Whole>(2, 0.01, Storage::owned, flat) == expected);
}

} // namespace zero::test::parameter_shape_test
