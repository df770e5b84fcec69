#pragma once

#include "../core/detail/namespace.hpp"
#include "detail/float_control.hpp"

#include <cstddef>
#include <new>
#include <type_traits>

namespace ZERO_NAMESPACE::host {

/// @brief A small functor stored in place: the element type of a host queue.
class Command {
public:
    static constexpr std::size_t capacity = 112; ///< bytes of a functor

    Command() = default;

    /// @brief Copies the functor. Does not allocate.
    template <class F>
        requires(!std::is_same_v<F, Command>)
    explicit Command(F const& functor) noexcept {
        static_assert(
            std::is_trivially_copyable_v<F> && std::is_trivially_destructible_v<F>,
            "zero: a command is a trivially copyable functor; capture pointers and numbers.");
        static_assert(
            sizeof(F) <= capacity && alignof(F) <= 16,
            "zero: a command holds at most 112 bytes; put larger arguments behind a pointer.");
        ::new (static_cast<void*>(_storage)) F(functor);
        _call = [](void* storage) { (*std::launder(static_cast<F*>(storage)))(); };
    }

    /// @brief Returns whether it holds a functor.
    explicit operator bool() const noexcept { return _call != nullptr; }

    /// @brief Calls the functor, with the default floating-point control word: to nearest, and
    /// subnormal numbers are not flushed. Restores the control word of the thread. Undefined for
    /// a default-constructed command.
    void operator()() {
        detail::WithDefaultFloatControl const control;
        auto* call = _call;
#if defined(__GNUC__)
        __asm__("" : "+r"(call)); // not inlined, so no operation moves out of the scope
#endif
        call(_storage);
    }

private:
    alignas(16) std::byte _storage[capacity];
    void (*_call)(void*) = nullptr;
};

} // namespace ZERO_NAMESPACE::host
