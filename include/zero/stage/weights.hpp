#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/detail/throw_error.hpp"
#include "../core/error.hpp"

#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief A handle to the parameters of one unit. Commands on one queue may read them until the
/// handle is released or destroyed. Move-only.
///
/// Pointers taken from a handle are valid as long as the handle: in stage 3 the memory is then
/// reused for other units. The engine must outlive its handles; an engine that is destroyed earlier
/// prints why and aborts the program.
template <class Engine>
class Weights {
public:
    using Queue = typename Engine::Queue; ///< queue of the commands that read the parameters

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

    /// @brief Returns a parameter of this unit. @param parameter registration index
    /// @throws Released after `release`, InvalidArgument if the unit does not use the parameter
    [[nodiscard]] auto operator[](std::size_t parameter) const&
        requires(Engine::parameter_types == 1)
    {
        return get<typename Engine::ParameterType>(parameter);
    }

    /// @brief Refused: in stage 3 the memory of a temporary handle is released at the end of the
    /// statement.
    template <class Temporary = Weights>
    void operator[](std::size_t) const&& {
        static_assert(!std::is_same_v<Temporary, Weights>,
                      "zero: the handle of acquire() is a temporary here, so it and its "
                      "memory are released at the end of the statement; keep it in a variable.");
    }

    /// @brief Like `operator[]`, for a model with several parameter types. @throws InvalidArgument
    /// also if the parameter's type is not T
    template <class T>
    [[nodiscard]] std::span<T const> get(std::size_t parameter) const& {
        return held().template weights_of<T>(_unit, parameter);
    }

    /// @brief Refused, like `operator[]` of a temporary.
    template <class T>
    void get(std::size_t parameter) const&& {
        std::move(*this)[parameter];
    }

    /// @brief Returns the parameter at a position within the unit, so that a layer need not know
    /// its registration indices. @param position from 0, in order of registration
    /// @throws Released after `release`, InvalidArgument if the unit has fewer parameters
    [[nodiscard]] auto at(std::size_t position) const&
        requires(Engine::parameter_types == 1)
    {
        return at<typename Engine::ParameterType>(position);
    }

    /// @brief Like `at`, for a model with several parameter types.
    template <class T>
    [[nodiscard]] std::span<T const> at(std::size_t position) const& {
        return get<T>(held().parameter_at(_unit, position));
    }

    /// @brief Refused, like `operator[]` of a temporary.
    void at(std::size_t position) const&& { std::move(*this)[position]; }

    /// @brief Refused, like `operator[]` of a temporary.
    template <class T>
    void at(std::size_t position) const&& {
        std::move(*this)[position];
    }

    /// @brief The index of the unit.
    [[nodiscard]] std::size_t unit() const noexcept { return _unit; }

    /// @brief Declares that the commands enqueued so far are the last to read the unit. The
    /// destructor calls it.
    void release() noexcept {
        if (_engine != nullptr) {
            std::exchange(_engine, nullptr)->release(_unit, _queue);
        }
    }

private:
    [[nodiscard]] Engine& held() const {
        if (_engine == nullptr) {
            detail::throw_error<Released>(
                {"zero: the weights of unit ", _unit, " were released; acquire the unit again."});
        }
        return *_engine;
    }

    Engine* _engine;
    std::size_t _unit;
    Queue _queue;
};

/// @brief The values of one slice of a parameter that a rank holds.
struct LocalValues {
    std::size_t begin = 0;     ///< offset of the first value in the parameter
    std::vector<float> values; ///< one per element, from `begin` on
};

} // namespace ZERO_NAMESPACE
