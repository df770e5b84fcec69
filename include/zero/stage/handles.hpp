#pragma once

#include "../core/throw_error.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

namespace zero {

/// @brief The parameters of one unit, readable by commands on one queue until the handle is released or destroyed. Move-only.
///
/// Pointers taken from it end with it: in stage 3 the memory is given to another unit. The engine has to outlive its handles.
template <class Engine>
class Weights {
public:
    using Queue = typename Engine::Queue; ///< of the commands that read

    Weights(Engine& engine, std::size_t unit, Queue queue) noexcept : _engine(&engine), _unit(unit), _queue(queue) {}
    Weights(Weights&& other) noexcept : _engine(std::exchange(other._engine, nullptr)), _unit(other._unit), _queue(other._queue) {}

    Weights& operator=(Weights&& other) noexcept {
        if (this != &other) {
            release();
            _engine = std::exchange(other._engine, nullptr);
            _unit = other._unit;
            _queue = other._queue;
        }
        return *this;
    }

    ~Weights() { release(); }

    /// @brief A parameter of this unit, by its number of registration.
    /// @throws Released after `release`, InvalidArgument when the parameter is not one of the unit's.
    [[nodiscard]] auto operator[](std::size_t parameter) const&
        requires(Engine::parameter_types == 1)
    {
        return get<typename Engine::ParameterType>(parameter);
    }

    /// @brief Refused: in stage 3 what a temporary handle gives would be gone after the statement.
    template <class Temporary = Weights>
    void operator[](std::size_t) const&& {
        static_assert(!std::is_same_v<Temporary, Weights>, "zero: the handle of acquire() is a temporary here, so it ends with the statement, and with it the memory that it gives; keep it in a variable.");
    }

    /// @brief The same for a model with several parameter types. @throws InvalidArgument also when the parameter's type is not T.
    template <class T>
    [[nodiscard]] std::span<T const> get(std::size_t parameter) const& {
        if (_engine == nullptr) {
            detail::throw_error<Released>({"zero: the weights of unit ", _unit, " were released; acquire the unit again."});
        }
        return _engine->template weights_of<T>(_unit, parameter);
    }

    /// @brief Refused, as `operator[]` is.
    template <class T>
    void get(std::size_t parameter) const&& {
        std::move(*this)[parameter];
    }

    /// @brief The number that it was acquired by.
    [[nodiscard]] std::size_t unit() const noexcept { return _unit; }

    /// @brief Says that the commands enqueued so far were the last to read the unit. The destructor does it, too.
    void release() noexcept {
        if (_engine != nullptr) {
            std::exchange(_engine, nullptr)->release(_unit, _queue);
        }
    }

private:
    Engine* _engine;
    std::size_t _unit;
    Queue _queue;
};

/// @brief The gradients of one unit in this micro-step, to be added to by commands on one queue until `gradients_ready`.
template <class Engine>
class Gradients {
public:
    Gradients(Engine const& engine, std::size_t unit, std::uint64_t micro_step) noexcept
        : _engine(&engine), _unit(unit), _micro_step(micro_step) {}

    /// @brief The gradient of a parameter of this unit, by its number of registration; empty when the parameter is frozen.
    /// @throws LateGradient after `gradients_ready` of the unit or after its micro-step.
    [[nodiscard]] auto operator[](std::size_t parameter) const
        requires(Engine::parameter_types == 1)
    {
        return get<typename Engine::ParameterType>(parameter);
    }

    /// @brief The same for a model with several parameter types; T is that of the parameter.
    template <class T>
    [[nodiscard]] auto get(std::size_t parameter) const {
        return _engine->template gradient_of<T>(_unit, parameter, _micro_step);
    }

    /// @brief The number that was asked for.
    [[nodiscard]] std::size_t unit() const noexcept { return _unit; }

private:
    Engine const* _engine;
    std::size_t _unit;
    std::uint64_t _micro_step;
};

/// @brief The scale of the current step, as a scalar in the backend's memory.
template <class Engine>
class LossScale {
public:
    /// @brief Given out by `loss_scale()`, and used while the engine lives.
    explicit LossScale(Engine const& engine) noexcept : _engine(&engine) {}

    /// @brief For commands on the compute queue, which were ordered behind the capture.
    [[nodiscard]] float const* data() const noexcept { return _engine->_decision.captured_scale(); }

    /// @brief Waits on the host until the scale is known, which it is once the previous step is done.
    operator float() const { return _engine->_decision.load_captured_scale(); } // NOLINT(google-explicit-constructor): it is a number

private:
    Engine const* _engine;
};

/// @brief One call of `step`; its report can be read while the engine lives.
template <class Engine>
class StepTicket {
public:
    StepTicket(Engine& engine, std::uint64_t serial, typename Engine::Event done) noexcept
        : _engine(&engine), _serial(serial), _done(std::move(done)) {}

    /// @brief Waits on the host until the step is done, and tells what it did.
    /// @throws OutOfOrder when 16 further steps were enqueued; what a command of the step or of the model threw
    [[nodiscard]] auto report() const { return _engine->report(_serial, _done); }

    /// @brief The point after the step in the communication queue, for queues of the caller's own.
    [[nodiscard]] typename Engine::Event const& done() const noexcept { return _done; }

private:
    Engine* _engine;
    std::uint64_t _serial;
    typename Engine::Event _done;
};

/// @brief `for (auto micro_step : engine.micro_steps(n))`: begins and ends each, and announces the last.
template <class Engine>
class MicroSteps {
public:
    struct End {};

    /// @brief Stands for one open micro-step; one at a time.
    class Iterator {
    public:
        Iterator(Engine& engine, std::size_t count) : _engine(&engine), _count(count) { begin(); }

        /// @brief The number of the micro-step, from 0.
        [[nodiscard]] std::size_t operator*() const noexcept { return _index; }

        /// @brief Ends the micro-step and begins the next, unless it was the last. @throws what `end_micro_step` throws
        Iterator& operator++() {
            _engine->end_micro_step();
            ++_index;
            begin();
            return *this;
        }

        /// @brief Whether all were ended.
        [[nodiscard]] bool operator==(End) const noexcept { return _index == _count; }

    private:
        void begin() {
            if (_index != _count) {
                _engine->begin_micro_step(_index + 1 == _count);
            }
        }

        Engine* _engine;
        std::size_t _count;
        std::size_t _index = 0;
    };

    MicroSteps(Engine& engine, std::size_t count) noexcept : _engine(&engine), _count(count) {}

    /// @brief Begins the first micro-step.
    [[nodiscard]] Iterator begin() const { return {*_engine, _count}; }

    /// @brief Compares equal to an iterator that ended the last.
    [[nodiscard]] End end() const noexcept { return {}; }

private:
    Engine* _engine;
    std::size_t _count;
};

} // namespace zero
