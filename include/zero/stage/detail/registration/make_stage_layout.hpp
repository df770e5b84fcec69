#pragma once

#include "../../../comm/grouped_communicator.hpp"
#include "../../../core/convert.hpp"
#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/detail/throw_error.hpp"
#include "../../../core/dtype.hpp"
#include "../../../core/error.hpp"
#include "../../../core/type_name.hpp"
#include "../../../layout/contiguous_partitioner.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../../../layout/gather_options.hpp"
#include "../../../layout/make_layout.hpp"
#include "../../../layout/parameter_spec.hpp"
#include "../../../layout/stage_table.hpp"
#include "../../../policy/optimizer.hpp"
#include "../../parameter.hpp"
#include "../../stage_options.hpp"
#include "../decision/decide_step.hpp"
#include "validate_arguments.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Marks all gradients as `GradientMemory::block` if each is as far from one address as
/// its parameter from the start of the adopted block; otherwise changes nothing. This rank may be
/// the only one, and by chance: see `require_agreement`.
/// @param offsets offset of each parameter in the adopted block, in elements
/// @param element_bytes bytes of a gradient element
[[gnu::cold]] void find_gradient_block(std::vector<ParameterSpec>& specs,
                                       std::span<AnyParameter const> parameters,
                                       std::span<std::size_t const> offsets,
                                       std::size_t element_bytes);

/// @brief Returns the offset of each parameter in the adopted block, in elements.
/// @param elements length of the block, @param element_bytes size of each
/// @throws InvalidArgument naming a parameter that is outside
[[gnu::cold]] std::vector<std::size_t> offsets_in_block(std::span<AnyParameter const> parameters,
                                                        void const* block, std::size_t elements,
                                                        std::size_t element_bytes);

/// @brief Returns how many elements of the adopted block are in no parameter, and the first of
/// them; empty if there are none. Gaps are allowed, but a wrong size makes one too.
/// @param offsets the result of `offsets_in_block`
[[gnu::cold]] std::string uncovered_text(FlatLayout const& layout,
                                         std::span<std::size_t const> offsets,
                                         std::size_t elements);

/// @brief Lists what parameters were registered with and no part of this composition uses:
/// registrations without elements, and `Update::matrix`.
/// @param groups of `options.groups`: whether the group chooses `Update::matrix`
/// @param has_matrices whether the optimizer has a rule for matrices
[[gnu::cold]] std::vector<std::string>
unused_registrations(FlatLayout const& layout, std::vector<bool> const& groups, bool has_matrices);

/// @brief Sets `spec.type` of each parameter to its index in the list of types.
/// @param types the types of parameters and gradients, in the order of the composition
/// @throws InvalidArgument naming a parameter whose types are not in the list
[[gnu::cold]] void assign_types(std::span<AnyParameter> parameters,
                                std::span<std::array<DType, 2> const> types);

/// @brief Converts the caller's list of parameters to the engine's form, each with the index of its
/// parameter type.
/// @throws InvalidArgument naming a parameter whose types the composition does not have
template <class Engine, class Registration>
[[gnu::cold]] std::vector<AnyParameter>
register_parameters(std::span<Registration const> parameters) {
    std::vector<AnyParameter> registered(parameters.begin(), parameters.end());
    using Pair = std::array<DType, 2>;
    auto const types = []<std::size_t... Type>(std::index_sequence<Type...>) {
        return std::array<Pair, Engine::types>{
            Pair{dtype_of<typename Engine::template TypesAt<Type>::Parameter>(),
                 dtype_of<typename Engine::template TypesAt<Type>::Gradient>()}...};
    }(std::make_index_sequence<Engine::types>());
    assign_types({registered.data(), registered.size()}, {types.data(), types.size()});
    return registered;
}

/// @brief Whether the partitioner can be used with an adopted block. Its layout always cuts buckets
/// as ContiguousPartitioner does, so any other partitioner would be ignored.
template <class Partitioner>
inline constexpr bool serves_adopted_block = std::is_same_v<Partitioner, ContiguousPartitioner>;

