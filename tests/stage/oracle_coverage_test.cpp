#include "support/catch.hpp"

#include "oracle/driver.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

// The random configurations reach everything they should. The other executables run the same ones,
// because configurations are a function of the seed, and count their runs.

using namespace zero::test::oracle;

namespace {

using Counts = std::map<std::string, std::size_t>;

bool has_size(Configuration const& c, std::size_t elements) {
    return std::any_of(c.shapes.begin(), c.shapes.end(), [&](Shape const& shape) {
        return shape.trainable && shape.elements == elements;
    });
}

bool is_prime(std::size_t number) {
    for (std::size_t divisor = 2; divisor * divisor <= number; ++divisor) {
        if (number % divisor == 0) {
            return false;
        }
    }
    return number > 1;
}

template <std::size_t N>
void count_choices(Counts& counts, char const* axis, std::array<char const*, N> const& names,
                   std::size_t value) {
    for (std::size_t i = 0; i < N; ++i) {
        counts[std::string(axis) + ": " + names[i]] += i == value ? 1 : 0;
    }
}

void count_flag(Counts& counts, char const* name, bool holds) {
    counts[std::string(name) + ": no"] += holds ? 0 : 1;
    counts[std::string(name) + ": yes"] += holds ? 1 : 0;
}

void count_policies(Counts& counts, Row const& row) {
    constexpr std::array types{"float", "bfloat16", "float16"};
    count_choices(counts, "partitioner",
                  std::array{"contiguous", "round-robin", "whole group", "dealt group",
                             "per tensor", "balanced"},
                  static_cast<std::size_t>(row.partition));
    count_choices(counts, "bucketer", std::array{"size-capped", "unit", "single", "parameter"},
                  static_cast<std::size_t>(row.bucketing));
    count_choices(counts, "parameter type", types, static_cast<std::size_t>(row.parameter));
    count_choices(counts, "gradient type", types, static_cast<std::size_t>(row.gradient));
    count_choices(counts, "communication type", types, static_cast<std::size_t>(row.communication));
    count_choices(counts, "accumulation type", types, static_cast<std::size_t>(row.accumulation));
    count_choices(counts, "scaler", std::array{"none", "static", "dynamic"},
                  static_cast<std::size_t>(row.scaler));
    count_choices(counts, "optimizer", std::array{"AdamW", "SGD", "products"},
                  static_cast<std::size_t>(row.rule));
    count_choices(counts, "master weights",
                  std::array{"none", "float", "float16", "split", "stochastic"},
                  static_cast<std::size_t>(row.master));
    count_choices(counts, "states", std::array{"float", "bfloat16", "scaled"},
                  static_cast<std::size_t>(row.states));
}

void count_model(Counts& counts, Configuration const& c) {
    for (std::size_t world = 1; world <= 8; ++world) {
        counts["world " + std::to_string(world)] += c.world == world ? 1 : 0;
    }
    for (std::size_t const cap :
         {std::size_t{1}, std::size_t{64}, std::size_t{128}, std::size_t{200}, std::size_t{256},
          std::size_t{512}, std::size_t{1} << 20U}) {
        counts["bucket of " + std::to_string(cap)] +=
            c.types().bucketing == Bucketing::size_capped && c.cap_elements == cap ? 1 : 0;
    }
    counts["size 0"] += has_size(c, 0) ? 1 : 0;
    counts["size 1"] += has_size(c, 1) ? 1 : 0;
    counts["size 63, 64 or 65"] += has_size(c, 63) || has_size(c, 64) || has_size(c, 65) ? 1 : 0;
    counts["prime size"] += std::any_of(c.shapes.begin(), c.shapes.end(),
                                        [](Shape const& shape) { return is_prime(shape.elements); })
                                ? 1
                                : 0;
    counts["large size"] += std::any_of(c.shapes.begin(), c.shapes.end(),
                                        [](Shape const& shape) { return shape.elements >= 700; })
                                ? 1
                                : 0;
    bool const has_cap = c.types().bucketing == Bucketing::size_capped;
    counts["one less than a bucket"] += has_cap && has_size(c, c.cap_elements - 1) ? 1 : 0;
    counts["as large as a bucket"] += has_cap && has_size(c, c.cap_elements) ? 1 : 0;
    counts["one more than a bucket"] += has_cap && has_size(c, c.cap_elements + 1) ? 1 : 0;
    for (std::size_t units = 1; units <= 5; ++units) {
        counts["units: " + std::to_string(units)] += c.units == units ? 1 : 0;
    }
    counts["units: more"] += c.units > 5 ? 1 : 0;
    counts["frozen"] += std::any_of(c.shapes.begin(), c.shapes.end(),
                                    [](Shape const& shape) { return !shape.trainable; })
                            ? 1
                            : 0;
    counts["tied twice"] += std::any_of(c.shapes.begin(), c.shapes.end(),
                                        [](Shape const& shape) { return shape.units.size() == 2; })
                                ? 1
                                : 0;
    counts["tied three times"] +=
        std::any_of(c.shapes.begin(), c.shapes.end(),
                    [](Shape const& shape) { return shape.units.size() == 3; })
            ? 1
            : 0;
    for (std::size_t tiles = 2; tiles <= 4; ++tiles) {
        counts["tiles: " + std::to_string(tiles)] +=
            std::any_of(c.shapes.begin(), c.shapes.end(),
                        [&](Shape const& shape) { return shape.tiles == tiles; })
                ? 1
                : 0;
    }
    counts["groups: " + std::to_string(c.groups.size())] += 1;
    count_flag(counts, "groups listed", c.lists_groups);
    counts["learning rate factor changed"] += c.changes.empty() ? 0 : 1;
}

void count_numbers(Counts& counts, Configuration const& c) {
    count_choices(counts, "schedule", std::array{"boundary", "every micro-step"},
                  static_cast<std::size_t>(c.schedule));
    count_choices(counts, "combine", std::array{"mean", "sum", "mean over ranks"},
                  static_cast<std::size_t>(c.combine));
    count_flag(counts, "predivide given", c.predivide.has_value());
    for (std::size_t micro_steps = 1; micro_steps <= 4; ++micro_steps) {
        counts["micro-steps: " + std::to_string(micro_steps)] +=
            !c.has_varying_micro_steps && c.micro_steps == micro_steps ? 1 : 0;
    }
    counts["one micro-step promised"] += c.promises_one ? 1 : 0;
    counts["micro-steps vary"] += c.has_varying_micro_steps ? 1 : 0;
    count_flag(counts, "clip asked for", c.clip.has_value());
    count_flag(counts, "limit of the norm", c.norm_limit.has_value());
    count_flag(counts, "multiple of the running norm", c.norm_factor.has_value());
    count_flag(counts, "zeros counted", c.reports_zeros);
    count_flag(counts, "norms of groups", c.reports_groups);
    if (c.types().scaler == Scaler::none) {
        count_choices(counts, "without a scaler", std::array{"skip", "step"},
                      static_cast<std::size_t>(c.on_non_finite));
    }
    for (auto const& injection : c.injections) {
        count_choices(counts, "injected", std::array{"infinity", "negative infinity", "NaN"},
                      static_cast<std::size_t>(injection.value));
    }
}

void count_calls(Counts& counts, Configuration const& c) {
    count_choices(counts, "compute queue", std::array{"inline", "threaded", "delaying"},
                  static_cast<std::size_t>(c.compute));
    count_choices(counts, "communication queue",
                  std::array{"own", "inline", "threaded", "delaying"},
                  static_cast<std::size_t>(c.communication));
    count_choices(counts, "storage", std::array{"owned", "adopted", "scattered"},
                  static_cast<std::size_t>(c.memory));
    if (c.memory == Memory::adopted) {
        count_flag(counts, "adopted block aligned", c.has_aligned_block);
    }
    count_choices(counts, "gradient memory",
                  std::array{"engine", "the caller's", "handed over", "mixed"},
                  static_cast<std::size_t>(c.gradient_memory));
    count_choices(counts, "micro-step calls", std::array{"range", "announced", "unannounced"},
                  static_cast<std::size_t>(c.micro_step_calls));
    count_choices(counts, "ready order", std::array{"reverse", "shuffled", "fixed"},
                  static_cast<std::size_t>(c.order));
    if (c.has_unused) {
        count_flag(counts, "unused units reported", c.reports_unused);
    }
    count_flag(counts, "uninitialised gradients", c.writes_all);
    count_flag(counts, "handles held", c.holds_handles);
    count_flag(counts, "evaluates", c.evaluates);
    counts["evaluates on another queue"] += c.evaluates_elsewhere ? 1 : 0;
    count_flag(counts, "poison", c.is_poisoned);
    count_flag(counts, "prefetch", c.prefetches);
    count_flag(counts, "prefetch by elements", c.prefetch_elements.has_value());
    count_flag(counts, "persistent parameters", c.persistence_threshold != 0);
    count_flag(counts, "most persistent elements", c.max_persistent_elements != ~std::size_t{0});
    count_flag(counts, "reuse distance", c.max_reuse_distance.has_value());
    count_choices(counts, "kept after forward", std::array{"none", "some", "all"},
                  c.kept_units == 0        ? std::size_t{0}
                  : c.kept_units > c.units ? 2U
                                           : 1U);
    count_flag(counts, "kept until the update", c.keep_until_update != 0);
    count_flag(counts, "gathers apart", c.gathers_apart);
    count_flag(counts, "live elements limited", c.limits_live);
    count_flag(counts, "update in tiles", c.update_tile_elements != 0);
    count_flag(counts, "cancelled step", c.cancels);
    count_flag(counts, "buckets rebuilt", c.rebuilds);
    count_flag(counts, "several types", c.types().has_floats);
    counts["initialised by a function"] += c.fills_by_function ? 1 : 0;
}

/// Counts events that must be frequent. Some follow from the configuration; the others depend on
/// numbers and follow from the oracle's history.
void count_events(Counts& counts, Configuration const& c, History const& history) {
    std::size_t elements = 0;
    bool has_padding = false;
    for (auto const& shape : c.shapes) {
        elements += shape.trainable ? shape.elements : 0;
        has_padding =
            has_padding
            || (shape.trainable && shape.elements % 64 != 0 && c.memory != Memory::adopted);
    }
    bool has_unused = false;
    for (std::size_t step = 0; step < c.all_steps(); ++step) {
        for (std::size_t rank = 0; rank < c.world; ++rank) {
            for (std::size_t unit = 0; unit < c.units; ++unit) {
                has_unused = has_unused || is_unused(c, step, 0, rank, unit);
            }
        }
    }
    bool is_clipped = false;
    bool is_skipped = false;
    bool is_too_large = false;
    bool goes_on = false; // after a step that was too large
    for (std::size_t step = 1; step < history.snapshots.size(); ++step) {
        Report const& report = history.snapshots[step].report;
        is_clipped = is_clipped || (report.coefficient < 1.0F && !report.is_skipped);
        is_skipped = is_skipped || report.is_skipped;
        goes_on = goes_on || (is_too_large && !report.is_skipped);
        is_too_large = is_too_large || report.is_too_large;
    }
    counts["padding"] += has_padding ? 1 : 0;
    counts["fewer elements than ranks"] += elements < c.world ? 1 : 0;
    counts["unused"] += has_unused ? 1 : 0;
    counts["clipped"] += is_clipped ? 1 : 0;
    counts["skipped"] += is_skipped ? 1 : 0;
    counts["too large"] += is_too_large ? 1 : 0;
    counts["not skipped after one that was too large"] += goes_on ? 1 : 0;
}

} // namespace

