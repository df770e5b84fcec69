#include "families.hpp"

#include "support/catch.hpp"
#include "support/shapes.hpp"

#include <zero/layout/lease_plan.hpp>
#include <zero/layout/lease_share.hpp>
#include <zero/layout/memory_plan.hpp>

#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace zero::test::describe_leases_test {

namespace {

constexpr ElementSizes half{2, 2, 2, 4, 4, 8};
constexpr char const* other_type = "gradients lie beside their sums because the sums have another "
                                   "type\n";

StageRow row_of(int stage) {
    return stage_row(stage, default_schedule(stage));
}

/// Returns the layout that the engine makes by default.
FlatLayout layout_of(std::vector<ParameterSpec> const& model, std::size_t world, int stage) {
    return stage == 3
               ? make_layout<ContiguousPartitioner, UnitBucketer>(model, {world, 2, true})
               : make_layout<ContiguousPartitioner, SizeCappedBucketer>(model, {world, 2, false});
}

std::string text(std::vector<ParameterSpec> const& model, int stage, std::size_t world = 8,
                 Storage storage = Storage::owned, std::size_t spares = 0) {
    return describe_leases(layout_of(model, world, stage), row_of(stage), half, storage, spares);
}

std::string one_unit_text(std::string const& unit, std::string const& bytes) {
    return "all parameters lie in " + unit + ", so all leases are in flight at once (" + bytes
           + "), and no reduction overlaps with the backward pass; with a unit for each layer "
             "(.units = {layer} in the registrations) they hold about two layers, at least the "
             "largest parameter\n";
}

/// Returns the sum of the numbers of bytes of all lines that belong to a buffer.
std::size_t sum_of_lines(std::string const& lines) {
    std::istringstream stream(lines);
    std::size_t sum = 0;
    for (std::string line; std::getline(stream, line);) {
        if (line.rfind("  ", 0) == 0) {
            sum += std::stoul(line.substr(line.find(": ") + 2));
        }
    }
    return sum;
}

} // namespace

TEST_CASE("For Llama 3 8B the head and the last layer set the size of the gradient leases") {
    std::string const units =
        "  unit 33: 1.05 GB in 2 parameters, the largest is 'head' with 1.05 GB\n"
        "  unit 32: 436.22 MB in 9 parameters, the largest is 'l31.gate' with 117.44 MB\n";
    std::string const gradients = "gradient leases (1.49 GB) at their peak:\n" + units;
    CHECK(text(llama3_8b(), 0) == gradients + other_type);
    CHECK(text(llama3_8b(), 1) == gradients + other_type);
    CHECK(text(llama3_8b(), 2) == gradients);
    CHECK(text(llama3_8b(), 3)
          == gradients + "parameter leases (1.49 GB) at their peak:\n" + units);
}

TEST_CASE("The default of one unit is said to lease all of Llama 3 8B, once or twice") {
    auto const model = as_one_unit(llama3_8b());
    std::string const unit =
        "  unit 0: 16.06 GB in 291 parameters, the largest is 'embedding' with 1.05 GB\n";
    std::string const gradients = "gradient leases (16.06 GB) at their peak:\n" + unit;
    CHECK(text(model, 2) == gradients + one_unit_text("unit 0", "16.06 GB"));
    CHECK(text(model, 3)
          == gradients + "parameter leases (16.06 GB) at their peak:\n" + unit
                 + one_unit_text("unit 0", "32.12 GB"));
}

TEST_CASE("One tensor sets the size of the leases and is named, whatever its place in the model") {
    for (std::size_t const large : {0U, 3U, 6U}) {
        std::vector<std::size_t> sizes(7, 640);
        sizes[large] = 64'000;
        std::string const unit = std::to_string(large);
        for (int const stage : {2, 3}) {
            auto const lines = layout_of(model_of_sizes(sizes), 1, stage);
            CHECK_THAT(describe_leases(lines, row_of(stage), half, Storage::owned),
                       contains_text("\n  unit " + unit + ": 128.00 kB in 'p" + unit + "'\n"));
        }
    }
}

