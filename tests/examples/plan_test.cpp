#include "plan/column.hpp"
#include "plan/models.hpp"

#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <zero/zero.hpp>

#include <cstddef>
#include <string>
#include <vector>

// The planner's table is what an engine with the same policies allocates.

namespace zero::test::plan_test {

namespace {

std::size_t elements_of(std::vector<ParameterSpec> const& model) {
    std::size_t sum = 0;
    for (ParameterSpec const& spec : model) {
        sum += spec.elements;
    }
    return sum;
}

template <int N>
void compare(std::vector<ParameterSpec> const& model, int world) {
    struct Seen {
        MemoryPlan plan;
        std::string text;
    };
    auto const ranks = on_ranks<Seen>(world, [&](LoopbackCommunicator& communicator) {
        std::vector<Parameter<bfloat16>> parameters;
        for (ParameterSpec const& spec : model) {
            parameters.push_back(
                {.name = spec.name, .elements = spec.elements, .units = spec.units});
        }
        ZeroStage<N, AdamW, Parameters<bfloat16>> const engine(communicator, parameters);
        return Seen{engine.memory_plan(), engine.describe_memory()};
    });
    auto const column = planner::plan(model, static_cast<std::size_t>(world), 4, N);
    MemoryPlan without_tables = ranks[0].plan;
    without_tables[BufferKind::control] = {};
    CHECK((column.memory.rows == without_tables.rows));
    for (Seen const& seen : ranks) {
        CHECK(column.memory.engine_bytes()
              == seen.plan.engine_bytes() - seen.plan[BufferKind::control].bytes());
        CHECK(seen.text == to_string(seen.plan) + column.leases);
    }
}

} // namespace

TEMPLATE_TEST_CASE_SIG("The planner's bytes and lines are those of an engine", "", ((int N), N), 0,
                       1, 2, 3) {
    for (int const world : {1, 3}) {
        compare<N>(planner::gpt2(2, 64), world);
        compare<N>(planner::equal_layers(10'001, 3), world);
    }
}

TEST_CASE("The planner knows three models by all of their parameters") {
    CHECK(elements_of(planner::model_named("gpt2")) == 124'439'808);
    CHECK(elements_of(planner::model_named("gpt2-xl")) == 1'557'611'200);
    CHECK(elements_of(planner::model_named("llama3-8b")) == 8'030'261'248);
    CHECK_THROWS_AS(planner::model_named("bert"), InvalidArgument);
}

} // namespace zero::test::plan_test
