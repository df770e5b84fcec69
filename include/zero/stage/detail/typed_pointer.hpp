#pragma once

#include "../../core/detail/namespace.hpp"

#include <cstddef>
#include <type_traits>

namespace ZERO_NAMESPACE::detail {

/// @brief A pointer in a registration. It converts like `T*`, and refuses other pointers with one
/// sentence instead of a list of constructors.
template <class T>
class TypedPointer {
public:
    // NOLINTBEGIN(google-explicit-constructor): it is a pointer
    constexpr TypedPointer() noexcept {} // NOLINT(modernize-use-equals-default): as Initialiser
    constexpr TypedPointer(std::nullptr_t) noexcept {}
    constexpr TypedPointer(T* pointer) noexcept : _pointer(pointer) {}

    template <class Other>
        requires(!std::is_convertible_v<Other*, T*>)
    constexpr TypedPointer(Other*) noexcept {
        static_assert(!std::is_same_v<Other, T const>,
                      "zero: training writes 'data' and 'gradient' of a registration, but this "
                      "pointer is const; give memory that may be written, or pass initial values "
                      "as 'initial'.");
        static_assert(std::is_same_v<Other, T const>,
                      "zero: 'initial', 'data' and 'gradient' of a registration point to the "
                      "stage's parameter or gradient type (float unless zero::Parameters<T> or "
                      "zero::GradientReduction<G> says otherwise), but this pointer has another "
                      "type; name that type in the stage, or convert the values.");
    }

    constexpr operator T*() const noexcept { return _pointer; }
    // NOLINTEND(google-explicit-constructor)

    /// @brief Returns the pointer itself, for functions that deduce its type.
    [[nodiscard]] constexpr T* get() const noexcept { return _pointer; }

private:
    T* _pointer = nullptr;
};

} // namespace ZERO_NAMESPACE::detail
