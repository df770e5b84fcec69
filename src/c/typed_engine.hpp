#pragma once

#include "engine.hpp"
#include "guard.hpp"
#include "translate.hpp"

#include <zero/stage/training_state.hpp>
#ifdef ZERO_C_HAS_CHECKPOINT
#include <zero/checkpoint/load_checkpoint.hpp>
#include <zero/checkpoint/save_checkpoint.hpp>
#endif

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

namespace zero_c {

/// @brief The stages of one element type and optimizer. With the same bucketer they share one
/// engine type, so they are compiled once.
template <class T, class Optimizer>
struct Composition {
    using Scaler = std::conditional_t<std::is_same_v<T, zero::float16>, zero::DynamicLossScaler,
                                      zero::NoLossScaler>;
    template <int N>
    using Stage = zero::ZeroStage<N, zero::Parameters<T>, Optimizer, Scaler,
                                  zero::SizeCappedBucketer, Communicator>;
    using Engine = typename Stage<2>::EngineType;
};

/// @brief Returns the options of a stage. A bucket of stage 3 is a unit.
template <class Options>
Options options_of(zero_options const& from) {
    Options options = stage_options<Options>(from);
    if (from.stage == 3) {
        options.bucketer.bucket_bytes = std::numeric_limits<std::size_t>::max();
    }
    return options;
}

/// @brief Owns an engine and the handles that the program holds.
template <class T, class Optimizer>
class TypedEngine final : public zero_engine {
    using Types = Composition<T, Optimizer>;
    using Engine = typename Types::Engine;

public:
    TypedEngine(zero_communicator& communicator, std::span<zero_parameter const> parameters,
                zero_options const& options) {
        auto const list = registrations<typename Engine::Registration>(parameters, options);
        auto const translated = options_of<typename Engine::Options>(options);
        _engine = zero::with_stage(options.stage, [&]<int N>() -> std::shared_ptr<Engine> {
            return std::make_shared<typename Types::template Stage<N>>(communicator.inner, list,
                                                                       translated);
        });
        _reduces_once = zero::detail::access_to(*_engine).reduces_once();
        _weights.resize(_engine->layout().units());
        _gradients.resize(_engine->layout().units());
    }

    [[nodiscard]] bool is_broken() const noexcept override {
        return zero::detail::access_to(*_engine).protocol().is_broken();
    }

    void begin_step(std::size_t micro_steps) override {
        if (micro_steps == 0) {
            throw zero::InvalidArgument("zero: a step has at least one micro-step.");
        }
        if (_reduces_once && micro_steps > 1) {
            throw zero::InvalidArgument(
                "zero: zero_begin_step() with several micro-steps, but the gradients are reduced "
                "once, in the memory of the program; add the micro-batches there and pass 1, or "
                "set options.schedule = ZERO_EVERY_MICRO_STEP.");
        }
        _engine->begin_step();
        _micro_steps_left = micro_steps - 1;
        _engine->begin_micro_step(_micro_steps_left == 0 ? zero::MicroStep::last
                                                         : zero::MicroStep::more);
        _is_in_micro_step = true;
    }

    void next_micro_step() override {
        if (_micro_steps_left == 0) {
            throw zero::OutOfOrder("zero: zero_next_micro_step() after the last micro-step; pass "
                                   "their number to zero_begin_step().");
        }
        require_closed();
        _engine->end_micro_step();
        --_micro_steps_left;
        _engine->begin_micro_step(_micro_steps_left == 0 ? zero::MicroStep::last
                                                         : zero::MicroStep::more);
    }

    void acquire(std::size_t unit) override {
        auto handle = _engine->acquire(unit); // refuses a unit that does not exist
        _weights[unit].push_back(std::move(handle));
    }

    void release(std::size_t unit) override {
        require_open(unit, "zero_open() or zero_acquire()");
        _weights[unit].pop_back();
    }

