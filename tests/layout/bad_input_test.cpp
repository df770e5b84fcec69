#include "support/catch.hpp"
#include "support/shapes.hpp"

#include <zero/core/error.hpp>
#include <zero/layout/contiguous_partitioner.hpp>
#include <zero/layout/make_layout.hpp>
#include <zero/layout/size_capped_bucketer.hpp>

namespace zero::test::bad_input_test {

namespace {

std::string message(std::vector<ParameterSpec> const& model, std::size_t world = 2) {
    try {
        (void)make_layout<ContiguousPartitioner, SizeCappedBucketer>(model, {world, 4, false});
    } catch (InvalidArgument const& error) {
        return error.what();
    }
    return "nothing was thrown";
}

std::string adopted_message(std::vector<ParameterSpec> const& model,
                            std::vector<std::size_t> const& offsets) {
    try {
        (void)make_adopted_layout<SizeCappedBucketer>(model, offsets, {2, 4, false});
    } catch (InvalidArgument const& error) {
        return error.what();
    }
    return "nothing was thrown";
}

} // namespace

TEST_CASE("A layout for 0 ranks is rejected") {
    CHECK(message(test::model_of_sizes({1}), 0)
          == "zero: world is 0; a layout needs at least one rank.");
}

TEST_CASE("A parameter without a name is rejected by its index") {
    auto model = test::model_of_sizes({1, 2});
    model[1].name = "";
    CHECK(message(model) == "zero: parameter number 1 has no name; give each a unique one.");
}

TEST_CASE("Two parameters with one name are rejected with advice on tied parameters") {
    auto model = test::model_of_sizes({1, 2, 3});
    model[2].name = "p0";
    CHECK(message(model)
          == "zero: two parameters are named 'p0'; names must be unique. For a tied parameter "
             "register it once and list all its units.");
}

TEST_CASE("Rows and shape of a single element are compared, and those of no element are not") {
    auto model = test::model_of_sizes({1, 0});
    model[0].rows = 1;
    model[0].shape = {1};
    CHECK_THAT(message(model), contains_text("has 1 rows, but the shape [1]"));
    model[0].shape = {1, 1};
    model[1].rows = 3;
    model[1].shape = {2, 0};
    CHECK(message(model) == "nothing was thrown");
}

TEST_CASE("A parameter without a unit, with a repeated unit or with a far too large unit is "
          "rejected by name") {
    auto model = test::model_of_sizes({1, 2});
    model[1].units = {};
    CHECK(message(model)
          == "zero: parameter 'p1' lists no unit; name the units that use it, in order of use.");
    model[1].units = {3, 1, 3};
    CHECK(message(model) == "zero: parameter 'p1' lists unit 3 twice; list it once.");
    model[1].units = {4129}; // the largest valid unit is 2 * 16 + 4096
    CHECK(message(model)
          == "zero: parameter 'p1' lists unit 4129; units are numbered from 0 in order of use, "
             "without large gaps.");
    model[1].units = {static_cast<std::size_t>(-1)};
    CHECK(message(model)
          == "zero: parameter 'p1' lists unit 18446744073709551615; units are numbered from 0 in "
             "order of use, without large gaps.");
    model[1].units = {4128};
    CHECK(message(model) == "nothing was thrown");
}

TEST_CASE(
    "A model of 2^56 elements is rejected with the name of the parameter that exceeds the limit") {
    std::size_t const half = std::size_t{1} << 55U;
    CHECK(message(test::model_of_sizes({half, half - 1})) == "nothing was thrown");
    CHECK(message(test::model_of_sizes({half, half}))
          == "zero: parameter 'p1' makes the model larger than 2^56 elements.");
    CHECK(message(test::model_of_sizes({1, static_cast<std::size_t>(-1)}))
          == "zero: parameter 'p1' makes the model larger than 2^56 elements.");
}

TEST_CASE("A bucket capacity of 0 bytes is rejected in both kinds of layout") {
    auto const model = test::model_of_sizes({1});
    std::string const expected =
        "zero: bucket_bytes is 0; give the capacity of a bucket in bytes; 25 MiB is a good start.";
    CHECK_THROWS_WITH(
        (make_layout<ContiguousPartitioner, SizeCappedBucketer>(model, {2, 4, false}, {0})),
        expected);
    CHECK_THROWS_WITH(make_adopted_layout<SizeCappedBucketer>(model, std::vector<std::size_t>{0},
                                                              {2, 4, false}, {0}),
                      expected);
    CHECK_THROWS_AS(SizeCappedBucketer::validate({0}), InvalidArgument);
    CHECK_NOTHROW(SizeCappedBucketer::validate({1}));
}

TEST_CASE("Parameters that overlap in an adopted block are rejected with both names") {
    auto const model = test::model_of_sizes({100, 100, 100});
    std::string const remedy = "; for a tied parameter register it once and list all its units.";
    CHECK(adopted_message(model, {0, 99, 300})
          == "zero: parameters 'p0' and 'p1' overlap in the adopted block" + remedy);
    CHECK(adopted_message(model, {0, 200, 150})
          == "zero: parameters 'p2' and 'p1' overlap in the adopted block" + remedy);
    CHECK(adopted_message(model, {0, 100, 200}) == "nothing was thrown");
    CHECK(adopted_message(test::model_of_sizes({100, 0}), {0, 50})
          == "nothing was thrown"); // a parameter without elements overlaps nothing
    // Two names for the same memory, then one parameter inside another.
    CHECK_THAT(adopted_message(test::model_of_sizes({8, 8}), {16, 16}),
               test::contains_text("overlap in the adopted block"));
    CHECK(adopted_message(test::model_of_sizes({100, 5}), {0, 50})
          == "zero: parameters 'p0' and 'p1' overlap in the adopted block" + remedy);
    // A frozen parameter also occupies memory.
    auto frozen = test::model_of_sizes({100, 5});
    frozen[0].trainable = false;
    CHECK(adopted_message(frozen, {0, 50})
          == "zero: parameters 'p0' and 'p1' overlap in the adopted block" + remedy);
}

TEST_CASE("An adopted block needs one offset per parameter") {
    CHECK(adopted_message(test::model_of_sizes({1, 2}), {0})
          == "zero: 1 offsets are given for 2 parameters of an adopted block; give one each.");
    CHECK(adopted_message({}, {0})
          == "zero: 1 offsets are given for 0 parameters of an adopted block; give one each.");
}

TEST_CASE("An adopted block is checked like any other model") {
    auto model = test::model_of_sizes({1, 2});
    model[1].name = "p0";
    CHECK_THAT(adopted_message(model, {0, 1}),
               test::contains_text("two parameters are named 'p0'"));
}

} // namespace zero::test::bad_input_test