/// @brief Returns the properties of each parameter on which the layout depends.
[[gnu::cold]] std::vector<ParameterSpec> specs_of(std::span<AnyParameter const> parameters);

/// @brief Returns the bytes per element of each parameter type.
template <class Engine>
[[gnu::cold]] std::vector<std::size_t> sizes_of() {
    return []<std::size_t... Type>(std::index_sequence<Type...>) {
        return std::vector<std::size_t>{
            sizeof(typename Engine::template TypesAt<Type>::Parameter)...};
    }(std::make_index_sequence<Engine::types>());
}

/// @brief Requires that gradients which travel in codes are not divided before.
[[gnu::cold]] inline void require_no_predivide(GradientReductionOptions const& reduction) {
    if (reduction.predivide && *reduction.predivide != 1.0F) {
        throw_error<InvalidArgument>(
            {"zero: reduction.predivide is ", *reduction.predivide,
             ", and zero::Wire adds decoded gradients in float, which needs no division; leave it "
             "out."});
    }
}

/// @brief Requires a frozen parameter, of which the codec could keep anything.
[[gnu::cold]] inline void require_frozen(FlatLayout const& layout) {
    for (std::size_t bucket = layout.trainable_buckets(); bucket < layout.buckets(); ++bucket) {
        if (layout.elements(bucket) != 0) {
            return;
        }
    }
    throw_error<InvalidArgument>(
        {"zero: zero::FrozenWeights keeps frozen parameters in codes, and none of the ",
         layout.parameters().size(),
         " parameters is frozen and has elements; register those that are not trained with "
         "trainable = false, or leave zero::FrozenWeights out."});
}

/// @brief Requires options of `ErrorFeedback` in their ranges, and that every parameter is updated:
/// an error is sent even if there is no gradient.
[[gnu::cold]] inline void require_feedback(float beta, std::uint64_t reset_every,
                                           bool leaves_unused) {
    if (!(beta >= 0.0F && beta < 1.0F)) {
        throw_error<InvalidArgument>({"zero: feedback.beta is ", beta,
                                      "; it is the part of the old error in the new one, from 0 to "
                                      "below 1."});
    }
    if (reset_every == 0) {
        throw_error<InvalidArgument>(
            {"zero: feedback.reset_every is 0; give the number of steps after which errors are set "
             "to 0, such as 1024."});
    }
    if (leaves_unused) {
        throw_error<InvalidArgument>(
            {"zero: UnusedParameters::leave keeps a parameter without a gradient as it is, and "
             "ErrorFeedback sends what is left of its earlier ones; choose "
             "UnusedParameters::zero, or leave ErrorFeedback out."});
    }
}

