#pragma once

#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/detail/throw_error.hpp"
#include "../core/error.hpp"
#include "../layout/flat_layout.hpp"
#include "../policy/detail/state_name.hpp"
#include "detail/decision/step_settings.hpp"
#include "detail/state/add_held_states.hpp"
#include "detail/state/state_access.hpp"
#include "detail/state/state_table.hpp"
#include "detail/state/state_transfer.hpp"
#include "engine.hpp"
#include "weights.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief The form of a gradient that is read or written.
enum class GradientForm : std::uint8_t {
    unscaled, ///< as `step` applies it before clipping: unscaled and averaged. With a weighted
              ///< mean: the sum, because the weights come with `step`
    scaled    ///< as reduced: the sum over ranks, times the loss scale, over `predivide`
};

/// @brief Reads and writes the training state of an engine by parameter: weights in full
/// precision, optimizer states by name, and gradients. The same for every stage and type.
///
/// Values are floats. They are exact for float, split and 16-bit storage; block-scaled states are
/// read as the optimizer reads them. What is written is rounded to the stored type.
///
/// `full_...` and `set_full_...` are collective: every rank calls them with the same parameter,
/// state and form; otherwise each gets CollectiveMismatch over any transport. They wait, and need
/// memory for one parameter. `local_...` and `set_local_...` concern what this
/// rank updates and send nothing; they wait for enqueued commands. `full_fp32_parameter` of a
/// parameter without master weights is the parameter itself.
///
/// A view: it owns no state, and must not outlive the engine. `rebuild_buckets` invalidates it.
/// Making one takes O(slices).
///
///     zero::TrainingState state(engine);
///     std::vector<float> const moments = state.full_optimizer_state(3, "exp_avg");
template <class EngineType>
class TrainingState;

/// @brief The training state of an engine; see above.
template <class Config>
class TrainingState<Engine<Config>> {
public:
    using Optimizer = typename Config::Optimizer; ///< the engine's optimizer

    /// @brief Views an engine. O(slices).
    explicit TrainingState(Engine<Config>& engine) : _access(engine), _transfer(_access) {}

    /// @brief Returns the names of the optimizer's states.
    [[nodiscard]] static std::vector<std::string> state_names() {
        std::vector<std::string> names;
        for (std::size_t state = 0; state < Optimizer::states; ++state) {
            names.push_back(detail::state_name<Optimizer>(state));
        }
        return names;
    }

    /// @name Weights
    /// @{

    /// @brief Returns the weights from which the next step starts. Collective, between steps.
    [[nodiscard]] std::vector<float> full_fp32_parameter(std::size_t parameter) {
        require_parameter(parameter);
        return _transfer.gather(ArrayKind::parameter, 0, parameter);
    }

    /// @brief Replaces the weights on every rank by those of rank 0: master weights and parameters.
    /// Collective, between steps, with no handle held.
    /// @param values the whole parameter on rank 0; on another rank empty, or of the same length
    /// @throws InvalidArgument on every rank for another length; nothing was changed
    /// With `ErrorFeedback`, errors of earlier steps stay; `Engine::set_step_count` forgets them.
    void set_full_fp32_parameter(std::size_t parameter, std::span<float const> values) {
        require_parameter(parameter);
        _access.wait_to_write("set_full_fp32_parameter()");
        _transfer.broadcast(ArrayKind::parameter, 0, parameter, values, 1.0F);
        _access.publish_written();
    }

    /// @brief Returns the slices of the weights that this rank updates.
    [[nodiscard]] std::vector<LocalValues> local_fp32_parameter(std::size_t parameter) {
        require_parameter(parameter);
        return _transfer.local(ArrayKind::parameter, 0, parameter);
    }

    /// @brief Replaces one slice that this rank updates, between steps. When all ranks have
    /// written, call `publish_master_weights` on each; until then other ranks may read old
    /// parameters.
    /// @param begin, values as `local_fp32_parameter` returns them
    void set_local_fp32_parameter(std::size_t parameter, std::size_t begin,
                                  std::span<float const> values) {
        require_parameter(parameter);
        _access.protocol().require_idle("set_local_fp32_parameter()");
        _transfer.set_local(ArrayKind::parameter, 0, parameter, begin, values);
    }

