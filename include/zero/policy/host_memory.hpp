#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/memory_resource.hpp"
#include "../core/policy_category.hpp"
#include "offload.hpp"

#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief Page-locked memory of the host, as the target of `Offload` for engines on a device. The
/// host updates the states that lie there (ZeRO-Offload), or the device does (`UpdateOnDevice`).
struct HostMemory {};

/// @brief For `Offload` with `HostMemory`: the kernels of the device read and write the states
/// through the link to the host, both ways at once. Nothing of them is copied to the device.
struct UpdateOnDevice {};

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

/// @brief The states that lie in memory of the host for good, where host and device use them.
/// @tparam kinds_on_host of `BufferKind::optimizer_state`, `master_weights` if the parameters are
/// not their own, `gradients` (the sums of this rank's part, in stages 2 and 3) and `parameters`
/// (the shard, in stage 3)
template <BufferKind... kinds_on_host>
struct KeptOnHost {
    static constexpr bool is_any = false; ///< nothing lies in a tier, chunk by chunk
    static constexpr auto kinds = To<HostMemory, kinds_on_host...>::all; ///< the kinds on the host

    /// @brief Returns whether buffers of a kind lie in a tier: no.
    [[nodiscard]] static constexpr bool offloads(BufferKind /*kind*/) noexcept { return false; }

    /// @brief Returns whether buffers of a kind lie in memory of the host.
    [[nodiscard]] static constexpr bool keeps(BufferKind kind) noexcept {
        return ((kind == kinds_on_host) || ...);
    }
};

/// @brief The device updates. No bit of a result depends on it.
template <BufferKind... kinds_on_host>
struct Offload<To<HostMemory, kinds_on_host...>, UpdateOnDevice> : KeptOnHost<kinds_on_host...> {
    using policy_category = OffloadCategory;
    using Options = NoOffloadOptions;
};

/// @brief The host updates: gradients go down to it, and parameters go down and come up, unless
/// they lie there. No bit of a result depends on it. Include stage/update_on_host.hpp.
/// @tparam kinds_on_host at least `BufferKind::optimizer_state`, and `master_weights` if the
/// parameters are not their own
template <BufferKind... kinds_on_host>
struct Offload<To<HostMemory, kinds_on_host...>> : KeptOnHost<kinds_on_host...> {
    using policy_category = OffloadCategory;
    using Options = HostMemoryOptions;
    static constexpr bool updates_on_host = true; ///< by `HostBackend`
};

} // namespace ZERO_NAMESPACE
