#pragma once

#include "encode_floats.hpp"

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../stage/detail/state_table.hpp"
#include "../checkpoint_error.hpp"

namespace ZERO_NAMESPACE::detail {

ZERO_COLD_INLINE void require_number(DType dtype) {
    if (dtype == DType::int64 || dtype == DType::bytes) {
        throw_error<CheckpointError>({"zero: parameters cannot be written as ", name_of(dtype),
                                      "; use float32, bfloat16 or float16."});
    }
}

ZERO_COLD_INLINE DType exported_dtype(DType wanted, bool is_trainable, DType own) noexcept {
    bool const is_narrow = own == DType::bfloat16 || own == DType::float16;
    return wanted == DType::float32 && !is_trainable && is_narrow ? own : wanted;
}

ZERO_COLD_INLINE std::vector<std::size_t> aligned_order(std::span<DType const> dtypes) {
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

ZERO_COLD_INLINE void append_floats(SafetensorsWriter& writer, DType dtype,
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
