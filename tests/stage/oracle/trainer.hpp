#pragma once

// One trainer for every stage. It registers a model, calls the engine as any trainer does, and
// compares everything the engine holds after each step with the oracle.

#include "model.hpp"
#include "options.hpp"
#include "stages.hpp"

#include <zero/host/delaying_queue.hpp>
#include <zero/host/inline_queue.hpp>
#include <zero/stage/tiles.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace zero::test::oracle {

/// Everything the trainer needs of a backend besides the engine: queues for the commands of the
/// model, and memory that these commands can use.
template <class Backend>
struct Side {
    using OwnedQueue = std::unique_ptr<host::Queue>;
    template <class T>
    using Vector = std::vector<T>;

    static OwnedQueue make_queue(Compute kind, std::uint64_t seed, unsigned longest_delay) {
        switch (kind) {
        case Compute::threaded: return std::make_unique<host::ThreadedQueue>();
        case Compute::delaying:
            return std::make_unique<host::DelayingQueue>(
                seed, longest_delay, host::ThreadedQueue::default_capacity, host::WhenFull::wait);
        default: return std::make_unique<host::InlineQueue>();
        }
    }
    static host::Queue* handle(OwnedQueue const& queue) noexcept { return queue.get(); }
    static void synchronise(host::Queue* queue) { queue->synchronise(); }
    static void make_wait(host::Queue* queue, host::Event const& event) { queue->wait(event); }
    static host::Event record(host::Queue* queue) { return queue->record(); }
    /// Enqueues a command of the model.
    template <class Command>
    static void run(host::Queue* queue, Command const& command) {
        Backend::run(queue, command);
    }
    /// Returns the resource of the engine's memory, or null for the default.
    static MemoryResource* memory() noexcept { return nullptr; }
};

template <class Engine>
class Trainer {
public:
    using Backend = typename Engine::Backend;
    using Communicator = typename Engine::Communicator;
    using T = typename Engine::ParameterType;
    using G = typename Engine::GradientType;
    using Handle = decltype(std::declval<Engine&>().acquire(std::size_t{}));
    using Ticket = decltype(std::declval<Engine&>().step(0.1));
    /// Constructs a stage.
    using Make = std::shared_ptr<Engine> (*)(Communicator&,
                                             std::vector<typename Engine::Registration> const&,
                                             typename Engine::Options const&);
    using Here = Side<Backend>;
    using Queue = typename Backend::Queue;
    using OwnedQueue = typename Here::OwnedQueue;

    Trainer(Communicator& communicator, Run const& run, Make make)
        : _c(*run.configuration), _run(&run), _rank(static_cast<std::size_t>(communicator.rank())),
          _model(run, _rank), _compute(queue(_c.compute, 1)), _communication(communication_queue()),
          _evaluation(_c.evaluates_elsewhere ? queue(Compute::delaying, 3) : OwnedQueue()),
          _owned(_c.shapes.size()), _engine(make(communicator, registrations(), options())),
          _quiet{Here::handle(_compute), Here::handle(_evaluation), _c.evaluates_elsewhere} {
        if (_c.memory == Memory::owned) {
            _model.forget_initial_values();
        }
        if constexpr (requires { communicator.set_buckets(std::size_t{}); }) {
            communicator.set_buckets(_engine->layout().trainable_buckets());
        }
    }

    Trainer(Trainer const&) = delete;
    Trainer& operator=(Trainer const&) = delete;

    /// Runs and compares all steps.
    void train() {
        compare_state(0);
        std::vector<Ticket> tickets;
        for (std::size_t step = 0; step < _c.all_steps(); ++step) {
            if (_c.cancels && step == 1) {
                give_up_a_step(step);
            }
            for (auto const& change : _c.changes) {
                if (change.step == step) {
                    _engine->set_learning_rate(change.group, change.factor);
                }
            }
            auto const ticket = take_step(step);
            if (step < _c.steps) {
                compare_report(step, ticket.report());
                compare_state(step + 1);
            } else {
                tickets.push_back(ticket);
            }
            if (_c.evaluates) {
                evaluate(step + 1);
            }
        }
        for (std::size_t index = 0; index < tickets.size(); ++index) {
            compare_report(_c.steps + index, tickets[index].report());
        }
        compare_state(_c.all_steps());
        if (_c.memory == Memory::adopted) {
            _model.check_gaps();
        }
    }

