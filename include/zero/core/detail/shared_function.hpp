#pragma once

#include "namespace.hpp"

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

namespace ZERO_NAMESPACE::detail {

/// @brief A callback `Result(Arguments...)`, or none. Copies share the callback.
///
/// Used instead of std::function, whose header includes the hash tables and algorithms of the
/// standard library in every translation unit.
template <class Result, class... Arguments>
class SharedFunction {
public:
    // Not `= default`: g++ 12 rejects a defaulted constructor in an aggregate that is created in an
    // argument list.
    SharedFunction() noexcept {} // NOLINT(modernize-use-equals-default)

    /// @brief Holds no callback.
    // NOLINTNEXTLINE(google-explicit-constructor): as for std::function
    SharedFunction(std::nullptr_t) noexcept {}

    /// @param function called with the arguments, on the caller's thread
    template <class F>
        requires(!std::is_same_v<std::remove_cvref_t<F>, SharedFunction>
                 && std::is_invocable_r_v<Result, F const&, Arguments...>)
    SharedFunction(F function) // NOLINT(google-explicit-constructor): as for std::function
        : _function(std::make_shared<F const>(std::move(function))),
          _call([](void const* f, Arguments... arguments) -> Result {
              return (*static_cast<F const*>(f))(arguments...);
          }) {}

    explicit operator bool() const noexcept { return _function != nullptr; }

    /// @brief Calls the callback; there must be one.
    Result operator()(Arguments... arguments) const { return _call(_function.get(), arguments...); }

private:
    std::shared_ptr<void const> _function;
    Result (*_call)(void const*, Arguments...) = nullptr;
};

} // namespace ZERO_NAMESPACE::detail
