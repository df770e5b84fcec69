#pragma once

#include <zero/core/convert.hpp>
#include <zero/core/storage_types.hpp>
#include <zero/host/instruction_set.hpp>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <map>
#include <random>
#include <vector>

namespace zero::test {

/// Selects an instruction set until the end of the scope.
class WithInstructionSet {
public:
    explicit WithInstructionSet(host::InstructionSet set)
        : _before(host::instruction_set()), _supported(host::use_instruction_set(set)) {}
    WithInstructionSet(WithInstructionSet const&) = delete;
    WithInstructionSet& operator=(WithInstructionSet const&) = delete;
    ~WithInstructionSet() { host::use_instruction_set(_before); }

    [[nodiscard]] bool is_supported() const { return _supported; }

private:
    host::InstructionSet _before;
    bool _supported;
};

inline constexpr host::InstructionSet instruction_sets[] = {
    host::InstructionSet::baseline, host::InstructionSet::avx2, host::InstructionSet::avx512};

/// Returns ordinary values and some special ones: zeros, subnormals, the limits of the 16-bit
/// types, infinities, several NaNs.
template <class T>
std::vector<T> kernel_inputs(std::size_t n, std::uint32_t seed) {
    static float const special[] = {0.0F,
                                    -0.0F,
                                    0x1p-149F,
                                    -0x1p-130F,
                                    0x1p-126F,
                                    0x1p-25F,
                                    0x1.8p-25F,
                                    65504.0F,
                                    65519.996F,
                                    65520.0F,
                                    -1e6F,
                                    0x1.fffffep127F,
                                    0x1.fefffep127F,
                                    std::numeric_limits<float>::infinity(),
                                    -std::numeric_limits<float>::infinity(),
                                    std::numeric_limits<float>::quiet_NaN(),
                                    std::bit_cast<float>(0xffc12345U),
                                    std::bit_cast<float>(0x7fffffffU)};
    struct Sequence {
        std::mt19937 engine;
        std::normal_distribution<float> normal;
        std::vector<T> values;
    };
    // A test of lengths and alignments asks for the same sequence hundreds of times.
    static thread_local std::map<std::uint32_t, Sequence> known;
    auto& [engine, normal, values] =
        known.try_emplace(seed, Sequence{std::mt19937(seed), {}, {}}).first->second;
    while (values.size() < n) {
        auto const draw = engine() % 64U;
        values.push_back(from_float<T>(draw < std::size(special) ? special[draw] : normal(engine)));
    }
    return {values.begin(), values.begin() + static_cast<std::ptrdiff_t>(n)};
}

template <class T>
bool same_bits(std::vector<T> const& a, std::vector<T> const& b) {
    return a.size() == b.size()
           && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

template <class T>
bool same_bits(T const* a, std::vector<T> const& b) {
    return b.empty() || std::memcmp(a, b.data(), b.size() * sizeof(T)) == 0;
}

/// Returns a result of arithmetic as the kernels store it.
inline float canonical(float value) {
    return std::isnan(value) ? std::bit_cast<float>(0x7fc00000U) : value;
}

} // namespace zero::test
