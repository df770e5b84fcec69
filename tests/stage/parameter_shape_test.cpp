#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/stages.hpp"
#include "whole_tensor_model.hpp"

#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/ops/muon.hpp>
#include <zero/stage/describe.hpp>
#include <zero/stage/zero_stage.hpp>

#include <array>
#include <iterator>
#include <span>
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
    CHECK(registered({.name = "weight", .elements = 9}).shape.empty());
}

TEST_CASE("A stage takes every contiguous list of registrations, and one in braces") {
    Stage::Registration const array[] = {{.name = "a", .elements = 3}, {.name = "b", .shape = {4}}};
    std::array<Stage::Registration, 2> const fixed{array[0], array[1]};
    std::vector<Stage::Registration> list{array[0], array[1]};
    auto const names = on_ranks<std::vector<std::string>>(1, [&](LoopbackCommunicator& ranks) {
        std::vector<std::string> seen;
        auto const add = [&](Stage const& engine) {
            for (ParameterSpec const& spec : engine.layout().parameters()) {
                seen.push_back(spec.name);
            }
        };
        add(Stage(ranks, array));
        add(Stage(ranks, fixed));
        add(Stage(ranks, list));
        add(Stage(ranks, std::vector<Stage::Registration>(list), {.gradient_clipping = 1.0F}));
        add(Stage(ranks, std::span(list)));
        add(Stage(ranks, {list.begin(), 2U}));
        add(Stage(ranks, {std::data(array), std::data(array) + 2}));
        add(Stage(ranks, {array[0], array[1]}));
        add(Stage(ranks, {{.name = "a", .elements = 3}, {.name = "b", .shape = {4}}}, {}));
        return seen;
    })[0];
    REQUIRE(names.size() == 9 * list.size());
    for (std::size_t number = 0; number < names.size(); ++number) {
        CHECK(names[number] == list[number % 2].name);
    }
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

TEST_CASE("Muon takes the rows of a chosen matrix from its shape") {
    auto shaped = whole_specs();
    for (ParameterSpec& spec : shaped) {
        if (spec.rows != 0) {
            spec.shape = {spec.rows, spec.elements / spec.rows};
            spec.rows = 0;
            spec.update = Update::matrix;
        }
    }
    auto flat = shaped;
    for (std::size_t index = 1; index < flat.size(); ++index) {
        flat[index].shape.clear();
        flat[index].update = Update::elements;
    }
    using Whole = ZeroStage<2, RoundRobinPartitioner, Muon>;
    auto const expected = trained_whole<Whole>(2);
    CHECK(trained_whole<Whole>(2, 0.01, Storage::owned, shaped) == expected);
    CHECK_FALSE(trained_whole<Whole>(2, 0.01, Storage::owned, flat) == expected);
}

TEST_CASE("Rows that contradict the shape are refused, whatever the optimizer") {
    for (std::size_t const rows : {4U, 64U, 1U}) {
        check_refused({.name = "weight", .rows = rows, .shape = {8, 8}},
                      "rows, but the shape [8, 8]; the rows of its matrix are the product of the "
                      "first dimensions");
    }
    check_refused({.name = "weight", .rows = 1, .shape = {8}}, "has 1 rows, but the shape [8]");
    check_refused({.name = "weight", .rows = 4, .shape = {2, 3, 4}}, "has 4 rows");
    CHECK(registered({.name = "weight", .rows = 6, .shape = {2, 3, 4}}).rows == 6);
    CHECK(registered({.name = "weight", .rows = 2, .shape = {2, 3, 4}}).rows == 2);
    check_refused({.name = "weight", .rows = 8, .shape = {8, 8}, .update = Update::elements},
                  "has 8 rows, which Update::elements would ignore");
}

namespace {

/// Returns the description of an engine that `Muon` trains, or why it is refused.
template <int N>
std::vector<Outcome> made_by_muon(std::vector<Parameter<float>> const& parameters,
                                  std::vector<ParameterGroup<Muon>> const& groups = {}) {
    return on_ranks<Outcome>(2, [&](LoopbackCommunicator& communicator) {
        std::string text;
        Outcome outcome = outcome_of([&] {
            ZeroStage<N, RoundRobinPartitioner, Muon> const engine(communicator, parameters,
                                                                   {.groups = groups});
            text = describe(engine);
        });
        if (outcome.type == "returned") {
            outcome.message = text.substr(text.find('\n') + 1);
        }
        return outcome;
    });
}

} // namespace

TEST_CASE("Muon is told what is a matrix, and says it") {
    using List = std::vector<Parameter<float>>;
    using Groups = std::vector<ParameterGroup<Muon>>;
    Parameter<float> const matrix{.name = "m", .shape = {6, 4}, .update = Update::matrix};
    Parameter<float> const bias{.name = "b", .elements = 5};
    in_every_stage([&]<int N>() {
        auto const check = [](List const& parameters, char const* type, char const* text,
                              Groups const& groups = {}) {
            for (Outcome const& outcome : made_by_muon<N>(parameters, groups)) {
                CHECK(outcome.type == type);
                CHECK_THAT(outcome.message, contains_text(text));
            }
        };
        check({matrix, bias}, "returned",
              "Muon updates 1 parameters as matrices ('m' 6 x 4) and 1 element by element ('b')");
        check({{.name = "r", .elements = 8, .rows = 2}, matrix}, "returned",
              "Muon updates 2 parameters as matrices ('r' 2 x 4, 'm' 6 x 4) and 0 element by "
              "element");
        // A convolution is a matrix of its output channels only if it is chosen.
        check({{.name = "c", .shape = {4, 3, 2, 2}}, matrix}, "returned",
              "('m' 6 x 4) and 1 element by element ('c')");
        check({{.name = "c", .shape = {4, 3, 2, 2}, .update = Update::matrix}}, "returned",
              "('c' 4 x 12)");
        check({{.name = "embedding", .shape = {50, 8}}, matrix}, "InvalidArgument",
              "parameter 'embedding' has the shape [50, 8], and Muon does not guess whether");
        check({{.name = "embedding", .shape = {50, 8}, .update = Update::elements}, matrix},
              "returned", "('m' 6 x 4) and 1 element by element ('embedding')");
        check({{.name = "embedding", .trainable = false, .shape = {50, 8}}, matrix}, "returned",
              "1 parameters as matrices ('m' 6 x 4) and 0 element by element");
        check({{.name = "b", .elements = 5, .update = Update::matrix}}, "InvalidArgument",
              "parameter 'b' is chosen as a matrix, but has neither rows nor a shape");
        check({{.name = "b", .shape = {5}, .update = Update::matrix}}, "InvalidArgument",
              "but has the shape [5] and no rows");
        check({bias}, "InvalidArgument", "none of the 1 trainable parameters is a matrix");
        check({{.name = "c", .shape = {4, 3, 2, 2}}, bias}, "InvalidArgument",
              "none of the 2 trainable parameters is a matrix");
        // The choice of a group, which that of a parameter overrides.
        check({{.name = "w", .shape = {6, 4}},
               {.name = "e", .group = 1, .shape = {6, 4}},
               {.name = "h", .group = 1, .shape = {6, 4}, .update = Update::matrix}},
              "returned", "('w' 6 x 4, 'h' 6 x 4) and 1 element by element ('e')",
              {{.update = Update::matrix}, {.update = Update::elements}});
    });
}

} // namespace zero::test::parameter_shape_test
