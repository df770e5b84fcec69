#pragma once

// Regions that callgrind counts. instructions_test.cpp runs the program under callgrind, which
// writes one file of counts per region.

#include <zero/host/instruction_set.hpp>

#include <valgrind/callgrind.h>

#include <cstddef>
#include <string>

namespace zero::test {

/// @brief Counts `Loop(n)()` and `Loop(2 * n)()`, without their construction.
template <class Loop>
void count(std::string const& name, std::size_t n) {
    for (std::size_t const size : {n, 2 * n}) {
        Loop loop(size);
        auto const title = name + ' ' + std::to_string(size);
        CALLGRIND_START_INSTRUMENTATION;
        CALLGRIND_ZERO_STATS;
        loop();
        CALLGRIND_DUMP_STATS_AT(title.c_str());
        CALLGRIND_STOP_INSTRUMENTATION;
    }
}

void count_hot_loops(host::InstructionSet set);
void count_steps(host::InstructionSet set);

} // namespace zero::test
