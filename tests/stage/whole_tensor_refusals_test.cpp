#include "stage/whole_tensor_model.hpp"
#include "support/catch.hpp"

// The arguments that a stage with a whole-tensor optimizer refuses on construction, and the
// messages.

namespace zero::test::whole_tensor_refusals_test {

namespace {

/// Claims to cut no parameters, but cuts them.
struct LyingPartitioner : ContiguousPartitioner {
    static constexpr bool cuts_parameters = false;
};

template <class Stage, class Change>
Outcome outcome_of_making(Change const& change, int world = 2) {
    return on_ranks<Outcome>(world, [&](LoopbackCommunicator& communicator) {
        return outcome_of([&] {
            auto specs = whole_specs();
            typename Stage::Options options;
            change(specs, options, communicator.rank());
            auto parameters = registration<float>(specs);
            std::optional<CallerMemory<float, float>> memory;
            if (options.storage == Storage::adopted) {
                options.adopted_block = memory.emplace(parameters).block;
            }
            Stage engine(communicator, parameters, options);
        });
    })[0];
}

constexpr auto nothing = [](auto&, auto&, int) {};
constexpr auto adopt = [](auto&, auto& options, int) { options.storage = Storage::adopted; };

} // namespace

TEST_CASE("Rows that do not divide a parameter are refused by name") {
    auto const outcome =
        outcome_of_making<ZeroStage<2>>([](auto& specs, auto&, int) { specs[1].rows = 21; });
    CHECK(outcome.type == "InvalidArgument");
    CHECK(outcome.message
          == "zero: parameter 'first.weight' has 500 elements, which are not 21 rows of equal "
             "length; give the rows of the matrix, or 0 if it is not a matrix.");
    CHECK(outcome_of_making<ZeroStage<2>>(nothing).type == "returned");
}

TEST_CASE("Ranks that register different rows get a LayoutMismatch") {
    auto const outcome = outcome_of_making<ZeroStage<2>>(
        [](auto& specs, auto&, int rank) { specs[1].rows = rank == 0 ? 20 : 0; });
    CHECK(outcome.type == "LayoutMismatch");
    CHECK_THAT(outcome.message,
               contains_text("is 'first.weight' (500 elements of float32 in 20 rows, units 1"));
    CHECK_THAT(outcome.message,
               contains_text("and 'first.weight' (500 elements of float32, units 1"));
}

TEMPLATE_TEST_CASE("An adopted block is refused for a whole-tensor optimizer", "", Lamb, Muon) {
    auto const outcome = outcome_of_making<ZeroStage<0, TestType>>(adopt);
    CHECK(outcome.type == "InvalidArgument");
    CHECK(outcome.message
          == "zero: an adopted block is cut inside parameters, but the optimizer needs whole ones; "
             "use Storage::scattered or Storage::owned.");
    CHECK(outcome_of_making<ZeroStage<2, RoundRobinPartitioner, TestType>>(adopt) == outcome);
    CHECK(outcome_of_making<ZeroStage<0, AdamW>>(adopt).type == "returned");
}

TEST_CASE("A partitioner that cuts parameters although it says otherwise is refused with the "
          "parameter's name") {
    auto const outcome = outcome_of_making<ZeroStage<2, LyingPartitioner, Lamb>>(nothing);
    CHECK(outcome.type == "InvalidArgument");
    CHECK_THAT(outcome.message,
               contains_text("zero: the partitioner says that it cuts no parameter, but cuts '"));
    CHECK_THAT(outcome.message,
               contains_text("; cut between pieces, or make cuts_parameters true."));
    CHECK(outcome_of_making<ZeroStage<0, LyingPartitioner, AdamW>>(nothing)
          == outcome); // in every stage
    CHECK(outcome_of_making<ZeroStage<0, ContiguousPartitioner, AdamW>>(nothing).type
          == "returned");
}

} // namespace zero::test::whole_tensor_refusals_test
