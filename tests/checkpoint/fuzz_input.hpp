#pragma once

// Reads bytes as a checkpoint, for fuzz_checkpoint and checkpoint_corpus_test.

#include <zero/checkpoint/checkpoint_error.hpp>
#include <zero/checkpoint/manifest.hpp>
#include <zero/checkpoint/safetensors_reader.hpp>
#include <zero/tier/detail/checksum.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

namespace zero::test {

/// A file in memory, made once. The reader refuses links, so a name in /proc would not do.
struct MemoryFile {
    MemoryFile() : name("/dev/shm/fuzz-" + std::to_string(::getpid())) {
        descriptor = ::open(name.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (descriptor < 0) {
            std::abort();
        }
    }
    MemoryFile(MemoryFile const&) = delete;
    MemoryFile& operator=(MemoryFile const&) = delete;
    ~MemoryFile() {
        ::close(descriptor);
        ::unlink(name.c_str());
    }

    void set(std::uint8_t const* data, std::size_t size) const {
        if (::ftruncate(descriptor, 0) != 0
            || ::pwrite(descriptor, data, size, 0) != static_cast<ssize_t>(size)) {
            std::abort();
        }
    }

    std::string name;
    int descriptor = -1;
};

inline void read_everything(std::string const& name) {
    SafetensorsReader reader(name);
    for (TensorEntry const& tensor : reader.tensors()) {
        std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.end - tensor.begin));
        reader.read(tensor, 0, bytes);
        reader.read(tensor, bytes.size() / 2, std::span(bytes).first(bytes.size() / 3));
        reader.verify(tensor, 0, bytes.size());
        if (reader.find(tensor.name) != &tensor) {
            std::abort();
        }
    }
}

inline void read_manifest(std::string_view json) {
    auto const manifest = Manifest::from_json(json, "manifest");
    if (Manifest::from_json(manifest.to_json(), "again").to_json() != manifest.to_json()) {
        std::abort();
    }
}

/// Completes a manifest that ends before its checksum, as docs/checkpoints.md describes it.
inline std::string with_checksum(std::string_view text) {
    auto const bytes = std::as_bytes(std::span<char const>(text.data(), text.size()));
    return std::string(text) + ",\n \"checksum\": \""
           + detail::checksum_text(detail::checksum_of(bytes)) + "\"\n}\n";
}

/// Reads bytes as a data file or as a manifest; the first byte selects which. Returns whether they
/// are accepted. No bytes may cause another exception than CheckpointError.
inline bool is_accepted(std::uint8_t const* data, std::size_t size) {
    static MemoryFile const file;
    if (size == 0) {
        return false;
    }
    try {
        std::string_view const json(reinterpret_cast<char const*>(data + 1), size - 1);
        switch (data[0] % 3) {
        case 0:
            file.set(data + 1, size - 1);
            read_everything(file.name);
            break;
        case 1: read_manifest(json); break;
        default: // without its right checksum a manifest is refused before most of it is read
            read_manifest(with_checksum(json));
        }
        return true;
    } catch (CheckpointError const&) {
        return false;
    }
}

} // namespace zero::test
