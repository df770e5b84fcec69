#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/dtype.hpp"
#include "../safetensors_writer.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @throws CheckpointError unless the type is float32, bfloat16 or float16
void require_number(DType dtype);

/// @brief Returns the type of a tensor in an exported file. A frozen parameter of 16 bits has no
/// master weights, so float32 would hold no more of it, and rounding would have to be accepted when
/// it is loaded.
[[nodiscard]] DType exported_dtype(DType wanted, bool is_trainable, DType own) noexcept;

/// @brief Returns the order in which all tensors of a file are aligned: wider types come first.
[[nodiscard]] std::vector<std::size_t> aligned_order(std::span<DType const> dtypes);

/// @brief Appends floats to a file, rounded to a type.
void append_floats(SafetensorsWriter& writer, DType dtype, std::span<float const> values);

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "encode_floats.ipp"
#endif