    void open(std::size_t unit, float** weights, float** gradients) override {
        if constexpr (std::is_same_v<T, float>) {
            acquire(unit);
            if (gradients != nullptr) {
                try {
                    this->gradients(unit, true);
                } catch (...) {
                    release(unit);
                    throw;
                }
            }
            auto const& layout = _engine->layout();
            for (std::size_t const parameter : layout.unit_parameters(unit)) {
                // The struct of a program has pointers that it may write in other places.
                weights[parameter] = const_cast<float*>(_weights[unit].back()[parameter].data());
                if (gradients != nullptr) {
                    gradients[parameter] = (*_gradients[unit])[parameter].data();
                }
            }
        } else {
            throw zero::InvalidArgument("zero: zero_open() sets pointers to float; for other types "
                                        "call zero_acquire(), zero_weight(), zero_gradients() and "
                                        "zero_gradient().");
        }
    }

    void close(std::size_t unit) override {
        require_open(unit, "zero_open() or zero_acquire()");
        if (_gradients[unit]) {
            gradients_ready(unit);
        }
        release(unit);
    }

    void skip(std::size_t unit) override { _engine->skip(unit); }

    void const* weight(std::size_t unit, std::size_t parameter) override {
        require_open(unit, "zero_acquire()");
        return _weights[unit].back()[parameter].data();
    }

    void gradients(std::size_t unit, bool is_zeroed) override {
        auto handle = _engine->gradients(unit, {}, is_zeroed);
        _gradients[unit].emplace(std::move(handle));
    }

    void* gradient(std::size_t unit, std::size_t parameter) override {
        if (unit >= _gradients.size() || !_gradients[unit]) {
            throw zero::OutOfOrder("zero: the gradients of unit " + std::to_string(unit)
                                   + " are not leased; call zero_gradients() first.");
        }
        return (*_gradients[unit])[parameter].data();
    }

    void note_unused(std::size_t unit, std::size_t parameter) override {
        _engine->note_unused(unit, parameter);
    }

    void gradients_ready(std::size_t unit) override {
        _engine->gradients_ready(unit);
        if (unit < _gradients.size()) {
            _gradients[unit].reset();
        }
    }

    [[nodiscard]] float loss_scale() override { return *_engine->loss_scale().data(); }

    void step(double learning_rate) override {
        end_last_micro_step();
        static_cast<void>(_engine->step(learning_rate));
    }

    void step_with(double learning_rate, zero_update update, void* user) override {
        end_last_micro_step();
        static_cast<void>(_engine->step(learning_rate, [&](auto const& slice) {
            auto const weights = slice.weights();
            zero_slice view{};
            view.parameter = slice.parameter;
            view.begin = slice.begin;
            view.elements = weights.size();
            view.weights = weights.data();
            view.gradients = final_gradients(slice.gradient, slice.factor);
            for (std::size_t state = 0; state < slice.states.size(); ++state) {
                view.states[state] = slice.states[state].data();
            }
            view.learning_rate = slice.learning_rate * _engine->learning_rate_factor(slice.group);
            view.group = slice.group;
            if (int const status = update(&view, user); status != 0) {
                std::string cause = "returned " + std::to_string(status);
                if (status == ZERO_FAILED && *zero_last_error() != 0) { // of zero_fail()
                    cause = std::string("failed: ") + zero_last_error();
                }
                throw CallbackFailed(ZERO_CALLBACK, "zero: the update of parameter "
                                                        + std::to_string(slice.parameter) + " "
                                                        + cause);
            }
        }));
    }

    void cancel_step() override {
        drop_handles();
        _engine->cancel_step();
        _micro_steps_left = 0;
        _is_in_micro_step = false;
    }

    [[nodiscard]] zero_report last_report() override {
        zero::StepReport const from = _engine->last_report();
        zero_report to{};
        to.step_count = from.step_count;
        to.is_skipped = from.is_too_large ? 2 : from.is_skipped ? 1 : 0;
        to.has_norm = from.has_norm ? 1 : 0;
        to.gradient_norm = from.gradient_norm;
        to.clip_coefficient = from.clip_coefficient;
        to.non_finite = from.non_finite_count;
        to.loss_scale = from.loss_scale;
        to.zero_gradients = from.zero_gradients;
        return to;
    }

