#pragma once

#include "../core/detail/namespace.hpp"

#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief Announces to `Engine::begin_micro_step` whether another micro-step follows in the step.
enum class MicroStep : std::uint8_t {
    more, ///< another may follow
    last  ///< none follows, so the reductions of the boundary schedule overlap with this one
};

/// @brief The index of a micro-step, from 0. It converts to a number. The attribute lets a loop
/// leave it unused without a warning (clang++ 14 warns inside templates nevertheless).
struct [[maybe_unused]] MicroStepIndex {
    std::size_t value = 0; ///< 0 to the number of micro-steps minus 1

    /// @brief Returns `value`.
    // NOLINTNEXTLINE(google-explicit-constructor): it is a number
    constexpr operator std::size_t() const noexcept { return value; }
};

/// @brief The range of `for (auto const micro_step : engine.micro_steps(n))`. It begins and ends
/// each micro-step and announces the last one.
template <class Engine>
class MicroSteps {
public:
    struct End {};

    /// @brief Stands for the open micro-step. Only one iterator of a range may be in use.
    class Iterator {
    public:
        Iterator(Engine& engine, std::size_t count) : _engine(&engine), _count(count) { begin(); }

        /// @brief The index of the micro-step, from 0.
        [[nodiscard]] MicroStepIndex operator*() const noexcept { return {_index}; }

        /// @brief Ends the micro-step and begins the next one, if any. @throws what
        /// `end_micro_step` throws
        Iterator& operator++() {
            _engine->end_micro_step();
            ++_index;
            begin();
            return *this;
        }

        /// @brief Whether all micro-steps have ended.
        [[nodiscard]] bool operator==(End) const noexcept { return _index == _count; }

    private:
        void begin() {
            if (_index != _count) {
                _engine->begin_micro_step(_index + 1 == _count ? MicroStep::last : MicroStep::more);
            }
        }

        Engine* _engine;
        std::size_t _count;
        std::size_t _index = 0;
    };

    MicroSteps(Engine& engine, std::size_t count) noexcept : _engine(&engine), _count(count) {}

    /// @brief Begins the first micro-step.
    [[nodiscard]] Iterator begin() const { return {*_engine, _count}; }

    /// @brief Compares equal to an iterator that has ended the last micro-step.
    [[nodiscard]] End end() const noexcept { return {}; }

private:
    Engine* _engine;
    std::size_t _count;
};

} // namespace ZERO_NAMESPACE
