#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/memory_resource.hpp"
#include "../core/set_by_name.hpp"

#include <condition_variable> // also declares durations, cheaper than <chrono>

namespace ZERO_NAMESPACE {

/// @brief The options of a group of `Loopback` communicators.
struct LoopbackOptions {
    [[no_unique_address]] SetByName by_name{}; ///< members are set by name only
    /// @brief The time that a rank waits for its peers in one collective; must be positive.
    std::chrono::milliseconds time_out = std::chrono::minutes(30);

    /// @brief The resource of the scratch memory, which must outlive the group and is used from all
    /// of its threads; null: `Backend::default_memory()`.
    MemoryResource* memory = nullptr;
};

} // namespace ZERO_NAMESPACE
