#include "support/catch.hpp"

#include <zero/comm/loopback.hpp>
#include <zero/comm/run_ranks.hpp>
#include <zero/host/host_backend.hpp>
#include <zero/stage/zero_stage.hpp>

// With clang++ this file is compiled with -funsafe-math-optimizations, see CMakeLists.txt. g++
// defines macros for that flag, which the headers refuse.

namespace zero::test::unsafe_math_alone_test {

TEST_CASE("An engine refuses code that was compiled to change the value of expressions", "[host]") {
    auto const construct = [] {
        run_ranks(1, [](LoopbackCommunicator& communicator) {
            ZeroStage<0> const engine(communicator, {{.name = "weight", .elements = 3}});
        });
    };
#if defined(__clang__)
    CHECK_THROWS_AS(HostBackend::require_arithmetic(), InvalidArgument);
    CHECK_THROWS_AS(construct(), InvalidArgument);
    CHECK_THROWS_WITH(HostBackend::require_arithmetic(),
                      contains_text("-funsafe-math-optimizations"));
#else
    CHECK_NOTHROW(HostBackend::require_arithmetic());
    CHECK_NOTHROW(construct());
#endif
}

} // namespace zero::test::unsafe_math_alone_test
