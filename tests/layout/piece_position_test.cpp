#include "support/catch.hpp"
#include "support/toy_model.hpp"

#include <cstddef>
#include <vector>

#include <zero/layout/contiguous_partitioner.hpp>
#include <zero/layout/make_layout.hpp>
#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/layout/size_capped_bucketer.hpp>

// The positions that a layout lists are those that a search of all buckets finds.

namespace zero::test::piece_position_test {

namespace {

struct Found {
    std::size_t bucket;
    std::size_t index;
    friend bool operator==(Found const&, Found const&) = default;
};

std::vector<Found> listed(std::span<PiecePosition const> positions) {
    std::vector<Found> found;
    for (PiecePosition const at : positions) {
        found.push_back({at.bucket, at.index});
    }
    return found;
}

/// Searches all buckets for pieces of parameters for which `is_wanted(parameter)`.
template <class IsWanted>
std::vector<Found> search(FlatLayout const& layout, IsWanted const& is_wanted) {
    std::vector<Found> found;
    for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
        for (std::size_t index = 0; index < layout.pieces(bucket).size(); ++index) {
            if (is_wanted(layout.pieces(bucket)[index].parameter)) {
                found.push_back({bucket, index});
            }
        }
    }
    return found;
}

bool uses(FlatLayout const& layout, std::size_t unit, std::size_t parameter) {
    for (std::size_t const used : layout.parameter(parameter).units) {
        if (used == unit) {
            return true;
        }
    }
    return false;
}

void check(FlatLayout const& layout) {
    std::size_t const parameters = layout.parameters().size();
    for (std::size_t parameter = 0; parameter < parameters; ++parameter) {
        INFO("parameter " << parameter);
        CHECK(listed(layout.parameter_pieces(parameter))
              == search(layout, [&](std::size_t other) { return other == parameter; }));
    }
    for (std::size_t unit = 0; unit < layout.units(); ++unit) {
        INFO("unit " << unit);
        CHECK(listed(layout.unit_pieces(unit))
              == search(layout, [&](std::size_t other) { return uses(layout, unit, other); }));
        for (std::size_t parameter = 0; parameter < parameters; ++parameter) {
            INFO("parameter " << parameter);
            CHECK(layout.is_member(unit, parameter) == uses(layout, unit, parameter));
        }
        CHECK_FALSE(layout.is_member(unit, parameters));
    }
    CHECK_FALSE(layout.is_member(layout.units(), 0));
}

} // namespace

TEST_CASE("A layout lists the positions of the pieces of each parameter and unit") {
    LayoutOptions const options{.world = 3};
    check(make_layout<ContiguousPartitioner, SizeCappedBucketer>(toy_specs(), options, {}));
    check(make_layout<ContiguousPartitioner, SizeCappedBucketer>(toy_specs(), options,
                                                                 {.bucket_bytes = 600}));
    check(make_layout<RoundRobinPartitioner, SizeCappedBucketer>(toy_specs(), options, {}));
}

TEST_CASE("A parameter of an adopted block has a position for each of its pieces") {
    std::vector<ParameterSpec> const specs{
        {"first", 900, {0}, 0, true}, {"second", 5, {0, 1}, 0, true}, {"third", 800, {1}, 0, true}};
    auto const layout = make_adopted_layout<SizeCappedBucketer>(
        specs, std::vector<std::size_t>{0, 900, 905}, {.world = 2}, {.bucket_bytes = 1024});
    check(layout);
    CHECK(layout.parameter_pieces(0).size() > 1);
    std::size_t sum = 0;
    for (PiecePosition const at : layout.parameter_pieces(0)) {
        CHECK(layout.piece(at).parameter == 0);
        sum += layout.piece(at).elements;
    }
    CHECK(sum == 900);
}

} // namespace zero::test::piece_position_test
