#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/memory_resource.hpp"
#include "../core/policy_category.hpp"
#include "offload.hpp"

#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief Page-locked memory of the host, as the target of `Offload` for engines on a device: the
/// optimizer states and master weights lie there, and the host updates them (ZeRO-Offload).
struct HostMemory {};

/// @brief Options of states in `HostMemory`. All but the last change no bit, and may differ
/// between ranks.
struct HostMemoryOptions {
    /// Threads of this rank that update at once; the first is the driver's. 0: as many as the
    /// process may run at once, but at most 8.
    std::size_t threads = 0;
    /// The gradients and parameters that pass through page-locked memory at once. There are two
    /// such places.
    std::size_t chunk_bytes = std::size_t{32} << 20U;
    /// With `DelayedUpdate`: the first updates of a training, which are not delayed; skipped steps
    /// do not count. Equal on all ranks.
    std::uint64_t warm_up_steps = 0;
};

/// @brief The host updates: reduced gradients go down to it, and parameters go down and come up.
/// No bit of a result depends on it. Include stage/update_on_host.hpp.
/// @tparam kinds `BufferKind::optimizer_state`, and `BufferKind::master_weights` if the parameters
/// are not their own
template <BufferKind... kinds_on_host>
struct Offload<To<HostMemory, kinds_on_host...>> {
    using policy_category = OffloadCategory;
    using Options = HostMemoryOptions;
    static constexpr bool is_any = false;         ///< nothing lies in a tier, chunk by chunk
    static constexpr bool updates_on_host = true; ///< by `HostBackend`
    static constexpr auto kinds = To<HostMemory, kinds_on_host...>::all; ///< the kinds on the host

    /// @brief Returns whether buffers of a kind lie in a tier: no.
    [[nodiscard]] static constexpr bool offloads(BufferKind /*kind*/) noexcept { return false; }

    /// @brief Returns whether buffers of a kind lie in memory of the host.
    [[nodiscard]] static constexpr bool keeps(BufferKind kind) noexcept {
        return ((kind == kinds_on_host) || ...);
    }
};

} // namespace ZERO_NAMESPACE
