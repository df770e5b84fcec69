#pragma once

#include "../../core/detail/namespace.hpp"
#include "lanes.hpp"
#include "lanes_avx2.hpp"

namespace ZERO_NAMESPACE::host::detail {

/// Calls `loop.template operator()<Lanes>()` with the pack type of the instruction set in use.
template <class Loop>
void run(Loop const& loop) noexcept {
#if ZERO_HOST_HAS_AVX2
    if (instruction_set() == InstructionSet::avx2) {
        run_avx2(loop);
        return;
    }
#endif
    loop.template operator()<Lanes<InstructionSet::baseline>>();
}

} // namespace ZERO_NAMESPACE::host::detail