    /// Returns how many slices of this rank contain each element of each parameter, at the end.
    [[nodiscard]] std::vector<std::vector<unsigned>> const& owned() const noexcept {
        return _owned;
    }

private:
    struct Quiet {
        Queue compute;
        Queue evaluation;
        bool has_evaluation;
        Quiet(Queue first, Queue second, bool has_second)
            : compute(first), evaluation(second), has_evaluation(has_second) {}
        Quiet(Quiet const&) = delete;
        Quiet& operator=(Quiet const&) = delete;
        ~Quiet() {
            Here::synchronise(compute);
            if (has_evaluation) {
                Here::synchronise(evaluation);
            }
        }
    };

    OwnedQueue queue(Compute kind, std::uint64_t use) const {
        bool const delays = !_c.delayed_rank || *_c.delayed_rank == _rank;
        return Here::make_queue(kind, keyed(_c.seed, _c.index, use, _rank),
                                delays ? _c.longest_delay : 0);
    }

    OwnedQueue communication_queue() const {
        switch (_c.communication) {
        case oracle::Communication::inline_queue: return queue(Compute::inline_queue, 2);
        case oracle::Communication::threaded: return queue(Compute::threaded, 2);
        case oracle::Communication::delaying: return queue(Compute::delaying, 2);
        default: return OwnedQueue();
        }
    }

    /// Calls `visit` with the types of a parameter and its gradient.
    template <class Visitor>
    void with_types(std::size_t parameter, Visitor const& visit) {
        if constexpr (Engine::parameter_types > 1) {
            if (_c.shapes[parameter].is_float) {
                visit.template operator()<float, float>();
                return;
            }
        }
        visit.template operator()<T, G>();
    }

    std::vector<typename Engine::Registration> registrations() {
        std::vector<typename Engine::Registration> list;
        for (std::size_t index = 0; index < _c.shapes.size(); ++index) {
            with_types(index,
                       [&]<class V, class W>() { list.push_back(registration<V, W>(index)); });
        }
        return list;
    }

    template <class V, class W>
    Parameter<V, W> registration(std::size_t index) {
        Shape const& shape = _c.shapes[index];
        Parameter<V, W> parameter = shape.tiles == 1 ? whole<V, W>(index) : tile<V, W>(index);
        if (_c.fills_by_function) {
            // Every rank knows the values of most parameters; only rank 0 knows the others.
            parameter.is_deterministic = (index + _c.shapes.size()) % 4 != 0;
            std::size_t const knows = parameter.is_deterministic ? 0 : _rank;
            parameter.initialise = [this, index, knows](std::size_t begin, std::span<V> values) {
                for (std::size_t i = 0; i < values.size(); ++i) {
                    values[i] = from_float<V>(initial_value(_c, knows, index, begin + i));
                }
            };
        } else if (_c.memory == Memory::owned) {
            parameter.initial = _model.template values<V>(index);
        } else {
            parameter.data = _model.template values<V>(index);
        }
        if (gradient_memory_of(_c, index) == GradientMemory::caller_owned && shape.trainable) {
            parameter.gradient = _model.template gradient<V>(index).data();
        }
        return parameter;
    }

    template <class V, class W>
    Parameter<V, W> whole(std::size_t index) const {
        Shape const& shape = _c.shapes[index];
        Place const place = _c.place(index);
        return {.name = "p" + std::to_string(place.parameter),
                .elements = shape.elements,
                .units = shape.units,
                .group = shape.group,
                .trainable = shape.trainable,
                .counts_on =
                    place.is_replica ? CountsOn::first_model_rank : CountsOn::every_model_rank};
    }

    /// Returns the tile as the library cuts it out of the whole parameter.
    template <class V, class W>
    Parameter<V, W> tile(std::size_t index) const {
        std::size_t const tile = _c.shapes[index].tile;
        std::size_t const first = index - tile;
        Parameter<V, W> parameter = whole<V, W>(first);
        for (std::size_t other = 1; other < _c.shapes[index].tiles; ++other) {
            parameter.elements += _c.shapes[first + other].elements;
            parameter.units.push_back(_c.shapes[first + other].units.front());
        }
        return tiles(parameter, _c.shapes[index].tiles)[tile];
    }

    typename Engine::Options options() {
        auto o = options_of<Engine>(_c);
        o.adopted_block = _model.block();
        o.compute_queue = Here::handle(_compute);
        if (_communication != nullptr) {
            o.communication_queue = Here::handle(_communication);
        }
        if (auto* const memory = Here::memory()) {
            o.memory = memory;
        }
        return o;
    }

