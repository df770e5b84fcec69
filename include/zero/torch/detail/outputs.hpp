#pragma once

#include "../../core/detail/namespace.hpp"

#include <torch/types.h>
#include <tuple>
#include <type_traits>
#include <vector>

namespace ZERO_NAMESPACE::torch::detail {

/// @brief Appends the tensors of the result of a forward call: a tensor, or a tuple, pair, array or
/// vector of such results.
template <class Result>
void append_outputs(std::vector<at::Tensor>& outputs, Result const& result) {
    if constexpr (std::is_convertible_v<Result const&, at::Tensor>) {
        outputs.push_back(result);
    } else if constexpr (requires { std::tuple_size<Result>::value; }) {
        std::apply([&](auto const&... parts) { (append_outputs(outputs, parts), ...); }, result);
    } else if constexpr (requires { result.begin() != result.end(); }) {
        for (auto const& part : result) {
            append_outputs(outputs, part);
        }
    } else {
        static_assert(sizeof(Result) == 0,
                      "zero: the forward call of a unit returns a tensor, or a tuple, pair, array "
                      "or vector of tensors: its backward pass is found through them.");
    }
}

} // namespace ZERO_NAMESPACE::torch::detail
