#pragma once

#include "file_job.hpp"

#include "../manifest.hpp"
#include "../safetensors_writer.hpp"
#include "file.hpp"

#include <span>

namespace ZERO_NAMESPACE::detail {

ZERO_COLD_INLINE std::uint64_t
FileJob::write(FunctionRef<void*, void const*, std::size_t> copy) const {
    SafetensorsWriter writer(file, tensors);
    std::vector<std::byte> staging(copy ? staging_bytes : 0);
    for (TensorSource const& source : sources) {
        auto const* const data = static_cast<std::byte const*>(source.data);
        if (!copy) {
            writer.append({data, source.bytes});
            continue;
        }
        for (std::size_t begin = 0; begin < source.bytes; begin += staging.size()) {
            std::size_t const bytes = smaller(staging.size(), source.bytes - begin);
            copy(staging.data(), data + begin, bytes);
            writer.append({staging.data(), bytes});
        }
    }
    return writer.finish();
}

ZERO_COLD_INLINE void write_manifest(std::filesystem::path const& checkpoint,
                                     std::string const& json) {
    auto const path = checkpoint / Manifest::file;
    (void)Manifest::from_json(json, path.string()); // what is published can be read
    write_text(path, json);
}

} // namespace ZERO_NAMESPACE::detail
