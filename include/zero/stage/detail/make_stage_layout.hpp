#pragma once

#include "../../core/convert.hpp"
#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/type_name.hpp"
#include "../../layout/flat_layout.hpp"
#include "../../layout/layout_options.hpp"
#include "../../layout/make_adopted_layout.hpp"
#include "../../layout/make_layout.hpp"
#include "../../layout/parameter_spec.hpp"
#include "../../layout/placement.hpp"
#include "../../layout/storage.hpp"
#include "../../policy/optimizer.hpp"
#include "../any_parameter.hpp"
#include "../stage_options.hpp"
#include "find_gradient_block.hpp"
#include "offsets_in_block.hpp"
#include "register_parameters.hpp"
#include "require_accessible.hpp"
#include "serves_adopted_block.hpp"
#include "specs_of.hpp"
#include "validate_memory.hpp"
#include "validate_options.hpp"
#include "validate_registration.hpp"

#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Returns the bytes per element of each parameter type.
template <class Engine>
[[gnu::cold]] std::vector<std::size_t> sizes_of() {
    return []<std::size_t... Type>(std::index_sequence<Type...>) {
        return std::vector<std::size_t>{
            sizeof(typename Engine::template TypesAt<Type>::Parameter)...};
    }(std::make_index_sequence<Engine::types>());
}

/// @brief Checks all arguments of a stage and makes its layout. Allocates no backend memory and
/// sends nothing.
/// @param unit_order the order in which units finish their backward pass; empty: by
/// descending number
/// @throws InvalidArgument naming the option or the parameter, and the remedy
template <class Engine, class Partitioner, class Bucketer>
[[gnu::cold]] FlatLayout
make_stage_layout(int stage, std::size_t world, std::span<AnyParameter const> parameters,
                  StageOptions<Engine> const& options, std::span<std::size_t const> unit_order) {
    validate_options(options, stage);
    check_unscaling(predivide_factor(options.reduction, world, Engine::communicates_float16),
                    Engine::LossScaler::initial(options.loss_scaler).scale);
    validate_memory(parameters, options.storage, stage);
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
                                 {unit_order.begin(), unit_order.end()},
                                 shards_parameters ? options.gather.persistence_threshold : 0,
                                 options.gather.max_persistent_elements};
    auto const finish = [&](FlatLayout layout) {
        layout.name_units(options.unit_names);
        layout.name_backward_call(options.backward_call);
        return layout;
    };
    if (options.storage == Storage::adopted) {
        auto const block = options.adopted_block;
        std::vector<std::size_t> const offsets =
            offsets_in_block(parameters, block.data(), block.size(), sizeof(block[0]));
        if constexpr (Engine::OptimizerState::is_block_scaled) {
            require_tiles_of_blocks(parameters, as_span(offsets));
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
    return finish(make_layout<Partitioner, Bucketer>(std::move(specs), geometry, options.bucketer));
}

} // namespace ZERO_NAMESPACE::detail
