#pragma once

#include "../core/detail/namespace.hpp"

#include <atomic>

// nvcc refuses vector types in what it may have to compile for the device, as the functors are:
// there the loops are baseline, and slow. Instantiate host engines in units of the host compiler.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__CUDACC__)
#define ZERO_HOST_HAS_AVX2 1
#include <cpuid.h>
#else
#define ZERO_HOST_HAS_AVX2 0
#endif

namespace ZERO_NAMESPACE::host {

/// @brief What the loops over elements may use. The results are the same bits with each.
enum class InstructionSet {
    baseline, ///< what the translation unit was compiled for
    avx2      ///< AVX2 with FMA and F16C (x86-64, from 2013 on)
};

/// @brief The set as benchmarks and messages name it.
constexpr char const* name_of(InstructionSet set) noexcept {
    return set == InstructionSet::avx2 ? "avx2" : "baseline";
}

/// @brief Whether this machine (and this build) can run loops for `set`.
inline bool is_supported(InstructionSet set) noexcept {
    if (set == InstructionSet::baseline) {
        return true;
    }
#if ZERO_HOST_HAS_AVX2
    __builtin_cpu_init(); // asks the operating system, too, whether it saves the wide registers
    unsigned eax = 0;
    unsigned ebx = 0;
    unsigned ecx = 0;
    unsigned edx = 0;
    bool const has_f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0
                          && (ecx & (1U << 29U)) != 0; // clang 14 does not know the name
    return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 && has_f16c;
#else
    return false;
#endif
}

namespace detail {

inline std::atomic<InstructionSet>& chosen_instruction_set() noexcept {
    static std::atomic<InstructionSet> chosen{
        is_supported(InstructionSet::avx2) ? InstructionSet::avx2 : InstructionSet::baseline};
    return chosen;
}

} // namespace detail

/// @brief The set that loops run with: the best one that the machine has, found out once per
/// process.
inline InstructionSet instruction_set() noexcept {
    return detail::chosen_instruction_set().load(std::memory_order_relaxed);
}

/// @brief Chooses another set for all threads, for tests and measurements. @return whether the
/// machine has it; if not, nothing changes.
inline bool use_instruction_set(InstructionSet set) noexcept {
    if (!is_supported(set)) {
        return false;
    }
    detail::chosen_instruction_set().store(set, std::memory_order_relaxed);
    return true;
}

} // namespace ZERO_NAMESPACE::host
