#include "support/catch.hpp"

#include "oracle/driver.hpp"

// Every way to store master weights and optimizer states between steps.

using namespace zero::test::oracle;

namespace {

/// Returns the number of differences that the oracle finds in stage 2 in four models when the
/// learning rate is 1 % too large.
template <std::size_t R>
std::size_t differences_with_a_wrong_rate() {
    std::size_t differences = 0;
    std::size_t index = R;
    for (int model = 0; model < 4; ++model) {
        Configuration c;
        for (; c.units < 3; index += generated_rows) { // skips tiny models
            c = make_configuration(20240229, index);
        }
        c.lists_groups = false; // no group has the factor 0
        c.changes.clear();
        c.injections.clear();
        History const history = compute_history(c);
        Failures failures;
        run_stage<stage_t<2, R>>({&c, &history, 2, &failures, 1.01});
        differences += failures.count();
    }
    return differences;
}

} // namespace

TEST_CASE("Split master weights: random configurations give the bits of the oracle in every stage",
          "[oracle]") {
    run_row<20>();
}
TEST_CASE("Stochastic rounding and bfloat16 states: random configurations give the bits of the "
          "oracle in every stage",
          "[oracle]") {
    run_row<21>();
}
TEST_CASE(
    "Float16 master weights: random configurations give the bits of the oracle in every stage",
    "[oracle]") {
    run_row<22>();
}
TEST_CASE("Scaled states of float parameters: random configurations give the bits of the oracle in "
          "every stage",
          "[oracle]") {
    run_row<23>();
}
TEST_CASE("Split master weights and scaled states: random configurations give the bits of the "
          "oracle in every stage",
          "[oracle]") {
    run_row<24>();
}

TEST_CASE("Bfloat16 and float parameters: random configurations give the bits of the oracle in "
          "every stage",
          "[oracle]") {
    run_row<25>();
}

TEST_CASE("The oracle finds a wrong learning rate for every storage of weights and states",
          "[oracle][mutants]") {
    CHECK(differences_with_a_wrong_rate<20>() != 0);
    CHECK(differences_with_a_wrong_rate<21>() != 0);
    CHECK(differences_with_a_wrong_rate<22>() != 0);
    CHECK(differences_with_a_wrong_rate<23>() != 0);
    CHECK(differences_with_a_wrong_rate<24>() != 0);
    CHECK(differences_with_a_wrong_rate<25>() != 0);
}