TEST_CASE("The random configurations reach every value of every axis", "[oracle]") {
    Plan const plan = Plan::from_environment();
    std::cout << "oracle: seed " << plan.seed << ", " << plan.configurations << " configurations\n";
    if (plan.configurations < Plan::full || plan.only) {
        std::cout << "skipped: coverage is asserted for " << Plan::full
                  << " configurations or more\n";
        SUCCEED("nothing to assert");
        return;
    }
    Counts values;
    Counts events;
    std::size_t stage_runs = 0;
    std::size_t unchanged = 0;
    for (std::size_t index = 0; index < plan.configurations; ++index) {
        Configuration const c = make_configuration(plan.seed, index);
        History const history = compute_history(c);
        count_policies(values, c.types());
        count_model(values, c);
        count_numbers(values, c);
        count_calls(values, c);
        count_events(events, c, history);
        stage_runs += is_legal(3, c) ? 1 : 0;
        unchanged += history.snapshots.back().step_count == 0 ? 1 : 0;
        CHECK(c.steps >= 5);
    }
    for (auto const& [value, count] : values) {
        CAPTURE(value);
        CHECK(count >= 20);
    }
    for (auto const& [event, count] : events) {
        CAPTURE(event);
        CHECK(count >= 50);
    }
    CHECK(events.size() == 7);
    CHECK(values.size() >= 110);
    CHECK(stage_runs >= 100); // stage 3
    CHECK(unchanged * 10 < plan.configurations);
}