    void last_group_norms(std::span<double> norms) override {
        std::vector<double> const found = _engine->last_report().group_norms;
        if (found.size() != norms.size()) {
            throw zero::InvalidArgument(
                "zero: the last step has the norms of " + std::to_string(found.size())
                + " groups, not of " + std::to_string(norms.size())
                + "; set options.group_norms, take a step, and give an array of that length.");
        }
        std::copy(found.begin(), found.end(), norms.begin());
    }

    [[nodiscard]] std::uint64_t step_count() override { return _engine->step_count(); }

    void get_parameter(std::size_t parameter, std::span<float> values) override {
        zero::TrainingState state(*_engine);
        require_size(parameter, values.size());
        auto const whole = state.full_fp32_parameter(parameter);
        std::copy(whole.begin(), whole.end(), values.begin());
    }

    void set_parameter(std::size_t parameter, std::span<float const> values) override {
        zero::TrainingState state(*_engine);
        require_size(parameter, values.size());
        state.set_full_fp32_parameter(parameter, values);
        state.publish_master_weights();
    }

    void gather(void* block, std::size_t elements) override {
        _engine->gather_to({static_cast<T*>(block), elements});
    }

    void set_learning_rate_factor(std::size_t group, double factor) override {
        _engine->set_learning_rate(group, factor);
    }

    void save([[maybe_unused]] char const* directory,
              [[maybe_unused]] std::uint64_t position) override {
#ifdef ZERO_C_HAS_CHECKPOINT
        zero::save_checkpoint(*_engine, directory, {.extras = {
            { "position",
              std::to_string(position) }
        }});
#else
        refuse_checkpoints();
#endif
    }

    void load([[maybe_unused]] char const* directory,
              [[maybe_unused]] std::uint64_t* position) override {
#ifdef ZERO_C_HAS_CHECKPOINT
        zero::LoadOptions options;
        std::uint64_t found = 0;
        if (position != nullptr) {
            options.check_extras = [&](auto const& extras) { found = position_in(extras); };
        }
        zero::load_checkpoint(*_engine, directory, options);
        if (position != nullptr) {
            *position = found;
        }
#else
        refuse_checkpoints();
#endif
    }

    [[nodiscard]] zero_memory memory() const override { return memory_of(_engine->memory_plan()); }

    ~TypedEngine() override { drop_handles(); }
    TypedEngine(TypedEngine const&) = delete;
    TypedEngine& operator=(TypedEngine const&) = delete;

private:
    /// A C++ program may have saved without a position, or another one.
    [[nodiscard]] static std::uint64_t
    position_in(std::map<std::string, std::string> const& extras) {
        auto const found = extras.find("position");
        std::string const text = found == extras.end() ? "" : found->second;
        std::uint64_t position = 0;
        auto const result = std::from_chars(text.data(), text.data() + text.size(), position);
        if (result.ec != std::errc() || result.ptr != text.data() + text.size()) {
            throw zero::InvalidArgument(
                "zero: the checkpoint has "
                + (found == extras.end() ? std::string("no position")
                                         : "the position '" + text + "', which is no number")
                + ", so zero_save() did not write it; pass null as the position to load it.");
        }
        return position;
    }

    void require_open(std::size_t unit, char const* call) const {
        if (unit >= _weights.size() || _weights[unit].empty()) {
            throw zero::OutOfOrder("zero: unit " + std::to_string(unit) + " is not open; call "
                                   + call + " first.");
        }
    }

    /// Throws if a unit is open: after the end of the micro-step it could no longer be closed.
    void require_closed() const {
        for (std::size_t unit = 0; unit < _weights.size(); ++unit) {
            if (_gradients[unit]) {
                throw zero::OutOfOrder("zero: the gradients of unit " + std::to_string(unit)
                                       + " are leased; call zero_close() or "
                                         "zero_gradients_ready() first.");
            }
            if (!_weights[unit].empty()) {
                throw zero::OutOfOrder("zero: unit " + std::to_string(unit)
                                       + " is open; call zero_close() or zero_release() first.");
            }
        }
    }

