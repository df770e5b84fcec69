#pragma once

#include "../core/detail/namespace.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

namespace ZERO_NAMESPACE {

/// @brief A callback that fills elements [begin, begin + values.size()) of a parameter, or none.
/// Copies share the callback.
///
/// Used instead of std::function, whose header includes the hash tables and algorithms of the
/// standard library in every unit.
/// @tparam T type of the parameters
template <class T>
class Initialiser {
public:
    // Not `= default`: g++ 12 rejects the default constructor in an aggregate that is made in an
    // argument list.
    Initialiser() noexcept {} // NOLINT(modernize-use-equals-default)

    /// @brief None.
    // NOLINTNEXTLINE(google-explicit-constructor): as for std::function
    Initialiser(std::nullptr_t) noexcept {}

    /// @param function is called as `function(std::size_t begin, std::span<T> values)`
    template <class F>
        requires(!std::is_same_v<std::remove_cvref_t<F>, Initialiser>
                 && std::is_invocable_v<F const&, std::size_t, std::span<T>>)
    Initialiser(F function) // NOLINT(google-explicit-constructor): as for std::function
        : _function(std::make_shared<F const>(std::move(function))),
          _call([](void const* f, std::size_t begin, std::span<T> values) {
              (*static_cast<F const*>(f))(begin, values);
          }) {}

    /// @brief Whether there is a callback.
    explicit operator bool() const noexcept { return _function != nullptr; }

    /// @brief Calls the callback; there must be one.
    void operator()(std::size_t begin, std::span<T> values) const {
        _call(_function.get(), begin, values);
    }

private:
    std::shared_ptr<void const> _function;
    void (*_call)(void const*, std::size_t, std::span<T>) = nullptr;
};

} // namespace ZERO_NAMESPACE