/// @brief Checks all arguments of a stage and makes its layout. Allocates no backend memory and
/// sends nothing.
/// @param unit_order the order in which units finish their backward pass, of an engine that is
/// rebuilt; empty: by descending number
/// @throws InvalidArgument naming the option or the parameter, and the remedy
template <class Engine, class Partitioner, class Bucketer>
[[gnu::cold]] FlatLayout
make_stage_layout(int stage, std::size_t world, std::span<AnyParameter const> parameters,
                  StageOptions<Engine> const& options, std::span<std::size_t const> unit_order) {
    validate_options(options, stage);
    if constexpr (Engine::adds_in_tree) {
        validate_tree(options.reduction, world);
    } else {
        require_no_tree(options.reduction);
    }
    if constexpr (codes_gradients<Engine>) {
        require_no_predivide(options.reduction);
    }
    if constexpr (keeps_errors<Engine>) {
        require_feedback(options.feedback.beta, options.feedback.reset_every,
                         options.unused_parameters == UnusedParameters::leave);
    }
    check_unscaling(predivide_factor(options.reduction, world,
                                     Engine::communicates_float16 && !Engine::adds_in_tree),
                    Engine::LossScaler::initial(options.loss_scaler).scale);
    validate_memory(parameters, options.storage, stage);
    require_accessible<typename Engine::Backend>(parameters, options.storage);
    validate_registration(parameters, options.groups.size(), options.storage,
                          Engine::Optimizer::whole_tensor, serves_adopted_block<Partitioner>,
                          Engine::types, ModelParallelCommunicator<typename Engine::Communicator>,
                          !unit_order.empty());
    bool const shards_parameters = stage_table[static_cast<std::size_t>(stage)].shards_parameters();
    std::vector<std::size_t> const bytes = sizes_of<Engine>();
    LayoutOptions const geometry{world,
                                 bytes.front(),
                                 shards_parameters,
                                 {bytes.begin() + 1, bytes.end()},
                                 {unit_order.begin(), unit_order.end()},
                                 shards_parameters ? options.gather.persistence_threshold : 0,
                                 options.gather.max_persistent_elements,
                                 shards_parameters ? options.gather.keep_until_update : 0};
    auto const finish = [&](FlatLayout layout) {
        layout.name_units(options.unit_names);
        layout.name_backward_call(options.backward_call);
        if constexpr (codes_weights<Engine> || codes_gradients<Engine> || codes_replicas<Engine>) {
            require_whole_blocks(layout);
        }
        if constexpr (codes_frozen<Engine>) {
            require_frozen(layout);
        }
        return layout;
    };
    if (options.storage == Storage::adopted) {
        auto const block = options.adopted_block;
        std::vector<std::size_t> const offsets =
            offsets_in_block(parameters, block.data(), block.size(), sizeof(block[0]));
        if constexpr (Engine::OptimizerState::is_block_scaled) {
            require_tiles_of_blocks(parameters, as_span(offsets));
            if constexpr (Engine::adds_in_tree
                          || ModelParallelCommunicator<typename Engine::Communicator>) {
                require_aligned_blocks(parameters, as_span(offsets));
            }
        }
        std::vector<ParameterSpec> specs = specs_of(parameters);
        using Types = typename Engine::template TypesAt<0>;
        if constexpr (is_exact_conversion<typename Types::Accumulation, typename Types::Gradient>) {
            find_gradient_block(specs, parameters, as_span(offsets),
                                sizeof(typename Types::Gradient));
        }
        return finish(make_adopted_layout<Bucketer>(std::move(specs), as_span(offsets), geometry,
                                                    options.bucketer));
    }
    std::vector<ParameterSpec> specs = specs_of(parameters);
    if constexpr (MatrixOptimizer<typename Engine::Optimizer>) {
        std::vector<std::optional<Update>> groups;
        for (auto const& group : options.groups) {
            groups.push_back(group.update);
        }
        decide_updates(specs, as_span(groups), type_name<typename Engine::Optimizer>());
    }
    if constexpr (Engine::OptimizerState::is_block_scaled) {
        require_tiles_of_blocks(parameters, {});
    }
    return finish(make_layout<Partitioner, Bucketer>(std::move(specs), geometry, options.bucketer,
                                                     options.partitioner));
}

/// @brief Requires that a parameter's memory is where it was registered and has its size.
/// @param registered null pointers where no memory was registered
/// @throws InvalidArgument naming the parameter, both addresses, the rank and the remedy
void require_same_memory(ParameterSpec const& spec, CurrentMemory const& registered,
                         CurrentMemory const& now, std::size_t rank);

/// @brief Requires that a list of registrations names the parameter at this place.
/// @throws InvalidArgument
[[gnu::cold]] void require_same_name(ParameterSpec const& registered, std::string const& name,
                                     std::size_t index, std::size_t rank);

/// @brief Requires that a list of registrations has as many parameters as the engine.
/// @throws InvalidArgument
[[gnu::cold]] void require_same_count(std::size_t registered, std::size_t now, std::size_t rank);

/// @brief Requires that a registration names no memory where the engine uses its own.
/// @throws InvalidArgument
[[gnu::cold]] void require_no_other_memory(ParameterSpec const& spec,
                                           CurrentMemory const& registered,
                                           CurrentMemory const& now, std::size_t rank);

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "assign_types.ipp"
#include "require_same_memory.ipp"
#endif
