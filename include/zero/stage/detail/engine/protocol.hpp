#pragma once

#include "../../../core/detail/namespace.hpp"
#include "../../../core/dtype.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../../../layout/parameter_spec.hpp"
#include "../../../policy/gradient_reduction.hpp"
#include "../gradients/readiness.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief What a call does with the states of an engine. The later ones need more.
enum class StateUse : std::uint8_t {
    read_parameters,
    read_all, ///< master weights and states as well
    change
};

/// @brief Keeps calls from the states of an engine between two steps, because `offload_states`
/// moved them out of memory or averages are shown in place of the weights.
class ParkedStates {
public:
    ParkedStates() = default;
    ParkedStates(ParkedStates const&) = delete;
    ParkedStates& operator=(ParkedStates const&) = delete;
    virtual ~ParkedStates() = default;

    /// @brief Waits for a reload that was begun.
    /// @throws OutOfOrder if something that the call uses is not in memory, or must not change
    virtual void require_here(char const* call, StateUse use) = 0;

    /// @brief Whether `offload_states` made it.
    [[nodiscard]] virtual bool is_offloaded() const noexcept { return true; }
};

/// @brief Tracks the phase of an engine in its call protocol and makes every check that needs no
/// data.
///
/// A member of every engine. It depends on no type of the engine, so its code and messages are
/// compiled once. Each `require_...` throws: BrokenEngine after a failure, OutOfOrder for a call in
/// the wrong phase, and otherwise the error that it names. @p call is the name of the function in
/// the message.
class Protocol {
public:
    /// In the order of what they forbid: from `broken` on parameters cannot be read. Between two
    /// steps `states_away`, `parameters_away` and `update_pending` replace `idle`.
    enum class Phase {
        idle,
        in_step,
        in_micro_step,
        states_away,
        broken,
        parameters_away,
        update_pending ///< parameters lack the update of the last step (`DelayedUpdate`)
    };

    Protocol(FlatLayout const& layout, std::size_t rank)
        : _layout(&layout), _rank(rank), _held(layout.units()) {}

    [[nodiscard]] bool is_broken() const noexcept { return _phase == Phase::broken; }
    [[nodiscard]] bool is_in_step() const noexcept {
        return _phase == Phase::in_step || _phase == Phase::in_micro_step;
    }
    [[nodiscard]] std::size_t micro_steps() const noexcept { return _micro_steps; }
    /// @brief Steps so far, cancelled ones included.
    [[nodiscard]] std::uint64_t steps_begun() const noexcept { return _steps_begun; }
    [[nodiscard]] std::uint64_t micro_step_serial() const noexcept { return _micro_step_serial; }
    [[nodiscard]] std::string rank_text() const; ///< "rank N"

    void begin_step() noexcept {
        _micro_steps = 0;
        ++_steps_begun;
        _is_announced = false;
        _phase = Phase::in_step;
    }

    void begin_micro_step(bool is_last) noexcept {
        _is_announced = is_last;
        ++_micro_step_serial;
        _phase = Phase::in_micro_step;
    }

    void end_micro_step() noexcept {
        ++_micro_steps;
        _phase = Phase::in_step;
    }

    /// @brief Forbids further micro-steps in this step.
    void end_accumulation() noexcept { _is_announced = true; }

    void end_step() noexcept { _phase = _lacks_update ? Phase::update_pending : Phase::idle; }

    /// @brief Sets whether the parameters lack the update of the last step. Inside a step, or
    /// before `end_step`.
    void set_update_pending(bool is_pending) noexcept { _lacks_update = is_pending; }
    [[nodiscard]] bool is_update_pending() const noexcept { return _lacks_update; }

    /// @brief The same between two steps, where `settle` is allowed.
    [[nodiscard]] bool may_settle() const noexcept { return _phase == Phase::update_pending; }

    /// @brief Enters the phase `broken`: `require_alive` throws from now on.
    void break_down(char const* cause) noexcept;

    /// @throws BrokenEngine
    void require_alive() const;

    void require_idle(char const* call, StateUse use = StateUse::change) const;

    /// @brief The same for `begin_step`, before which an update may be pending.
    void require_may_begin_step() const;

    /// @brief Requires that parameters can be read, in a step or between two.
    void require_may_acquire() const;
    void require_step(char const* call) const;
    void require_micro_step(char const* call) const;

