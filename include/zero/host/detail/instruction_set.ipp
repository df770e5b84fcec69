#pragma once

#include "../instruction_set.hpp"

#include <atomic>

#if ZERO_HOST_HAS_AVX2
#include <cpuid.h>
#endif

namespace ZERO_NAMESPACE::host {

ZERO_INLINE bool is_supported(InstructionSet set) noexcept {
    if (set == InstructionSet::baseline) {
        return true;
    }
#if ZERO_HOST_HAS_AVX2
    __builtin_cpu_init(); // also checks that the operating system saves the wide registers
    unsigned eax = 0;
    unsigned ebx = 0;
    unsigned ecx = 0;
    unsigned edx = 0;
    // clang 14 does not know the name "f16c", so the bit is read directly
    bool const has_f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & (1U << 29U)) != 0;
    return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 && has_f16c
           && (set == InstructionSet::avx2
               || (__builtin_cpu_supports("avx512f") != 0
                   && __builtin_cpu_supports("avx512bw") != 0));
#else
    return false;
#endif
}

namespace detail {

ZERO_INLINE std::atomic<InstructionSet>& chosen_instruction_set() noexcept {
    static std::atomic<InstructionSet> chosen{
        is_supported(InstructionSet::avx512) ? InstructionSet::avx512
        : is_supported(InstructionSet::avx2) ? InstructionSet::avx2
                                             : InstructionSet::baseline};
    return chosen;
}

} // namespace detail

ZERO_INLINE InstructionSet instruction_set() noexcept {
    return detail::chosen_instruction_set().load(std::memory_order_relaxed);
}

ZERO_INLINE bool use_instruction_set(InstructionSet set) noexcept {
    if (!is_supported(set)) {
        return false;
    }
    detail::chosen_instruction_set().store(set, std::memory_order_relaxed);
    return true;
}

} // namespace ZERO_NAMESPACE::host
