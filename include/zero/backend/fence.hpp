#pragma once

#include "../core/detail/namespace.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief Names every place where one queue waits for another.
///
/// A missing fence is the most common silent error of sharded training. The names make the list
/// reviewable, and a test removes one fence at a time and checks that the results break.
enum class Fence : std::uint8_t {
    gradients_written,    ///< reduction waits for the backward pass
    gradient_lease_reuse, ///< backward pass waits until the last reduction of its bucket has read
                          ///< the memory
    weights_published,    ///< forward pass waits for the weights of the last step (stages 0, 1, 2)
    weights_gathered, ///< forward and backward pass wait for the all-gather of the unit (stage 3)
    weights_read,     ///< update and all-gather wait for the readers of the old weights
    parameter_lease_reuse, ///< all-gather waits for the last reader of the unit that used the
                           ///< memory before (stage 3)
    loss_scale_captured,   ///< backward pass waits for the scale of this step
    loss_scale_read,       ///< capture waits for the readers of the previous scale
    peers_ready,           ///< a transport waits until its peers' data is written
    peers_reduced,         ///< second half of an all-reduce waits for the peers' first half
    peers_done,            ///< reuse of a buffer waits until the peers have read it
    chunk_read,            ///< update waits until the offloaded states, or the gradients for an
                           ///< update on the host, are in staging memory
    chunk_updated,         ///< their write, or the copies back to the device, wait for the update
    chunk_written,   ///< the next read to that staging memory waits for the write, and so does the
                     ///< next decision, which the write reads
    chunk_copied,    ///< the next read of parameters to that staging memory waits until they were
                     ///< copied to their lease (stage 3)
    joint_inspected, ///< the sum of a joint decision waits for the figures of every engine
    joint_added,     ///< the decision of every engine waits for that sum
    shards_written,  ///< an all-gather on a queue of its own waits for the update of the shards, or
                     ///< for what else has written them
    shards_gathered  ///< update and other writes wait for the all-gathers on such a queue
};

/// @brief Number of enumerators of `Fence`.
inline constexpr std::size_t fences = 19;

/// @brief The name of a fence.
constexpr char const* name_of(Fence fence) noexcept {
    constexpr std::array<char const*, fences> names{
        "gradients_written", "gradient_lease_reuse",  "weights_published",   "weights_gathered",
        "weights_read",      "parameter_lease_reuse", "loss_scale_captured", "loss_scale_read",
        "peers_ready",       "peers_reduced",         "peers_done",          "chunk_read",
        "chunk_updated",     "chunk_written",         "chunk_copied",        "joint_inspected",
        "joint_added",       "shards_written",        "shards_gathered"};
    return names[static_cast<std::size_t>(fence)];
}

} // namespace ZERO_NAMESPACE
