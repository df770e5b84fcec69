#pragma once

// Small safetensors files with known content.

#include <zero/checkpoint/safetensors_reader.hpp>
#include <zero/checkpoint/safetensors_writer.hpp>
#include <zero/checkpoint/tensor_entry.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace zero::test {

/// @brief Returns bytes without a period that blocks could share.
inline std::vector<std::byte> numbered_bytes(std::size_t count, std::uint64_t seed = 1) {
    std::vector<std::byte> bytes(count);
    for (std::byte& byte : bytes) {
        seed = seed * 6364136223846793005U + 1442695040888963407U;
        byte = static_cast<std::byte>(seed >> 56U);
    }
    return bytes;
}

/// @brief Writes a file in pieces of at most `cut` bytes; returns its index checksum.
inline std::uint64_t write_tensors(std::filesystem::path const& file,
                                   std::vector<TensorEntry> tensors,
                                   std::vector<std::byte> const& data,
                                   std::size_t cut = std::size_t{1} << 24U) {
    SafetensorsWriter writer(file, std::move(tensors));
    for (std::size_t at = 0; at < data.size(); at += cut) {
        writer.append(std::span(data).subspan(at, cut < data.size() - at ? cut : data.size() - at));
    }
    return writer.finish();
}

/// @brief Returns the bytes of a tensor.
inline std::vector<std::byte> bytes_of(SafetensorsReader& reader, TensorEntry const& tensor) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.end - tensor.begin));
    reader.read(tensor, 0, bytes);
    return bytes;
}

/// @brief Returns a file of any header: its length, the text, and zeros as data.
inline std::string file_with_header(std::string const& json, std::size_t data_bytes = 0) {
    std::string file;
    for (unsigned byte = 0; byte < 8; ++byte) {
        file += static_cast<char>(json.size() >> 8 * byte & 0xffU);
    }
    return file + json + std::string(data_bytes, '\0');
}

} // namespace zero::test
