#include "ops/tensor_optimizer_conformance.hpp"

#include "ops/tensor_optimizers/lamb.hpp"
#include "ops/tensor_optimizers/muon.hpp"

#include <tuple>

namespace zero::test::tensor_optimizer_conformance_test {

using AllTensorOptimizers = std::tuple<LambFixture, MuonFixture, MuonRmsFixture>;

TEMPLATE_LIST_TEST_CASE("An optimizer of whole parameters computes exactly the documented "
                        "operations in the documented order",
                        "[ops][tensor]", AllTensorOptimizers) {
    check_tensor_exact_operations<TestType>();
}

TEMPLATE_LIST_TEST_CASE("An optimizer of whole parameters follows double precision for 20 steps",
                        "[ops][tensor]", AllTensorOptimizers) {
    check_tensor_double_precision<TestType>();
}

TEMPLATE_LIST_TEST_CASE(
    "The comparison of whole parameters with double precision finds every mistake", "[ops][tensor]",
    AllTensorOptimizers) {
    check_tensor_mistakes_are_found<TestType>();
}

TEMPLATE_LIST_TEST_CASE("An optimizer of whole parameters rounds 16-bit weights once",
                        "[ops][tensor]", AllTensorOptimizers) {
    check_tensor_forms<TestType>();
}

TEMPLATE_LIST_TEST_CASE("An optimizer of whole parameters updates split weights like floats",
                        "[ops][tensor]", AllTensorOptimizers) {
    check_tensor_split<TestType>();
}

TEMPLATE_LIST_TEST_CASE("With a zero gradient of a whole parameter only weight decay changes it",
                        "[ops][tensor]", AllTensorOptimizers) {
    check_tensor_zero_gradient<TestType>();
}

TEMPLATE_LIST_TEST_CASE("A whole parameter of zeros is updated", "[ops][tensor]",
                        AllTensorOptimizers) {
    check_tensor_zero_weights<TestType>();
}

TEMPLATE_LIST_TEST_CASE("With a learning rate of zero only the states of a whole parameter change",
                        "[ops][tensor]", AllTensorOptimizers) {
    check_tensor_zero_learning_rate<TestType>();
}

TEMPLATE_LIST_TEST_CASE("A NaN gradient reaches every element of a matrix", "[ops][tensor]",
                        AllTensorOptimizers) {
    check_tensor_nan_gradient<TestType>();
}

TEMPLATE_LIST_TEST_CASE("Options of optimizers of whole parameters are rejected with their name",
                        "[ops][tensor]", AllTensorOptimizers) {
    check_tensor_validation<TestType>();
}

} // namespace zero::test::tensor_optimizer_conformance_test