    // --- A step, as a user's trainer writes it. ---

    Ticket take_step(std::size_t step) {
        _engine->begin_step();
        float const* const scale = _engine->loss_scale().data();
        std::size_t const count = micro_steps_of(_c, step);
        if (_c.micro_step_calls == oracle::MicroSteps::range) {
            for (auto const micro_step : _engine->micro_steps(count)) {
                run_micro_step(step, micro_step, scale);
            }
        } else {
            for (std::size_t micro_step = 0; micro_step < count; ++micro_step) {
                _engine->begin_micro_step(_c.micro_step_calls == oracle::MicroSteps::announced
                                                  && micro_step + 1 == count
                                              ? MicroStep::last
                                              : MicroStep::more);
                run_micro_step(step, micro_step, scale);
                _engine->end_micro_step();
            }
        }
        if (_c.evaluates) {
            evaluate(step);
        }
        auto const ticket = _engine->step(learning_rate_of(_c, step) * _run->learning_rate_error);
        Here::run(Here::handle(_compute),
                  [model = &_model, step, scale] { model->check_scale(step, scale); });
        return ticket;
    }

    void run_micro_step(std::size_t step, std::size_t micro_step, float const* scale) {
        _model.start_micro_step();
        forward(step);
        for (std::size_t const unit :
             backward_order(_c, step, micro_step, _run->stage == 3 ? 0 : _rank)) {
            bool const is_left_out = is_unused(_c, step, micro_step, _rank, unit);
            if (!is_left_out) {
                read_weights(step, unit, "weights of the backward pass");
                write_gradients(step, micro_step, unit, scale);
            } else if (_run->stage == 3 || _c.reports_unused) {
                read_weights(step, unit, "weights of the backward pass");
                report_without_gradient(unit);
            }
        }
        _held.reset();
    }

    void forward(std::size_t step) {
        for (std::size_t unit = 0; unit < _c.units; ++unit) {
            read_weights(step, unit, "weights of the forward pass");
        }
    }

    /// Acquires a unit, reads its parameters on the compute queue and releases it, at once or after
    /// the next unit is acquired.
    void read_weights(std::size_t step, std::size_t unit, char const* when) {
        if (_c.never_acquired == unit) {
            return;
        }
        auto weights = _engine->acquire(unit);
        check(weights, step, unit, when, Here::handle(_compute));
        if (_c.holds_handles) {
            if (_held) {
                *_held = std::move(weights);
            } else {
                _held.emplace(std::move(weights));
            }
        }
    }

    void check(Handle const& weights, std::size_t step, std::size_t unit, char const* when,
               Queue reader) {
        for (std::size_t const parameter : parameters_of(unit)) {
            with_types(parameter, [&]<class V, class>() {
                Here::run(reader,
                          [model = &_model, values = weights.template get<V>(parameter).data(),
                           step, parameter,
                           when] { model->check_weights(step, parameter, values, when); });
            });
        }
    }

    void evaluate(std::size_t step) {
        Queue const reader = Here::handle(_evaluation != nullptr ? _evaluation : _compute);
        for (std::size_t unit = 0; unit < _c.units; ++unit) {
            if (_c.never_acquired != unit) {
                auto const weights = _engine->acquire(unit, reader);
                check(weights, step, unit, "weights of the evaluation", reader);
            }
        }
    }

    void write_gradients(std::size_t step, std::size_t micro_step, std::size_t unit,
                         float const* scale) {
        bool leases = false;
        bool hands_over = false;
        for (std::size_t const parameter : parameters_of(unit)) {
            bool const is_handed = gradient_memory_of(_c, parameter) == GradientMemory::handed_over;
            hands_over = hands_over || (_c.shapes[parameter].trainable && is_handed);
            leases = leases || (_c.shapes[parameter].trainable && !is_handed);
        }
        bool const is_zeroed = hands_over || !writes_all(_c, unit);
        if (leases) {
            auto const gradients = _engine->gradients(unit, {}, is_zeroed);
            for (std::size_t const parameter : parameters_of(unit)) {
                if (_c.shapes[parameter].trainable
                    && gradient_memory_of(_c, parameter) != GradientMemory::handed_over) {
                    bool const adds = !_model.is_first_write(parameter) || is_zeroed;
                    with_types(parameter, [&]<class V, class>() {
                        enqueue_backward(step, micro_step, parameter, unit,
                                         gradients.template get<V>(parameter).data(), adds, scale);
                    });
                }
            }
        }
        for (std::size_t const parameter : parameters_of(unit)) {
            if (_c.shapes[parameter].trainable
                && gradient_memory_of(_c, parameter) == GradientMemory::handed_over) {
                with_types(parameter, [&]<class V, class>() {
                    hand_over<V>(step, micro_step, parameter, unit, scale);
                });
            }
        }
        _engine->gradients_ready(unit);
        _engine->gradients_ready(unit); // the second call is a no-op
    }

