#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/detail/text.hpp"
#include "../../stage/describe.hpp"

#include <string>

namespace ZERO_NAMESPACE::detail {

/// @brief Returns the line of `describe` for a stage. An engine knows its number only.
template <class Stage>
[[nodiscard]] std::string composition_of(Stage const& stage) {
    if constexpr (requires { typename Stage::Composition; }) {
        return describe(stage);
    } else {
        return text({"ZeroStage<", stage.stage_number(), ">"});
    }
}

} // namespace ZERO_NAMESPACE::detail
