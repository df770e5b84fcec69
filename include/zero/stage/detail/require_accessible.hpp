#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"
#include "../../layout/storage.hpp"
#include "../any_parameter.hpp"

#include <span>

namespace ZERO_NAMESPACE::detail {

/// @brief Refuses caller-owned memory that the kernels of the backend cannot use. A no-op for
/// backends without `is_accessible`. @throws InvalidArgument naming the parameter
template <class Backend>
[[gnu::cold]] void require_accessible([[maybe_unused]] std::span<AnyParameter const> parameters,
                                      [[maybe_unused]] Storage storage) {
    if constexpr (requires { Backend::is_accessible(nullptr); }) {
        auto const require = [](AnyParameter const& parameter, void const* memory, char const* what,
                                char const* remedy) {
            if (memory != nullptr && parameter.spec.elements != 0
                && !Backend::is_accessible(memory)) {
                throw_error<InvalidArgument>(
                    {"zero: the memory for the ", what, " of parameter '", parameter.spec.name,
                     "' is host memory, which kernels cannot use; give device memory, or ",
                     remedy});
            }
        };
        for (AnyParameter const& parameter : parameters) {
            require(parameter, parameter.gradient, "gradient", "leave 'gradient' out.");
            require(parameter, storage == Storage::owned ? nullptr : parameter.data, "values",
                    "let the engine own the parameters (Storage::owned).");
        }
    }
}

} // namespace ZERO_NAMESPACE::detail