    /// @brief Rounds master weights to the parameters and makes these equal on every rank: after
    /// changes through `set_local_fp32_parameter` or `Engine::for_each_owned_slice`. Keeps every
    /// bit of the master weights. On a host, a value that a visitor wrote replaces its copied
    /// master weight first, unless it wrote that as well. On a device write the master weights.
    /// Stage 0 takes the weights of rank 0. Collective, between steps, with no handle held.
    void publish_master_weights() { _access.publish_master_weights(); }

    /// @brief The reverse: `Engine::parameters_changed`, which sets master weights to the
    /// parameters and so loses the bits that these do not have. Collective.
    void refresh_master_weights() { _access.refresh_master_weights(); }

    /// @}
    /// @name Optimizer states
    /// @{

    /// @brief Returns a state of the optimizer. Collective, between steps.
    /// @param name one of `state_names`
    /// @throws InvalidArgument for another name, or a frozen parameter
    [[nodiscard]] std::vector<float> full_optimizer_state(std::size_t parameter,
                                                          std::string_view name) {
        return _transfer.gather(ArrayKind::state, state_of(parameter, name), parameter);
    }

    /// @brief Replaces a state on every rank by the values of rank 0. Collective, between steps.
    /// @throws InvalidArgument on every rank for a negative second moment; nothing was changed
    void set_full_optimizer_state(std::size_t parameter, std::string_view name,
                                  std::span<float const> values) {
        std::size_t const state = state_of(parameter, name);
        _access.wait_to_write("set_full_optimizer_state()");
        _transfer.broadcast(
            ArrayKind::state, state, parameter, values, 1.0F, 0, "",
            [&](std::span<float const> all) { require_sign(parameter, state, 0, all); });
    }

    /// @brief Returns the slices of a state that this rank updates.
    [[nodiscard]] std::vector<LocalValues> local_optimizer_state(std::size_t parameter,
                                                                 std::string_view name) {
        return _transfer.local(ArrayKind::state, state_of(parameter, name), parameter);
    }

    /// @brief Replaces one slice of a state, between steps. Stage 0 holds each state on every rank:
    /// write the same there. @throws InvalidArgument for a negative second moment
    void set_local_optimizer_state(std::size_t parameter, std::string_view name, std::size_t begin,
                                   std::span<float const> values) {
        std::size_t const state = state_of(parameter, name);
        _access.protocol().require_idle("set_local_optimizer_state()");
        require_sign(parameter, state, begin, values);
        _transfer.set_local(ArrayKind::state, state, parameter, begin, values);
    }

    /// @brief Returns the number of updates of a parameter, from which its bias correction follows.
    /// Fewer than `step_count` if UnusedParameters::leave left it as it was, or if a checkpoint had
    /// no states of it. Not collective.
    [[nodiscard]] std::uint64_t updates(std::size_t parameter) const {
        require_trainable(parameter, "update");
        return _access.updates()[parameter];
    }

    /// @brief Sets the number of updates of a parameter, for states that a program restores itself:
    /// between steps and after `set_step_count`. Pass the same on every rank; the next `step`
    /// compares it.
    ///
    /// The first number that differs from `step_count` makes the engine allocate a row for each
    /// parameter; capture graphs anew after it.
    void set_updates(std::size_t parameter, std::uint64_t updates) {
        require_trainable(parameter, "update");
        _access.protocol().require_idle("set_updates()");
        detail::require_steps(updates, "number of updates");
        std::vector<std::uint64_t> all = _access.updates();
        all[parameter] = updates;
        _access.set_updates(detail::as_span(all));
    }

    /// @brief Returns the running norm of `skip_above_norm`. Not collective; waits.
    /// @throws InvalidArgument without that option
    [[nodiscard]] RunningNorm running_norm() const {
        require_norm_limit("running_norm()");
        return _access.control().running_norm();
    }

