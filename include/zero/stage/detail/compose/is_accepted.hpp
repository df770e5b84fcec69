#pragma once

#include "../../../backend/backend.hpp"
#include "../../../backend/slices.hpp"
#include "../../../comm/communicator.hpp"
#include "../../../comm/grouped_communicator.hpp"
#include "../../../core/convert.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/memory_resource.hpp"
#include "../../../core/policy_category.hpp"
#include "../../../layout/partitioner.hpp"
#include "../../../policy/detail/diagnose_policies.hpp"
#include "../../../policy/detail/policy_list.hpp"
#include "../../../policy/master_weights_policy.hpp"
#include "../../../policy/optimizer.hpp"
#include "composition_conflict.hpp"
#include "stage_config.hpp"

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>

namespace ZERO_NAMESPACE::detail {

/// @brief Whether the partitioner requires no bucketer, or this one.
template <class Partitioner, class Bucketer>
inline constexpr bool accepts_bucketer = true;

template <class Partitioner, class Bucketer>
    requires requires { typename Partitioner::RequiredBucketer; }
inline constexpr bool accepts_bucketer<Partitioner, Bucketer> =
    std::is_same_v<Bucketer, typename Partitioner::RequiredBucketer>;

/// @brief Whether the partitioner may cut a parameter that an optimizer of whole ones needs whole.
template <class Partitioner, class Optimizer>
inline constexpr bool cuts_whole_parameters =
    Partitioner::cuts_parameters
    && !(MatrixKeepingPartitioner<Partitioner> && NeedsOnlyMatricesWhole<Optimizer>);

/// @brief Whether a communicator adds as a subtree of micro-batches, for every type, and says by
/// which positions: a decorator that forgot to say so would number other micro-batches.
template <class C, class... Types>
constexpr bool communicator_adds_in_tree(std::tuple<Types...> const* /*sets*/) noexcept {
    return HasPosition<C>
           && ((ReduceScattersInTree<C, typename Types::Communication, float>
                && ReduceScattersInTree<C, typename Types::Communication,
                                        typename Types::Accumulation>)&&...);
}

/// @brief Whether a backend encodes parameters of type T.
template <class B, class T, class C>
consteval bool can_encode_as() {
    using Slices = typename B::template SliceTable<CopySlice<T>>::Range;
    return requires(typename B::Queue queue, Slices slices, std::uint8_t* codes,
                    std::uint8_t const* received, T* bucket) {
        B::template encode<C>(queue, slices, codes);
        B::template decode<C>(queue, slices, received, bucket);
    };
}

/// @brief Whether a backend encodes the weights of a `TypeSet`, and its frozen parameters.
template <class B, class Types>
consteval bool can_encode() {
    bool can = true;
    if constexpr (has_weight_codec<Types>) {
        can = can_encode_as<B, typename Types::Parameter, typename Types::WeightCodec>();
    }
    if constexpr (has_frozen_codec<Types>) {
        can = can && can_encode_as<B, typename Types::Parameter, typename Types::FrozenCodec>();
    }
    return can;
}

/// @brief Whether a backend keeps the errors of the gradients of a `TypeSet`, if it must.
template <class B, class Types>
consteval bool can_keep_errors() {
    if constexpr (requires { typename Types::Feedback::Storage; }) {
        using C = typename Types::GradientCodec;
        using S = typename Types::Feedback::Storage;
        using E = std::conditional_t<std::is_same_v<S, float>, float, std::uint8_t>;
        using Slices = typename B::template SliceTable<CodedSlice>::Range;
        return requires(typename B::Queue queue, Slices slices, std::uint8_t* codes,
                        typename Types::Gradient const* gradients) {
            B::template encode_with_feedback<C, S>(queue, slices, gradients, codes,
                                                   CodedErrors<E>{});
        };
    } else {
        return true;
    }
}

/// @brief Whether a backend encodes gradients of type G and sums of type A, and adds what it
/// decodes.
template <class B, class C, class G, class A>
concept AddsInCodes =
    requires(typename B::Queue queue, typename B::template SliceTable<CodedSlice>::Range slices,
             std::uint8_t* codes, std::uint8_t const* received, G const* gradients,
             A const* accumulated, A* sums) {
        B::template encode<C>(queue, slices, gradients, codes);
        B::template encode<C>(queue, slices, accumulated, codes);
        B::template decode_sum<C>(queue, slices, received, CodedPieces{}, sums, true);
    };

/// @brief The same for the gradients of a `TypeSet` and for what its replicas add.
template <class B, class Types>
consteval bool can_encode_gradients() {
    using A = typename Types::Accumulation;
    bool can = true;
    if constexpr (has_gradient_codec<Types>) {
        can = AddsInCodes<B, typename Types::GradientCodec, typename Types::Gradient, A>
              && can_keep_errors<B, Types>();
    }
    if constexpr (has_replica_codec<Types>) {
        can = can && AddsInCodes<B, typename Types::ReplicaCodec, A, A>;
    }
    return can;
}

/// @brief What holds for every `TypeSet` of a composition.
template <class Sets>
struct EverySet;

template <class... Types>
struct EverySet<std::tuple<Types...>> {
    /// no communication type rounds gradients
    static constexpr bool sends_exactly =
        (is_exact_conversion<typename Types::Communication, typename Types::Gradient> && ...);
    static constexpr bool sends_float =
        (std::is_same_v<typename Types::Communication, float> && ...);
    static constexpr bool sends_gradient_type =
        (std::is_same_v<typename Types::Communication, typename Types::Gradient> && ...);
    /// it has float master weights beside the parameters
    static constexpr bool has_copies =
        ((Types::has_master && std::is_same_v<typename Types::Master, float>)&&...);
    template <class B>
    static constexpr bool can_encode = (detail::can_encode<B, Types>() && ...);
    template <class B>
    static constexpr bool can_encode_gradients = (detail::can_encode_gradients<B, Types>() && ...);
};

/// @brief Whether `HostMemory` holds states.
template <class Offload>
inline constexpr bool is_on_host = requires { Offload::keeps(BufferKind{}); };

/// @brief Whether the host updates them.
template <class Offload>
inline constexpr bool is_updated_by_host = requires { requires Offload::updates_on_host; };

/// @brief Returns whether a kind is named in `Offload`, for a tier or for `HostMemory`.
template <class Offload>
consteval bool is_offloaded(BufferKind kind) {
    if constexpr (is_on_host<Offload>) {
        return Offload::keeps(kind);
    } else {
        return Offload::offloads(kind);
    }
}

/// @brief Returns whether `HostMemory`, if it is used, holds states and sums of gradients only.
template <class Offload>
consteval bool names_states_for_host() {
    bool is_any = !is_on_host<Offload>;
    for (std::size_t index = 0; is_on_host<Offload> && index < buffer_kinds; ++index) {
        auto const kind = static_cast<BufferKind>(index);
        bool const is_state = kind == BufferKind::optimizer_state
                              || kind == BufferKind::master_weights || kind == BufferKind::gradients
                              || kind == BufferKind::parameters;
        if (is_offloaded<Offload>(kind) && !is_state) {
            return false;
        }
        is_any = is_any || is_offloaded<Offload>(kind);
    }
    return is_any;
}

/// @brief Returns whether `HostMemory` holds all that the host updates.
template <class Offload>
consteval bool names_all_for_host(bool has_masters) {
    return !is_updated_by_host<Offload>
           || (is_offloaded<Offload>(BufferKind::optimizer_state)
               && (!has_masters || is_offloaded<Offload>(BufferKind::master_weights)));
}

/// @brief Returns the conflict between policies that are each valid on their own.
template <int N, class... Policies>
consteval Conflict conflict_in() {
    constexpr bool is_stage = N >= 0 && N <= 3;
    // NOLINTNEXTLINE(bugprone-branch-clone): the branches are the same for N = 0 only
    using Config = StageConfig<is_stage ? N : 0, Policies...>;
    // named differently from the concepts, because -Wshadow would warn
    using Cutter = typename Config::Partitioner;
    using Grouper = typename Config::Bucketer;
    using Engine = typename Config::EngineConfig;
    using Device = typename Engine::Backend;
    using Sets = typename Engine::TypeSetTuple;
    using Every = EverySet<Sets>;
    using Ranks = typename Config::Communicator;
    using Offload = typename Config::OffloadTo;
    constexpr bool is_on_device = requires { requires Device::is_device; };
    constexpr bool can_call_host =
        requires(typename Device::Queue queue, void (*call)(void*), void* argument) {
            Device::run_on_host(queue, call, argument);
        };
    constexpr bool sends_float_between =
        requires { requires GroupedCommunicator<Ranks> && Ranks::sends_float_between; };
    constexpr bool has_staging_memory = requires { Device::staging_memory(); };
    constexpr bool rounds = Config::MasterPolicy::form == MasterForm::stochastic;
    return conflict_of({
        .stage = N,
        .partitioner_cuts_parameters = cuts_whole_parameters<Cutter, typename Config::Optimizer>,
        .partitioner_cuts_group = Cutter::cuts_group,
        .partitioner_brings_other_bucketer = !accepts_bucketer<Cutter, Grouper>,
        .bucketer_may_span_units = Grouper::may_span_units,
        .optimizer_is_whole_tensor = Config::Optimizer::whole_tensor,
        .is_on_device = is_on_device,
        .is_stored_by_block = Config::OptimizerStates::is_block_scaled || rounds,
        .has_groups = GroupedCommunicator<Ranks>,
        .has_secondary = SecondaryCommunicator<Ranks>,
        .sends_float_between = sends_float_between,
        .sends_float = Every::sends_float,
        .adds_in_tree = adds_in_tree<typename Config::Reduction>,
        .communicator_adds_in_tree =
            communicator_adds_in_tree<Ranks>(static_cast<Sets const*>(nullptr)),
        .sends_exactly = Every::sends_exactly,
        .is_offloaded = Offload::is_any,
        .offloads_masters = is_offloaded<Offload>(BufferKind::master_weights),
        .offloads_parameters = is_offloaded<Offload>(BufferKind::parameters),
        .offloads_gradients = is_offloaded<Offload>(BufferKind::gradients),
        .has_masters = Engine::has_masters,
        .keeps_on_host = is_on_host<Offload>,
        .names_states_for_host = names_states_for_host<Offload>(),
        .can_serve_host = has_staging_memory && (can_call_host || !is_updated_by_host<Offload>),
        .names_all_for_host = names_all_for_host<Offload>(Engine::has_masters),
        .delays_update = delays_update<Engine>,
        .codes_weights = codes_weights<Engine>,
        .codes_frozen = codes_frozen<Engine>,
        .all_have_copies = Every::has_copies,
        .can_encode = Every::template can_encode<Device>,
        .codes_gradients = codes_gradients<Engine>,
        .codes_replicas = codes_replicas<Engine>,
        .has_levels = LevelsOf<typename Config::WireTypes::GradientCodec>::are_given,
        .sends_gradient_type = Every::sends_gradient_type,
        .can_exchange = ExchangingCommunicator<ShardOf<Ranks>>,
        .can_encode_gradients = Every::template can_encode_gradients<Device>,
        .master = Config::master_conflict,
    });
}

/// @brief Whether a policy is a communicator whose backend is incomplete. Collectives may need only
/// the queues of a backend; an engine needs all of it.
template <class P>
concept HasBareBackend = NamesCategory<P, CommunicatorCategory> && !Backend<typename P::Backend>;

/// @brief Whether the policies form a stage. `diagnose_stage` says why not.
template <int N, class... Policies>
consteval bool is_accepted() {
    if constexpr ((HasBareBackend<Policies> || ...) || !(CompletePolicy<Policies> && ...)
                  || !are_distinct<Policies...>) {
        return false;
    } else {
        return conflict_in<N, Policies...>() == Conflict::none;
    }
}

} // namespace ZERO_NAMESPACE::detail
