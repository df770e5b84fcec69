#include "families.hpp"

#include "support/catch.hpp"
#include "support/shapes.hpp"

#include <zero/core/error.hpp>
#include <zero/layout/detail/partition/make_buckets.hpp>
#include <zero/layout/lease_plan.hpp>
#include <zero/layout/make_layout.hpp>

// Layouts for a unit order other than the reverse registration order.

namespace zero::test::ready_order_test {

namespace {

using Order = std::vector<std::size_t>;

/// Units 0 to 3 with two parameters each, one tied parameter of units 0 and 2, and one frozen
/// parameter.
std::vector<ParameterSpec> model() {
    std::vector<ParameterSpec> specs{{"tied", 64, {0, 2}, 0, true}};
    for (std::size_t unit = 0; unit < 4; ++unit) {
        specs.push_back({"w" + std::to_string(unit), 64, {unit}, 0, true});
        specs.push_back({"b" + std::to_string(unit), 64, {unit}, 0, unit != 1});
    }
    return specs;
}

/// Returns the parameter names in bucket order.
template <class Bucketer>
std::vector<std::string> names(Order const& units,
                               typename Bucketer::Options options = typename Bucketer::Options(),
                               bool is_inside = false) {
    FlatLayout const layout = make_layout<ContiguousPartitioner, Bucketer>(
        model(), {2, 4, is_inside, {}, units}, options);
    std::vector<std::string> names;
    for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
        for (Piece const& piece : layout.pieces(bucket)) {
            names.push_back(layout.parameter(piece.parameter).name);
        }
        names.push_back("|");
    }
    return names;
}

std::string message(Order const& units) {
    try {
        (void)make_layout<ContiguousPartitioner, SingleBucketer>(model(), {2, 4, false, {}, units});
    } catch (InvalidArgument const& error) {
        return error.what();
    }
    return "nothing was thrown";
}

} // namespace

TEST_CASE("Parameters become complete with the last of their units, in reverse registration order "
          "per unit") {
    auto const specs = model();
    CHECK(zero::detail::ready_order(specs, {}) == Order{8, 7, 6, 5, 4, 3, 2, 1, 0});
    CHECK(zero::detail::ready_order(specs, Order{3, 2, 1, 0}) == Order{8, 7, 6, 5, 4, 3, 2, 1, 0});
    CHECK(zero::detail::ready_order(specs, Order{0, 1, 2, 3}) == Order{2, 1, 4, 3, 6, 5, 0, 8, 7});
    CHECK(zero::detail::ready_order(specs, Order{2, 0, 3, 1}) == Order{6, 5, 2, 1, 0, 8, 7, 4, 3});
}

TEST_CASE("Buckets follow the unit order, with tied parameters alone and frozen ones last") {
    CHECK(names<UnitBucketer>({0, 1, 2, 3})
          == std::vector<std::string>{"b0", "w0", "|", "w1", "|", "b2", "w2", "|", "tied", "|",
                                      "b3", "w3", "|", "b1", "|"});
    CHECK(names<SizeCappedBucketer>({0, 1, 2, 3}, {3 * 64 * 4})
          == std::vector<std::string>{"b0", "w0", "w1", "|", "b2", "w2", "|", "tied", "|", "b3",
                                      "w3", "|", "b1", "|"});
    CHECK(names<SizeCappedBucketer>({0, 1, 2, 3}, {3 * 64 * 4}, true)
          == names<UnitBucketer>({0, 1, 2, 3}));
}

TEST_CASE("An empty unit order means the reverse order of use") {
    auto const layout = make_layout<ContiguousPartitioner, UnitBucketer>(model(), {2, 4, false});
    auto const same =
        make_layout<ContiguousPartitioner, UnitBucketer>(model(), {2, 4, false, {}, {3, 2, 1, 0}});
    auto const other =
        make_layout<ContiguousPartitioner, UnitBucketer>(model(), {2, 4, false, {}, {3, 2, 0, 1}});
    CHECK(Order(layout.unit_order().begin(), layout.unit_order().end()) == Order{3, 2, 1, 0});
    CHECK(layout.hash() == same.hash());
    CHECK(layout.hash() != other.hash());
}

TEST_CASE("Leases are planned for the unit order of the layout") {
    // Buckets made for the order in which the units finish are in flight two at a time. Buckets
    // made for the backward order all stay open until the last unit if the units finish in forward
    // order. Units 0 to 3 have 128, 64, 128 and 128 trainable elements.
    std::vector<ParameterSpec> specs = model();
    specs.erase(specs.begin());
    for (Order const& units : {Order{3, 2, 1, 0}, Order{0, 1, 2, 3}, Order{2, 0, 3, 1}}) {
        CHECK(plan_gradient_leases(
                  make_layout<ContiguousPartitioner, UnitBucketer>(specs, {1, 4, false, {}, units}),
                  true)
                  .elements
              == 2 * 128);
    }
    FlatLayout const backwards =
        make_layout<ContiguousPartitioner, UnitBucketer>(specs, {1, 4, false});
    std::vector<BucketPlan> buckets;
    for (std::size_t bucket = 0; bucket < backwards.buckets(); ++bucket) {
        buckets.push_back(backwards.bucket(bucket));
    }
    FlatLayout const forwards(specs, 1, buckets, {0, 1, 2, 3});
    CHECK(plan_gradient_leases(forwards, true).elements == 3 * 128 + 64);
}

TEST_CASE("Buckets of several types are merged in the order in which they become complete") {
    auto specs = model();
    for (std::size_t index = 0; index < specs.size(); ++index) {
        specs[index].type = index % 2;
    }
    FlatLayout const layout =
        make_layout<ContiguousPartitioner, UnitBucketer>(specs, {2, 4, false, {4}, {1, 3, 0, 2}});
    std::vector<std::string> found;
    for (std::size_t bucket = 0; bucket < layout.trainable_buckets(); ++bucket) {
        found.push_back(layout.parameter(layout.pieces(bucket).front().parameter).name);
    }
    CHECK(found == std::vector<std::string>{"w1", "b3", "w3", "b0", "w0", "b2", "w2", "tied"});
}

TEST_CASE("A unit order that does not list every unit once is rejected") {
    CHECK(
        message({0, 1, 2})
        == "zero: unit_order lists 3 numbers, of which 3 are units not listed before; list each of "
           "the 4 units once, or leave it empty for the reverse order of use.");
    CHECK(message({0, 1, 2, 2}).find("lists 4 numbers, of which 3 are") != std::string::npos);
    CHECK(message({0, 1, 2, 4}).find("lists 4 numbers, of which 3 are") != std::string::npos);
    CHECK(message({0, 1, 2, 3, 3}).find("lists 5 numbers, of which 4 are") != std::string::npos);
    CHECK(message({3, 1, 0, 2}) == "nothing was thrown");
}

TEST_CASE("A unit order for an adopted block is rejected") {
    std::vector<std::size_t> const offsets{0, 64, 128, 192, 256, 320, 384, 448, 512};
    std::string text;
    try {
        (void)make_adopted_layout<SingleBucketer>(model(), offsets,
                                                  {2, 4, false, {}, {0, 1, 2, 3}});
    } catch (InvalidArgument const& error) {
        text = error.what();
    }
    CHECK(text
          == "zero: unit_order would be ignored, because an adopted block is cut in the order of "
             "its addresses; leave it out.");
}

} // namespace zero::test::ready_order_test
