// A target of libFuzzer: whatever the bytes of a data file or of a manifest are, reading them gives
// a result or a CheckpointError. The first byte selects the reader.
//
//     cmake --preset release-clang -B build/fuzz -DZERO_BUILD_FUZZERS=ON
//     cmake --build build/fuzz --target fuzz_checkpoint
//     build/fuzz/tests/fuzz_checkpoint -runs=1000000 -max_len=4096

#include <zero/checkpoint/checkpoint_error.hpp>
#include <zero/checkpoint/detail/json_guard.hpp>
#include <zero/checkpoint/manifest.hpp>
#include <zero/checkpoint/safetensors_reader.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

namespace {

/// A file in memory, made once. The reader refuses links, so a name in /proc would not do.
struct MemoryFile {
    MemoryFile() : name("/dev/shm/zero-fuzz-" + std::to_string(::getpid())) {
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

void read_everything(std::string const& name) {
    zero::SafetensorsReader reader(name);
    for (zero::TensorEntry const& tensor : reader.tensors()) {
        std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.end - tensor.begin));
        reader.read(tensor, 0, bytes);
        reader.read(tensor, bytes.size() / 2, std::span(bytes).first(bytes.size() / 3));
        reader.verify(tensor, 0, bytes.size());
        if (reader.find(tensor.name) != &tensor) {
            std::abort();
        }
    }
}

void read_manifest(std::string_view json) {
    auto const manifest = zero::Manifest::from_json(json, "manifest");
    if (zero::Manifest::from_json(manifest.to_json(), "again").to_json() != manifest.to_json()) {
        std::abort();
    }
}

/// Without its right checksum a manifest is refused before most of it is read.
void read_manifest_with_checksum(std::string_view json) {
    zero::detail::JsonGuard guard(5);
    auto parsed = zero::detail::Json::parse(json, std::ref(guard), false);
    if (guard.is_valid() && parsed.is_object()) {
        parsed.erase("checksum");
        try {
            parsed["checksum"] = zero::detail::manifest_checksum(parsed);
        } catch (zero::detail::Json::exception const&) { // not UTF-8
            return;
        }
        read_manifest(parsed.dump());
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    static MemoryFile const file;
    if (size == 0) {
        return 0;
    }
    try {
        std::string_view const json(reinterpret_cast<char const*>(data + 1), size - 1);
        switch (data[0] % 3) {
        case 0:
            file.set(data + 1, size - 1);
            read_everything(file.name);
            break;
        case 1: read_manifest(json); break;
        default: read_manifest_with_checksum(json);
        }
    } catch (zero::CheckpointError const&) { // the only exception that a file may cause
    }
    return 0;
}
