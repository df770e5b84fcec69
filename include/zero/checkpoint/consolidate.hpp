#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/dtype.hpp"
#include "checkpoint_reader.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>

namespace ZERO_NAMESPACE {

/// @brief Writes the weights of a checkpoint into safetensors files that any program reads.
/// Needs no engine, and memory for 2^16 elements.
/// @param file must not exist, and appears when it is complete. Its checksums are in the file
/// "NAME.checksums" beside it, which other programs do not need
/// @param dtype type of the tensors, as in `save_parameters`
/// @param progress called with the elements written so far and those of the model; may be empty
/// @param max_file_bytes as in `ExportOptions`
/// @throws CheckpointError
void consolidate(CheckpointReader& checkpoint, std::filesystem::path const& file,
                 DType dtype = DType::float32,
                 std::function<void(std::uint64_t, std::uint64_t)> const& progress = {},
                 std::uint64_t max_file_bytes = 0);

} // namespace ZERO_NAMESPACE

#if !defined(ZERO_COMPILED)
#include "detail/consolidate.ipp"
#endif
