#pragma once

#include "../../core/detail/namespace.hpp"
#include "../unit.hpp"

#include <c10/core/Allocator.h>
#include <c10/core/TensorImpl.h>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <torch/nn/module.h>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::torch::detail {

/// @brief One parameter of a module, and the two states between which it changes.
///
/// `whole` and `released` are copies of the tensor's description. Copying one of them into the
/// tensor changes its state and keeps its identity, its version and its place in autograd. All
/// views of the tensor share one storage, so they follow when its pointer changes.
struct ModuleTensor {
    at::Tensor tensor;
    std::string name;
    std::vector<std::size_t> units{}; ///< ascending, each once; a tied tensor has several
    bool is_trainable = true;
    std::optional<Update> update{}; ///< of its units, if it has two or more dimensions
    bool required_gradient = true;  ///< before `pause`
    c10::intrusive_ptr<c10::TensorImpl> whole{};
    c10::intrusive_ptr<c10::TensorImpl> released{};
    std::size_t holders = 0;   ///< acquired units that use it
    at::Tensor gradient{};     ///< view of the memory that the engine lent last
    bool is_leased = false;    ///< `gradient` is the tensor's `.grad`
    bool is_used = false;      ///< autograd added to it in this backward pass
    std::uint32_t version = 0; ///< version of `gradient` when lent; each addition raises it
    std::uint32_t written = 0; ///< version of `tensor`, if it is trained in place, at the last
                               ///< `accept_values`
};

/// @brief Takes the memory of a storage away. LibTorch 2.12 and later can also refuse an access
/// through a view that outlived its unit; from 2.6 to 2.11 it can refuse, but never allow again.
template <class Storage>
void forbid_access(Storage& storage, std::string const& text) {
    if constexpr (requires {
                      storage.release_data_and_set_meta_custom_data_ptr_error_msg_(text);
                      storage.clear_data_ptr_access_error_msg_();
                  }) {
        storage.release_data_and_set_meta_custom_data_ptr_error_msg_(text);
    } else {
        storage.set_data_ptr_noswap(at::DataPtr(nullptr, storage.device()));
    }
}

/// @brief Gives a storage memory, and allows access to it.
template <class Storage>
void set_memory(Storage& storage, at::DataPtr memory) {
    if constexpr (requires { storage.clear_data_ptr_access_error_msg_(); }) {
        storage.clear_data_ptr_access_error_msg_();
    }
    storage.set_data_ptr_noswap(std::move(memory));
}

/// @brief Lives during a backward pass that an adapter runs on this thread.
class RunningBackward {
public:
    RunningBackward() noexcept { ++count(); }
    RunningBackward(RunningBackward const&) = delete;
    RunningBackward& operator=(RunningBackward const&) = delete;
    ~RunningBackward() { --count(); }

    /// @brief Whether one is running. Autograd also runs hooks on threads of devices, where this
    /// is unknown and the answer is false.
    [[nodiscard]] static bool is_known() noexcept { return count() != 0; }

private:
    [[nodiscard]] static int& count() noexcept {
        static thread_local int running = 0;
        return running;
    }
};

/// @brief The parameters of a module in the order of its units, and the memory that their tensors
/// show. Used by `UnitRunner`.
///
/// A tensor shows the engine's memory while a unit that uses it is acquired. Otherwise it has no
/// memory, and reading it throws a `c10::Error` whose text names the parameter and the remedy.
class ModuleTensors {
public:
    /// @brief Finds names by identity and checks every tensor.
    /// @throws InvalidArgument naming a parameter that is in no unit, of another type or device, a
    /// view, not contiguous, no leaf, or shares memory with another one
    /// @param adapter name of the adapter in messages: "Sharded"
    ModuleTensors(::torch::nn::Module& module, std::vector<Unit> const& units, at::ScalarType type,
                  at::DeviceType device, int rank, char const* adapter);
    ModuleTensors(ModuleTensors const&) = delete;
    ModuleTensors& operator=(ModuleTensors const&) = delete;
    ~ModuleTensors() = default;

