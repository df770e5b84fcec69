#pragma once

#include "../../core/detail/namespace.hpp"
#include "module_tensors.hpp"

#include <cstddef>
#include <memory>
#include <torch/types.h>
#include <vector>

namespace ZERO_NAMESPACE::torch::detail {

/// @brief The calls of an engine that `GradientHooks` makes. `Replicated` implements it.
class GradientReceiver {
public:
    /// @brief Adds a contiguous gradient, or keeps it until it is added.
    virtual void receive(std::size_t parameter, at::Tensor const& gradient) = 0;

    /// @brief All gradients of a unit were received.
    virtual void ready(std::size_t unit) = 0;

protected:
    ~GradientReceiver() = default;
};

/// @brief Passes each gradient of a module on as soon as autograd has accumulated it, and drops it.
/// Autograd accumulates once in a backward pass for each parameter, however often it is used.
class GradientHooks : public std::enable_shared_from_this<GradientHooks> {
public:
    /// @param receiver must outlive this object
    GradientHooks(ModuleTensors& tensors, GradientReceiver& receiver);
    GradientHooks(GradientHooks const&) = delete;
    GradientHooks& operator=(GradientHooks const&) = delete;
    ~GradientHooks();

    /// @brief Sets a hook on each trainable parameter. Call it once. @throws InvalidArgument naming
    /// a parameter that has such a hook
    void attach();

    /// @brief Runs the backward pass of a scaled loss. Every unit that got a gradient is ready
    /// afterwards. After an exception no parameter has a gradient.
    void backward(at::Tensor const& loss);

private:
    struct Hook;

    void on_gradient(std::size_t parameter);
    void drop_gradients() noexcept;

    ModuleTensors* _tensors;
    GradientReceiver* _receiver;
    std::vector<std::size_t> _trainable; ///< number of parameters per unit
    std::vector<std::size_t> _missing;   ///< gradients per unit in this backward pass
    bool _is_attached = false;
    bool _is_running = false;
};

} // namespace ZERO_NAMESPACE::torch::detail

#if !defined(ZERO_COMPILED)
#include "gradient_hooks.ipp"
#endif
