#include "ops/parity.hpp"

#include "support/catch.hpp"

namespace {

using zero::test::adamw_error;
using zero::test::sgd_error;

// With this learning rate the updates outweigh the parameters. With a small one, the rounding of a large parameter in each of the 20 steps
// may alone exceed 4 * 2^-24 of it, in any implementation that keeps parameters in float.
constexpr double learning_rate = 0.3;
constexpr double promise = 4.0;

TEST_CASE("AdamW follows double precision for 20 steps", "[ops][parity]") {
    CHECK(adamw_error(learning_rate).relative <= promise);
}

TEST_CASE("AdamW with a small learning rate adds little to the rounding of the parameter itself", "[ops][parity]") {
    for (double const small : {1e-4, 1e-3, 1e-2}) {
        CAPTURE(small);
        CHECK(adamw_error(small).update <= promise);
    }
}

TEST_CASE("Sgd follows double precision for 20 steps", "[ops][parity]") {
    CHECK(sgd_error(learning_rate, false).relative <= promise);
    CHECK(sgd_error(learning_rate, true).relative <= promise);
}

TEST_CASE("The comparison with double precision finds every small mistake in AdamW", "[ops][parity]") {
    CHECK(adamw_error(learning_rate, {.learning_rate_factor = 1.001}).relative > promise);
    CHECK(adamw_error(learning_rate, {.beta2 = 0.998}).relative > promise);
    CHECK(adamw_error(learning_rate, {.factor = 1.0}).relative > promise);
    CHECK(adamw_error(learning_rate, {.first_step = 2}).relative > promise);
    CHECK(adamw_error(learning_rate, {.shift = 1}).relative > promise);
}

TEST_CASE("The comparison with double precision finds every small mistake in Sgd", "[ops][parity]") {
    CHECK(sgd_error(learning_rate, false, {.learning_rate_factor = 1.001}).relative > promise);
    CHECK(sgd_error(learning_rate, false, {.factor = 1.0}).relative > promise);
    CHECK(sgd_error(learning_rate, false, {.shift = 1}).relative > promise);
    CHECK(sgd_error(learning_rate, true, {.learning_rate_factor = 1.001}).relative > promise);
}

} // namespace
