#include "layout_checks.hpp"
#include "partitions.hpp"

#include "support/catch.hpp"
#include "support/shapes.hpp"

#include <zero/core/error.hpp>
#include <zero/layout/balanced_partitioner.hpp>
#include <zero/layout/gather_options.hpp>
#include <zero/layout/make_layout.hpp>
#include <zero/layout/size_capped_bucketer.hpp>
#include <zero/layout/whole_matrix_partitioner.hpp>

#include <algorithm>
#include <cstddef>
#include <random>
#include <string>
#include <vector>

namespace zero::test::whole_matrix_partitioner_test {

namespace {

struct Loads {
    std::vector<double> elements; ///< by rank, without padding
    std::vector<double> work;     ///< operations of Muon's update, by rank

    static double imbalance(std::vector<double> const& loads) {
        double sum = 0;
        for (double const load : loads) {
            sum += load;
        }
        return *std::max_element(loads.begin(), loads.end()) * static_cast<double>(loads.size())
               / sum;
    }
};

Loads loads_of(FlatLayout const& layout) {
    Loads loads{std::vector<double>(layout.world()), std::vector<double>(layout.world())};
    for (std::size_t bucket = 0; bucket < layout.trainable_buckets(); ++bucket) {
        for (std::size_t rank = 0; rank < layout.world(); ++rank) {
            layout.for_slices(bucket, layout.extent(bucket, rank), [&](Piece const& piece) {
                ParameterSpec const& spec = layout.parameter(piece.parameter);
                loads.elements[rank] += static_cast<double>(piece.elements);
                if (spec.rows != 0) {
                    auto const all = static_cast<double>(spec.elements);
                    auto const rows = static_cast<double>(spec.rows);
                    double const k = std::min(rows, all / rows);
                    loads.work[rank] += 15 * k * all + 5 * k * k * k;
                }
            });
        }
    }
    return loads;
}

template <class Partitioner, class Bucketer>
Loads gpt2(std::size_t world, Head head = Head::tied) {
    return loads_of(
        make_layout<Partitioner, Bucketer>(with_matrices(gpt2_124m(head), 768), {world, 2, false}));
}

/// Returns matrices, small vectors, and, one in four, parameters that are large and no matrices.
std::vector<ParameterSpec> random_model(std::mt19937& random) {
    std::vector<ParameterSpec> model;
    std::size_t const count = 1 + random() % 30;
    for (std::size_t index = 0; index < count; ++index) {
        ParameterSpec spec{.name = "p" + std::to_string(index),
                           .units = {index / 3},
                           .trainable = random() % 6 != 0};
        if (random() % 3 == 0) {
            spec.rows = 1 + random() % 70;
            spec.elements = spec.rows * (1 + random() % 70);
        } else {
            spec.elements = random() % 4 == 0 ? random() % 20'000 : random() % 200;
        }
        if (random() % 8 == 0 && index != 0) {
            spec.units = {0, index / 3 + (index / 3 == 0 ? 1 : 0)};
        }
        model.push_back(spec);
    }
    return model;
}

} // namespace

TEST_CASE("GPT-2 124M is even on 8 ranks: elements, and work within 2 percent") {
    auto const balanced = gpt2<BalancedPartitioner, SizeCappedBucketer>(8);
    CHECK(Loads::imbalance(balanced.elements) == Approx(2.4813).epsilon(1e-4));
    CHECK(Loads::imbalance(balanced.work) == Approx(1.1833).epsilon(1e-4));
    for (Head const head : {Head::tied, Head::separate}) {
        for (auto const& loads : {gpt2<WholeMatrixPartitioner, SizeCappedBucketer>(8, head),
                                  gpt2<WholeMatrixPartitioner, UnitBucketer>(8, head),
                                  gpt2<WholeMatrixPartitioner, ParameterBucketer>(8, head),
                                  gpt2<WholeMatrixPartitioner, SingleBucketer>(8, head)}) {
            CHECK(Loads::imbalance(loads.elements) < 1.0001);
            CHECK(Loads::imbalance(loads.work) == Approx(305.0 / 300).epsilon(1e-4));
        }
    }
    // With more ranks than matrices the largest one is the bound.
    auto const many = gpt2<WholeMatrixPartitioner, SizeCappedBucketer>(64);
    CHECK(*std::max_element(many.elements.begin(), many.elements.end()) == 768 * 3072);
}

TEST_CASE("A parameter that is spread fills the ranks that hold the least, alone in its bucket") {
    // Three ranks: the matrices of 30,000 and 20,000 elements go to ranks 0 and 1, the embedding
    // fills 2 and 1 up to 28,032, 219 blocks of 64 for each, and the vector goes to rank 2 before.
    auto const layout = make_layout<WholeMatrixPartitioner, SingleBucketer>(
        {{.name = "large", .elements = 30'016, .rows = 8},
         {.name = "small", .elements = 20'032, .rows = 8},
         {.name = "embedding", .elements = 35'968},
         {.name = "vector", .elements = 64}},
        {.world = 3});
    REQUIRE(layout.buckets() == 3); // the vector comes first, then the embedding
    CHECK(listed(layout.cuts(0)) == List{0, 0, 0, 64});
    CHECK(listed(layout.cuts(1)) == List{0, 0, 28'032 - 20'032, 35'968});
    CHECK(listed(layout.cuts(2)) == List{0, 30'016, 50'048, 50'048});
}

TEST_CASE("Random models: matrices stay whole, buckets are not mixed, ranks are filled evenly") {
    std::mt19937 random(7);
    std::size_t spread = 0;
    for (int round = 0; round < 400; ++round) {
        std::size_t const world = std::vector<std::size_t>{1, 2, 3, 5, 8, 40}[random() % 6];
        CAPTURE(round, world);
        auto const model = random_model(random);
        auto const layout =
            round % 2 == 0
                ? make_layout<WholeMatrixPartitioner, SizeCappedBucketer>(model, {world, 4, false},
                                                                          {4096})
                : make_layout<WholeMatrixPartitioner, UnitBucketer>(model, {world, 4, true});
        CHECK(problem_in(layout, {true, false, true, round % 2 == 1, false}) == "");
        std::vector<bool> has_cut(world);
        std::vector<std::size_t> held(world);
        for (std::size_t bucket = 0; bucket < layout.trainable_buckets(); ++bucket) {
            bool is_cut = false;
            for (std::size_t rank = 0; rank < world; ++rank) {
                held[rank] += layout.extent(bucket, rank).size();
                layout.for_slices(bucket, layout.extent(bucket, rank), [&](Piece const& slice) {
                    auto const& spec = layout.parameter(slice.parameter);
                    if (slice.elements != spec.elements) {
                        has_cut[rank] = is_cut = true;
                        CHECK(spec.rows == 0);
                    }
                });
            }
            for (Piece const& piece : layout.pieces(bucket)) {
                CHECK((!is_cut || layout.parameter(piece.parameter).rows == 0));
            }
            spread += is_cut ? 1 : 0;
        }
        std::size_t const least = *std::min_element(held.begin(), held.end());
        for (std::size_t rank = 0; rank < world; ++rank) {
            if (has_cut[rank]) { // it was filled up to the level of the others
                CHECK(held[rank] <= least + 4 * 64);
            }
        }
    }
    CHECK(spread > 100);
}

TEST_CASE("A bucket of persistent parameters may hold spread and other ones, which stay whole") {
    LayoutOptions options{.world = 3, .buckets_inside_units = true};
    options.persistence_threshold = 1000;
    auto const layout = make_layout<WholeMatrixPartitioner, UnitBucketer>(
        {{.name = "matrix", .elements = 64, .rows = 8},
         {.name = "a", .elements = 640},
         {.name = "b", .elements = 640},
         {.name = "c", .elements = 10}},
        options);
    REQUIRE(layout.buckets() == 1);
    CHECK(layout.bucket(0).is_persistent);
    for (std::size_t rank = 0; rank < 3; ++rank) {
        layout.for_slices(0, layout.extent(0, rank), [&](Piece const& slice) {
            CHECK(slice.elements == layout.parameter(slice.parameter).elements);
        });
    }
}

namespace {

/// Says that it keeps matrices whole, and cuts like `ContiguousPartitioner`.
struct Liar : WholeMatrixPartitioner {
    static void partition(std::span<PartitionItem> items, State& /*state*/,
                          std::span<std::size_t> cuts) {
        zero::detail::cut_evenly(items, cuts);
    }
};

std::string message(std::size_t rows) {
    try {
        (void)make_layout<Liar, SingleBucketer>({{.name = "first", .elements = 640, .rows = rows}},
                                                {.world = 2});
    } catch (InvalidArgument const& error) {
        return error.what();
    }
    return "accepted";
}

} // namespace

TEST_CASE("A partitioner that cuts matrices although it says otherwise is refused by name") {
    CHECK(message(0) == "accepted");
    CHECK(message(10)
          == "zero: the partitioner keeps matrices whole, but cuts 'first' (10 rows) at 320; cut "
             "between pieces, or inside parameters that are no matrices.");
}

TEST_CASE("A model of no elements, and one of empty parameters, has a layout") {
    for (std::size_t const world : {1U, 3U}) {
        CHECK((make_layout<WholeMatrixPartitioner, SingleBucketer>({}, {.world = world}).buckets())
              == 0);
        auto const empty = make_layout<WholeMatrixPartitioner, SingleBucketer>(
            {{.name = "none", .elements = 0}, {.name = "rows", .elements = 0, .rows = 3}},
            {.world = world});
        CHECK(empty.padded_elements() == 0);
    }
}

} // namespace zero::test::whole_matrix_partitioner_test
