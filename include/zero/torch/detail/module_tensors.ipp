#pragma once

#include "module_tensors.hpp"

#include "../../core/detail/text.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"

#include <ATen/ops/from_blob.h>
#include <c10/core/StorageImpl.h>
#include <utility>

namespace ZERO_NAMESPACE::torch::detail {

inline c10::StorageImpl& storage_of(ModuleTensor const& item) {
    return *item.whole->unsafe_storage().unsafeGetStorageImpl();
}

inline std::uint32_t version_of(at::Tensor const& tensor) {
    return tensor.unsafeGetTensorImpl()->version_counter().current_version();
}

inline std::string released_text(ModuleTensor const& item, int rank) {
    return zero::detail::text({"zero: parameter '", item.name,
                               "' is sharded, and its unit is not in use (rank ", rank,
                               "); read it inside the call of its unit in the Sharded module, or "
                               "between materialize() and shard()."});
}

ZERO_COLD_INLINE ModuleTensors::ModuleTensors(::torch::nn::Module& module,
                                              std::vector<Unit> const& units, at::ScalarType type,
                                              at::DeviceType device, int rank, char const* adapter)
    : _module(&module), _rank(rank), _adapter(adapter), _members(units.size()) {
    std::map<c10::TensorImpl const*, std::string> names;
    for (auto const& parameter : module.named_parameters()) {
        names.emplace(parameter.value().unsafeGetTensorImpl(), parameter.key());
    }
    for (std::size_t unit = 0; unit < units.size(); ++unit) {
        _unit_names.push_back(units[unit].name);
        for (at::Tensor const& tensor : units[unit].parameters) {
            auto const name = names.find(tensor.unsafeGetTensorImpl());
            if (name == names.end()) {
                zero::detail::throw_error<InvalidArgument>(
                    {"zero: unit '", units[unit].name,
                     "' lists a tensor that is no parameter of the module (rank ", rank,
                     "); list the module's own tensors, not views or copies of them."});
            }
            add(unit, tensor, name->second, type, device);
            ModuleTensor& item = _tensors[_numbers.at(tensor.unsafeGetTensorImpl())];
            if (!item.update && tensor.dim() >= 2) {
                item.update = units[unit].update;
            }
        }
    }
    for (auto const& parameter : module.named_parameters()) {
        if (!_numbers.contains(parameter.value().unsafeGetTensorImpl())) {
            refuse(parameter.key(), "is in no unit; list it in the unit that uses it");
        }
    }
    for (ModuleTensor& item : _tensors) {
        prepare(item);
    }
}

ZERO_COLD_INLINE void ModuleTensors::add(std::size_t unit, at::Tensor const& tensor,
                                         std::string const& name, at::ScalarType type,
                                         at::DeviceType device) {
    auto const known = _numbers.find(tensor.unsafeGetTensorImpl());
    if (known != _numbers.end()) {
        ModuleTensor& item = _tensors[known->second];
        if (item.units.back() != unit) {
            item.units.push_back(unit);
            _members[unit].push_back(known->second);
        }
        return;
    }
    for (ModuleTensor const& item : _tensors) {
        if (item.tensor.is_alias_of(tensor) && tensor.numel() != 0) {
            refuse(name, ("shares memory with parameter '" + item.name
                          + "', but is another tensor; tie parameters by assigning the tensor")
                             .c_str());
        }
    }
    if (tensor.scalar_type() != type) {
        refuse(name, "is not of the parameter type of the stage; convert the module with to() "
                     "before it is sharded, or name Parameters<...> among the policies");
    }
    if (tensor.device().type() != device) {
        refuse(name, "lies on another device than the stage's backend");
    }
    if (!tensor.is_leaf() || !tensor.is_contiguous() || tensor.storage_offset() != 0
        || tensor.storage().nbytes() != tensor.nbytes()) {
        refuse(name, "is a view or not contiguous; register a tensor with memory of its own, for "
                     "instance tensor.contiguous().clone()");
    }
    _numbers.emplace(tensor.unsafeGetTensorImpl(), _tensors.size());
    _members[unit].push_back(_tensors.size());
    _tensors.push_back({tensor, name});
    _tensors.back().units.push_back(unit);
    _tensors.back().is_trainable = tensor.requires_grad();
    _is_trained = _is_trained || tensor.requires_grad();
}

ZERO_COLD_INLINE void ModuleTensors::prepare(ModuleTensor& item) const {
    c10::TensorImpl& tensor = *item.tensor.unsafeGetTensorImpl();
    item.whole = tensor.shallow_copy_and_detach(c10::VariableVersion(0), true);
    item.released = tensor.shallow_copy_and_detach(c10::VariableVersion(0), true);
    item.released->release_storage_and_set_meta_custom_data_ptr_error_msg_(
        released_text(item, _rank));
}

ZERO_COLD_INLINE void ModuleTensors::refuse(std::string const& name, char const* why) const {
    zero::detail::throw_error<InvalidArgument>(
        {"zero: parameter '", name, "' ", why, " (rank ", _rank, ")."});
}

ZERO_COLD_INLINE void ModuleTensors::refuse_other_memory(ModuleTensor const& item) const {
    refuse(item.name, "was given other memory after registration, for instance by module.to() or "
                      "set_data(); convert the module before it is registered, and set values by "
                      "load()");
}

ZERO_COLD_INLINE std::string ModuleTensors::unit_text(std::size_t unit) const {
    return zero::detail::text({"unit ", unit, " ('", _unit_names[unit], "')"});
}

ZERO_COLD_INLINE void ModuleTensors::release_all() {
    for (std::size_t parameter = 0; parameter < size(); ++parameter) {
        disown(parameter);
    }
}

ZERO_INLINE void ModuleTensors::show(std::size_t parameter, void* memory) {
    ModuleTensor& item = _tensors[parameter];
    if (item.holders == 0) {
        if (item.tensor.has_storage()) {
            refuse_other_memory(item);
        }
        set_memory(storage_of(item), at::DataPtr(memory, item.tensor.device()));
        item.tensor.unsafeGetTensorImpl()->shallow_copy_from(item.whole);
    }
    ++item.holders;
}

ZERO_INLINE void ModuleTensors::hide(std::size_t parameter) noexcept {
    ModuleTensor& item = _tensors[parameter];
    if (--item.holders == 0) {
        c10::TensorImpl& tensor = *item.tensor.unsafeGetTensorImpl();
        // a tensor that was given other memory keeps it, so that the next show() refuses it
        if (tensor.unsafe_storage().unsafeGetStorageImpl() == &storage_of(item)) {
            tensor.shallow_copy_from(item.released);
        }
        set_memory(storage_of(item), at::DataPtr(nullptr, item.tensor.device()));
    }
}

ZERO_COLD_INLINE void ModuleTensors::own(std::size_t parameter, at::DataPtr memory) {
    ModuleTensor& item = _tensors[parameter];
    set_memory(storage_of(item), std::move(memory));
    item.tensor.unsafeGetTensorImpl()->shallow_copy_from(item.whole);
}

ZERO_COLD_INLINE void ModuleTensors::disown(std::size_t parameter) {
    ModuleTensor& item = _tensors[parameter];
    item.tensor.unsafeGetTensorImpl()->shallow_copy_from(item.released);
    set_memory(storage_of(item), at::DataPtr(nullptr, item.tensor.device()));
    if (item.tensor.numel() != 0) {
        forbid_access(storage_of(item), released_text(item, _rank));
    }
}

ZERO_INLINE void ModuleTensors::lend_gradient(std::size_t parameter, void* memory) {
    ModuleTensor& item = _tensors[parameter];
    if (!item.is_trainable || item.is_leased) {
        return;
    }
    if (item.tensor.grad().defined()) {
        require_no_stray_gradient();
    }
    if (!item.gradient.defined() || item.gradient.data_ptr() != memory) {
        item.gradient =
            at::from_blob(memory, item.tensor.sizes(),
                          at::TensorOptions(item.tensor.dtype()).device(item.tensor.device()));
    }
    item.version = version_of(item.gradient);
    item.tensor.mutable_grad() = item.gradient;
    item.is_leased = true;
}

ZERO_INLINE bool ModuleTensors::take_gradient(std::size_t parameter) noexcept {
    ModuleTensor& item = _tensors[parameter];
    if (!item.is_leased) {
        return true;
    }
    item.is_leased = false;
    item.is_used = item.is_used || version_of(item.gradient) != item.version;
    at::Tensor const found = std::exchange(item.tensor.mutable_grad(), at::Tensor());
    return found.is_same(item.gradient);
}

ZERO_COLD_INLINE void ModuleTensors::pause() {
    if (_pauses++ == 0) {
        for (ModuleTensor& item : _tensors) {
            item.required_gradient = item.tensor.requires_grad();
            item.tensor.set_requires_grad(false);
        }
    }
}

ZERO_COLD_INLINE void ModuleTensors::resume() noexcept {
    if (--_pauses == 0) {
        for (ModuleTensor& item : _tensors) {
            item.tensor.set_requires_grad(item.required_gradient);
        }
    }
}

ZERO_COLD_INLINE void ModuleTensors::refuse_foreign_backward(std::string const& what) const {
    std::string const pause = zero::detail::text(
        {"keep 'auto const paused = x.paused();' alive during the forward pass of the loss, where "
         "x is the adapter of ",
         _module->name(), "; if no gradient may flow into it, detach() its outputs"});
    if (RunningBackward::is_known()) {
        zero::detail::throw_error<OutOfOrder>(
            {"zero: the backward pass of another adapter reached ", what, " of ", _module->name(),
             " (rank ", _rank, "). If that loss must not train it, ", pause,
             "; if one loss trains both modules, register both in one module, and train that."});
    }
    zero::detail::throw_error<OutOfOrder>(
        {"zero: the backward pass reached ", what, " of ", _module->name(), " outside of ",
         "backward() of the ", _adapter, " module (rank ", _rank, "); call backward(loss) of the ",
         _adapter, " module instead of loss.backward(). If the loss trains another module, ", pause,
         "."});
}

ZERO_COLD_INLINE void ModuleTensors::require_trainable(at::Tensor const& loss) const {
    if (_pauses != 0) {
        zero::detail::throw_error<OutOfOrder>(
            {"zero: backward() of the ", _adapter, " module while its paused() lives (rank ", _rank,
             "), so the loss does not depend on its parameters; end that scope before the forward "
             "pass."});
    }
    if (loss.defined() && !loss.requires_grad()) {
        zero::detail::throw_error<InvalidArgument>(
            {"zero: backward(loss) of the ", _adapter,
             " module got a loss that does not require grad (rank ", _rank,
             "): its forward pass ran while paused() of that module lived, under a NoGradGuard, or "
             "ended in detach(); run it outside of that scope."});
    }
    auto const parameters = _module->named_parameters();
    for (auto const& parameter : parameters) {
        if (!_numbers.contains(parameter.value().unsafeGetTensorImpl())) {
            refuse(parameter.key(), "of the module is another tensor than the one that was "
                                    "registered, so it would not be trained; keep the tensor and "
                                    "set its values by load()");
        }
    }
    for (ModuleTensor const& item : _tensors) {
        if (item.tensor.requires_grad() != item.is_trainable) {
            refuse(item.name, "changed requires_grad after registration; set it before the module "
                              "is registered");
        }
    }
}

ZERO_INLINE void ModuleTensors::require_in_place() const {
    for (ModuleTensor const& item : _tensors) {
        if (!item.tensor.is_alias_of(at::Tensor(item.whole)) && item.tensor.numel() != 0) {
            refuse_other_memory(item);
        }
        if (item.is_trainable && version_of(item.tensor) != item.written) {
            refuse(item.name, "was written in place, which the engine has not seen; set values by "
                              "load(), which also takes what the module holds: "
                              "load(module.named_parameters())");
        }
    }
}

ZERO_INLINE void ModuleTensors::accept_values() {
    for (ModuleTensor& item : _tensors) {
        item.written = version_of(item.tensor);
    }
}

ZERO_COLD_INLINE void ModuleTensors::require_no_stray_gradient() const {
    for (ModuleTensor const& item : _tensors) {
        if (!item.is_leased && item.tensor.grad().defined()) {
            item.tensor.mutable_grad().reset();
            zero::detail::throw_error<LateGradient>(
                {"zero: parameter '", item.name,
                 "' got a gradient outside of the backward pass of ", unit_text(item.units.front()),
                 " (rank ", _rank, "), which dropped it; call backward(loss) of the ", _adapter,
                 " module once for each micro-step, and use the parameter only in the "
                 "units that list it. Call cancel_step() to go on."});
        }
    }
}

} // namespace ZERO_NAMESPACE::torch::detail