    template <class W>
    void enqueue_backward(std::size_t step, std::size_t micro_step, std::size_t parameter,
                          std::size_t unit, W* out, bool adds, float const* scale) {
        Here::run(Here::handle(_compute), [=, model = &_model] {
            model->backward(step, micro_step, parameter, unit, out, adds, scale);
        });
    }

    /// Hands over a gradient in transient memory, and overwrites that memory as soon as the engine
    /// allows it.
    template <class V>
    void hand_over(std::size_t step, std::size_t micro_step, std::size_t parameter,
                   std::size_t unit, float const* scale) {
        auto const transient = _model.template gradient<V>(parameter);
        enqueue_backward(step, micro_step, parameter, unit, transient.data(), false, scale);
        auto const is_free = _engine->template hand_over<typename decltype(transient)::value_type>(
            unit, parameter, transient);
        auto const overwrite = [model = &_model, data = transient.data(),
                                elements = transient.size()] { model->overwrite(data, elements); };
        if (_evaluation != nullptr) {
            Here::make_wait(Here::handle(_evaluation), is_free);
            Here::run(Here::handle(_evaluation), overwrite);
            Here::make_wait(Here::handle(_compute), Here::record(Here::handle(_evaluation)));
        } else {
            Here::run(Here::handle(_compute), overwrite);
        }
    }

    /// Reports a unit to which this rank contributes no gradient.
    void report_without_gradient(std::size_t unit) {
        bool has_caller_owned = false;
        for (std::size_t const parameter : parameters_of(unit)) {
            bool const is_caller_owned =
                _c.shapes[parameter].trainable
                && gradient_memory_of(_c, parameter) == GradientMemory::caller_owned;
            has_caller_owned = has_caller_owned || is_caller_owned;
        }
        // The engine would use what is left in the caller-owned memory, so it must clear it.
        if (has_caller_owned) {
            static_cast<void>(_engine->gradients(unit));
            for (std::size_t const parameter : parameters_of(unit)) {
                static_cast<void>(_model.is_first_write(parameter));
            }
        }
        _engine->gradients_ready(unit);
    }

    /// Begins a step and cancels it in the middle of the backward pass, at the same place on every
    /// rank.
    void give_up_a_step(std::size_t step) {
        _engine->begin_step();
        float const* const scale = _engine->loss_scale().data();
        _engine->begin_micro_step(_c.units % 2 == 0 ? MicroStep::last : MicroStep::more);
        _model.start_micro_step();
        forward(step);
        std::vector<std::size_t> order = backward_order(_c, step, 0, 0);
        order.resize(_c.units - _c.units / 2);
        for (std::size_t const unit : order) {
            read_weights(step, unit, "weights of the step given up");
            write_gradients(step, 0, unit, scale);
        }
        _held.reset();
        _engine->cancel_step();
    }

    [[nodiscard]] std::vector<std::size_t> parameters_of(std::size_t unit) const {
        std::vector<std::size_t> list;
        for (std::size_t parameter = 0; parameter < _c.shapes.size(); ++parameter) {
            for (std::size_t const user : _c.shapes[parameter].units) {
                if (user == unit) {
                    list.push_back(parameter);
                }
            }
        }
        return list;
    }

    // --- Comparisons. ---

    template <class Number>
    void equal(Number found, Number expected, char const* what, std::size_t step) {
        if (!(found == expected)) {
            _model.fail(std::string(what) + " of step " + std::to_string(step) + " is "
                        + all_digits(found) + ", not " + all_digits(expected));
        }
    }

    template <class Number>
    static std::string all_digits(Number number) {
        if constexpr (std::is_floating_point_v<Number>) {
            std::array<char, 40> text{};
            std::snprintf(text.data(), text.size(), "%.*g",
                          std::numeric_limits<Number>::max_digits10, static_cast<double>(number));
            return text.data();
        } else {
            return std::to_string(number);
        }
    }

