#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/detail/throw_error.hpp"
#include "../core/error.hpp"

#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

namespace ZERO_NAMESPACE {

/// @brief The parameters of one unit, readable by commands on one queue until the handle is
/// released or destroyed. Move-only.
///
/// Pointers taken from it end with it: in stage 3 the memory is given to another unit. The engine
/// has to outlive its handles.
template <class Engine>
class Weights {
public:
    using Queue = typename Engine::Queue; ///< of the commands that read

    Weights(Engine& engine, std::size_t unit, Queue queue) noexcept
        : _engine(&engine), _unit(unit), _queue(queue) {}
    Weights(Weights&& other) noexcept
        : _engine(std::exchange(other._engine, nullptr)), _unit(other._unit), _queue(other._queue) {
    }

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
    /// @throws Released after `release`, InvalidArgument when the parameter is not one of the
    /// unit's.
    [[nodiscard]] auto operator[](std::size_t parameter) const&
        requires(Engine::parameter_types == 1)
    {
        return get<typename Engine::ParameterType>(parameter);
    }

    /// @brief Refused: in stage 3 what a temporary handle gives would be gone after the statement.
    template <class Temporary = Weights>
    void operator[](std::size_t) const&& {
        static_assert(!std::is_same_v<Temporary, Weights>,
                      "zero: the handle of acquire() is a temporary here, so it ends with the "
                      "statement, and with it the memory that it gives; keep it in a variable.");
    }

    /// @brief The same for a model with several parameter types. @throws InvalidArgument also when
    /// the parameter's type is not T.
    template <class T>
    [[nodiscard]] std::span<T const> get(std::size_t parameter) const& {
        if (_engine == nullptr) {
            detail::throw_error<Released>(
                {"zero: the weights of unit ", _unit, " were released; acquire the unit again."});
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

    /// @brief Says that the commands enqueued so far were the last to read the unit. The destructor
    /// does it, too.
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

} // namespace ZERO_NAMESPACE
