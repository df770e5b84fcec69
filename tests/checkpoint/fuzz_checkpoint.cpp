// A target of libFuzzer: for any bytes of a data file or of a manifest, reading gives a result or a
// CheckpointError.
//
//     cmake --preset release-clang -B build/fuzz -DZERO_BUILD_FUZZERS=ON
//     cmake --build build/fuzz --target fuzz_checkpoint
//     build/fuzz/tests/fuzz_checkpoint -runs=1000000 -max_len=4096 NEW tests/checkpoint/corpus
//
// New inputs go to the folder NEW.

#include "fuzz_input.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    (void)zero::test::is_accepted(data, size);
    return 0;
}
