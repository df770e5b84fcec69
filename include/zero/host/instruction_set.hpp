#pragma once

#include "../core/detail/namespace.hpp"

// The device's pass of nvcc rejects vector types, and nvcc before 13 was not tried with them in the
// pass of the host. There the loops use the baseline, which is 18 times slower: instantiate host
// engines, and compose updates on the host, in translation units of the host compiler.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__CUDA_ARCH__)                            \
    && (!defined(__NVCC__) || __CUDACC_VER_MAJOR__ >= 13)
#define ZERO_HOST_HAS_AVX2 1
#else
#define ZERO_HOST_HAS_AVX2 0
#endif

namespace ZERO_NAMESPACE::host {

/// @brief The instructions that the host loops may use. Every set gives the same bits.
enum class InstructionSet {
    baseline, ///< the instructions for which the translation unit was compiled
    avx2,     ///< AVX2 with FMA and F16C (x86-64 since 2013)
    avx512    ///< AVX-512F and AVX-512BW for matrix products and norms of 16-bit elements,
              ///< AVX2 for everything else
};

/// @brief Returns the name of a set for benchmarks and messages.
constexpr char const* name_of(InstructionSet set) noexcept {
    return set == InstructionSet::avx512 ? "avx512"
           : set == InstructionSet::avx2 ? "avx2"
                                         : "baseline";
}

/// @brief Returns whether this machine and this build can run loops for `set`.
bool is_supported(InstructionSet set) noexcept;

/// @brief Returns the set that the loops use: the best one the machine supports, detected once per
/// process, unless `use_instruction_set` chose another.
InstructionSet instruction_set() noexcept;

/// @brief Chooses another set for all threads, for tests and measurements.
/// @return whether the machine supports it; otherwise nothing changes
bool use_instruction_set(InstructionSet set) noexcept;

} // namespace ZERO_NAMESPACE::host

#if !defined(ZERO_COMPILED)
#include "detail/instruction_set.ipp"
#endif
