#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/dtype.hpp"
#include "../../stage/detail/state/state_table.hpp"
#include "../checkpoint_error.hpp"
#include "../safetensors_writer.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @throws CheckpointError unless the type is float32, bfloat16 or float16
[[gnu::cold]] inline void require_number(DType dtype) {
    if (dtype == DType::int64 || size_of(dtype) == 1) { // bytes and 8-bit states
        throw_error<CheckpointError>({"zero: parameters cannot be written as ", name_of(dtype),
                                      "; use float32, bfloat16 or float16."});
    }
}

/// @brief Returns the type of a tensor in an exported file. A frozen parameter of 16 bits has no
/// master weights, so float32 would hold no more of it, and rounding would have to be accepted when
/// it is loaded.
[[nodiscard, gnu::cold]] inline DType exported_dtype(DType wanted, bool is_trainable,
                                                     DType own) noexcept {
    bool const is_narrow = own == DType::bfloat16 || own == DType::float16;
    return wanted == DType::float32 && !is_trainable && is_narrow ? own : wanted;
}

/// @brief Returns the order in which all tensors of a file are aligned: wider types come first.
[[nodiscard, gnu::cold]] inline std::vector<std::size_t>
aligned_order(std::span<DType const> dtypes) {
    std::vector<std::size_t> order;
    for (std::size_t const bytes : {sizeof(float), sizeof(bfloat16)}) {
        for (std::size_t tensor = 0; tensor < dtypes.size(); ++tensor) {
            if (size_of(dtypes[tensor]) == bytes) {
                order.push_back(tensor);
            }
        }
    }
    return order;
}

/// @brief Appends floats to a file, rounded to a type.
[[gnu::cold]] inline void append_floats(ModelWriter& writer, DType dtype,
                                        std::span<float const> values) {
    if (dtype == DType::float32) {
        writer.append(std::as_bytes(values));
        return;
    }
    ItemBytes items{};
    while (!values.empty()) {
        std::size_t const count = smaller(values.size(), state_chunk);
        for (std::size_t i = 0; i < count; ++i) {
            encode_item(dtype, items.data(), i, values[i]);
        }
        writer.append({items.data(), count * size_of(dtype)});
        values = values.subspan(count);
    }
}

} // namespace ZERO_NAMESPACE::detail
