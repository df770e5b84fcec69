#include "support/catch.hpp"

#include <zero/core/error.hpp>
#include <zero/layout/communication_model.hpp>
#include <zero/layout/contiguous_partitioner.hpp>
#include <zero/layout/lease_plan.hpp>
#include <zero/layout/lease_share.hpp>
#include <zero/layout/make_layout.hpp>
#include <zero/layout/size_capped_bucketer.hpp>

#include <cstddef>
#include <random>
#include <string>
#include <vector>

// Buckets, leases and traffic of stage 3 under the options of gathers, without an engine.

namespace zero::test::gather_plan_test {

namespace {

constexpr StageRow row = stage_table[3];

FlatLayout make(std::vector<ParameterSpec> const& specs, std::size_t world,
                GatherOptions const& gather) {
    return make_layout<ContiguousPartitioner, UnitBucketer>(
        specs, {.world = world,
                .buckets_inside_units = true,
                .persistence_threshold = gather.persistence_threshold,
                .max_persistent_elements = gather.max_persistent_elements,
                .keep_until_update = gather.keep_until_update});
}

std::vector<ParameterSpec> chain(std::vector<std::size_t> const& elements) {
    std::vector<ParameterSpec> specs;
    for (std::size_t unit = 0; unit < elements.size(); ++unit) {
        specs.push_back({std::to_string(unit), elements[unit], {unit}, 0, true});
    }
    return specs;
}

std::size_t elements(std::vector<ParameterSpec> const& specs, GatherOptions const& gather,
                     std::size_t world = 1) {
    return plan_parameter_leases(make(specs, world, gather), row, Storage::owned, 0, 0, gather)
        .elements;
}

} // namespace

TEST_CASE("Persistent parameters of all units lie in one bucket for trainable and one for frozen "
          "ones") {
    std::vector<ParameterSpec> const specs{{"a", 640, {0}, 0, true}, {"b", 64, {0}, 0, true},
                                           {"c", 640, {1}, 0, true}, {"d", 65, {1}, 0, true},
                                           {"e", 64, {1}, 0, false}, {"f", 1, {0, 1}, 0, true},
                                           {"g", 0, {1}, 0, true}};
    auto const layout = make(specs, 1, {.persistence_threshold = 64});
    std::vector<std::string> names;
    for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
        std::string name = layout.bucket(bucket).is_persistent ? "persistent:" : "";
        for (Piece const& piece : layout.pieces(bucket)) {
            name += layout.parameter(piece.parameter).name;
        }
        names.push_back(name);
    }
    CHECK((names == std::vector<std::string>{"gdc", "a", "persistent:fb", "persistent:e"}));
    CHECK(layout.trainable_buckets() == 3);
    // Parameters are taken in registration order. One that would exceed the cap is left out.
    auto const capped =
        make(specs, 1, {.persistence_threshold = 65, .max_persistent_elements = 70});
    std::size_t persistent = 0;
    for (std::size_t bucket = 0; bucket < capped.buckets(); ++bucket) {
        if (capped.bucket(bucket).is_persistent) {
            for (Piece const& piece : capped.pieces(bucket)) {
                persistent += piece.elements;
            }
        }
    }
    CHECK(persistent == 64 + 1); // b and f; d and e would exceed it
}

