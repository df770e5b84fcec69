#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/dtype.hpp"
#include "../../core/hash.hpp"
#include "../../layout/gather_options.hpp"
#include "../../layout/placement.hpp"
#include "../../layout/storage.hpp"
#include "../../policy/gradient_reduction.hpp"
#include "../non_finite.hpp"
#include "../report_options.hpp"
#include "../unused_parameters.hpp"
#include "compared_option.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace ZERO_NAMESPACE::detail {

/// @brief The options and types of a composition that must be equal on all ranks, independent of
/// its policies. `compared_options` fills it.
struct ComparedSettings {
    int stage = 0;
    std::span<DType const> parameters{};
    Hash sent{}; ///< types of gradients, communication and accumulation
    ReductionSchedule schedule{};
    ReductionKind kind{};
    float predivide = 1.0F;
    std::size_t wire_bytes = 0;
    bool one_micro_step = false;
    Storage storage{};
    GatherOptions gather{};
    std::size_t extra_leases = 0;
    bool rebuilds_buckets = false;
    std::size_t leases_until_rebuild = 0;
    UnusedParameters unused_parameters{};
    NonFinite non_finite{};
    std::size_t skip_limit = 0;
    ReportOptions report{};
    float gradient_clipping = 0.0F; ///< 0: off
    std::uint64_t loss_scaler = 0;  ///< a hash, like the members below
    std::uint64_t master_weights = 0;
    std::uint64_t optimizer = 0;
    std::uint64_t groups = 0;
    std::uint64_t communicator = 0;
    std::uint64_t initialisation = 0; ///< which parameters every rank may initialise

    /// @brief Returns one hash per option name.
    [[gnu::cold]] [[nodiscard]] List<ComparedOption> hashes() const;
};

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "compared_settings.ipp"
#endif
