#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/dtype.hpp"
#include "../safetensors_writer.hpp"

#include <span>

namespace ZERO_NAMESPACE::detail {

/// @throws CheckpointError unless the type is float32, bfloat16 or float16
void require_number(DType dtype);

/// @brief Appends floats to a file, rounded to a type.
void append_floats(SafetensorsWriter& writer, DType dtype, std::span<float const> values);

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "encode_floats.ipp"
#endif
