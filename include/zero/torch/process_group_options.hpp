#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/set_by_name.hpp"

#include <c10/util/intrusive_ptr.h>
#include <chrono>
#include <cstddef>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace ZERO_NAMESPACE::torch {

/// @brief The options of `ProcessGroupCommunicator`. `scratch_bytes`, `compares_calls` and
/// `shares_memory` must be equal on all ranks.
struct ProcessGroupOptions {
    [[no_unique_address]] SetByName by_name{}; ///< members are set by name only
    /// @brief The time that a rank waits for the others in one transfer; must be positive.
    ///
    /// A transfer that timed out stays in the process group, whose destructor waits for it. So give
    /// the process group the same time-out.
    std::chrono::milliseconds time_out = std::chrono::minutes(30);

    /// @brief The store of the process group, or another one that all ranks share. Through it a
    /// rank learns why another one failed, that it left, and which ranks are missing.
    ///
    /// Without a store a rank learns only what the backend tells it: a peer that throws and
    /// keeps running leaves the others waiting until their time-out.
    c10::intrusive_ptr<c10d::Store> store{};

    /// @brief The size of the buffers through which collectives send and receive, from 4 KiB per
    /// rank (less is raised to that) to 1 GiB. Larger buckets are cut to fit, and no message is
    /// larger than a quarter of it.
    std::size_t scratch_bytes = std::size_t{16} << 20U;

    /// @brief Whether the ranks compare their calls before each collective, by a small all-gather.
    ///
    /// Without it, ranks that call different collectives hang or use one another's data, and gloo
    /// may end the process. Ranks that share memory always compare, without a message.
    bool compares_calls = true;

    /// @brief Whether ranks that all run on one host read one another's buffers in place. Engines
    /// then take the buffers from `ProcessGroupCommunicator::shared_memory`. Where the system
    /// refuses, and for other memory, they send messages, with the same bits.
    bool shares_memory = true;

    /// @brief Whether the construction ignores SIGPIPE in the whole process, unless the program
    /// handles it. Otherwise gloo ends the process when it writes to a rank that has ended.
    bool ignores_broken_pipes = true;
};

} // namespace ZERO_NAMESPACE::torch