    /// A step that was refused may be repeated, so its last micro-step may already have ended.
    void end_last_micro_step() {
        if (_micro_steps_left != 0) {
            throw zero::OutOfOrder("zero: zero_step() with " + std::to_string(_micro_steps_left)
                                   + " micro-steps left; call zero_next_micro_step() before each "
                                     "of them.");
        }
        if (_is_in_micro_step) {
            require_closed();
            _engine->end_micro_step();
            _is_in_micro_step = false;
        }
    }

    /// Multiplies reduced gradients by the factor, in place: this update is their last use.
    static float const* final_gradients(std::span<float const> gradients, float factor) {
        auto* const first = const_cast<float*>(gradients.data());
        if (factor != 1.0F) {
            for (std::size_t i = 0; i < gradients.size(); ++i) {
                first[i] *= factor;
            }
        }
        return first;
    }

    /// Handles must not outlive the engine, nor a step that is given up.
    void drop_handles() noexcept {
        for (auto& handles : _weights) {
            handles.clear();
        }
        for (auto& handle : _gradients) {
            handle.reset();
        }
    }

    void require_size(std::size_t parameter, std::size_t elements) const {
        auto const& layout = _engine->layout();
        if (parameter >= layout.parameters().size()) {
            throw zero::InvalidArgument("zero: there is no parameter " + std::to_string(parameter)
                                        + "; the model has "
                                        + std::to_string(layout.parameters().size()) + ".");
        }
        auto const& spec = layout.parameter(parameter);
        if (spec.elements != elements) {
            throw zero::InvalidArgument("zero: parameter '" + spec.name + "' has "
                                        + std::to_string(spec.elements) + " elements, not "
                                        + std::to_string(elements) + ".");
        }
    }

    [[noreturn]] static void refuse_checkpoints() {
        throw CallbackFailed(ZERO_UNSUPPORTED,
                             "zero: this library was built without checkpoints; build it where "
                             "nlohmann_json and xxhash.h are found.");
    }

    std::shared_ptr<Engine> _engine;
    bool _reduces_once = false; ///< gradients are in the program's block, reduced once
    std::size_t _micro_steps_left = 0;
    bool _is_in_micro_step = false;
    std::vector<std::vector<zero::Weights<Engine>>> _weights; ///< handles per unit, innermost last
    std::vector<std::optional<zero::Gradients<Engine>>> _gradients; ///< handle per unit
};

/// @brief Returns the plan of rank 0 with owned storage.
template <class T, class Optimizer>
zero_memory plan(std::span<zero_parameter const> parameters, zero_options const& from, int world) {
    using Engine = typename Composition<T, Optimizer>::Engine;
    using Stage = typename Composition<T, Optimizer>::template Stage<2>;
    using Config = typename Stage::Composition::EngineConfig;
    auto const options = options_of<typename Engine::Options>(from);
    auto const list = registrations<typename Engine::Registration>(parameters, from);
    auto const layout = zero::detail::make_stage_layout<Config, zero::ContiguousPartitioner,
                                                        zero::SizeCappedBucketer>(
        from.stage, static_cast<std::size_t>(world),
        zero::detail::register_parameters<Config>(
            std::span<typename Engine::Registration const>(list)),
        options, {});
    auto const schedule = options.reduction.schedule.value_or(zero::default_schedule(from.stage));
    auto const row = zero::stage_row(from.stage, schedule);
    using TypeSet = typename Config::template TypesAt<0>;
    auto const totals = zero::count_layout(
        layout, 0, row, zero::Storage::owned, options.extra_leases, 0, 0,
        options.reduction.wire_bytes / sizeof(typename TypeSet::Communication), options.gather);
    return memory_of(zero::plan_memory(row, totals, Engine::element_sizes(), zero::Storage::owned,
                                       zero::detail::has_wire<TypeSet>(schedule), 0));
}

template <class T, class Optimizer>
inline constexpr EngineType engine_type{
    [](zero_communicator& communicator, std::span<zero_parameter const> parameters,
       zero_options const& options) -> std::unique_ptr<zero_engine> {
        return std::make_unique<TypedEngine<T, Optimizer>>(communicator, parameters, options);
    },
    &plan<T, Optimizer>};

} // namespace zero_c
