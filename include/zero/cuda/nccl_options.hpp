#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/memory_resource.hpp"
#include "../core/set_by_name.hpp"
#include "nccl_library.hpp"
#include "nccl_system.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace ZERO_NAMESPACE::cuda {

/// @brief How NCCL weighs the speed of collectives against the multiprocessors that they take from
/// the model.
enum class NcclCtaPolicy : std::uint8_t {
    library,    ///< the choice of NCCL, or of its environment variables
    fastest,    ///< NCCL_CTA_POLICY_DEFAULT: the fastest collectives (NCCL 2.27)
    efficiency, ///< NCCL_CTA_POLICY_EFFICIENCY: fewer multiprocessors (NCCL 2.27)
    zero        ///< NCCL_CTA_POLICY_ZERO: none where copy engines can do the work (NCCL 2.28)
};

/// @brief The order in which a communicator over NCCL adds the values of the ranks.
enum class NcclOrder : std::uint8_t {
    rank, ///< from rank 0 on, in float, rounded once: the bits of every other transport. The ranks
          ///< exchange the pieces, which moves as many bytes, and a kernel of the backend adds them
          ///< (of at most 256 ranks on a device)
    library ///< that of NCCL's reductions, which round intermediate sums to the element type
};

/// @brief Time-outs, modes, launches and the order of sums of a communicator over NCCL.
///
/// All ranks of a group must choose the same `order`, `scratch_bytes` and `native_all_reduce`,
/// which engines compare, and the same CTAs, cluster size and policy, which nothing compares. CTAs,
/// cluster size and policy hold for communicators that this library makes. A time of
/// `std::chrono::milliseconds::max()` means no limit.
struct NcclOptions {
    [[no_unique_address]] SetByName by_name{}; ///< members are set by name only
    /// The longest time to wait for peers, above 0: during the start, in a call, and for an
    /// enqueued collective, counted from the end of the previous one.
    std::chrono::milliseconds time_out = std::chrono::minutes(30);
    /// The time that a destructor waits for enqueued collectives and for the shutdown of NCCL
    /// before it aborts the communicator, at least 0, counted from the start of the destructor. It
    /// waits at most 5 s for an abort: NCCL's own abort waits indefinitely for CUDA graphs and for
    /// peers on the same machine.
    std::chrono::milliseconds finish_time_out = std::chrono::seconds(30);
    /// The interval at which a watchdog thread looks for errors and time-outs while the program
    /// waits for the device, at least 0. With 0 there is no watchdog: only calls on the
    /// communicator notice failures, and a program that waits for the device waits for ever, as
    /// does a blocking collective.
    std::chrono::milliseconds watch_interval = std::chrono::milliseconds(500);
    /// Mode of the communicators that this library creates, see `NcclMode`.
    NcclMode mode = NcclMode::blocking;
    /// The least number of CTAs (blocks) of a collective, which is also its number of
    /// multiprocessors; 0: NCCL's choice.
    int min_ctas = 0;
    /// The greatest number of CTAs of a collective; 0: NCCL's choice.
    int max_ctas = 0;
    /// The number of CTAs in a cluster, from 0 to 8, on devices of compute capability 9.0 and
    /// later; empty: NCCL's choice.
    std::optional<int> cluster_size{};
    NcclCtaPolicy cta_policy = NcclCtaPolicy::library; ///< see `NcclCtaPolicy`
    /// Sums with NCCL's own all-reduce. It is faster for small messages but adds in another order
    /// than NCCL's reduce-scatter, so stage 0 no longer equals stages 1 to 3 bit for bit.
    bool native_all_reduce = false;
    /// The order of sums in reduce-scatters and all-reduces, for messages of all sizes.
    /// `TreeReduction` needs `NcclOrder::rank`: its pieces are exchanged in the same way.
    NcclOrder order = NcclOrder::library;
    /// With `NcclOrder::rank`: the size of the buffer through which pieces arrive, at least 1 KiB
    /// per rank (less is raised to that). Larger reductions take several rounds. A part of a group
    /// has a buffer of its own.
    std::size_t scratch_bytes = std::size_t{8} << 20U;
    /// The resource of that buffer, which must outlive the communicator; null: that of the backend.
    MemoryResource* memory = nullptr;
};

/// @brief The NCCL and the system that a communicator uses. Owns neither; both outlive every
/// communicator made with them, and the thread of a blocking start that timed out.
struct NcclInterface {
    NcclLibrary* nccl = nullptr;  ///< must not be null when a communicator starts
    NcclSystem* system = nullptr; ///< must not be null when a communicator starts
};

} // namespace ZERO_NAMESPACE::cuda
