#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/hash.hpp"
#include "../core/memory_resource.hpp"
#include "../core/policy_category.hpp"

#include <array>
#include <concepts>
#include <cstddef>

namespace ZERO_NAMESPACE::detail {

/// @brief The options of a stage without `Offload`: compilers print the name.
struct NoOptionsBecauseOffloadIsNotAmongThePolicies {};

} // namespace ZERO_NAMESPACE::detail

namespace ZERO_NAMESPACE {

class FileTier;    // tier/file_tier.hpp
struct HostMemory; // policy/host_memory.hpp

/// @brief No options.
struct NoOffloadOptions {};

/// @brief All model states stay in the memory of the backend. The default; costs nothing.
struct NoOffload {
    using policy_category = OffloadCategory;
    using Options = detail::NoOptionsBecauseOffloadIsNotAmongThePolicies; ///< there are none
    static constexpr bool is_any = false;                                 ///< nothing is offloaded

    /// @brief Returns whether buffers of a kind are offloaded: no.
    [[nodiscard]] static constexpr bool offloads(BufferKind /*kind*/) noexcept { return false; }
};

/// @brief Names the tier that holds some kinds of model states, for `Offload`.
/// @tparam Store for instance `FileTier`
template <class Store, BufferKind... kinds>
struct To {
    using Tier = Store;                                                      ///< holds the states
    static constexpr std::array<BufferKind, sizeof...(kinds)> all{kinds...}; ///< its kinds
};

/// @brief Model states lie in slower and larger memory, and pass through staging memory when they
/// are updated, or gathered. No bit of a result depends on it. Include stage/offload.hpp. States of
/// a device may lie in memory of its host, which updates them: `HostMemory` in
/// policy/host_memory.hpp.
/// @tparam Targets one `To<Tier, kinds...>`
template <class... Targets>
struct Offload {
    using policy_category = OffloadCategory;
    static constexpr bool is_any = true; ///< it is no `OffloadPolicy`: all states need one tier
};

/// @brief The states of an engine that lie in one tier, whose header is included.
template <class Target>
    requires requires { sizeof(typename Target::Tier); }
struct Offload<Target> {
    using policy_category = OffloadCategory;
    using Tier = typename Target::Tier; ///< holds the states
    using Options = typename Tier::Options;
    static constexpr bool is_any = true;       ///< some kinds of states are offloaded
    static constexpr auto kinds = Target::all; ///< the kinds of states in the tier

    /// @brief Returns whether buffers of a kind are offloaded.
    [[nodiscard]] static constexpr bool offloads(BufferKind kind) noexcept {
        std::size_t found = 0;
        for (BufferKind const own : kinds) {
            found += own == kind ? 1 : 0;
        }
        return found != 0;
    }

    /// @brief Adds the options of the tier that are equal on all ranks, and the kinds.
    static void add_to(Hash& hash, Options const& options) noexcept {
        for (BufferKind const kind : kinds) {
            hash.add(kind);
        }
        Tier::add_to(hash, options);
    }
};

/// @brief For `Offload`: the update of a step runs during the forward and backward pass of the next
/// one (the "one-step delayed parameter update" of ZeRO-Offload, Ren et al., 2021).
///
/// `step` begins its update and publishes that of the step before. So a pass uses parameters that
/// lack exactly one update, until `Engine::settle` publishes it; between two steps nothing else
/// reads or writes parameters or states. Norm, decision and loss scale are never late. The bits are
/// those of a run in memory whose gradients are taken at these parameters. It needs memory for a
/// copy of the gradients and parameters that the rank updates.
struct DelayedUpdate {};

/// @brief The states of an engine that lie in one tier, updated one step late.
template <class Target>
struct Offload<Target, DelayedUpdate> : Offload<Target> {
    static constexpr bool delays_update = true; ///< see `DelayedUpdate`
};

} // namespace ZERO_NAMESPACE

/// @file
/// @brief The requirements of `OffloadPolicy`, one concept each. The concept and its messages use
/// them.

namespace ZERO_NAMESPACE::detail {

template <class P>
concept OffloadHasOptions = requires { typename P::Options; } && requires {
    { P::is_any } -> std::convertible_to<bool>;
    { P::offloads(BufferKind::optimizer_state) } -> std::same_as<bool>;
};

/// The states that a rank holds for good. All other buffers are work memory.
template <class P>
consteval bool offloads_states_only() {
    bool is_any = !P::is_any;
    for (std::size_t kind = 0; kind < buffer_kinds; ++kind) {
        auto const value = static_cast<BufferKind>(kind);
        bool const is_state = value == BufferKind::optimizer_state
                              || value == BufferKind::master_weights
                              || value == BufferKind::parameters;
        if (P::offloads(value) && !is_state) {
            return false;
        }
        is_any = is_any || P::offloads(value);
    }
    return is_any;
}

template <class P>
consteval bool names_kinds_once() {
    if constexpr (requires { P::kinds; }) {
        for (std::size_t a = 0; a < P::kinds.size(); ++a) {
            for (std::size_t b = 0; b < a; ++b) {
                if (P::kinds[a] == P::kinds[b]) {
                    return false;
                }
            }
        }
    }
    return true;
}

template <class P>
concept OffloadKindsFit = offloads_states_only<P>() && names_kinds_once<P>();

} // namespace ZERO_NAMESPACE::detail

namespace ZERO_NAMESPACE {

/// @brief A policy that selects which model states lie outside of the backend's memory, and where.
template <class P>
concept OffloadPolicy = std::same_as<typename P::policy_category, OffloadCategory>
                        && detail::OffloadHasOptions<P> && detail::OffloadKindsFit<P>;

/// @brief Reports each reason why `P` is not an `OffloadPolicy` as one error.
template <class P>
consteval bool diagnose_offload() {
    static_assert(detail::OffloadHasOptions<P>,
                  "zero: all offloaded states of an engine lie in one tier; write "
                  "zero::Offload<zero::To<zero::FileTier, kinds...>> with every kind in one To, "
                  "and after it nothing, or zero::DelayedUpdate, or for zero::HostMemory "
                  "zero::UpdateOnDevice. Include zero/stage/offload.hpp for zero::FileTier, and "
                  "zero/policy/host_memory.hpp for zero::HostMemory.");
    if constexpr (detail::OffloadHasOptions<P>) {
        static_assert(detail::names_kinds_once<P>(),
                      "zero: Offload names a kind of states twice; name it once.");
        static_assert(detail::offloads_states_only<P>(),
                      "zero: Offload moves the states that a rank holds between steps; name "
                      "zero::BufferKind::optimizer_state, zero::BufferKind::master_weights, and in "
                      "stage 3 zero::BufferKind::parameters.");
    }
    return OffloadPolicy<P>;
}

} // namespace ZERO_NAMESPACE