    /// @brief Sets the running norm, for a program that restores its state itself. Between steps;
    /// pass the same on every rank; the next `step` compares it.
    /// @throws InvalidArgument without `skip_above_norm`, and for a mean that is negative or not
    /// finite
    void set_running_norm(RunningNorm const& running) {
        require_norm_limit("set_running_norm()");
        _access.protocol().require_idle("set_running_norm()");
        detail::require_running_norm(running);
        _access.control().set_running_norm(running);
    }

    /// @}
    /// @name Gradients
    /// Call these between the last `end_micro_step` and `step`; no micro-step may follow. The first
    /// call in a step is collective, even a local one, because it completes the reductions.
    /// `step` inspects, clips and applies what was written.
    /// @{

    /// @brief Returns the reduced gradient of a parameter. Collective.
    /// @throws InvalidArgument for a frozen parameter; OutOfOrder at another point of the step
    [[nodiscard]] std::vector<float> full_gradient(std::size_t parameter,
                                                   GradientForm form = GradientForm::unscaled) {
        require_trainable(parameter, "gradient");
        _access.finish_gradients("full_gradient()");
        std::vector<float> values = _transfer.gather(ArrayKind::gradient, 0, parameter);
        detail::multiply(values, factor(form));
        return values;
    }

    /// @brief Replaces a gradient on every rank by the values of rank 0. Collective.
    ///
    /// An unscaled value is divided by the factor with which `step` unscales, and rounded to the
    /// accumulation type.
    void set_full_gradient(std::size_t parameter, std::span<float const> values,
                           GradientForm form = GradientForm::unscaled) {
        require_trainable(parameter, "gradient");
        _access.finish_gradients("set_full_gradient()");
        _transfer.broadcast(ArrayKind::gradient, 0, parameter, values, factor(form), 0,
                            form == GradientForm::scaled ? "scaled " : "unscaled ");
        _access.note_gradient(parameter);
    }

    /// @brief Returns the slices of a gradient that this rank holds: all of it in stage 0.
    [[nodiscard]] std::vector<LocalValues>
    local_gradient(std::size_t parameter, GradientForm form = GradientForm::unscaled) {
        require_trainable(parameter, "gradient");
        _access.finish_gradients("local_gradient()");
        std::vector<LocalValues> slices = _transfer.local(ArrayKind::gradient, 0, parameter);
        for (LocalValues& slice : slices) {
            detail::multiply(slice.values, factor(form));
        }
        return slices;
    }

    /// @brief Replaces one slice of a gradient. Write the same on every rank in stage 0.
    void set_local_gradient(std::size_t parameter, std::size_t begin, std::span<float const> values,
                            GradientForm form = GradientForm::unscaled) {
        require_trainable(parameter, "gradient");
        _access.finish_gradients("set_local_gradient()");
        std::vector<float> scaled(values.begin(), values.end());
        detail::divide(scaled, factor(form));
        _transfer.set_local(ArrayKind::gradient, 0, parameter, begin, detail::as_span(scaled));
        _access.note_gradient(parameter);
    }

    /// @brief Calls `change(parameter, begin, std::span<float>)` for every slice of a gradient that
    /// this rank holds, and stores what it leaves in the span. One pass over all parameters. A
    /// value that `change` leaves as it is keeps its bits.
    /// @param change in stage 0 it gets whole parameters on every rank and must do the same on each
    template <class Change>
    void update_local_gradients(Change&& change, GradientForm form = GradientForm::unscaled) {
        _access.finish_gradients("update_local_gradients()");
        float const unscale = factor(form);
        for (std::size_t parameter = 0; parameter < _access.layout().parameters().size();
             ++parameter) {
            if (!_access.layout().parameter(parameter).trainable) {
                continue;
            }
            for (LocalValues& slice : _transfer.local(ArrayKind::gradient, 0, parameter)) {
                std::vector<float> const stored = slice.values;
                detail::multiply(slice.values, unscale);
                change(parameter, slice.begin, std::span<float>(slice.values));
                detail::divide_changed(slice.values, unscale, stored);
                _transfer.store(ArrayKind::gradient, 0, parameter, slice.begin,
                                detail::as_span(slice.values));
            }
        }
    }

