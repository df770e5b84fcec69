#include "support/catch.hpp"

#include "oracle/driver.hpp"

#include <zero/comm/experts.hpp>

// A model that is cut over ranks: the oracle computes the whole one, and each rank has its share.

using namespace zero::test::oracle;

namespace {

using zero::Groups;
using zero::LoopbackCommunicator;

using Cut = Groups<LoopbackCommunicator, zero::ModelParallel>;
using CutOverHosts = Groups<Groups<LoopbackCommunicator, zero::Hybrid>, zero::ModelParallel>;
using ExpertRanks = Groups<LoopbackCommunicator, zero::Experts>;
using ExpertHosts = Groups<Groups<LoopbackCommunicator, zero::Hybrid>, zero::Experts>;

/// Leaves out what has no mean over several parts.
bool has_mean(Configuration& c) {
    return c.parts > 1 && c.combine != Combine::sum;
}

} // namespace

TEST_CASE("Float parameters of a model that is cut: random configurations give the bits of the "
          "oracle in every stage",
          "[oracle]") {
    run_row<0, Cut>();
}
TEST_CASE("Float16 parameters of a model that is cut, round-robin, with a dynamic loss scale: "
          "random configurations give the bits of the oracle in every stage",
          "[oracle]") {
    run_row<10, Cut>();
}
TEST_CASE("Bfloat16 and float parameters of a model that is cut, with a split master: random "
          "configurations give the bits of the oracle in every stage",
          "[oracle]") {
    run_row<25, Cut>();
}
TEST_CASE("Bfloat16 parameters of a model that is cut, in groups: random configurations give the "
          "bits of the oracle in stages 1 to 3",
          "[oracle]") {
    run_row<3, CutOverHosts>();
}
TEST_CASE("Float16 parameters of experts, with a dynamic loss scale: random configurations give "
          "the bits of the oracle in every stage",
          "[oracle]") {
    run_row<9, ExpertRanks>();
}
TEST_CASE("Float parameters of experts, in groups, balanced: random configurations give the bits "
          "of the oracle in stages 1 to 3",
          "[oracle]") {
    run_row<16, ExpertHosts>();
}

TEST_CASE("The oracle finds a mean over the ranks of all parts of a model, and one over the ranks "
          "of the same experts only",
          "[oracle][mutants]") {
    run_row<0, Cut>(30, has_mean, [](Configuration& c) { c.has_experts = true; });
    run_row<9, ExpertRanks>(30, has_mean, [](Configuration& c) { c.has_experts = false; });
}

TEST_CASE("Random models are cut in every way", "[oracle]") {
    std::size_t cut = 0, replicas = 0, whole = 0, without = 0;
    for (std::size_t index = 0; index < Plan::full; ++index) {
        auto const c = in_groups<Cut>(make_configuration(20240229, index));
        for (std::size_t part = 0; part < c.parts; ++part) {
            Configuration const own = part_of(c, part);
            CHECK((always_used_parameter(own) < own.shapes.size())
                  == (always_used_parameter(c) < c.shapes.size()));
            for (std::size_t parameter = 0; parameter < own.shapes.size(); ++parameter) {
                auto const place = own.places[parameter];
                bool const is_cut =
                    own.shapes[parameter].elements != c.shapes[place.parameter].elements;
                cut += is_cut ? 1 : 0;
                replicas += place.is_replica ? 1 : 0;
                whole += is_cut || place.is_replica || c.parts == 1 ? 0 : 1;
            }
        }
        auto const experts = in_groups<ExpertRanks>(make_configuration(20240229, index));
        for (std::size_t part = 0; part < experts.parts; ++part) {
            without += part_of(experts, part).shapes.empty() ? 1 : 0;
        }
    }
    CHECK(cut > 500);
    CHECK(replicas > 500);
    CHECK(whole > 500);
    CHECK(without > 50); // ranks that hold no expert
}
