#include "stage/mixed_model.hpp"

#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <zero/stage/zero_stage.hpp>

#include <string>
#include <vector>

// The text of an engine's memory names what sets the size of its leases.

namespace zero::test::describe_memory_test {

namespace {

/// Returns the text of rank 0 of two, and checks that it begins with the memory plan.
template <class Stage>
std::string leases_of(std::vector<Parameter<float>> const& parameters,
                      typename Stage::Options const& options = {}) {
    return on_ranks<std::string>(2, [&](LoopbackCommunicator& communicator) {
        Stage const engine(communicator, parameters, options);
        std::string const plan = to_string(engine.memory_plan());
        std::string const text = engine.describe_memory();
        return text.substr(0, plan.size()) == plan ? text.substr(plan.size()) : "no plan: " + text;
    })[0];
}

std::string const one_unit = "all parameters lie in unit 0, so all leases are in flight at once (";

} // namespace

TEST_CASE("An engine names the units and tensors that set the size of its leases") {
    std::vector<Parameter<float>> const parameters{
        {.name = "embedding", .elements = 1280, .units = {0}},
        {.name = "layer", .elements = 256, .units = {1}},
        {.name = "bias", .elements = 64, .units = {2}},
        {.name = "head", .elements = 128, .units = {2}}};
    std::string const gradients = "gradient leases (6144 bytes) at their peak:\n"
                                  "  unit 0 ('input'): 5120 bytes in 'embedding'\n"
                                  "  unit 1 ('layer'): 1024 bytes in 'layer'\n";
    CHECK(leases_of<ZeroStage<2, UnitBucketer>>(parameters,
                                                {.unit_names = {"input", "layer", "output"}})
          == gradients);
    CHECK(leases_of<ZeroStage<3>>(parameters, {.unit_names = {"input", "layer", "output"}})
          == gradients + "parameter" + gradients.substr(gradients.find(' ')));
    CHECK(leases_of<ZeroStage<3>>(parameters, {.extra_leases = 1})
          == "gradient leases (11.26 kB) at their peak:\n"
             "  unit 0: 5120 bytes in 'embedding'\n"
             "  unit 1: 1024 bytes in 'layer'\n"
             "  spare places: 5120 bytes\n"
             "parameter leases (11.26 kB) at their peak:\n"
             "  unit 0: 5120 bytes in 'embedding'\n"
             "  unit 1: 1024 bytes in 'layer'\n"
             "  spare places: 5120 bytes\n");
}

TEST_CASE("An engine says what the default of one unit costs, in every stage that leases") {
    std::vector<Parameter<float>> parameters{{.name = "weight", .elements = 1280},
                                             {.name = "bias", .elements = 128}};
    std::string const leases = "gradient leases (5632 bytes) at their peak:\n"
                               "  unit 0: 5632 bytes in 2 parameters, the largest is 'weight' with "
                               "5120 bytes\n";
    CHECK_THAT(leases_of<ZeroStage<0>>(parameters),
               contains_text(leases + one_unit + "5632 bytes)"));
    CHECK_THAT(leases_of<ZeroStage<1>>(parameters),
               contains_text(leases + one_unit + "5632 bytes)"));
    CHECK_THAT(leases_of<ZeroStage<2>>(parameters),
               contains_text(leases + one_unit + "5632 bytes)"));
    CHECK_THAT(leases_of<ZeroStage<3>>(parameters), contains_text(one_unit + "11.26 kB)"));
    parameters[1].units = {1};
    CHECK_THAT(leases_of<ZeroStage<2>>(parameters), !contains_text(one_unit));
    parameters.pop_back();
    CHECK(leases_of<ZeroStage<2>>(parameters)
          == "gradient leases (5120 bytes) at their peak:\n  unit 0: 5120 bytes in 'weight'\n");
}

TEST_CASE("An engine without leases prints its memory plan only") {
    CHECK(
        leases_of<ZeroStage<2>>({{.name = "frozen", .elements = 128, .trainable = false}}).empty());
    CHECK(leases_of<ZeroStage<2>>({{.name = "empty", .elements = 0}}).empty());
    auto const leases = on_ranks<std::string>(1, [](LoopbackCommunicator& communicator) {
        std::vector<float> values(256);
        std::vector<float> gradients(256);
        std::vector<Parameter<float>> const parameters{
            {.name = "a", .data = values.data(), .elements = 128, .gradient = gradients.data()},
            {.name = "b",
             .data = values.data() + 128,
             .elements = 128,
             .gradient = gradients.data() + 128}};
        ZeroStage<1> const engine(communicator, parameters,
                                  {.storage = Storage::adopted, .adopted_block = values});
        return engine.describe_memory().substr(to_string(engine.memory_plan()).size());
    });
    CHECK(leases[0].empty());
}

TEST_CASE("A rank that holds the sums of all gradients says why others are leased beside them") {
    auto const text = []<class Stage>(int world, bool one_micro_step,
                                      Storage storage = Storage::owned) {
        return on_ranks<std::string>(world, [&](LoopbackCommunicator& communicator) {
            using T = typename Stage::ParameterType;
            std::vector<T> values(1000);
            Parameter<T> parameter{.name = "weight", .elements = 1000};
            typename Stage::Options options{.storage = storage,
                                            .bucketer = {.bucket_bytes = 1024},
                                            .reduction = {.one_micro_step = one_micro_step}};
            if (storage == Storage::adopted) {
                parameter.data = values.data();
                options.adopted_block = std::span<T>(values);
            }
            Stage const engine(communicator, {parameter}, options);
            return engine.describe_memory().substr(to_string(engine.memory_plan()).size());
        })[0];
    };
    auto const reason = contains_text("\ngradients lie beside their sums because ");
    auto const promise = contains_text("because a step may have several micro-steps; .reduction = "
                                       "{.one_micro_step = true} excludes that");
    using Half = ZeroStage<2, Parameters<bfloat16>>;
    CHECK_THAT(text.operator()<ZeroStage<2>>(1, false), reason && promise);
    CHECK_THAT(text.operator()<ZeroStage<1>>(2, false), reason && promise);
    CHECK_THAT(text.operator()<ZeroStage<2>>(2, false), !reason);
    CHECK(text.operator()<ZeroStage<2>>(1, true).empty());
    CHECK(text.operator()<ZeroStage<1>>(2, true).empty());
    for (bool const one_micro_step : {false, true}) {
        CHECK_THAT(text.operator()<Half>(1, one_micro_step),
                   reason && contains_text("because the sums have another type\n"));
        CHECK_THAT(text.operator()<ZeroStage<2>>(1, one_micro_step, Storage::adopted),
                   reason && contains_text("in several buckets are written as a whole\n"));
    }
}

TEST_CASE("With several parameter types the leases of each type have a heading") {
    auto const text = on_ranks<std::string>(1, [](LoopbackCommunicator& communicator) {
        mixed::Mixed<2, UnitBucketer> const engine(
            communicator,
            mixed::mixed_registration<AnyParameter>([](std::size_t) { return true; }));
        return engine.describe_memory();
    })[0];
    CHECK_THAT(text, contains_text("bfloat16 parameters:\ngradient leases (")
                         && contains_text("float32 parameters:\ngradient leases (")
                         && contains_text("'first.weight'\n") && contains_text("'third.weight'\n"));
}

TEST_CASE("After a rebuild of the buckets the text follows the new order of units") {
    // Units finish in the order 0, 2, 1, so the two large ones are in flight together.
    auto const texts =
        on_ranks<std::vector<std::string>>(1, [](LoopbackCommunicator& communicator) {
            using Stage = ZeroStage<2, UnitBucketer>;
            std::vector<Parameter<float>> const parameters{
                {.name = "first", .elements = 640, .units = {0}},
                {.name = "small", .elements = 64, .units = {1}},
                {.name = "last", .elements = 640, .units = {2}}};
            Stage engine(communicator, parameters,
                         {.rebuild_buckets = Stage::in_ready_order, .leases_until_rebuild = 3});
            std::vector<std::string> seen{engine.describe_memory()};
            engine.begin_step();
            for (auto const micro_step : engine.micro_steps(1)) {
                for (std::size_t const unit : {0U, 2U, 1U}) {
                    auto const gradients = engine.gradients(unit);
                    (void)gradients[unit]; // each unit has one parameter
                    engine.gradients_ready(unit);
                }
            }
            engine.step(0.1).wait();
            seen.push_back(engine.describe_memory());
            return seen;
        })[0];
    CHECK_THAT(texts[0], contains_text("  spare places: 5376 bytes\n")
                             && contains_text("  unit 1: 256 bytes in 'small'\n"));
    CHECK_THAT(texts[1], contains_text("gradient leases (5120 bytes) at their peak:\n"
                                       "  unit 0: 2560 bytes in 'first'\n"
                                       "  unit 2: 2560 bytes in 'last'\n")
                             && !contains_text("spare"));
}

TEST_CASE("The ring of an engine's own queue grows with the model, and has a row of its own") {
    struct Seen {
        MemoryRow ring;
        std::size_t allocated = 0;
        std::string text;
    };
    auto const seen = [](int world, std::size_t units, bool is_callers_queue = false) {
        std::vector<Parameter<float>> parameters;
        for (std::size_t unit = 0; unit < units; ++unit) {
            parameters.push_back(
                {.name = "p" + std::to_string(unit), .elements = 8, .units = {unit}});
        }
        return on_ranks<Seen>(world, [&](LoopbackCommunicator& communicator) {
            HostMemoryResource memory;
            host::WaitingQueue queue(100);
            ZeroStage<2, UnitBucketer>::Options options{.memory = &memory};
            if (is_callers_queue) {
                options.communication_queue = &queue;
            }
            ZeroStage<2, UnitBucketer> const engine(communicator, parameters, options);
            return Seen{engine.memory_plan()[BufferKind::commands],
                        memory.allocated_bytes(BufferKind::commands), engine.describe_memory()};
        })[0];
    };
    constexpr std::size_t command = 160;
    // for 2 micro-steps: the buckets and one, each with 5 commands for each rank and 4
    std::size_t const expected[][3] = {
        {1, 1, 240}, {2, 1, 240}, {2, 10, 2 * 11 * 14}, {4, 5, 2 * 6 * 24}, {4, 200, 8192}};
    for (auto const& [world, units, commands] : expected) {
        INFO("W = " << world << ", " << units << " units");
        Seen const found = seen(static_cast<int>(world), units);
        CHECK((found.ring == MemoryRow{commands * command, 0, false}));
        CHECK(found.allocated == commands * command);
        CHECK_THAT(found.text, contains_text("commands: " + std::to_string(commands * command)));
    }
    Seen const with_callers_queue = seen(2, 10, true);
    CHECK((with_callers_queue.ring == MemoryRow{}));
    CHECK(with_callers_queue.allocated == 0);
    CHECK_THAT(with_callers_queue.text, !contains_text("commands"));
}

} // namespace zero::test::describe_memory_test
