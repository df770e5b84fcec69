#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/dtype.hpp"
#include "../../core/error.hpp"
#include "../../layout/flat_layout.hpp"
#include "../../layout/layout_options.hpp"
#include "../../layout/make_adopted_layout.hpp"
#include "../../layout/make_layout.hpp"
#include "../../layout/placement.hpp"
#include "../parameter.hpp"
#include "../stage_options.hpp"
#include "stage_config.hpp"
#include "validate_memory.hpp"
#include "validate_options.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Where each parameter lies in the adopted block. @throws InvalidArgument naming one that
/// lies outside.
template <class T>
std::vector<std::size_t> offsets_in_block(std::span<AnyParameter const> parameters,
                                          std::span<T> block) {
    std::vector<std::size_t> offsets;
    for (auto const& parameter : parameters) {
        auto const begin = reinterpret_cast<std::uintptr_t>(parameter.data);
        auto const block_begin = reinterpret_cast<std::uintptr_t>(block.data());
        std::size_t const offset =
            parameter.spec.elements == 0 ? 0 : (begin - block_begin) / sizeof(T);
        bool const is_inside = begin >= block_begin && offset <= block.size()
                               && parameter.spec.elements <= block.size() - offset;
        if (parameter.spec.elements != 0 && !is_inside) {
            throw_error<InvalidArgument>(
                {"zero: parameter '", parameter.spec.name,
                 "' does not lie inside adopted_block; give the block that holds all parameters."});
        }
        offsets.push_back(offset);
    }
    return offsets;
}

[[noreturn]] inline void throw_no_such_type(AnyParameter const& parameter) {
    throw_error<InvalidArgument>(
        {"zero: parameter '", parameter.spec.name, "' is ", name_of(parameter.type), " with a ",
         name_of(parameter.gradient_type),
         " gradient, which is none of the types of this composition; name its type in "
         "zero::Parameters, and its gradient's in zero::GradientReduction."});
}

/// @brief Bytes per element of each parameter type.
template <class Engine>
std::vector<std::size_t> sizes_of() {
    return []<std::size_t... Type>(std::index_sequence<Type...>) {
        return std::vector<std::size_t>{
            sizeof(typename Engine::template TypesAt<Type>::Parameter)...};
    }(std::make_index_sequence<Engine::types>());
}

/// @brief Parameters of the caller's as the engine sees them, each with its place in the list of
/// types.
/// @throws InvalidArgument naming a parameter whose types the composition does not have
template <class Engine, class Registration>
std::vector<AnyParameter> register_parameters(std::span<Registration const> parameters) {
    std::vector<AnyParameter> registered(parameters.begin(), parameters.end());
    using Pair = std::array<DType, 2>;
    auto const types = []<std::size_t... Type>(std::index_sequence<Type...>) {
        return std::array<Pair, Engine::types>{
            Pair{dtype_of<typename Engine::template TypesAt<Type>::Parameter>(),
                 dtype_of<typename Engine::template TypesAt<Type>::Gradient>()}...};
    }(std::make_index_sequence<Engine::types>());
    for (AnyParameter& parameter : registered) {
        std::size_t& type = parameter.spec.type;
        while (type < types.size()
               && types[type] != Pair{parameter.type, parameter.gradient_type}) {
            ++type;
        }
        if (type == types.size()) {
            throw_no_such_type(parameter);
        }
    }
    return registered;
}

/// @brief Checks what does not depend on types: groups, and what an adopted block asks of the
/// composition.
inline void validate_registration(std::span<AnyParameter const> parameters, std::size_t groups,
                                  Storage storage, bool needs_whole, bool serves_adopted,
                                  std::size_t types) {
    if (needs_whole && storage == Storage::adopted) {
        throw_error<InvalidArgument>(
            {"zero: an adopted block is cut inside parameters, but the optimizer needs whole ones; "
             "use Storage::scattered or Storage::owned."});
    }
    if (!serves_adopted && storage == Storage::adopted) {
        throw_error<InvalidArgument>(
            {"zero: an adopted block is cut bucket by bucket where it lies, and another "
             "partitioner would be ignored; use ContiguousPartitioner or Storage::scattered."});
    }
    std::vector<bool> is_used(groups, parameters.empty());
    for (auto const& parameter : parameters) {
        if (groups == 0
            && parameter.spec.group
                   >= parameters.size()) { // as many groups are made as the largest number asks for
            throw_error<InvalidArgument>(
                {"zero: parameter '", parameter.spec.name, "' is in group ", parameter.spec.group,
                 ", but there are ", parameters.size(),
                 " parameters, which make no more groups than that; number groups from 0."});
        }
        if (groups != 0 && parameter.spec.group >= groups) {
            throw_error<InvalidArgument>(
                {"zero: parameter '", parameter.spec.name, "' is in group ", parameter.spec.group,
                 ", but options.groups has ", groups, " entries; list every group, or none."});
        }
        if (groups != 0) {
            is_used[parameter.spec.group] = true;
        }
    }
    for (std::size_t group = 0; group < groups; ++group) {
        if (!is_used[group]) {
            throw_error<InvalidArgument>({"zero: options.groups has ", groups,
                                          " entries, but no parameter is in group ", group,
                                          ", so its options would be ignored; set the group of a "
                                          "parameter, or leave the entry out."});
        }
    }
    if (types > 1 && storage == Storage::adopted) {
        throw_error<InvalidArgument>({"zero: an adopted block holds one parameter type, but the "
                                      "model has several; use Storage::scattered."});
    }
}

/// @brief Checks everything that the caller hands to a stage, and makes its geometry. Nothing is
/// allocated or sent yet.
/// @param unit_order in which units finish their backward pass; empty: not known, so the reverse
/// registration order
/// @throws InvalidArgument naming the option or the parameter, and the remedy
template <class Engine, class Partitioner, class Bucketer>
FlatLayout make_stage_layout(int stage, std::size_t world, std::span<AnyParameter const> parameters,
                             StageOptions<Engine> const& options,
                             std::span<std::size_t const> unit_order) {
    validate_options(options, stage);
    validate_memory(parameters, options.storage);
    require_accessible<typename Engine::Backend>(parameters, options.storage);
    validate_registration(parameters, options.groups.size(), options.storage,
                          Engine::Optimizer::whole_tensor, serves_adopted_block<Partitioner>,
                          Engine::types);
    bool const shards_parameters = stage_table[static_cast<std::size_t>(stage)].shards_parameters();
    std::vector<std::size_t> const bytes = sizes_of<Engine>();
    LayoutOptions const geometry{world,
                                 bytes.front(),
                                 shards_parameters,
                                 {bytes.begin() + 1, bytes.end()},
                                 {unit_order.begin(), unit_order.end()}};
    if (options.storage == Storage::adopted) {
        return make_adopted_layout<Bucketer>(specs_of(parameters),
                                             offsets_in_block(parameters, options.adopted_block),
                                             geometry, options.bucketer);
    }
    return make_layout<Partitioner, Bucketer>(specs_of(parameters), geometry, options.bucketer);
}

} // namespace ZERO_NAMESPACE::detail
