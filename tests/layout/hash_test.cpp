#include "families.hpp"

#include "support/catch.hpp"
#include "support/shapes.hpp"

#include <zero/layout/make_layout.hpp>

#include <functional>
#include <set>

namespace zero::test::hash_test {

namespace {

std::vector<ParameterSpec> model() {
    auto specs = test::model_of_sizes({100, 200, 300, 400}, 2);
    specs[3].units = {1, 2};
    return specs;
}

std::uint64_t hash_of(std::vector<ParameterSpec> const& specs, std::size_t world = 4,
                      std::size_t bucket_bytes = 2048) {
    return make_layout<ContiguousPartitioner, SizeCappedBucketer>(specs, {world, 4, false},
                                                                  {bucket_bytes})
        .hash();
}

} // namespace

TEST_CASE("Equal models have equal hashes") {
    CHECK(hash_of(model()) == hash_of(model()));
}

TEST_CASE("Each single change of a parameter changes the hash") {
    using Change = std::function<void(std::vector<ParameterSpec>&)>;
    std::vector<Change> const changes{
        [](auto& specs) { specs[1].name = "q1"; },
        [](auto& specs) { specs[1].name += '1'; },
        [](auto& specs) { specs[1].name += '\0'; },
        [](auto& specs) { ++specs[1].elements; }, // the padded size is the same
        [](auto& specs) { specs[1].units = {1}; },
        [](auto& specs) { specs[3].units = {1}; },
        [](auto& specs) {
            specs[3].units = {2, 1};
        },
        [](auto& specs) { specs[1].group = 1; },
        [](auto& specs) { specs[1].trainable = false; },
        [](auto& specs) { std::swap(specs[0], specs[1]); },
        [](auto& specs) { std::swap(specs[1].name, specs[2].name); },
        [](auto& specs) { specs.pop_back(); },
        [](auto& specs) {
            specs[1].tile = {"w", 0, 200, {}};
        },
        [](auto& specs) {
            specs[1].tile = {"v", 0, 200, {}};
        },
        [](auto& specs) {
            specs[1].tile = {"w", 0, 200, {20, 10}};
        },
        [](auto& specs) {
            specs.push_back({"empty", 0, {0}, 0, true});
        },
    };
    std::set<std::uint64_t> hashes{hash_of(model())};
    for (Change const& change : changes) {
        auto specs = model();
        change(specs);
        hashes.insert(hash_of(specs));
    }
    hashes.insert(hash_of(model(), 5));
    hashes.insert(hash_of(model(), 4, 4096));
    hashes.insert(
        make_layout<RoundRobinPartitioner, SizeCappedBucketer>(model(), {4, 4, false}, {2048})
            .hash());
    CHECK(hashes.size() == changes.size() + 4);
}

TEST_CASE("The end of a name is not taken for a unit") {
    ParameterSpec const shorter{"a", 10, {98, 0}, 0, true};
    ParameterSpec const longer{"ab", 10, {0}, 0, true}; // 'b' is 98
    CHECK(hash_of({shorter}) != hash_of({longer}));
    CHECK(FlatLayout({shorter}, 1, {}).parameter_hash(0)
          != FlatLayout({longer}, 1, {}).parameter_hash(0));
}

TEST_CASE("The world size is part of the hash even without parameters") {
    CHECK(hash_of({}, 1) != hash_of({}, 2));
}

TEST_CASE("The hash of one parameter depends on that parameter alone") {
    auto const before = make_layout<ContiguousPartitioner, SingleBucketer>(model(), {2, 4, false});
    auto specs = model();
    specs[2].elements = 1;
    auto const after = make_layout<ContiguousPartitioner, SingleBucketer>(specs, {3, 4, false});
    CHECK(before.parameter_hash(0) == after.parameter_hash(0));
    CHECK(before.parameter_hash(3) == after.parameter_hash(3));
    CHECK(before.parameter_hash(2) != after.parameter_hash(2));
}

TEST_CASE("The offsets of a piece in its parameter and in its bucket are part of the hash") {
    auto const hash = [](Piece piece) {
        return FlatLayout(test::model_of_sizes({300}), 1, {{{piece}, {0, 256}}}).hash();
    };
    Piece const piece{0, 64, 64, 128};
    CHECK(hash(piece) == hash(piece));
    CHECK(hash(piece) != hash({0, 0, 64, 128}));
    CHECK(hash(piece) != hash({0, 64, 0, 128}));
}

TEST_CASE("The offsets in an adopted block are part of the hash") {
    auto const specs = test::model_of_sizes({300, 300});
    auto const hash = [&](std::vector<std::size_t> const& offsets) {
        return make_adopted_layout<SingleBucketer>(specs, offsets, {2, 4, false}).hash();
    };
    CHECK(hash({0, 300}) == hash({0, 300}));
    CHECK(hash({0, 300}) != hash({0, 301}));
    CHECK(hash({0, 300}) != hash({300, 0}));
    CHECK(hash({0, 300})
          != make_layout<ContiguousPartitioner, SingleBucketer>(specs, {2, 4, false}).hash());
}

TEST_CASE("Whether gradients form a block is no part of the hash, and the layout forgets it") {
    auto specs = test::model_of_sizes({300, 1, 0});
    specs[1].gradient = GradientMemory::engine;
    auto const apart = FlatLayout(specs, 2, {}).hash();
    specs[0].gradient = GradientMemory::block;
    specs[2].gradient = GradientMemory::caller;
    FlatLayout layout(specs, 2, {});
    CHECK(layout.hash() == apart);
    layout.separate_gradients();
    CHECK(layout.parameter(0).gradient == GradientMemory::caller);
    CHECK(layout.parameter(1).gradient == GradientMemory::engine);
    CHECK(layout.parameter(2).gradient == GradientMemory::caller);
}

} // namespace zero::test::hash_test
