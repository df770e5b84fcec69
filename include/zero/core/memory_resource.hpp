#pragma once

#include "detail/namespace.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief The purpose of an engine buffer. The memory plan and `HostMemoryResource` count bytes per
/// kind.
enum class BufferKind : std::uint8_t {
    parameters,       ///< parameter storage, replicated or only this rank's shard
    gradients,        ///< gradient accumulation buffer, full or only this rank's shard
    master_weights,   ///< master copies of the weights, or the remainders of split ones
    optimizer_state,  ///< optimizer states, such as moments
    gradient_leases,  ///< gradients of the buckets in flight in a micro-step
    parameter_leases, ///< gathered units of stage 3; staging of scattered and adopted parameters
    wire,             ///< gradients as they are sent, where that is another type, or codes
    control,          ///< scalars of the step, reports, and tables in the backend's memory
    scratch,          ///< scratch space for the update of one whole parameter
    communicator,     ///< scratch space of a communicator, which allocates it itself
    commands,         ///< ring of the queue that an engine on a host creates for communication,
                      ///< and those of the queues of a tier
    staging,          ///< memory through which offloaded states pass, and what the host updates
    held_sums,        ///< sums that `TreeReduction` holds beside the accumulation buffer
    secondary_copies, ///< this rank's parts of gathered units, with `Groups<C, Secondary>`
    weight_codes,     ///< the largest bucket of weights in codes, with `Wire`
    gradient_errors   ///< what the encoding of this rank's gradients lost, with `ErrorFeedback`
};

/// @brief Number of enumerators of `BufferKind`.
inline constexpr std::size_t buffer_kinds = 16;

/// @brief The name of a kind, for reports and messages.
constexpr char const* name_of(BufferKind kind) noexcept {
    constexpr std::array<char const*, buffer_kinds> names{
        "parameters",      "gradients",        "master weights", "optimizer state",
        "gradient leases", "parameter leases", "wire",           "control",
        "scratch",         "communicator",     "commands",       "staging",
        "held sums",       "secondary copies", "weight codes",   "gradient errors"};
    return names[static_cast<std::size_t>(kind)];
}

/// @brief Interface through which a backend allocates memory. Derive from it to place buffers
/// (pinned memory, huge pages, a pool) or to count them.
///
/// Pointers are aligned to at least 128 bytes. All functions may be called from any thread, by
/// several at once.
class MemoryResource {
public:
    MemoryResource() = default;
    MemoryResource(MemoryResource const&) = delete;
    MemoryResource& operator=(MemoryResource const&) = delete;
    virtual ~MemoryResource() = default;

    /// @brief Allocates memory. @throws std::bad_alloc if none is available
    [[nodiscard]] virtual void* allocate(std::size_t bytes, BufferKind kind) = 0;

    /// @brief Frees memory from `allocate`, which was called with the same `bytes` and `kind`.
    virtual void deallocate(void* memory, std::size_t bytes, BufferKind kind) noexcept = 0;

    /// @name Addresses without memory
    /// `offload_states` gives back the memory of model states and keeps its addresses. A resource
    /// supports that if it overrides all three functions.
    /// @{

    /// @brief Returns whether `give_back_pages` is supported.
    [[nodiscard]] virtual bool can_give_back_pages() const noexcept { return false; }

    /// @brief Gives back the memory of a block, whose values are lost, and keeps its addresses.
    /// Nothing may use them before `take_pages_again`. May keep the parts of a block that share a
    /// page with other memory.
    /// @return false if the system refuses; the block was not changed
    [[nodiscard]] virtual bool give_back_pages(void* /*memory*/, std::size_t /*bytes*/,
                                               BufferKind /*kind*/) noexcept {
        return false;
    }

    /// @brief Takes memory for a block again, under the same addresses, with any values. Called
    /// before `deallocate`. @throws std::bad_alloc or another exception if none is available; the
    /// block was not changed
    virtual void take_pages_again(void* /*memory*/, std::size_t /*bytes*/, BufferKind /*kind*/) {}

    /// @}
};

} // namespace ZERO_NAMESPACE
