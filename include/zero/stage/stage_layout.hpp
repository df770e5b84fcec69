#pragma once

#include "../core/error.hpp"
#include "../layout/adopted_layout.hpp"
#include "../layout/make_layout.hpp"
#include "config.hpp"
#include "options.hpp"
#include "registration.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace zero::detail {

/// @brief Where each parameter lies in the adopted block. @throws InvalidArgument naming one that lies outside.
template <class T, class G>
std::vector<std::size_t> offsets_in_block(std::span<Parameter<T, G> const> parameters, std::span<T> block) {
    std::vector<std::size_t> offsets;
    for (auto const& parameter : parameters) {
        auto const begin = reinterpret_cast<std::uintptr_t>(parameter.data);
        auto const block_begin = reinterpret_cast<std::uintptr_t>(block.data());
        std::size_t const offset = parameter.elements == 0 ? 0 : (begin - block_begin) / sizeof(T);
        bool const is_inside = begin >= block_begin && offset <= block.size() && parameter.elements <= block.size() - offset;
        if (parameter.elements != 0 && !is_inside) {
            throw InvalidArgument("zero: parameter '" + parameter.name
                                  + "' does not lie inside adopted_block; give the block that holds all parameters.");
        }
        offsets.push_back(offset);
    }
    return offsets;
}

/// @brief Checks everything that the caller hands to a stage, and makes its geometry. Nothing is allocated or sent yet.
/// @throws InvalidArgument naming the option or the parameter, and the remedy
template <class Stage, class T, class G>
FlatLayout make_stage_layout(std::size_t world, std::span<Parameter<T, G> const> parameters,
                             StageOptions<typename Stage::Engine> const& options) {
    using Partitioner = typename Stage::Partitioner;
    validate_options(options, Stage::stage);
    validate_memory(parameters, options.storage);
    if (!serves_adopted_block<Partitioner> && options.storage == Storage::adopted) {
        throw InvalidArgument("zero: an adopted block is cut bucket by bucket where it lies, and another partitioner would be ignored; use "
                              "ContiguousPartitioner or Storage::scattered.");
    }
    for (auto const& parameter : parameters) {
        if (!options.groups.empty() && parameter.group >= options.groups.size()) {
            throw InvalidArgument("zero: parameter '" + parameter.name + "' is in group " + std::to_string(parameter.group)
                                  + ", but options.groups has " + std::to_string(options.groups.size())
                                  + " entries; list every group, or none.");
        }
    }
    LayoutOptions const geometry{world, sizeof(T), stage_table[Stage::stage].shards_parameters()};
    if (options.storage == Storage::adopted) {
        return make_adopted_layout<typename Stage::Bucketer>(specs_of(parameters), offsets_in_block(parameters, options.adopted_block),
                                                             geometry, options.bucketer);
    }
    return make_layout<Partitioner, typename Stage::Bucketer>(specs_of(parameters), geometry, options.bucketer);
}

} // namespace zero::detail