TEST_CASE("A tied parameter names the units that use it") {
    auto const layout = layout_of(gpt2_124m(), 8, 3);
    CHECK(describe_leases(layout, row_of(3), half, Storage::owned)
          == "gradient leases (105.55 MB) at their peak:\n"
             "  unit 0 and unit 13: 77.19 MB in 'wte'\n"
             "  unit 11: 14.18 MB in 12 parameters, the largest is 'h10.fc.w' with 4.72 MB\n"
             "  unit 12: 14.18 MB in 12 parameters, the largest is 'h11.fc.w' with 4.72 MB\n"
             "  padding: 1536 bytes\n"
             "parameter leases (92.94 MB) at their peak:\n"
             "  unit 0 and unit 13: 77.19 MB in 'wte'\n"
             "  unit 1: 14.18 MB in 12 parameters, the largest is 'h0.fc.w' with 4.72 MB\n"
             "  unit 0: 1.57 MB in 'wpe'\n"
             "  padding: 1024 bytes\n");
    auto model = model_of_sizes({64, 64, 64, 64, 64});
    model[0].units = {0, 1, 2, 3, 4};
    CHECK_THAT(text(model, 3, 1),
               contains_text("  unit 0 and unit 1 and unit 2 and 2 others: 128 bytes in 'p0'\n"));
}

TEST_CASE("Units are printed with their names, if they have some") {
    auto layout = layout_of(model_of_sizes({64, 64}), 1, 3);
    layout.name_units({"encoder", "head"});
    CHECK_THAT(describe_leases(layout, row_of(3), half, Storage::owned),
               contains_text("  unit 0 ('encoder'): 128 bytes in 'p0'\n"
                             "  unit 1 ('head'): 128 bytes in 'p1'\n"));
    auto one = layout_of(model_of_sizes({64, 64}, 2), 1, 2);
    one.name_units({"model"});
    CHECK_THAT(describe_leases(one, row_of(2), half, Storage::owned),
               contains_text(one_unit_text("unit 0 ('model')", "256 bytes")));
}

TEST_CASE("The sentence about one unit needs two leased parameters and goes away with units") {
    auto const says_so = [](std::vector<ParameterSpec> const& model, int stage) {
        return text(model, stage, 1).find("all parameters lie in") != std::string::npos;
    };
    auto model = model_of_sizes({64, 128}, 2);
    CHECK(says_so(model, 2));
    CHECK(says_so(model, 3));
    model[1].units = {1};
    CHECK_FALSE(says_so(model, 2));
    CHECK_FALSE(says_so(model, 3));
    CHECK_FALSE(says_so(model_of_sizes({64}), 3));
    CHECK_FALSE(says_so(model_of_sizes({64, 0}, 2), 3));
    model = model_of_sizes({64, 128}, 2);
    model[0].trainable = false;
    CHECK_FALSE(says_so(model, 2)); // one gradient
    CHECK(says_so(model, 3));       // two gathered parameters
    CHECK_THAT(text(model, 3, 1), contains_text(one_unit_text("unit 0", "384 bytes")));
}

TEST_CASE("Nothing is printed where nothing is leased") {
    auto frozen = model_of_sizes({64, 64}, 2);
    frozen[0].trainable = frozen[1].trainable = false;
    auto callers = model_of_sizes({64, 64}, 2);
    callers[0].gradient = callers[1].gradient = GradientMemory::block;
    for (auto const& model :
         {std::vector<ParameterSpec>{}, model_of_sizes({0, 0}), frozen, callers}) {
        for (int const stage : {0, 1, 2}) {
            CHECK(text(model, stage).empty());
        }
    }
    CHECK(text({}, 3).empty());
    CHECK_THAT(text(frozen, 3, 1),
               !contains_text("gradient leases") && contains_text("parameter leases (256 bytes)"));
}