TEST_CASE("A block of gradients gets the micro-steps that it takes, also if it is one of several "
          "kinds of memory and the only tensor",
          "[oracle]") {
    std::size_t blocks = 0;
    for (std::size_t index = 0; index < 6000; ++index) {
        Configuration const c = make_configuration(777, index);
        bool const is_block = reduces_in_block(c);
        blocks += is_block && c.gradient_memory == GradientMemory::mixed ? 1 : 0;
        CAPTURE(index);
        CHECK((!is_block || may_reduce_in_block(c)));
    }
    CHECK(blocks != 0); // such as take them
    CHECK(make_configuration(777, 5980).gradient_memory == GradientMemory::handed_over);
}

TEST_CASE("Each row of policies is run by exactly one executable", "[oracle]") {
    std::string sources;
    for (auto const& entry :
         std::filesystem::directory_iterator(std::string(ZERO_SOURCE_DIR) + "/tests/stage")) {
        if (entry.path().extension() == ".cpp"
            && entry.path().filename() != "oracle_coverage_test.cpp") {
            std::ifstream file(entry.path());
            sources.append(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
        }
    }
    for (std::size_t row = 0; row < generated_rows; ++row) {
        std::string const call = "run_row<" + std::to_string(row) + ">()";
        std::size_t const first = sources.find(call);
        CAPTURE(call);
        CHECK(first != std::string::npos);
        CHECK(sources.find(call, first + 1) == std::string::npos);
    }
}

TEST_CASE("The oracle's functions do what their definitions say", "[oracle]") {
    SECTION("the divisor of float16 payloads is a power of two near sqrt(W)") {
        Configuration c;
        c.row = 9;
        std::array<float, 8> const expected{1.0F, 1.0F, 2.0F, 2.0F, 2.0F, 2.0F, 2.0F, 2.0F};
        for (c.world = 1; c.world <= 8; ++c.world) {
            CHECK(predivide_of(c) == expected[c.world - 1]);
        }
        c.row = 0;
        CHECK(predivide_of(c) == 1.0F);
    }
    SECTION("the exact sum adds without rounding") {
        ExactSum sum;
        for (double const value : {0x1p-298, 0x1p-20, 0x1p200, 0x1.8p-290}) {
            sum.add(value);
        }
        CHECK(sum.value() == 0x1p200);
        ExactSum small;
        for (int i = 0; i < 1000; ++i) {
            small.add(0x1p-298);
            small.add(0x1.fffffffffffffp-240);
        }
        long double const expected = 1000.0L * 0x1.fffffffffffffp-240L + 1000.0L * 0x1p-298L;
        CHECK(std::abs(static_cast<long double>(small.value()) - expected) <= 0x1p-52L * expected);
    }
    SECTION("AdamW's first step is the learning rate, against the gradient") {
        Configuration c;
        float value = 1.0F;
        float first = 0.0F;
        float second = 0.0F;
        update_element(c, {.weight_decay = 0.0}, 0.125, 1, -3.0F, value, first, second);
        CHECK(value == zero::test::Approx(1.125F).epsilon(1e-6));
    }
}
