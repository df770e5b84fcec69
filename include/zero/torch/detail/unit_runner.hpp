#pragma once

#include "../../core/detail/namespace.hpp"
#include "module_tensors.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <torch/types.h>
#include <vector>

namespace ZERO_NAMESPACE::torch::detail {

/// @brief The calls of an engine that `UnitRunner` makes, without the engine's types. `Sharded`
/// implements it.
class UnitEngine {
public:
    /// @brief Acquires a unit, and sets the address of each of its parameters.
    virtual void acquire(std::size_t unit, std::vector<void*>& addresses) = 0;
    virtual void release(std::size_t unit) noexcept = 0;

    /// @brief Leases the gradients of a unit; a frozen parameter gets no address.
    virtual void lease(std::size_t unit, std::vector<void*>& addresses) = 0;
    virtual void ready(std::size_t unit) = 0;

    /// @brief Returns the number of extra leases with which the gradients of all units may be lent
    /// at once.
    [[nodiscard]] virtual std::size_t leases_of_all() const noexcept = 0;

protected:
    ~UnitEngine() = default;
};

/// @brief Decides when the units of a module are acquired, lent and complete: around each forward
/// call, and in the backward pass when autograd reaches an output of a unit. `Sharded` owns one.
///
/// Autograd runs the nodes of a graph in the reverse order of their creation, and the accumulation
/// of a gradient before any other node. So a call is over when the backward pass reaches another
/// one that was not made inside it, and a unit is complete when all its calls are over.
class UnitRunner : public std::enable_shared_from_this<UnitRunner> {
public:
    /// @param engine must outlive this object
    /// @param refuses_unused whether a backward pass must reach every trainable parameter
    UnitRunner(ModuleTensors& tensors, UnitEngine& engine, bool refuses_unused);

    /// @brief Acquires a unit for a forward call. In a backward pass, as for recomputed
    /// activations, it first ends the calls that are open.
    void enter(std::size_t unit);

    /// @brief Ends the call that `enter` began.
    void leave() noexcept;

    /// @brief Arranges that the backward pass through any of these outputs of the forward call that
    /// was entered last acquires its unit.
    void watch(std::vector<at::Tensor> const& outputs);

    /// @brief Runs the backward pass of a scaled loss. After an exception no unit is held and no
    /// gradient lent.
    void backward(at::Tensor const& loss);

    /// @brief Releases the units that the backward pass of another adapter uses. Needed after a
    /// failure: a pass that ends releases them itself.
    void end_foreign_backward() noexcept;

    /// @brief Whether the tensors hold whole parameters of their own, so that no unit is acquired.
    bool is_whole = false;

    /// @brief Requires that no unit is in use. @throws OutOfOrder
    void require_idle(char const* call) const;

private:
    /// One forward call. Its graph keeps it.
    struct Call {
        std::size_t unit;
        std::shared_ptr<Call> outer{}; ///< the call in which it was made
        std::uint64_t pass = 0;        ///< the backward pass that reached it
        bool is_paused = false;        ///< it trains nothing: backward passes of others reach it
    };

    void on_gradient(std::shared_ptr<Call> const& call);
    void hold(std::size_t unit);
    void drop(std::size_t unit) noexcept;
    void open(std::shared_ptr<Call> const& call);
    void open_paused(std::shared_ptr<Call> const& call);
    void close_to(Call const* outer);
    void lend(std::size_t unit);
    void complete(std::size_t unit);
    /// @throws OutOfOrder if units that ran more than once hold the gradient leases
    void refuse_repetition() const;
    void require_all_used() const;
    void reset() noexcept;
    [[nodiscard]] bool has_calls_left(std::size_t unit) const;

    ModuleTensors* _tensors;
    UnitEngine* _engine;
    std::vector<std::size_t> _holders;                    ///< per unit
    std::vector<std::vector<std::weak_ptr<Call>>> _calls; ///< per unit, with a graph
    std::vector<std::weak_ptr<Call>> _last_outer; ///< per unit: outer of its last forward call
    std::vector<std::vector<std::size_t>> _lent;  ///< per unit: parameters whose gradient it lent
    std::vector<bool> _is_begun;                  ///< per unit, in this backward pass
    std::vector<void*> _addresses;
    std::vector<std::shared_ptr<Call>> _forward; ///< calls that are running, the inner last
    std::vector<std::shared_ptr<Call>> _open;    ///< calls that the backward pass is in, the
                                                 ///< inner last
    std::uint64_t _pass = 0;
    bool _refuses_unused;
    bool _is_running = false;
};

} // namespace ZERO_NAMESPACE::torch::detail

#if !defined(ZERO_COMPILED)
#include "unit_runner.ipp"
#endif