    /// @}

    /// @brief Calls `visit(name, HeldArray)` for every array of the training state, in the memory
    /// and form in which this rank stores it: "parameter", "master", "remainder", "rounded_up", the
    /// states by name, "NAME.scale", and "frozen" for the codes of `FrozenWeights`. Offloaded
    /// states have addresses that are not memory. Waits; not collective.
    template <class Visitor>
    void for_each_held_array(Visitor&& visit) const {
        _transfer.require_current();
        _access.wait_to_read();
        detail::Protocol::Visit const visiting(_access.parking());
        for (detail::HeldArray const& array : _transfer.arrays()) {
            visit(detail::array_name<Optimizer>(array.form), array);
        }
    }

private:
    using ArrayKind = detail::ArrayKind;

    void require_parameter(std::size_t parameter) const {
        if (std::size_t const count = _access.layout().parameters().size(); parameter >= count) {
            detail::throw_error<InvalidArgument>({"zero: parameter ", parameter,
                                                  " does not exist; the model has ", count,
                                                  " (rank ", _access.rank(), ")."});
        }
    }

    void require_norm_limit(char const* call) const {
        if (!_access.control().limits_norm()) {
            detail::throw_error<InvalidArgument>(
                {"zero: ", call,
                 " needs the option skip_above_norm, which this engine has not "
                 "(rank ",
                 _access.rank(), ")."});
        }
    }

    void require_trainable(std::size_t parameter, std::string_view what) const {
        require_parameter(parameter);
        if (auto const& spec = _access.layout().parameter(parameter); !spec.trainable) {
            detail::throw_error<InvalidArgument>({"zero: parameter '", spec.name,
                                                  "' is frozen and has no ", what, " (rank ",
                                                  _access.rank(), ")."});
        }
    }

    [[nodiscard]] std::size_t state_of(std::size_t parameter, std::string_view name) const {
        require_trainable(parameter, "optimizer state");
        std::string known;
        for (std::size_t state = 0; state < Optimizer::states; ++state) {
            std::string const own = detail::state_name<Optimizer>(state);
            if (own == name) {
                return state;
            }
            known += (known.empty() ? "'" : ", '") + own + "'";
        }
        detail::throw_error<InvalidArgument>({"zero: the optimizer has no state '", name,
                                              "'; its states are ", known, " (rank ",
                                              _access.rank(), ")."});
    }

    /// Refuses values whose square root the next step would take.
    void require_sign(std::size_t parameter, std::size_t state, std::size_t begin,
                      std::span<float const> values) const {
        if constexpr (requires { Optimizer::nonnegative_states; }) {
            for (std::size_t i = 0; Optimizer::nonnegative_states[state] && i < values.size();
                 ++i) {
                if (values[i] < 0.0F) {
                    detail::throw_error<InvalidArgument>(
                        {"zero: element ", begin + i, " of the state '",
                         detail::state_name<Optimizer>(state), "' of parameter '",
                         _access.layout().parameter(parameter).name, "' cannot be ",
                         static_cast<double>(values[i]), "; it is a sum of squares (rank ",
                         _access.rank(), ")."});
                }
            }
        }
    }

    /// The factor by which `step` multiplies gradients, with the same rounding.
    [[nodiscard]] float factor(GradientForm form) const {
        return form == GradientForm::scaled ? 1.0F : static_cast<float>(_access.gradient_factor());
    }

    detail::StateAccess<Config> _access;
    detail::StateTransfer<Config> _transfer;
};

/// @brief The same for programs that name a stage as the type.
template <class Stage>
    requires requires { typename Stage::EngineType; }
class TrainingState<Stage> : public TrainingState<typename Stage::EngineType> {
public:
    using TrainingState<typename Stage::EngineType>::TrainingState;
};

/// @brief Deduces the engine from a stage.
template <class Stage>
TrainingState(Stage&) -> TrainingState<typename Stage::EngineType>;

} // namespace ZERO_NAMESPACE