    /// @brief The same for a call that reports gradients, which an adapter makes for the program.
    void require_gradient_call(char const* call) const;

    /// @param is_only whether a step must have one micro-step
    /// @param reduction says whether `one_micro_step` is the reason
    void require_may_begin_micro_step(bool is_only,
                                      GradientReductionOptions const& reduction) const;

    /// @brief Requires that a step has as many micro-steps as its micro-batches make.
    void require_micro_steps(char const* call, std::size_t count, std::size_t micro_batches) const;

    /// @brief The same for a call at the end of a step.
    void require_whole_tree(char const* call, std::size_t micro_batches) const {
        require_micro_steps(call, _micro_steps, micro_batches);
    }

    /// @brief The same for the micro-step that begins. @param is_last whether it was announced so
    void require_micro_step_of(std::size_t micro_batches, bool is_last) const;

    /// @brief Requires that a micro-step of this step has ended and none is open.
    void require_accumulated(char const* call) const;

    void require_may_step(double learning_rate) const;

    /// @brief Sets whether a `JointStep` ends the steps.
    void set_joint(bool is_joint) noexcept { _is_joint = is_joint; }
    [[nodiscard]] bool is_joint() const noexcept { return _is_joint; }

    /// @brief Refuses `step` where a `JointStep` ends it. @throws OutOfOrder
    void require_alone() const;

    /// @brief Requires a weight if and only if the reduction is a weighted mean. @throws
    /// InvalidArgument, also for one whose sum over two million ranks could overflow
    void require_weight(std::optional<std::int64_t> weight, bool is_weighted) const;

    /// @name Acquired units
    /// @{
    void acquire(std::size_t unit) noexcept {
        ++_held[unit];
        ++_handles;
    }
    void release(std::size_t unit) noexcept {
        --_held[unit];
        --_handles;
    }
    /// @brief Number of open weight handles and gathers for writing.
    [[nodiscard]] std::size_t handles() const noexcept { return _handles; }
    void require_nothing_held(char const* call) const;
    /// @}

    /// @name States that were moved out of memory
    /// @{

    /// @brief Keeps the states that are away; null ends them.
    void park(std::unique_ptr<ParkedStates> states) noexcept { _parked = std::move(states); }
    [[nodiscard]] std::unique_ptr<ParkedStates> unpark() noexcept { return std::move(_parked); }
    [[nodiscard]] ParkedStates* parked() const noexcept { return _parked.get(); }

    /// @brief Sets the phase between two steps. Inside a step nothing is away, and a broken engine
    /// stays so.
    void set_away(bool is_any, bool are_parameters) noexcept {
        if (_phase == Phase::idle || is_away()) {
            _phase = are_parameters ? Phase::parameters_away
                     : is_any       ? Phase::states_away
                                    : Phase::idle;
        }
    }

    /// @brief Requires that all states are in memory, and no update is pending, also inside a step.
    /// Allowed in a broken engine.
    void require_states_here(char const* call, StateUse use) const {
        if (_parked != nullptr) {
            _parked->require_here(call, use);
        }
        require_settled(call);
    }

    /// @brief Requires that no step is open and no visitor runs, whether or not states are away.
    void require_between_steps(char const* call) const;

    /// @brief Requires that no visitor runs: what it sees may be freed or replaced.
    void require_no_visit(char const* call) const;

    /// @brief Exists while a visitor of the caller sees memory of the engine.
    class Visit {
    public:
        explicit Visit(Protocol& protocol) noexcept : _protocol(&protocol) { ++protocol._visits; }
        Visit(Visit const&) = delete;
        Visit& operator=(Visit const&) = delete;
        ~Visit() { --_protocol->_visits; }

    private:
        Protocol* _protocol;
    };
    /// @}

    /// @name Parameters gathered for writing
    /// Each such gather counts as a handle, because the engine must outlive it.
    /// @{

    /// @brief Registers a gather for writing. @throws OutOfOrder if one of the parameters is
    /// written by another; nothing was changed
    void open_write(std::span<std::size_t const> parameters);
    void close_write(std::span<std::size_t const> parameters) noexcept;
    void require_nothing_written(char const* call) const;
    /// @}

    /// @throws InvalidArgument unless the rate is finite as a float and not negative
    void require_rate(double rate, char const* what) const;