TEST_CASE("Leases hold what is gathered in advance and kept, and a limit reduces them") {
    auto const specs = chain({640, 128, 256, 128});
    CHECK(elements(specs, {}) == 768);
    CHECK(elements(specs, {.prefetch_elements = 0}) == 768); // two units may be held
    CHECK(elements(specs, {.prefetch_elements = 384}) == 1024);
    CHECK(elements(specs, {.prefetch_elements = 10'000}) == 1152);
    CHECK(elements(specs, {.keep_after_forward = 1}) == 768);
    CHECK(elements(specs, {.keep_after_forward = GatherOptions::all}) == 1152);
    CHECK(elements(specs, {.max_reuse_distance = 0}) == 768);
    CHECK(elements(specs, {.max_live_elements = 640}) == 640);
    CHECK(elements(specs, {.max_live_elements = 700}) <= 700);
    CHECK(elements(specs, {.prefetch_elements = 384, .max_live_elements = 1000}) <= 1000);
    CHECK(elements(specs, {.persistence_threshold = 128}) == 640 + 256);
    CHECK(elements(specs, {.keep_until_update = GatherOptions::all}) == 1152);
    CHECK(elements(specs, {.keep_until_update = 640}) == 640 + 128 + 256);
    CHECK_THROWS_AS(elements(specs, {.keep_until_update = 640, .max_live_elements = 895}),
                    InvalidArgument);
    try {
        (void)elements(specs, {.keep_until_update = 640, .max_live_elements = 639});
        CHECK(false);
    } catch (InvalidArgument const& error) { // smaller units would not help
        CHECK(std::string(error.what()).find("lower keep_until_update") != std::string::npos);
    }
    CHECK(elements(specs, {.keep_until_update = 640, .max_live_elements = 896}) == 896);
    CHECK_THROWS_AS(elements(specs, {.max_live_elements = 639}), InvalidArgument);
    CHECK_THROWS_AS(elements(specs, {.persistence_threshold = 128, .max_live_elements = 895}),
                    InvalidArgument);
    CHECK(elements(specs, {.persistence_threshold = 128, .max_live_elements = 896}) == 896);
}

TEST_CASE("A unit is not kept past a unit that does not fit beside it, and others still overlap") {
    // Acquired are 0, 1, 2, 1, 2, 0. Units 1 and 2 exceed the limit together, 0 and 2 do not.
    auto const layout = make_layout<ContiguousPartitioner, UnitBucketer>(
        chain({64, 192, 320}), {.buckets_inside_units = true, .unit_order = {1, 2, 0}});
    GatherOptions const gather{.max_reuse_distance = 1000, .max_live_elements = 448};
    auto const plan = plan_parameter_leases(layout, row, Storage::owned, 0, 0, gather);
    CHECK(plan.elements == 320 + 64); // one unit at a time would take 320
}

TEST_CASE("In random models no plan exceeds the limit, and one that is larger than all changes "
          "nothing") {
    std::mt19937_64 random(7);
    for (int round = 0; round < 300; ++round) {
        std::vector<std::size_t> sizes;
        for (std::size_t unit = 1 + random() % 12; unit-- > 0;) {
            sizes.push_back(random() % 900);
        }
        auto specs = chain(sizes);
        for (ParameterSpec& spec : specs) {
            if (random() % 4 == 0 && spec.units[0] + 1 < specs.size()) {
                spec.units.push_back(spec.units[0] + 1);
            }
        }
        GatherOptions gather;
        gather.prefetch_elements = random() % 2000;
        gather.persistence_threshold = random() % 3 == 0 ? random() % 200 : 0;
        gather.keep_after_forward = random() % 4;
        gather.keep_until_update = random() % 3 == 0 ? random() % 3000 : 0;
        std::size_t const free = elements(specs, gather, 2);
        gather.max_live_elements = 1'000'000;
        CHECK(elements(specs, gather, 2) == free);
        std::size_t refused = 0;
        for (std::size_t limit = 128; limit <= free + 128; limit += 128) {
            gather.max_live_elements = limit;
            try {
                std::size_t const limited = elements(specs, gather, 2);
                CHECK(limited <= limit);
                CHECK(refused < limit);
            } catch (InvalidArgument const&) {
                CHECK(refused + 128 == limit); // every smaller limit was refused as well
                refused = limit;
            }
        }
        CHECK(refused < free + 128);
    }
}

TEST_CASE("Persistent and kept parameters reduce the traffic of stage 3 as the formula says") {
    auto const specs = chain({640, 128, 256, 128});
    std::vector<std::size_t> const acquired{0, 1, 2, 3, 3, 2, 1, 0, 0, 1, 2, 3, 3, 2, 1, 0};
    auto const gathered = [&](GatherOptions const& gather) {
        return step_traffic(make(specs, 2, gather), 3, ReductionSchedule::every_micro_step, 2,
                            acquired, gather)
            .all_gather;
    };
    std::uint64_t const p = 1152;
    CHECK(gathered({}) == 4 * p);
    CHECK(gathered({.keep_after_forward = 1}) == 4 * p - 2 * 128);
    CHECK(gathered({.keep_after_forward = 2}) == 4 * p - 2 * (128 + 256));
    CHECK(gathered({.keep_after_forward = GatherOptions::all}) == 2 * p);
    CHECK(gathered({.max_reuse_distance = 255}) == 4 * p - 2 * 128);
    CHECK(gathered({.max_reuse_distance = 256}) == 4 * p - 2 * (128 + 256));
    CHECK(gathered({.persistence_threshold = 128}) == 4 * (p - 256) + 256);
    CHECK(gathered({.persistence_threshold = 1000}) == p);
    CHECK(gathered({.keep_until_update = GatherOptions::all}) == p);
    CHECK(gathered({.keep_until_update = 767}) == 4 * p - 3 * 640); // unit 1 does not fit
    CHECK(gathered({.keep_until_update = 768}) == 4 * p - 3 * (640 + 128));
    CHECK(gathered({.keep_until_update = 639}) == 4 * p);
    // The elements of persistent parameters do not count.
    CHECK(gathered({.persistence_threshold = 128, .keep_until_update = 896}) == p);
}

} // namespace zero::test::gather_plan_test
