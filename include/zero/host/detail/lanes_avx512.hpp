#pragma once

#include "../../core/detail/namespace.hpp"
#include "run_loop.hpp"
#include "squares_avx2.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE::host::detail {

#if ZERO_HOST_HAS_AVX2

/// Marks a function that uses vectors of 64 bytes. Only code that runs after
/// `is_supported(InstructionSet::avx512)` returned true may call it.
#define ZERO_HOST_AVX512 __attribute__((target("avx512f,avx2,fma,f16c")))

/// The pack of 16 floats of a matrix product. The rules of lanes_avx2.hpp hold for it.
struct ProductLanes {
    static constexpr std::size_t size = 16;

    // NOLINTBEGIN(modernize-use-equals-default): a defaulted function would be one for the baseline
    ZERO_HOST_AVX512 ProductLanes() noexcept {}
    ZERO_HOST_AVX512 explicit ProductLanes(float x) noexcept
        : _value(Float16{x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}) {}
    ZERO_HOST_AVX512 ProductLanes(ProductLanes const& other) noexcept : _value(other._value) {}
    ZERO_HOST_AVX512 ProductLanes& operator=(ProductLanes const& other) noexcept {
        _value = other._value;
        return *this;
    }
    // NOLINTEND(modernize-use-equals-default)

    ZERO_HOST_AVX512 static ProductLanes load(float const* from) noexcept {
        ProductLanes result;
        __builtin_memcpy(&result._value, from, sizeof result._value);
        return result;
    }
    ZERO_HOST_AVX512 void store(float* to) const noexcept {
        __builtin_memcpy(to, &_value, sizeof _value);
    }
    ZERO_HOST_AVX512 static ProductLanes fma(ProductLanes const& a, ProductLanes const& b,
                                             ProductLanes const& c) noexcept {
        ProductLanes result;
        constexpr int current_rounding = 4;
#if defined(__clang__)
        constexpr unsigned short all = 0xffff;
#else
        constexpr short all = -1;
#endif
        result._value =
            __builtin_ia32_vfmaddps512_mask(a._value, b._value, c._value, all, current_rounding);
        return result;
    }
    ZERO_HOST_AVX512 static ProductLanes mul(ProductLanes const& a,
                                             ProductLanes const& b) noexcept {
        Float16 product = a._value * b._value;
        __asm__("" : "+v"(product)); // as in ops::detail::uncontracted
        ProductLanes result;
        result._value = product;
        return result;
    }

private:
    using Float16 = float __attribute__((vector_size(64)));
    Float16 _value;
};

template <class Loop>
ZERO_HOST_AVX512 __attribute__((flatten, noinline)) inline void
run_avx512(Loop const& loop) noexcept {
    loop.template operator()<ProductLanes>();
}
#endif

/// Runs a matrix product: `run` with packs of 16 lanes where the machine has them.
template <class Product>
void run_product(Product const& product) noexcept {
#if ZERO_HOST_HAS_AVX2
    if (instruction_set() == InstructionSet::avx512) {
        run_avx512(product);
        return;
    }
#endif
    run(product);
}

} // namespace ZERO_NAMESPACE::host::detail
