#include "ops/optimizer_conformance.hpp"

#include "ops/optimizers/adagrad.hpp"
#include "ops/optimizers/adam.hpp"
#include "ops/optimizers/adamw.hpp"
#include "ops/optimizers/lion.hpp"
#include "ops/optimizers/sgd.hpp"

#include <tuple>

namespace zero::test::optimizer_conformance_test {

using AllOptimizers = std::tuple<AdagradFixture, AdamFixture, AdamWFixture, LionFixture,
                                 HeavyBallFixture, NesterovFixture>;

TEMPLATE_LIST_TEST_CASE(
    "An optimizer computes exactly the documented operations in the documented order",
    "[ops][optimizer]", AllOptimizers) {
    check_exact_operations<TestType>();
}

TEMPLATE_LIST_TEST_CASE("An optimizer follows the trajectory that was computed by hand",
                        "[ops][optimizer]", AllOptimizers) {
    check_trajectory<TestType>();
}

TEMPLATE_LIST_TEST_CASE("An optimizer follows double precision for 20 steps", "[ops][parity]",
                        AllOptimizers) {
    check_double_precision<TestType>();
}

TEMPLATE_LIST_TEST_CASE("The comparison with double precision finds every small mistake",
                        "[ops][parity]", AllOptimizers) {
    check_mistakes_are_found<TestType>();
}

TEMPLATE_LIST_TEST_CASE("An optimizer gives the same bits in packs and element by element",
                        "[ops][optimizer]", AllOptimizers) {
    check_packs<TestType>();
}

TEMPLATE_LIST_TEST_CASE("An optimizer computes only with the functions of ops", "[ops][optimizer]",
                        AllOptimizers) {
    check_functor_needs_only_ops<TestType>();
}

TEMPLATE_LIST_TEST_CASE("With a zero gradient only weight decay changes parameters",
                        "[ops][optimizer]", AllOptimizers) {
    check_zero_gradient<TestType>();
}

TEMPLATE_LIST_TEST_CASE("With a learning rate of zero only the states change", "[ops][optimizer]",
                        AllOptimizers) {
    check_zero_learning_rate<TestType>();
}

TEMPLATE_LIST_TEST_CASE("A NaN gradient reaches its own element and no other", "[ops][optimizer]",
                        AllOptimizers) {
    check_nan_gradient<TestType>();
}

TEMPLATE_LIST_TEST_CASE("Options out of range are rejected with their name", "[ops][optimizer]",
                        AllOptimizers) {
    check_validation<TestType>();
}

} // namespace zero::test::optimizer_conformance_test