TEST_CASE("Copies of caller-owned gradients and of scattered parameters name the largest tensor") {
    auto model = model_of_sizes({640, 64});
    model[0].gradient = model[1].gradient = GradientMemory::caller;
    auto const layout = make_layout<ContiguousPartitioner, UnitBucketer>(model, {1, 2, false});
    std::string const copies = "copies of caller-owned gradients (1280 bytes) at their peak:\n"
                               "  unit 0: 1280 bytes in 'p0'\n";
    CHECK(describe_leases(layout, row_of(2), half, Storage::scattered)
          == copies
                 + "parameter leases (1280 bytes) at their peak:\n"
                   "  unit 0: 1280 bytes in 'p0'\n"
                 + other_type);
    CHECK(describe_leases(layout, row_of(0), half, Storage::scattered) == copies + other_type);
    // Copies are made one bucket at a time, so one unit does not hold them all.
    for (ParameterSpec& spec : model) {
        spec.units = {0};
    }
    auto const one = make_layout<ContiguousPartitioner, ParameterBucketer>(model, {1, 2, false});
    CHECK_THAT(describe_leases(one, row_of(2), half, Storage::scattered),
               !contains_text("all parameters lie in"));
}

TEST_CASE("Only parameters of one type are described, with its sizes") {
    auto model = model_of_sizes({640, 320, 64});
    model[1].type = 1;
    auto const layout = make_layout<ContiguousPartitioner, UnitBucketer>(model, {1, 2, true, {4}});
    ElementSizes const single{4, 4, 4, 4, 0, 8};
    CHECK(describe_leases(layout, row_of(2), single, Storage::owned, 0, 1)
          == "gradient leases (1280 bytes) at their peak:\n  unit 1: 1280 bytes in 'p1'\n"
             "gradients lie beside their sums because a step may have several micro-steps; "
             ".reduction = {.one_micro_step = true} excludes that, and none is leased if both have "
             "the same type\n");
    CHECK_THAT(describe_leases(layout, row_of(2), half, Storage::owned), !contains_text("p1"));
}

TEST_CASE("Other units, padding and spare places follow the three largest units") {
    // Six units of 30 elements, padded to 64, in one bucket of 384 elements.
    CHECK(text(model_of_sizes(std::vector<std::size_t>(6, 30)), 2, 1, Storage::owned, 1)
          == "gradient leases (1536 bytes) at their peak:\n"
             "  unit 0: 60 bytes in 'p0'\n"
             "  unit 1: 60 bytes in 'p1'\n"
             "  unit 2: 60 bytes in 'p2'\n"
             "  other units: 180 bytes\n"
             "  padding: 408 bytes\n"
             "  spare places: 768 bytes\n"
                 + std::string(other_type));
}

TEST_CASE("The lines sum up to the leases of the memory plan, gaps between places included") {
    std::mt19937_64 random(11);
    std::size_t gaps = 0;
    for (int round = 0; round < 100; ++round) {
        std::vector<std::size_t> sizes(1 + random() % 10);
        for (std::size_t& size : sizes) {
            size = random() % 150;
        }
        auto model = model_of_sizes(sizes);
        for (ParameterSpec& spec : model) {
            spec.units = {random() % 4};
            if (random() % 3 == 0) {
                spec.units.push_back(4 + random() % 4);
            }
        }
        for_each_family(512, [&](auto const& family) {
            int const stage = round % 4;
            std::size_t const spares = random() % 3;
            FlatLayout const layout = family.make(model, {2, 2, stage == 3});
            auto const totals = count_layout(layout, 0, row_of(stage), Storage::owned, spares);
            std::string const lines =
                describe_leases(layout, row_of(stage), half, Storage::owned, spares);
            CHECK(sum_of_lines(lines)
                  == 2 * (totals.gradient_lease_elements + totals.parameter_lease_elements));
            gaps += lines.find("gaps between places") != std::string::npos ? 1 : 0;
        });
    }
    CHECK(gaps > 0);
}

} // namespace zero::test::describe_leases_test
