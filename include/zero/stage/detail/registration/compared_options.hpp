#pragma once

#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/dtype.hpp"
#include "../../../core/hash.hpp"
#include "../../../core/memory_resource.hpp"
#include "../../../core/type_name.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../../../layout/gather_options.hpp"
#include "../../../layout/parameter_spec.hpp"
#include "../../../layout/stage_table.hpp"
#include "../../../policy/gradient_reduction.hpp"
#include "../../../policy/has_compared_options.hpp"
#include "../../parameter.hpp"
#include "../../stage_options.hpp"
#include "../common/engine_config.hpp"
#include "../common/gather_on_host.hpp"
#include "../common/named_rows.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief A hash of options that must be equal on all ranks, and their name in messages.
struct ComparedOption {
    char const* name;
    std::uint64_t hash;
    bool is_value = false; ///< whether `hash` is the option itself, which messages show

    /// nvcc 13 refuses a braced list of three members in a function template.
    [[nodiscard]] static ComparedOption of_value(char const* name, std::uint64_t value) noexcept {
        return {name, value, true};
    }
};

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
    bool rebuilds_buckets = false;
    Storage storage{};
    UnusedParameters unused_parameters{};
    NonFinite non_finite{};
    GatherOptions gather{};
    std::size_t extra_leases = 0;
    std::size_t leases_until_rebuild = 0;
    NormLimit skip_above_norm{};
    std::size_t skip_limit = 0;
    ReportOptions report{};
    float gradient_clipping = 0.0F; ///< 0: off
    std::uint64_t loss_scaler = 0;  ///< a hash, like the members below
    std::uint64_t master_weights = 0;
    std::uint64_t optimizer = 0;
    std::uint64_t groups = 0;
    std::uint64_t communicator = 0;
    std::uint64_t codec = 0;          ///< of weights, gradients, frozen parameters; 0: none
    std::uint64_t initialisation = 0; ///< which parameters every rank may initialise

    /// @brief Returns one hash per option name.
    [[gnu::cold]] [[nodiscard]] List<ComparedOption> hashes() const;
};

/// @brief Hashes which parameters every rank may initialise, and which of these have an
/// initialiser.
[[gnu::cold]] inline std::uint64_t
hash_of_initialisation(std::span<AnyParameter const> parameters) noexcept {
    Hash hash;
    for (AnyParameter const& parameter : parameters) {
        bool const is_called = parameter.initialise ? parameter.is_deterministic : false;
        hash.add(parameter.is_deterministic).add(is_called);
    }
    return hash.value();
}

/// @brief Adds the types of one `TypeSet`.
template <class Types>
void add_types(Hash& sent, Hash& masters) noexcept {
    sent.add(dtype_of<typename Types::Gradient>())
        .add(dtype_of<typename Types::Communication>())
        .add(dtype_of<typename Types::Accumulation>());
    masters.add(Types::master_form).add(dtype_of<typename Types::Master>());
}

