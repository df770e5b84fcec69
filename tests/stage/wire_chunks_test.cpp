#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/snapshot.hpp"
#include "support/stages.hpp"

#include <zero/core/host_memory_resource.hpp>
#include <zero/layout/wire_chunk.hpp>
#include <zero/stage/zero_stage.hpp>

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

namespace zero::test::wire_chunks_test {

namespace {

/// Trains a model with one large and two small parameters on three ranks; returns the parameters
/// and the bytes of the wire buffer.
template <class Stage>
std::pair<std::vector<std::vector<float>>, std::size_t> trained(std::size_t wire_bytes) {
    return on_ranks<std::pair<std::vector<std::vector<float>>, std::size_t>>(
        3, [&](LoopbackCommunicator& communicator) {
            using T = typename Stage::ParameterType;
            HostMemoryResource memory;
            Stage engine(communicator, registration<T>(toy_specs()),
                         {.reduction = {.wire_bytes = wire_bytes}, .memory = &memory});
            for (std::size_t step = 0; step < 3; ++step) {
                (void)run_step(engine, static_cast<std::uint64_t>(communicator.rank()), step)
                    .report();
            }
            return std::pair(full_parameters(engine), memory.allocated_bytes(BufferKind::wire));
        })[0];
}

} // namespace

TEST_CASE("A chunk takes the same part of every extent, in multiples of 64 elements") {
    Cuts const even = Cuts::even(4, 256);
    CHECK(wire_stride(even, 1024) == 1024); // the whole bucket
    CHECK(wire_chunks(even, 1024) == 1);
    CHECK(wire_stride(even, 1023) == 192); // 255 elements per rank
    CHECK(wire_chunks(even, 1023) == 2);
    CHECK(wire_elements(even, 1023) == 768);
    CHECK(wire_part(256, 512, 192, 0) == Range{0, 192});
    CHECK(wire_part(256, 512, 192, 1) == Range{192, 256});
    CHECK(wire_stride(even, 0) == 64);
    CHECK(wire_chunks(even, 0) == 4);
    std::array<std::size_t, 5> const list{0, 256, 512, 768, 1024};
    Cuts const listed{list}; // the same
    CHECK(wire_stride(listed, 1023) == 192);
    CHECK(wire_chunks(listed, 1023) == 2);
    CHECK(wire_elements(listed, 1023) == 768);
    std::array<std::size_t, 4> const uneven_list{0, 0, 320, 384};
    Cuts const uneven{uneven_list};
    CHECK(wire_stride(uneven, 300) == 64);
    CHECK(wire_chunks(uneven, 300) == 5);
    CHECK(wire_elements(uneven, 300) == 128);
    CHECK(wire_part(0, 0, 64, 0) == Range{0, 0});
    CHECK(wire_part(320, 384, 64, 1) == Range{64, 64});
    Cuts const empty = Cuts::even(1, 0);
    CHECK(wire_chunks(empty, 300) == 0);
}

TEMPLATE_TEST_CASE_SIG("Chunks on the wire change no bit and take the memory of the option", "",
                       ((int N), N), 0, 1, 2, 3) {
    using Sent = ZeroStage<N, GradientReduction<void, bfloat16>>;
    auto const [whole, whole_bytes] = trained<Sent>(std::size_t{1} << 20U);
    auto const [chunks, chunk_bytes] = trained<Sent>(600);
    CHECK(whole == chunks);
    CHECK(whole_bytes > 600);
    CHECK(chunk_bytes == 3 * 64 * 2); // 300 elements hold one multiple of 64 for each rank
    using Exact = ZeroStage<N>;
    CHECK(trained<Exact>(600).first != whole); // the rounding on the wire can be seen
}

} // namespace zero::test::wire_chunks_test
