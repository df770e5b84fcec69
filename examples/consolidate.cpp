// Turns a sharded checkpoint into one safetensors file with the weights in full precision, or
// rounded. It needs no engine and little memory, so it runs on any machine that has the files.
//
// The first argument is the folder of one checkpoint, or a folder of several; then the latest is
// used.
//
//     consolidate CHECKPOINT FILE [float32|bfloat16|float16]

#include <zero/checkpoint/checkpoint_directory.hpp>
#include <zero/checkpoint/consolidate.hpp>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>

namespace {

/// Draws a bar of 40 characters whenever another one is complete.
class Bar {
public:
    void show(std::uint64_t done, std::uint64_t total) {
        std::uint64_t const length = total == 0 ? width : done * width / total;
        if (length != _length) {
            _length = length;
            std::fprintf(stderr, "\r[%-40s] %3d%%", std::string(length, '#').c_str(),
                         static_cast<int>(length * 100 / width));
        }
    }

private:
    static constexpr std::uint64_t width = 40;
    std::uint64_t _length = width + 1;
};

} // namespace

int main(int argc, char** argv) {
    std::string const name = argc == 4 ? argv[3] : "float32";
    auto dtype = zero::DType::bytes;
    for (auto const known : {zero::DType::float32, zero::DType::bfloat16, zero::DType::float16}) {
        dtype = name == zero::name_of(known) ? known : dtype;
    }
    if (argc < 3 || argc > 4 || dtype == zero::DType::bytes) {
        std::fprintf(stderr, "usage: consolidate CHECKPOINT FILE [float32|bfloat16|float16]\n");
        return 2;
    }
    try {
        zero::CheckpointDirectory const directory(argv[1]);
        auto const latest = directory.latest(); // empty if argv[1] is a checkpoint itself
        zero::CheckpointReader checkpoint(latest ? directory.path(*latest) : argv[1]);
        Bar bar;
        zero::consolidate(checkpoint, argv[2], dtype,
                          [&](std::uint64_t done, std::uint64_t total) { bar.show(done, total); });
        std::fprintf(stderr, "\n");
        std::printf("%zu parameters of %s\n", checkpoint.manifest().parameters.size(),
                    checkpoint.manifest().composition.c_str());
    } catch (std::exception const& error) {
        std::fprintf(stderr, "\n%s\n", error.what());
        return 1;
    }
}
