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