    void compare_report(std::size_t step, StepReport const& found) {
        Report const& expected = _run->history->snapshots[step + 1].report;
        equal(found.serial, expected.serial, "the serial", step);
        equal(found.step_count, expected.step_count, "the step count", step);
        equal(found.is_skipped, expected.is_skipped, "is_skipped", step);
        equal(found.is_too_large, expected.is_too_large, "is_too_large", step);
        equal(found.too_large, expected.too_large, "the count of steps that were too large", step);
        equal(found.norm_limit, expected.norm_limit, "the limit of the norm", step);
        equal(found.has_norm, expected.has_norm, "has_norm", step);
        equal(found.non_finite_count, expected.non_finite_count,
              "the count of non-finite gradients", step);
        equal(found.first_non_finite, expected.first_non_finite, "the first non-finite gradient",
              step);
        equal(found.loss_scale, expected.loss_scale, "the loss scale", step);
        equal(found.next_loss_scale, expected.next_loss_scale, "the next loss scale", step);
        // Without clipping, nothing else would reveal a wrong norm.
        equal(found.gradient_norm, expected.norm, "the norm", step);
        equal(found.clip_coefficient, expected.coefficient, "the clip coefficient", step);
        equal(found.zero_gradients, expected.zeros, "the count of zero gradients", step);
        equal(found.group_norms.size(), expected.groups.size(), "the number of group norms", step);
        for (std::size_t group = 0; group < expected.groups.size(); ++group) {
            equal(found.group_norms[group], expected.groups[group], "the norm of a group", step);
        }
    }

    /// Compares everything the engine holds between two steps. Collective.
    void compare_state(std::size_t step) {
        Snapshot const& expected = _run->history->snapshots[step];
        _engine->for_each_full_parameter([&](std::size_t parameter, auto values) {
            equal(values.size(), expected.parameters[parameter].size(), "the number of elements",
                  step);
            _model.compare(values.data(), expected.parameters[parameter], 0, "parameters", step,
                           parameter);
        });
        for (std::size_t parameter = 0; parameter < _owned.size(); ++parameter) {
            _owned[parameter].assign(_c.shapes[parameter].elements, 0);
        }
        _engine->for_each_owned_slice([&](auto const& slice) {
            std::size_t const count = slice.values.size();
            auto const& own = _run->stage == 3 ? expected.shards : expected.parameters;
            _model.compare(slice.values.data(), own[slice.parameter], slice.begin,
                           "owned parameters", step, slice.parameter, count);
            Master const master = _c.numbers(slice.parameter).master;
            bool const is_copied = master == Master::floats || master == Master::float16;
            equal(slice.master.size(), is_copied ? count : 0, "the number of master weights", step);
            std::vector<float> values(count);
            for (std::size_t i = 0; i < count; ++i) {
                values[i] = slice.master_weight(i);
            }
            _model.compare(values.data(), expected.masters[slice.parameter], slice.begin,
                           "master weights", step, slice.parameter, count);
            for (std::size_t state = 0; state < slice.states.size(); ++state) {
                equal(slice.states[state].size(), count, "the number of moments", step);
                for (std::size_t i = 0; i < count; ++i) {
                    values[i] = slice.state(state, i);
                }
                _model.compare(values.data(), expected.states[state][slice.parameter], slice.begin,
                               state == 0 ? "first moments" : "second moments", step,
                               slice.parameter, count);
            }
            for (std::size_t i = 0; i < count; ++i) {
                ++_owned[slice.parameter][slice.begin + i];
            }
        });
        equal(_engine->step_count(), expected.step_count, "the step count after", step);
        auto const scaler = _engine->loss_scaler_state();
        equal(scaler.scale, expected.scaler.scale, "the loss scale after", step);
        if constexpr (requires { scaler.clean_steps; }) {
            equal(scaler.clean_steps, expected.scaler.clean_steps, "the clean steps after", step);
            equal(scaler.hysteresis_left, expected.scaler.hysteresis_left, "the hysteresis after",
                  step);
        }
    }

    Configuration const& _c;
    Run const* _run;
    std::size_t _rank;
    Model<T, G, Here::template Vector> _model;
    OwnedQueue _compute;
    OwnedQueue _communication;
    OwnedQueue _evaluation;
    std::vector<std::vector<unsigned>> _owned;
    std::shared_ptr<Engine> _engine;
    std::optional<Handle> _held;
    Quiet _quiet;
};

} // namespace zero::test::oracle