    /// @throws InvalidArgument if the index is out of range
    void require_group(std::size_t group, std::size_t groups) const;

    /// @throws InvalidArgument if the index is out of range
    void require_unit(std::size_t unit) const;

    /// @throws InvalidArgument unless the unit uses the parameter
    void require_member(std::size_t unit, std::size_t parameter) const;

    /// @brief Returns the registration index of the parameter at a position within a unit.
    /// @throws InvalidArgument if the unit has fewer parameters
    [[nodiscard]] std::size_t parameter_at(std::size_t unit, std::size_t position) const;

    /// @throws LateGradient after `gradients_ready` of the unit in this micro-step
    void require_not_ready(Readiness const& readiness, std::size_t unit) const;

    /// @throws OutOfOrder if a unit was not acquired, and a registered gradient of it not leased
    void require_used(std::size_t unit, bool is_acquired,
                      GradientDeliveries const& deliveries) const;

    /// @brief Requires a handle of this micro-step whose unit is not ready yet. @throws
    /// LateGradient
    void require_current_gradient(Readiness const& readiness, std::size_t unit,
                                  std::size_t parameter, std::uint64_t micro_step) const;

    /// @brief Requires an aligned gradient as long as its trainable parameter, which must have no
    /// caller-owned gradient memory. @throws InvalidArgument
    void require_transient_gradient(std::size_t parameter, void const* gradient, DType type,
                                    std::size_t elements, bool is_in_callers_memory) const;

    /// @throws InvalidArgument: a parameter is requested with a type other than its own
    /// @param what "type" or "gradient", in the message
    [[noreturn]] void refuse_type(std::size_t parameter, char const* what, char const* has,
                                  char const* asked) const;

    /// @brief Returns the index of the first parameter without a gradient in this micro-step; the
    /// number of parameters if there is none. In a unit with registered gradients, one that is in
    /// the engine's memory must also have been asked for or handed over: its registration was
    /// probably forgotten.
    [[nodiscard]] std::size_t first_unused(Readiness const& readiness,
                                           GradientDeliveries const& deliveries) const;

    /// @brief Requires that every rank used every parameter.
    /// @param first_unused the result of `first_unused` of every rank, or of this rank alone
    /// @throws UnusedParameter naming the parameter, and what each rank lacks if all are known
    void require_all_used(std::span<std::uint64_t const> first_unused) const;

private:
    static constexpr std::int64_t largest_weight = std::int64_t{1} << 42U;
    static constexpr char const* inside_step = " inside a step; call step() or cancel_step() first";
    static constexpr char const* left_early =
        " inside a micro-step; call end_micro_step() first (a loop over micro_steps(n) ends its "
        "last micro-step only when it runs to its end)";

    /// The first member of a unit whose gradient is registered; null if there is none.
    [[nodiscard]] ParameterSpec const* registered_member(std::size_t unit) const;

    static std::string units_of(ParameterSpec const& spec);

    /// "unit 3 ('decoder') (parameter 'weight')": a unit with its first parameter.
    [[nodiscard]] std::string member_text(std::size_t unit) const;

    void require(bool holds, char const* call, char const* why) const;

    /// @throws OutOfOrder if an update is pending, unless the engine is broken
    void require_settled(char const* call) const;

    [[nodiscard]] bool is_away() const noexcept {
        return _phase == Phase::states_away || _phase == Phase::parameters_away;
    }

    /// Returns whether the engine is between two steps with what the call uses in memory, if states
    /// were away. @throws OutOfOrder
    [[nodiscard, gnu::cold]] bool has_states_back(char const* call, StateUse use) const;

    FlatLayout const* _layout;
    std::size_t _rank;
    Phase _phase = Phase::idle;
    std::string _failure;
    std::size_t _micro_steps = 0;
    std::uint64_t _steps_begun = 0;
    bool _is_announced = false;
    bool _lacks_update = false; ///< `DelayedUpdate`: the update of the last step is not published
    bool _is_joint = false;
    std::uint64_t _micro_step_serial = 0;
    std::vector<std::size_t> _held;    ///< per unit: handles of its weights
    std::size_t _handles = 0;          ///< handles of weights, and gathers for writing
    std::vector<std::size_t> _written; ///< parameters gathered for writing
    std::size_t _visits = 0;           ///< visitors that run
    std::unique_ptr<ParkedStates> _parked;
};

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "protocol.ipp"
#endif
