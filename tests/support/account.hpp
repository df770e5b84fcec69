#pragma once

// What an engine plans, and what it allocates, by kind of buffer.

#include "catch.hpp"

#include <zero/core/host_memory_resource.hpp>
#include <zero/layout/memory_plan.hpp>

#include <array>
#include <cstddef>
#include <vector>

namespace zero::test {

using BytesByKind = std::array<std::size_t, buffer_kinds>;

/// Returns the planned bytes without those of the caller.
inline BytesByKind planned_bytes(MemoryPlan const& plan) {
    BytesByKind bytes{};
    for (std::size_t kind = 0; kind < buffer_kinds; ++kind) {
        bytes[kind] = plan.rows[kind].is_callers ? 0 : plan.rows[kind].bytes();
    }
    return bytes;
}

inline BytesByKind allocated_bytes(HostMemoryResource const& memory) {
    BytesByKind bytes{};
    for (std::size_t kind = 0; kind < buffer_kinds; ++kind) {
        bytes[kind] = memory.allocated_bytes(static_cast<BufferKind>(kind));
    }
    return bytes;
}

struct Account {
    MemoryPlan plan{};
    BytesByKind allocated{}, after{}; ///< before and after a step

    /// Compares the row of the communicator as well. @param scratch what it has allocated
    void add_communicator(std::size_t scratch) {
        auto const kind = static_cast<std::size_t>(BufferKind::communicator);
        plan.rows[kind].is_callers = false;
        allocated[kind] = scratch;
        after[kind] = scratch;
    }
};

/// Takes a step. @param memory that of the engine
template <class Engine, class Step>
Account account_of(Engine& engine, HostMemoryResource const& memory, Step const& step) {
    Account own{engine.memory_plan(), allocated_bytes(memory)};
    step();
    own.after = allocated_bytes(memory);
    return own;
}

/// Compares what the ranks planned with what they allocated. @return the plan of rank 0
inline MemoryPlan check_accounts(std::vector<Account> const& ranks) {
    for (Account const& own : ranks) {
        CHECK(planned_bytes(own.plan) == own.allocated);
        CHECK(own.after == own.allocated);
    }
    return ranks.front().plan;
}

} // namespace zero::test
