#include "families.hpp"

#include "support/catch.hpp"
#include "support/shapes.hpp"

#include <zero/layout/lease_count.hpp>

#include <algorithm>
#include <random>
#include <set>

namespace zero::test::lease_count_test {

namespace {

/// Simulates the definition: units report in the order of the layout, and a bucket is open from its
/// first unit until it may be reduced.
std::size_t simulated_open_buckets(FlatLayout const& layout, bool in_index_order) {
    std::set<std::size_t> open;
    std::set<std::size_t> reported;
    std::set<std::size_t> reduced;
    auto const is_complete = [&](std::size_t bucket) {
        for (Piece const& piece : layout.pieces(bucket)) {
            for (std::size_t const unit : layout.parameter(piece.parameter).units) {
                if (reported.count(unit) == 0) {
                    return false;
                }
            }
        }
        return true;
    };
    std::size_t most = 0;
    for (std::size_t const unit : layout.unit_order()) {
        for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
            for (Piece const& piece : layout.pieces(bucket)) {
                auto const& units = layout.parameter(piece.parameter).units;
                if (layout.bucket(bucket).trainable
                    && std::find(units.begin(), units.end(), unit) != units.end()) {
                    open.insert(bucket);
                }
            }
        }
        most = std::max(most, open.size());
        reported.insert(unit);
        for (std::size_t bucket = 0; bucket < layout.trainable_buckets(); ++bucket) {
            if (is_complete(bucket)) {
                open.erase(bucket);
            } else if (in_index_order) {
                break;
            }
        }
    }
    return most;
}

FlatLayout gpt2(std::size_t mebibytes, std::size_t element_bytes, test::Head head,
                bool is_inside_units = false) {
    return make_layout<ContiguousPartitioner, SizeCappedBucketer>(
        test::gpt2_124m(head), {2, element_bytes, is_inside_units}, {mebibytes << 20U});
}

} // namespace

TEST_CASE("GPT-2 124M with a tied head has 3, 4 and 10 float buckets open at once at caps of 100, "
          "25 and 1 MiB") {
    CHECK(most_open_buckets(gpt2(100, 4, test::Head::tied), true) == 3);
    CHECK(most_open_buckets(gpt2(25, 4, test::Head::tied), true) == 4);
    CHECK(most_open_buckets(gpt2(1, 4, test::Head::tied), true) == 10);
    CHECK(most_open_buckets(gpt2(25, 2, test::Head::tied), true) == 3);
    // The tied embedding is open from the first to the last unit. A separate head is reduced at
    // once.
    CHECK(most_open_buckets(gpt2(100, 4, test::Head::separate), true) == 2);
    CHECK(most_open_buckets(gpt2(25, 4, test::Head::separate), true) == 3);
    CHECK(most_open_buckets(gpt2(1, 4, test::Head::separate), true) == 9);
}

TEST_CASE("GPT-2 124M with buckets inside units has 2, 3 and 10 float buckets open at once at caps "
          "of 100, 25 and 1 MiB") {
    CHECK(most_open_buckets(gpt2(100, 4, test::Head::tied, true), false) == 2);
    CHECK(most_open_buckets(gpt2(25, 4, test::Head::tied, true), false) == 3);
    CHECK(most_open_buckets(gpt2(1, 4, test::Head::tied, true), false) == 10);
    CHECK(most_buckets_of_a_unit(gpt2(100, 4, test::Head::tied, true))
          == 2); // embeddings: wte is tied, wpe is not
    CHECK(most_buckets_of_a_unit(gpt2(1, 4, test::Head::tied, true)) == 9); // one transformer block
}

TEST_CASE(
    "A bucket stays open until all before it are complete if reductions keep the index order") {
    // Bucket 0 belongs to the unit that reports last: everything stays open until then.
    auto model = test::model_of_sizes({10, 10, 10});
    model[0].units = {1};
    model[1].units = {2};
    model[2].units = {0};
    auto const layout = make_layout<ContiguousPartitioner, UnitBucketer>(model, {2, 4, true});
    CHECK(most_open_buckets(layout, true) == 3);
    CHECK(most_open_buckets(layout, false) == 1);
}

TEST_CASE("The number of open buckets equals a simulation for random models and unit orders") {
    std::mt19937_64 random(99);
    for (int round = 0; round < 500; ++round) {
        std::vector<std::size_t> sizes(1 + random() % 12);
        for (std::size_t& size : sizes) {
            size = random() % 300;
        }
        auto model = test::model_of_sizes(sizes);
        for (ParameterSpec& spec : model) {
            spec.units = {random() % 5};
            if (random() % 4 == 0) {
                spec.units.push_back(5 + random() % 3);
            }
            spec.trainable = random() % 5 != 0;
        }
        std::vector<std::size_t> order;
        for (std::size_t unit = 0; round % 2 == 0 && unit < FlatLayout(model, 1, {}).units();
             ++unit) {
            order.insert(order.begin() + static_cast<std::ptrdiff_t>(random() % (order.size() + 1)),
                         unit);
        }
        test::for_each_family(2048, [&](auto const& family) {
            for (bool const is_inside : {false, true}) {
                FlatLayout const layout = family.make(model, {3, 4, is_inside, {}, order});
                CHECK(most_open_buckets(layout, true) == simulated_open_buckets(layout, true));
                CHECK(most_open_buckets(layout, false) == simulated_open_buckets(layout, false));
            }
        });
    }
}

TEST_CASE("Models without trainable parameters have no open bucket") {
    auto model = test::model_of_sizes({10, 20});
    model[0].trainable = model[1].trainable = false;
    auto const layout = make_layout<ContiguousPartitioner, UnitBucketer>(model, {2, 4, true});
    CHECK(most_open_buckets(layout, true) == 0);
    CHECK(most_open_buckets(layout, false) == 0);
    CHECK(most_buckets_of_a_unit(layout) == 1);
    CHECK(largest_bucket(layout, layout.trainable_buckets()) == 0);
    CHECK(largest_bucket(layout, layout.buckets()) == 128);
}

} // namespace zero::test::lease_count_test