    [[nodiscard]] std::size_t size() const noexcept { return _tensors.size(); }
    [[nodiscard]] std::size_t units() const noexcept { return _members.size(); }
    [[nodiscard]] ModuleTensor& operator[](std::size_t parameter) { return _tensors[parameter]; }
    [[nodiscard]] ModuleTensor const& operator[](std::size_t parameter) const {
        return _tensors[parameter];
    }
    [[nodiscard]] std::vector<std::size_t> const& members(std::size_t unit) const {
        return _members[unit];
    }
    [[nodiscard]] std::vector<std::string> const& unit_names() const { return _unit_names; }
    [[nodiscard]] std::string unit_text(std::size_t unit) const;
    [[nodiscard]] int rank() const noexcept { return _rank; }
    [[nodiscard]] ::torch::nn::Module& module() const noexcept { return *_module; }

    /// @name Pauses, which may be nested
    /// @{
    /// @brief Takes all parameters out of the graphs that are made from now on.
    void pause();
    /// @brief Ends a pause; the last one restores `requires_grad`.
    void resume() noexcept;
    /// @brief Whether graphs that are made now do not train the module: it is paused, or frozen.
    [[nodiscard]] bool is_paused() const noexcept { return _pauses != 0 || !_is_trained; }
    /// @}

    /// @brief Refuses a backward pass that reached `what` and is not that of the adapter. @throws
    /// OutOfOrder
    [[noreturn]] void refuse_foreign_backward(std::string const& what) const;

    /// @brief Frees the memory of all tensors.
    void release_all();

    /// @brief Shows `memory` in a tensor. @throws InvalidArgument if the tensor was given other
    /// memory since registration
    void show(std::size_t parameter, void* memory);

    /// @brief Removes one holder of a tensor; removing the last one takes its memory away.
    void hide(std::size_t parameter) noexcept;

    /// @brief Shows memory that the tensor then owns.
    void own(std::size_t parameter, at::DataPtr memory);

    /// @brief Takes away the memory that `own` gave.
    void disown(std::size_t parameter);

    /// @brief Makes `memory` the tensor's `.grad`.
    void lend_gradient(std::size_t parameter, void* memory);

    /// @brief Takes `.grad` away. @return false if it was replaced in the meantime
    bool take_gradient(std::size_t parameter) noexcept;

    /// @brief Requires that the module has its registered tensors, and that the loss has a graph.
    /// O(parameters). @throws InvalidArgument; OutOfOrder while it is paused
    void require_trainable(at::Tensor const& loss) const;

    /// @brief Requires that each tensor still shows the memory that it had at registration, and
    /// that no trainable one was written by LibTorch since `accept_values`. For tensors that are
    /// trained in place. @throws InvalidArgument
    void require_in_place() const;

    /// @brief The engine has the values that the tensors show.
    void accept_values();

    /// @brief Requires that no parameter has a gradient outside of the engine's memory. @throws
    /// LateGradient
    void require_no_stray_gradient() const;

private:
    void add(std::size_t unit, at::Tensor const& tensor, std::string const& name,
             at::ScalarType type, at::DeviceType device);
    void prepare(ModuleTensor& item) const;
    [[noreturn]] void refuse(std::string const& name, char const* why) const;
    [[noreturn]] void refuse_other_memory(ModuleTensor const& item) const;

    ::torch::nn::Module* _module;
    int _rank;
    char const* _adapter;
    std::size_t _pauses = 0;
    bool _is_trained = false; ///< whether a parameter is trainable
    std::vector<ModuleTensor> _tensors;
    std::map<c10::TensorImpl const*, std::size_t>
        _numbers; ///< numbers of the parameters, by identity
    std::vector<std::string> _unit_names;
    std::vector<std::vector<std::size_t>> _members; ///< per unit, ascending
};

} // namespace ZERO_NAMESPACE::torch::detail

#if !defined(ZERO_COMPILED)
#include "module_tensors.ipp"
#endif
