// expect: zero: a Codec needs 'static void decode(std::uint8_t const* from, float (&values)[64]) noexcept'.
#include "stage.hpp"

#include <zero/stage/wire.hpp>

#include <cstddef>
#include <cstdint>

struct Halves {
    static constexpr std::size_t bytes_per_block = 128;
    static void encode(float const (&)[64], std::uint8_t*) noexcept {}
    static void decode(std::uint8_t const*, double (&)[64]) noexcept {}
    static float error_bound(float largest) noexcept { return largest; }
};

using Stage = zero::ZeroStage<3, zero::Wire<Halves>>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
