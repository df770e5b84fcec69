#pragma once

#include "../core/detail/namespace.hpp"
#include "detail/module_tensors.hpp"

namespace ZERO_NAMESPACE::torch {

/// @brief Leaves the parameters of a module out of the graphs that are made while it lives:
/// `Replicated::paused` and `Sharded::paused` return it. It sets `requires_grad` of every parameter
/// to false, and its destructor restores what it was.
///
/// A loss that runs through the module of another adapter needs it, as that of a generator runs
/// through the discriminator:
///
///     auto const paused = discriminator.paused();
///     generator.backward(loss_of(score(generate(noise))));
///
/// It must live during the forward pass; whether it lives during the backward pass makes no
/// difference. The gradients of the module's inputs are complete. Several may live at once. The
/// adapter must outlive them.
class [[nodiscard]] Paused {
public:
    /// @brief Pauses the module. Called by the adapters.
    explicit Paused(detail::ModuleTensors& tensors) : _tensors(&tensors) { tensors.pause(); }
    Paused(Paused const&) = delete;
    Paused& operator=(Paused const&) = delete;
    ~Paused() { _tensors->resume(); }

private:
    detail::ModuleTensors* _tensors;
};

} // namespace ZERO_NAMESPACE::torch
