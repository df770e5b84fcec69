#pragma once

#include "../consolidate.hpp"

#include "../../core/detail/light_std.hpp"
#include "../safetensors_writer.hpp"
#include "../tensor_entry.hpp"
#include "encode_floats.hpp"
#include "plan_manifest.hpp"

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE {

ZERO_COLD_INLINE void consolidate(CheckpointReader& checkpoint, std::filesystem::path const& file,
                                  DType dtype,
                                  std::function<void(std::uint64_t, std::uint64_t)> const& progress,
                                  std::uint64_t max_file_bytes) {
    detail::require_number(dtype);
    auto const& parameters = checkpoint.manifest().parameters;
    std::vector<DType> dtypes;
    for (std::size_t index = 0; index < parameters.size(); ++index) {
        auto const& arrays = checkpoint.manifest().types[parameters[index].type];
        auto const array = checkpoint.find_array(index, "parameter");
        auto const own = array ? detail::number_dtype(arrays[*array].dtype) : std::nullopt;
        dtypes.push_back(
            detail::exported_dtype(dtype, parameters[index].trainable, own.value_or(dtype)));
    }
    std::vector<std::size_t> const order = detail::aligned_order(dtypes);
    std::vector<TensorEntry> tensors;
    std::uint64_t total = 0;
    for (std::size_t const index : order) {
        ManifestParameter const& parameter = parameters[index];
        TensorEntry tensor;
        tensor.name = parameter.name;
        tensor.dtype = detail::dtype_text(dtypes[index]);
        tensor.shape = parameter.shape;
        tensors.push_back(std::move(tensor));
        total += parameter.elements();
    }
    detail::ModelWriter writer(file, std::move(tensors), max_file_bytes);
    std::vector<float> values(std::size_t{1} << 16U);
    std::uint64_t done = 0;
    for (std::size_t const parameter : order) {
        std::uint64_t const elements = parameters[parameter].elements();
        for (std::uint64_t begin = 0; begin < elements; begin += values.size()) {
            auto const count = static_cast<std::size_t>(
                detail::smaller<std::uint64_t>(values.size(), elements - begin));
            std::span<float> const part(values.data(), count);
            checkpoint.read_weights(parameter, begin, part);
            detail::append_floats(writer, dtypes[parameter], part);
            done += count;
            if (progress) {
                progress(done, total);
            }
        }
    }
    writer.finish();
}

} // namespace ZERO_NAMESPACE
