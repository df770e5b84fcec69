#pragma once

#include "../../core/detail/namespace.hpp"
#include "../instruction_set.hpp"
#include "lanes.hpp"
#include "lanes_avx2.hpp"

namespace ZERO_NAMESPACE::host::detail {

#if ZERO_HOST_HAS_AVX2
/// Runs a loop with packs of 8 lanes. `flatten` inlines everything the loop calls into this
/// function, the only one that has the target.
template <class Loop>
ZERO_HOST_AVX2 __attribute__((flatten, noinline)) inline void run_avx2(Loop const& loop) noexcept {
    loop.template operator()<Lanes<InstructionSet::avx2>>();
}
#endif

/// Calls `loop.template operator()<Lanes>()` with the pack type of the current instruction set.
template <class Loop>
void run(Loop const& loop) noexcept {
#if ZERO_HOST_HAS_AVX2
    if (instruction_set() != InstructionSet::baseline) {
        run_avx2(loop);
        return;
    }
#endif
    loop.template operator()<Lanes<InstructionSet::baseline>>();
}

} // namespace ZERO_NAMESPACE::host::detail
