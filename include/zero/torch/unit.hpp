#pragma once

#include "../core/detail/namespace.hpp"
#include "../layout/parameter_spec.hpp"

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::torch {

/// @brief Parameters that are used together, and so gathered and released together: a module, or
/// single tensors. List units in the order in which the forward pass uses them.
struct Unit {
    std::string name;                   ///< for messages and `describe_memory`
    std::vector<at::Tensor> parameters; ///< tensors of the module; a tied one is in several units
    /// With `Muon`: how the tensors of two or more dimensions are updated. A tied one follows the
    /// first of its units that has a choice. With other optimizers it has no effect.
    std::optional<Update> update{};

    /// @brief The parameters of a module, those of its submodules included.
    Unit(std::string unit_name, ::torch::nn::Module const& module)
        : name(std::move(unit_name)), parameters(module.parameters()) {}

    /// @brief The same for a holder of a module.
    template <class Module>
    Unit(std::string unit_name, ::torch::nn::ModuleHolder<Module> const& module)
        : Unit(std::move(unit_name), static_cast<::torch::nn::Module const&>(*module)) {}

    /// @brief Single tensors.
    Unit(std::string unit_name, std::vector<at::Tensor> tensors)
        : name(std::move(unit_name)), parameters(std::move(tensors)) {}
};

/// @brief Returns the group of a parameter, given its name in the module and its tensor: an index
/// into `groups` of the engine's options.
using GroupOf = std::function<std::size_t(std::string const&, at::Tensor const&)>;

/// @brief Returns a unit for each module that has parameters of its own: the given module, then its
/// submodules in the order of registration.
inline std::vector<Unit> units_by_module(::torch::nn::Module const& module) {
    std::vector<Unit> units;
    auto const add = [&](std::string const& name, ::torch::nn::Module const& part) {
        if (auto parameters = part.parameters(false); !parameters.empty()) {
            units.emplace_back(name, std::move(parameters));
        }
    };
    add("module", module);
    for (auto const& entry : module.named_modules({}, false)) {
        add(entry.key(), *entry.value());
    }
    return units;
}

} // namespace ZERO_NAMESPACE::torch