/// @brief Hashes what must be equal on all ranks besides the layout: options, and the types that a
/// program was compiled with. Per-rank callbacks are excluded. For `require_agreement`.
/// @param initialisation `hash_of_initialisation`, when an engine is constructed
template <class Config>
[[gnu::cold]] [[nodiscard]] List<ComparedOption> compared_options(
    int number, ReductionSchedule schedule, float predivide, StageOptions<Config> const& options,
    typename Config::Communicator const& communicator, std::uint64_t initialisation = 0) {
    ComparedSettings settings;
    Hash masters;
    [&]<std::size_t... Type>(std::index_sequence<Type...>) {
        (add_types<typename Config::template TypesAt<Type>>(settings.sent, masters), ...);
    }(std::make_index_sequence<Config::types>());
    masters.add(hash_of_options<typename Config::MasterWeights>(options.master_weights));
    Hash optimizer;
    optimizer.add(Config::Optimizer::states)
        .add(dtype_of<typename Config::OptimizerState::Type>())
        .add(Config::rounds_states)
        .add(hash_of_options<typename Config::Optimizer>(options.optimizer));
    Hash groups;
    for (auto const& group : options.groups) {
        groups.add(hash_of_options<typename Config::Optimizer>(group.optimizer))
            .add(group.learning_rate_factor)
            .add(group.is_clipped);
    }
    settings.stage = number;
    settings.parameters = Config::parameter_dtypes;
    settings.schedule = schedule;
    settings.kind = options.reduction.kind;
    settings.predivide = predivide;
    settings.wire_bytes = options.reduction.wire_bytes;
    settings.one_micro_step = options.reduction.one_micro_step;
    settings.storage = options.storage;
    settings.gather = options.gather;
    settings.extra_leases = options.extra_leases;
    settings.rebuilds_buckets = options.rebuild_buckets != nullptr;
    settings.leases_until_rebuild = options.leases_until_rebuild;
    settings.unused_parameters = options.unused_parameters;
    settings.skip_above_norm = options.skip_above_norm;
    settings.non_finite = options.non_finite;
    settings.skip_limit = options.skip_limit;
    settings.report = options.report;
    settings.gradient_clipping = options.gradient_clipping.value_or(0.0F);
    settings.loss_scaler = hash_of_options<typename Config::LossScaler>(options.loss_scaler);
    settings.master_weights = masters.value();
    settings.optimizer = optimizer.value();
    settings.groups = groups.value();
    settings.communicator = options_hash_of(communicator);
    if constexpr (codes_weights<Config>) {
        using C = typename Config::template TypesAt<0>::WeightCodec;
        settings.codec = Hash().add(type_name<C>()).add(C::bytes_per_block).value();
    }
    if constexpr (codes_frozen<Config>) {
        using C = typename Config::template TypesAt<0>::FrozenCodec;
        Hash frozen;
        frozen.add(settings.codec).add("frozen").add(type_name<C>()).add(C::bytes_per_block);
        settings.codec = frozen.value();
    }
    if constexpr (codes_gradients<Config>) {
        using C = typename Config::template TypesAt<0>::GradientCodec;
        Hash wire;
        wire.add(settings.codec).add(type_name<C>()).add(C::bytes_per_block);
        wire.add(type_name<typename Config::Feedback>());
        settings.codec =
            wire.add(hash_of_options<typename Config::Feedback>(options.feedback)).value();
    }
    if constexpr (codes_replicas<Config>) {
        using C = typename Config::template TypesAt<0>::ReplicaCodec;
        settings.codec =
            Hash().add(settings.codec).add(type_name<C>()).add(C::bytes_per_block).value();
    }
    settings.initialisation = initialisation;
    auto hashes = settings.hashes();
    if constexpr (Config::adds_in_tree) {
        auto const& reduction = options.reduction;
        hashes.push_back(
            ComparedOption::of_value("reduction.micro_batches", reduction.micro_batches));
        hashes.push_back(
            ComparedOption::of_value("reduction.micro_batch_group", reduction.micro_batch_group));
    }
    if constexpr (Config::Offload::is_any) {
        hashes.push_back({"offload", hash_of_options<typename Config::Offload>(options.offload)});
    }
    if constexpr (delays_update<Config>) {
        hashes.push_back(
            ComparedOption::of_value("offload.warm_up_steps", options.offload.warm_up_steps));
    }
    return hashes;
}

/// @brief Names the options that differ: "'optimizer', 'groups'", with their values if they are
/// numbers. If none differ, the geometry does.
[[gnu::cold]] std::string name_differences(List<ComparedOption> const& options,
                                           std::span<std::uint64_t const> first,
                                           std::span<std::uint64_t const> other);

/// @brief The comparison itself, which depends on no communicator.
[[gnu::cold]] void require_agreement(FlatLayout& layout, std::span<DType const> types,
                                     List<ComparedOption> const& options, GatherValues gather,
                                     char const* call = "layout hash");

/// @brief Compares layouts and options of all ranks. The message names the first parameter that
/// differs and both sides, or the options. Collective; waits.
/// @param layout gets a number. Its gradients are separate after the call unless they form a block
/// on every rank
/// @param types parameter types by index
/// @param options the same names on every rank
/// @param call the tag of the first collective
/// @param context `CollectiveTag::context`
/// @throws LayoutMismatch on every rank
template <class Communicator>
[[gnu::cold]] void
require_agreement(FlatLayout& layout, std::span<DType const> types,
                  List<ComparedOption> const& options, Communicator& communicator,
                  typename Communicator::Backend::Queue queue, MemoryResource& memory,
                  char const* call = "layout hash", char const* context = "") {
    auto const gather = gather_over(communicator, queue, memory, layout.tagged_number(), context);
    require_agreement(layout, types, options, GatherValues(gather), call);
}

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "require_agreement.ipp"
#endif
