#pragma once

#include "../core/detail/namespace.hpp"

#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief How a backward pass writes gradients; `Engine::begin_gradients` takes it.
enum class GradientWrites : std::uint8_t {
    added,      ///< it adds to memory that is zero the first time in a micro-step
    overwritten ///< it writes every element, so the memory is not cleared
};

/// @brief The gradients of one unit in the current micro-step. Commands on one queue add to them
/// until `gradients_ready`.
///
/// Returned by `Engine::gradients`. Owns no memory. The engine must outlive it; an engine that is
/// destroyed earlier prints why and aborts the program.
template <class Engine>
class Gradients {
public:
    Gradients(Engine const& engine, std::size_t unit, std::uint64_t micro_step) noexcept
        : _engine(&engine), _unit(unit), _micro_step(micro_step) {
        ++engine._live_gradients;
    }
    Gradients(Gradients const& other) noexcept
        : Gradients(*other._engine, other._unit, other._micro_step) {}

    /// @brief Makes this a handle of the same gradients as `other`.
    // NOLINTNEXTLINE(bugprone-unhandled-self-assignment): counts up before it counts down
    Gradients& operator=(Gradients const& other) noexcept {
        ++other._engine->_live_gradients;
        --_engine->_live_gradients;
        _engine = other._engine;
        _unit = other._unit;
        _micro_step = other._micro_step;
        return *this;
    }

    ~Gradients() { --_engine->_live_gradients; }

    /// @brief Returns the gradient of a parameter of this unit; empty if the parameter is frozen.
    /// @param parameter registration index
    /// @throws LateGradient after `gradients_ready` of the unit or after its micro-step.
    [[nodiscard]] auto operator[](std::size_t parameter) const
        requires(Engine::parameter_types == 1)
    {
        return get<typename Engine::ParameterType>(parameter);
    }

    /// @brief Like `operator[]`, for a model with several parameter types. T is the type of the
    /// parameter.
    template <class T>
    [[nodiscard]] auto get(std::size_t parameter) const {
        return _engine->template gradient_of<T>(_unit, parameter, _micro_step);
    }

    /// @brief Returns the gradient of the parameter at a position within the unit, so that a layer
    /// need not know its registration indices. @param position from 0, in order of registration
    /// @throws InvalidArgument if the unit has fewer parameters; LateGradient
    [[nodiscard]] auto at(std::size_t position) const
        requires(Engine::parameter_types == 1)
    {
        return at<typename Engine::ParameterType>(position);
    }

    /// @brief Like `at`, for a model with several parameter types.
    template <class T>
    [[nodiscard]] auto at(std::size_t position) const {
        return get<T>(_engine->parameter_at(_unit, position));
    }

    /// @brief The index of the unit.
    [[nodiscard]] std::size_t unit() const noexcept { return _unit; }

private:
    Engine const* _engine;
    std::size_t _unit;
    std::uint64_t _micro_step;
};

} // namespace ZERO_NAMESPACE
